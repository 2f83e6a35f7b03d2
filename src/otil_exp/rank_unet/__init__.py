"""The UNet of a rank: what it gets of a step's inputs, how its layers are called, what it makes of their output.

`OnRank` is a method on one rank; the rooms of `otil_exp.methods` make one each. `RankUNet` puts it behind the interface
of a whole UNet. `sliced/` has the layers of a slice as plain modules, to compile.
"""
