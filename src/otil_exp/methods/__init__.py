"""The methods: one room a family, found by its folder.

A room has four files. `config.py`: the dataclass behind `preset=`. `rules.py`: METHOD, what the family says of a cell
before any rank exists (what contradicts, what is ignored, how ranks are laid out). `step.py`: build, the method on one
rank, whose `predict` and `exchange` are a step. `__init__.py`: what the family is. Beside the rooms lies what they have
in common. Nothing outside asks which method it is.
"""
