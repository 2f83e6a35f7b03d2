"""Cells of a grid: composed, checked, brought to their normal form, put together."""
