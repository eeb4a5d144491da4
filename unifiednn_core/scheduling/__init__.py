"""Who trains next: policies, simulator."""
