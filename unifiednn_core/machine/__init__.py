"""What the host has: samplers, budget."""
