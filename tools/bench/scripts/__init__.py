"""Plain scripts of the arms that only the bench has, one a file: `python -m tools.bench.scripts.NAME JOB.json`."""
