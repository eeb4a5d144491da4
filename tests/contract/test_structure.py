"""The shape of the package: its rooms, its classes, its files."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "unifiednn_core"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "pages").rglob("*.py")])
VALUES = {"BaseModel", "Choice", "OneOf", "Part", "SymbolicExpression"}
"""Roots of value types; they may be extended."""
OUTSIDE = {"ABC", "Exception", "Protocol", "StrEnum", "IntEnum", "Enum", "NamedTuple", "TypedDict", "DeclarativeBase"}


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield path, node


def bases(node: ast.ClassDef) -> list[str]:
    """Bases that are named without a module; the others come from outside."""
    named = (ast.unparse(base).partition("[")[0] for base in node.bases)
    return [name for name in named if "." not in name]


def test_seventeen_rooms_and_nothing_beside_them() -> None:
    names = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert len(names) <= 19
    assert {name for name in names if not (PACKAGE / name).is_dir()} == {"__init__.py", "py.typed"}


def test_composition_instead_of_inheritance() -> None:
    """Our classes extend exceptions, ORM bases, protocols and value types, nothing else of ours."""
    parents = {(path, node.name): bases(node) for path, node in classes()}
    by_name: dict[str, list[str]] = defaultdict(list)
    for (_, name), found in parents.items():
        by_name[name] += found

    def allowed(path: Path, base: str) -> bool:
        if base not in by_name or base in VALUES | OUTSIDE or base.endswith(("Error", "Exception")):
            return True
        above = parents.get((path, base), by_name[base])
        return any(root in VALUES | OUTSIDE or root.endswith("Error") for root in above)

    wrong = [f"{path.name}: {name}({base})" for (path, name), found in parents.items() for base in found
             if not allowed(path, base)]  # fmt: skip
    assert wrong == []


def test_the_tests_that_the_security_page_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 10 and [name for name in named if not (ROOT / name).is_file()] == []


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, node in classes():
        if not node.name.startswith("_"):
            places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_file_is_too_small_for_a_thought() -> None:
    small = [path.name for path in SOURCES if path.name != "__init__.py" and path.read_text("utf-8").count("\n") < 15]
    assert small == []
