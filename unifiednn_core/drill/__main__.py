"""`python -m unifiednn_core.drill`."""

import typer

from unifiednn_core.drill.command import drill

if __name__ == "__main__":
    typer.run(drill)
