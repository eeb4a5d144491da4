"""How is progress kept? Checkpoints as values, as files, and the shelf of the last ones of a sub-model."""
