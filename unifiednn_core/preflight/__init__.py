"""Before the start: intake, checks, forecast."""
