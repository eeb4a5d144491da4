"""`python -m unifiednn_core.bench NAME ...`: the command by itself."""

import typer

from unifiednn_core.bench.command import bench

if __name__ == "__main__":
    typer.run(bench)
