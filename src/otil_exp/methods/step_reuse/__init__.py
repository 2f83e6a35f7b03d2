"""ParaStep (NeurIPS 2025): ranks take turns at whole steps, and get to theirs with the last prediction there is."""
