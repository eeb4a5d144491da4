"""Host and GPU samplers, devices, memory budget."""
