"""What lies around the steps of a picture on one GPU."""
