"""How a rule answers a mistake: with the sentence that says what to type."""

from __future__ import annotations


def refuse(rules: list[tuple[bool, str]]) -> None:
    """Raise the sentence of the first rule that is broken."""
    for broken, sentence in rules:
        if broken:
            raise ValueError(sentence)
