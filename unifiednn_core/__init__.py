"""UnifiedNN trains many people's networks on one device as one hybrid model."""
