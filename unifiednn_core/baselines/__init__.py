"""Compared with what? The same sub-models trained by plain PyTorch, and the verdict."""
