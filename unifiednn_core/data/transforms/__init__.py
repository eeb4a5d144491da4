"""Transforms of a batch: a frozen dataclass each, drawn for every sample on the device of the batch."""
