"""Ten minutes on a GPU machine without a network: what to carry there, and what to run."""
