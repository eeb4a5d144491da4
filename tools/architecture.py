"""`python -m tools.architecture` draws docs/images/rooms.svg: the rooms of the import contract and who imports whom."""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
PACKAGE = "unifiednn_core"
WIDTH_PX, BOX_PX, HEIGHT_PX, GAP_PX, MARGIN_PX = 1060, 236, 64, 34, 20
LINE_CHARACTERS, LINE_PX = 42, 14
GROUND = frozenset({f"{PACKAGE}.base", f"{PACKAGE}.spec"})
"""Every room imports these; their lines would hide the others."""
FONT = "font-family='system-ui, sans-serif'"


@dataclass(frozen=True, slots=True)
class Room:
    """A box: a package, the first sentence of its docstring, and the left and upper edge of the box in pixels."""

    name: str
    text: str
    x_px: float
    y_px: float


def layers() -> tuple[tuple[str, ...], ...]:
    """Return the packages of each layer of the import contract, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return tuple(tuple(name.strip() for name in layer.split("|")) for layer in contract["layers"])


def rooms(rows: Sequence[Sequence[str]]) -> dict[str, Room]:
    """Place the packages in rows, each row centred."""
    placed = {}
    for number, row in enumerate(rows):
        width_px = len(row) * BOX_PX + (len(row) - 1) * 16
        for place, name in enumerate(row):
            x_px = (WIDTH_PX - width_px) / 2 + place * (BOX_PX + 16)
            placed[name] = Room(name, _summary(name), x_px, MARGIN_PX + number * (HEIGHT_PX + GAP_PX))
    return placed


def imports(names: Sequence[str]) -> frozenset[tuple[str, str]]:
    """Return who imports whom among these packages, as pairs of importer and imported."""
    graph = grimp.build_graph(PACKAGE, "pages")
    found = set()
    for module in graph.modules:
        importer = _package_of(module, names)
        for imported_module in graph.find_modules_directly_imported_by(module):
            imported = _package_of(imported_module, names)
            if importer is not None and imported is not None and importer != imported:
                found.add((importer, imported))
    return frozenset(found)


def draw() -> str:
    """Return the picture as SVG."""
    rows = layers()
    placed = rooms(rows)
    height_px = 2 * MARGIN_PX + len(rows) * (HEIGHT_PX + GAP_PX) - GAP_PX
    lines = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH_PX} {height_px}' role='img'>"]
    lines += ["<title>Rooms of UnifiedNN; lines run from a room down to the rooms that it imports</title>"]
    lines += [f"<rect width='{WIDTH_PX}' height='{height_px}' fill='#ffffff'/>"]
    lines += _arrows(placed, imports(list(placed)))
    lines += [line for room in placed.values() for line in _box(room)]
    return "\n".join([*lines, "</svg>", ""])


def _summary(name: str) -> str:
    source = (ROOT / name.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    text = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return text.partition(". ")[0].rstrip(".")


def _package_of(module: str, names: Sequence[str]) -> str | None:
    return next((name for name in names if module == name or module.startswith(f"{name}.")), None)


def _arrows(placed: Mapping[str, Room], pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for above, below in sorted(pairs):
        if below in GROUND:
            continue
        start, end = placed[above], placed[below]
        x1, y1 = start.x_px + BOX_PX / 2, start.y_px + HEIGHT_PX
        x2, y2 = end.x_px + BOX_PX / 2, end.y_px
        bend = (y2 - y1) / 2
        path = f"M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2:.0f}"
        yield f"<path d='{path}' fill='none' stroke='#8fa3c8' stroke-opacity='0.55' stroke-width='1.5'/>"


def _box(room: Room) -> Iterator[str]:
    label = room.name.removeprefix(f"{PACKAGE}.")
    at = f"x='{room.x_px:.0f}' y='{room.y_px:.0f}'"
    yield f"<rect {at} width='{BOX_PX}' height='{HEIGHT_PX}' rx='6' fill='#f4f5f7' stroke='#9aa4b5'/>"
    middle_px = room.x_px + BOX_PX / 2
    yield (
        f"<text x='{middle_px:.0f}' y='{room.y_px + 21:.0f}' {FONT} font-size='15' font-weight='600' "
        f"text-anchor='middle' fill='#171b22'>{escape(label)}</text>"
    )
    for place, line in enumerate(wrap(room.text, LINE_CHARACTERS)):
        yield (
            f"<text x='{middle_px:.0f}' y='{room.y_px + 38 + place * LINE_PX:.0f}' {FONT} font-size='10.5' "
            f"text-anchor='middle' fill='#5b6472'>{escape(line)}</text>"
        )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
