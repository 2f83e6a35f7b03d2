"""The only place that knows distrifuser: its layers on any world size and backend, repaired by patches."""
