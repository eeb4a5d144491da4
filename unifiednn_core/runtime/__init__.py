"""Where it runs: supervisor, worker."""
