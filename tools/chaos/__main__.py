"""`python -m tools.chaos`."""

import typer

from tools.chaos.command import chaos

if __name__ == "__main__":
    typer.run(chaos)
