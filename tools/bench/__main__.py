"""`python -m tools.bench NAME ...`: the command by itself."""

import typer

from tools.bench.command import bench

if __name__ == "__main__":
    typer.run(bench)
