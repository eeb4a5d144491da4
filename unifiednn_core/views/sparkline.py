"""A small curve without axes, for figures of the last minutes. Pure."""

from collections.abc import Sequence
from urllib.parse import quote

from unifiednn_core.views.markup import text

WIDTH, HEIGHT = 200, 40
LONGEST_GAP_S = 45.0
"""Between two points that are further apart nothing is drawn."""


def sparkline(before_s: Sequence[float], values: Sequence[float | None], span_s: float, label: str) -> str:
    """Curve of shares (0 to 1) over the last `span_s` seconds; now is at the right. Gaps stay empty.

    Pages keep no SVG elements of their HTML, so the curve is a mask over the colour of the theme; `label` says for
    screen readers what it shows.
    """
    lines = "".join(_piece(piece) for piece in _pieces(before_s, values, span_s))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none">'
        f'<g stroke="#000" stroke-width="1.5" fill-opacity=".25" stroke-linejoin="round">{lines}</g></svg>'
    )
    mask = f"--u-curve:url(data:image/svg+xml,{quote(svg)})"
    said = text(label)
    return f'<span class="u-spark" role="img" aria-label="{said}" title="{said}"><i style="{mask}"></i></span>'


def _pieces(
    before_s: Sequence[float], values: Sequence[float | None], span_s: float
) -> list[list[tuple[float, float]]]:
    """Points of each stretch without a gap, in units of the picture."""
    pieces: list[list[tuple[float, float]]] = []
    last_s: float | None = None
    for at_s, value in zip(before_s, values, strict=True):
        if value is None or not 0 <= at_s <= span_s:
            last_s = None
            continue
        if last_s is None or last_s - at_s > LONGEST_GAP_S:
            pieces.append([])
        last_s = at_s
        height = min(1.0, max(0.0, value)) * (HEIGHT - 2)
        pieces[-1].append((WIDTH * (1 - at_s / span_s), HEIGHT - 1 - height))
    return pieces


def _piece(points: Sequence[tuple[float, float]]) -> str:
    """A line with the area below it; one point alone is a short stroke."""
    if len(points) == 1:
        points = [(points[0][0] - 1, points[0][1]), points[0]]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polygon points="{drawn} {points[-1][0]:.1f},{HEIGHT} {points[0][0]:.1f},{HEIGHT}" stroke="none"/>'
        f'<polyline points="{drawn}" fill="none" vector-effect="non-scaling-stroke"/>'
    )
