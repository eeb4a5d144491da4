"""Trains the sub-models of a hybrid: engine, lanes, gangs, checkpoints."""
