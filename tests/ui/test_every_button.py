"""Every button of every page is pressed by a test, and every link is named by one: held by reading both sources.

What a call in `pages/` gives as key or label must be what a press in `tests/` names, where holes of f-strings may be
anything. A button whose names are all holes is listed below, with the test that presses it.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUTTONS = ("button", "form_submit_button", "menu_button", "icon_button")
LINKS = ("download_link", "page_link", "download_button")
PRESSES = ("press", "take", "click", "dblclick")
GIVEN = ("label", "key", "verb", "button")
"""Names of parameters that say what a test presses."""
WRAPPERS = ("icon_button", "_apply_button", "_door")
"""Functions whose callers name the button."""
LEAST_LETTERS = 3
"""Fewer letters beside the holes of a name would be found in any other."""
HOLE = "\0"
BY_HAND = {
    "pages/_ui/actions.py state_buttons": (
        "pause-r-live-",
        "resume-r-lost-",
        "save-r-live-resnet",
        "stop-r-live-",
        "Pause resnet",
        "Stop transformer",
    ),
    "pages/_ui/actions.py drain_button": ("Drain cpu", "Use cpu again", "Drain gpu-1", "Use gpu-1 again"),
    "pages/_ui/banners.py _retries": ("Retry with learning rate /10", "retry-plain-r-quarantine-lenet"),
    "pages/_ui/dialogs.py _add": ("Add to the run", "Add anyway"),
    "pages/_ui/dialogs.py _row": ("Move up transformer", "Move down lenet", "Move mlp to the top"),
    "pages/_ui/fixes.py draw": ("Use 1/255", "Split 80/20", "Remove it", "Rename it to optimizer"),
    "pages/_ui/draft_list.py _row": ("Delete draft",),
    "pages/_ui/line_rows.py _moves": ("line-vertical_align_top-x", "line-arrow_upward-x", "line-arrow_downward-x"),
    "pages/_ui/listed.py head": ("Move up 3. resize", "Move down 1. random_crop", "Remove 1. resize"),
    "pages/_ui/submodel_form.py _buttons": (
        "Move up transformer",
        "Move down lenet",
        "Move transformer to the top",
        "Remove resnet",
        "Edit lenet",
        "Duplicate lenet",
    ),
}
"""Buttons whose names are all holes, by file and function: what tests press of them."""


def template(node: ast.expr | None) -> str | None:
    """A string with holes for what is only known when it runs; None if it is no string."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(one.value if isinstance(one, ast.Constant) else HOLE for one in values)  # type: ignore[misc]
    return None


def assigned(node: ast.Assign) -> Iterator[tuple[str, str | None]]:
    """Names and the templates that an assignment gives them, also two at once."""
    for target in node.targets:
        match target, node.value:
            case ast.Name(id=name), value:
                yield name, template(value)
            case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                pairs = zip(targets, values, strict=False)
                yield from ((one.id, template(value)) for one, value in pairs if isinstance(one, ast.Name))


def called(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


@cache
def pressed() -> frozenset[str]:
    """Names that tests press or click, those among the parameters of a test that presses what it is given too."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            presses = [node for node in ast.walk(function) if isinstance(node, ast.Call) and called(node) in PRESSES]
            given = [node for press in presses for node in ast.walk(press)]
            if any(isinstance(node, ast.Name) and node.id in GIVEN for node in given):
                given += [node for decorator in function.decorator_list for node in ast.walk(decorator)]
            found |= {text for node in given if isinstance(node, ast.expr) and (text := template(node)) is not None}
    return frozenset(one.replace(HOLE, "x") for one in found)


@cache
def named() -> str:
    """All that tests say."""
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def drawn(kinds: tuple[str, ...]) -> Iterator[tuple[str, str, set[str]]]:
    """Each call that draws one of these: its place, its file and function, and templates of its key and label."""
    for path in sorted((ROOT / "pages").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            texts = dict(pair for node in ast.walk(function) if isinstance(node, ast.Assign) for pair in assigned(node))
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and called(node) in kinds:
                    given = [*node.args, *(one.value for one in node.keywords if one.arg in ("key", "label"))]
                    found = {texts.get(one.id) if isinstance(one, ast.Name) else template(one) for one in given}
                    file = str(path.relative_to(ROOT))
                    yield f"{file}:{node.lineno}", f"{file} {function.name}", {one for one in found if one}


def matches(name: str, presses: frozenset[str]) -> bool:
    if sum(letter.isalpha() for letter in name) < LEAST_LETTERS:
        return False
    wanted = re.compile(".+".join(map(re.escape, name.split(HOLE))))
    return any(wanted.fullmatch(one) for one in presses)


def untried(presses: frozenset[str]) -> list[str]:
    """Places in `pages/` that draw a button which none of these presses names."""
    found = []
    for place, function, names in drawn(BUTTONS):
        missing = [one for one in BY_HAND.get(function, ()) if one not in presses]
        if function.split()[1] in WRAPPERS or (function in BY_HAND and not missing):
            continue
        if missing or not any(matches(name, presses) for name in names):
            found.append(f"{place} {missing or sorted(name.replace(HOLE, '*') for name in names)}")
    return found


def test_every_button_is_pressed_by_a_test() -> None:
    assert untried(pressed()) == []


def test_a_button_that_no_test_presses_is_found() -> None:
    """The control: without one of the presses, its button is told."""
    [told] = untried(pressed() - {"runs-clear", "Clear"})
    assert told.startswith("pages/_ui/run_table.py")
    assert len(untried(pressed() - {"Drain cpu"})) == 1


def test_every_link_to_a_page_or_a_file_is_named_by_a_test() -> None:
    unnamed = []
    for place, _, names in drawn(LINKS):
        plain = [max(name.split(HOLE), key=len).strip(" -,.") for name in names]
        if names and not any(len(name) >= LEAST_LETTERS and name in named() for name in plain):
            unnamed.append(f"{place} {plain}")
    assert unnamed == []
