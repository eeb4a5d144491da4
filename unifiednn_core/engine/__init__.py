"""The paper: hybrid, sub-models, training."""
