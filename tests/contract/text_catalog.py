"""The texts of pages, read from the code: `python -m tests.contract.text_catalog` prints those to translate."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

from unifiednn_core.base.texts import ENGLISH, FOLDER, LANGUAGES
from unifiednn_core.spec.run import ALL_BASELINES

ROOT = Path(__file__).parents[2]
ROOMS = ("pages", "unifiednn_core/views", "unifiednn_core/service", "unifiednn_core/web")


def sources() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def literal_keys() -> dict[str, Path]:
    """Texts that are written as they are in a call of `tr`, with a file that has them."""
    found: dict[str, Path] = {}
    for path in sources():
        for call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            for text in _texts(call.args[0]):
                found.setdefault(text, path)
    return found


def constants() -> set[str]:
    """All texts in the code; a table of texts is translated where it is shown."""
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def made() -> set[str]:
    """Texts that the code makes of others: counts with their nouns, measures of a verdict, modes, states."""
    units = ast.parse((ROOT / "unifiednn_core/base/units.py").read_text(encoding="utf-8"))
    nouns = {text for text in constants() if re.fullmatch(r"[a-zA-Z-]+( [a-zA-Z-]+)*", text)}
    nouns |= {f"{text}{end}" for text in nouns for end in ("s", "es")} | set(ALL_BASELINES)
    found = {f"{{count}} {noun}" for noun in nouns} | {f"{{share}} {noun} {{mode}}" for noun in nouns}
    found |= {noun.capitalize() for noun in nouns}
    found |= {f"{noun} {{name}}" for noun in nouns}
    found |= {f"deadline {state}" for state in nouns}
    return found | {str(node.value) for node in ast.walk(units) if isinstance(node, ast.Constant)}


def choices() -> str:
    """Source of the rooms whose names and descriptions forms show: optimizers, policies and the like."""
    files = [file for room in ("spec", "scheduling") for file in sorted((ROOT / "unifiednn_core" / room).glob("*.py"))]
    return "".join(file.read_text(encoding="utf-8") for file in files)


def plain(text: str) -> str:
    """Text without what forms change: case, underscores, the full stop, and how the source breaks its lines."""
    return re.sub(r"\s+", " ", re.sub(r'"\s*"', "", text.replace("_", " ").rstrip("."))).casefold().strip()


def catalog(language: str) -> dict[str, str]:
    texts: dict[str, str] = json.loads((FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return texts


def places(text: str) -> set[str]:
    """Names of the values that a text takes."""
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name == "tr":
                yield node


def _texts(node: ast.AST) -> Iterator[str]:
    """The text, or both of a choice."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


if __name__ == "__main__":
    for code in LANGUAGES.keys() - {ENGLISH}:
        missing = sorted(literal_keys().keys() - catalog(code).keys())
        json.dump(dict.fromkeys(missing, ""), sys.stdout, indent=1, ensure_ascii=False)
