"""What papers report, as data: every figure with its table, settings and hardware."""
