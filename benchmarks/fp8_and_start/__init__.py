"""What fp8 products and kept graphs are worth, in calls that each stay below ten minutes of one GPU."""
