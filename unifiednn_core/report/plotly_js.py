"""The plotly.js that the installed plotly package brings along; nothing is ever fetched."""

import importlib.util
from pathlib import Path


def path() -> Path:
    """Where plotly.min.js is; raises `ModuleNotFoundError` without the package."""
    spec = importlib.util.find_spec("plotly")  # finds the package without importing it
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package 'plotly' is not installed", name="plotly")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


def source() -> str:
    """Its text."""
    return path().read_text(encoding="utf-8")
