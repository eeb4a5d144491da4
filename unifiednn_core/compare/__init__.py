"""Plain PyTorch arms and the verdict."""
