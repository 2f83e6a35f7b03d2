"""The UNet cut by depth: where it can be cut, what crosses, and its parts as calls on tensors.

`tape` is the UNet as a list of units in the order in which they run, `cut` says where a stage may begin and end,
`wiring` what crosses then, `parts` makes a rank's share of a diffusers UNet, `text` keeps what it needs of the text,
`engine` runs it eagerly, compiled or as CUDA graphs. Knows diffusers, not distrifuser; `tape`, `cut` and `wiring` know
neither, nor torch, so that rules can ask them before a process starts.
"""
