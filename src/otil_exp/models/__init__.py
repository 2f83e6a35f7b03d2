"""What a model is, whether its files are here, and how it is loaded."""
