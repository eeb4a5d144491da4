"""Is it better? Named workloads, measured against plain PyTorch, with every figure kept in a file."""
