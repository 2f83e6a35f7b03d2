"""Python runs this at its start where the folder is on PYTHONPATH."""

from stand_in import ask

ask()
