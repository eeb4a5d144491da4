"""Imports a file or module of the user, as part of its package, and says what to change where that fails."""

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType

from torch.optim.optimizer import register_optimizer_step_pre_hook

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.exporting import needs_gpu, place_of
from unifiednn_core.preflight.pack.request import Source

_TRAINS = "the code trains while it is imported"
_GUARD = 'Put it under `if __name__ == "__main__":`, and leave classes and functions outside.'


def module_of(source: Source) -> ModuleType:
    """Import the module that `source` names, or its file as a module named after it; raises `BadInput`."""
    if source.module:
        return _imported(source, source.module)
    path = source.path.resolve()
    if not path.is_file() or path.suffix != ".py":
        message = f"{path.name} is not a Python file."
        raise BadInput.of("Code", path.name, message, "Give the path of a .py file, or a module: package.module:Net.")
    root, name = _place(path)
    top = name.partition(".")[0]
    if top in sys.modules:
        what = "file" if top == path.stem else "folder"
        message = f"'{top}' is the name of a module that is loaded already."
        raise BadInput.of("Code", path.name, message, f"Rename the {what}.")
    sys.path.insert(0, str(root))
    if root != path.parent:
        return _imported(source, name)
    if (package := _package_root(path)) != root:
        sys.path.insert(1, str(package))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it is a .py file
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with told(source):
            spec.loader.exec_module(module)
    except BadInput:
        if not _defines(module, source.factory):
            raise
    return module


def _defines(module: ModuleType, factory: str) -> bool:
    """Whether a script had defined the class or function before it failed: then what happened later does not matter."""
    made = vars(module).get(factory)
    return isinstance(made, type | FunctionType) and made.__module__ == module.__name__


def _imported(source: Source, name: str) -> ModuleType:
    with told(source):
        module: ModuleType = importlib.import_module(name)
    return module


def _place(path: Path) -> tuple[Path, str]:
    """Folder to import a file from, and its full name there: as a part of packages only if it imports from them."""
    levels = max(_relative_levels(path), default=int(path.stem == "__init__"))
    folder, parts = path.parent, [] if path.stem == "__init__" else [path.stem]
    package = _package_root(path) if levels else folder
    for _ in range(max(levels, len(folder.relative_to(package).parts))):
        parts.insert(0, folder.name)
        folder = folder.parent
    if wrong := [part for part in parts[:-1] if not part or "." in part]:
        message = f"The file imports from its package, but '{wrong[0]}' cannot be the name of a package."
        raise BadInput.of("Code", path.name, message, "Rename that folder, without dots.")
    return folder, ".".join(parts)


def _package_root(path: Path) -> Path:
    """The first folder above that is not a package."""
    return next(folder for folder in path.parents if not (folder / "__init__.py").is_file())


def _relative_levels(path: Path) -> Iterator[int]:
    """How many dots each relative import has; a file that is no Python 3 has none, and its import says why."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    yield from (node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level)


@contextmanager
def told(source: Source) -> Iterator[None]:
    """Explain why an import fails, ends the process, or begins to train."""

    def refuse(*_: object) -> None:
        raise SystemExit(_TRAINS)

    hook = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    except (Exception, SystemExit) as error:
        title = source.module or source.path.name
        raise BadInput.of("Code", title, *_explained(error, source)) from error
    finally:
        hook.remove()


def _explained(error: BaseException, source: Source) -> tuple[str, str]:
    """Message and remedy for a failed import."""
    if isinstance(error, SystemExit):
        place = place_of(error)
        if error.code is _TRAINS:
            return f"The code trains while it is imported{place}.", _GUARD
        if any(Path(frame.filename).name == "argparse.py" for frame in traceback.extract_tb(error.__traceback__)):
            message = (
                f"The code reads a command line while it is imported{place}; options that it requires are missing."
            )
            return message, f"{_GUARD} Or give each option a default."
        return f"The code ends its process while it is imported{place}.", _GUARD
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing(error, error.name, source)
    message = f"Importing the code failed: {described(error)}."
    if isinstance(error, ImportError) and "relative import" in str(error):
        return (
            message,
            "Name it as a module, from the folder that holds its package: unifiednn pack package.module:Net.",
        )
    if isinstance(error, AttributeError) and "__main__" in str(error):
        return message, "A class is in the script that saved the file: name both, SCRIPT.py:NAME."
    if (remedy := needs_gpu(error)) is not None:
        return message, remedy
    return (
        message,
        'Correct the code. What only a training needs, such as data, belongs under `if __name__ == "__main__":`.',
    )


def _missing(error: ModuleNotFoundError, name: str, source: Source) -> tuple[str, str]:
    """A module that is not there: the one asked for, a part of the user's own code, or a package."""
    top = name.partition(".")[0]
    if f"{source.module}.".startswith(f"{name}."):
        message = f"There is no module '{name}' in {Path.cwd()}, nor is it installed."
        return (
            message,
            f"Start unifiednn pack in the folder that holds '{top}', or name the file: FILE.py:{source.factory}.",
        )
    message = f"The code imports '{name}', which is not there{place_of(error)}."
    for folder in source.path.resolve().parents:
        if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
            return message, f"'{top}' lies in {folder}: start unifiednn pack in that folder."
    return message, f"Install it for the Python that runs unifiednn, {sys.executable}; or leave the import out."


def described(error: BaseException) -> str:
    """An error of the user's code in one line, with the line that led to it."""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}{': ' if text else ''}{text[:300].rstrip('.')}{place_of(error)}"
