"""A chart that is updated in place: plotly.js in a Streamlit component, so zoom and hover survive streaming data."""

import json
import os
import shutil
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from unifiednn_core.figures.layout import Figure
from unifiednn_core.report import plotly_js

ROOT = Path(__file__).resolve().parents[2]


def live_chart(figure: Figure, *, key: str, label: str) -> None:
    """Draw a figure; the browser redraws it only where it differs from the one that it shows.

    Args:
        figure: `{data, layout}` with a height in the layout.
        key: Identity of the chart on the page; the same key updates the same chart.
        label: What the chart shows, for screen readers.

    """
    revision = zlib.crc32(json.dumps(figure, separators=(",", ":")).encode())
    height_px = figure["layout"]["height"]
    _component()(data={"figure": figure, "label": label, "revision": revision}, key=key, height=height_px)


def install_plotly(folder: Path = ROOT / "static") -> Path:
    """Copy plotly.min.js out of the installed plotly package to where the server serves it, unless it is there.

    The copy is atomic, so that a browser or a second process never sees half a file.
    """
    source, target = plotly_js.path(), folder / "plotly.min.js"
    if target.exists() and target.stat().st_size == source.stat().st_size:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".plotly-")
    os.close(handle)
    try:
        shutil.copyfile(source, temporary)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target


@cache
def _component() -> Any:
    files = (ROOT / "unifiednn_core" / "report" / "theme.js", Path(__file__).with_name("live_chart.js"))
    script = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return st.components.v2.component("unifiednn_live_chart", js=script, isolate_styles=False)
