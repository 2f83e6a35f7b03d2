"""Whole pictures: the reference, one process of plain diffusers, and two ranks with half of the CFG batch each."""
