"""`unifiednn doctor`: what this machine offers and lacks."""

from dataclasses import asdict
from typing import Annotated

import typer

from unifiednn_core.base.paths import Home
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import DONE, FAILED, AsJson
from unifiednn_core.service.doctor import DEFAULT_PORT, examined


def doctor(
    port: Annotated[int, typer.Option(help="Port that the dashboard will have.", min=1, max=65535)] = DEFAULT_PORT,
    as_json: AsJson = False,
) -> None:
    """Check GPU, driver, memory, disk, versions and protections of this machine; exit code 1: something is missing."""
    found = examined(Home.default(), port=port)
    if as_json:
        terminal.print_json([asdict(one) for one in found])
    else:
        for one in found:
            terminal.say(f"{one.state:8} {one.name:10} {one.found}")
            if not one.holds:
                terminal.say(f"{'':19} wanted: {one.wanted or 'a GPU'}. {one.remedy}")
    raise typer.Exit(FAILED if any(one.state == "missing" for one in found) else DONE)
