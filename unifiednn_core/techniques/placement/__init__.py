"""One network on several devices, each with a hard limit of memory: which operator runs where.

A clean re-derivation of the idea of ParDNN (Qararyah et al., Parallel Computing 2021): slices of the graph of
operators, mapped to devices, refined. `costs` measures a network, `execute` runs it; all else is pure, without torch.
"""
