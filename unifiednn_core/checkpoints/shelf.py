"""The checkpoints of one sub-model of one run: the last two and the best are kept, a damaged one is passed over."""

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from unifiednn_core.checkpoints import file
from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.errors import BadCheckpoint

KEPT_LAST = 2
DAMAGED_SUFFIX = ".damaged"
_NAME = re.compile(r"step-(\d{9,})\.safetensors")


class Shelf:
    """Folder with the checkpoints of one sub-model, called like it; it need not exist yet."""

    def __init__(self, folder: Path):
        self.folder = folder

    def put(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, then remove what is neither one of the last two nor the best.

        Raises `OSError` where it cannot be written; then all others are still there. One that cannot be removed stays.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{checkpoint.step:09d}.safetensors"
        file.write(checkpoint, path)
        for superfluous in self._superfluous(path):
            with contextlib.suppress(OSError):
                superfluous.unlink()
        return path

    def latest(
        self, tell: Callable[[Sequence[str]], object] = lambda sentences: None
    ) -> tuple[Checkpoint | None, tuple[str, ...]]:
        """The newest checkpoint that is whole, and a sentence for each newer one that is not.

        A damaged one is set aside under another name, so that it is not tried again, but only after `tell` has taken
        these sentences: nobody would find it a second time. What an interrupted write left behind is removed.
        """
        self._remove_leftovers()
        refused: list[tuple[int, str]] = []
        damaged: list[Path] = []
        found = None
        for path in self.paths():
            try:
                found = file.read(path)
                break
            except BadCheckpoint as error:
                refused.append((_step_of(path), f"is damaged ({str(error).rstrip('.')})"))
                damaged.append(path)
            except OSError as error:  # it may be readable again later
                refused.append((_step_of(path), f"cannot be read ({error.strerror or error})"))
        end = "there is no earlier one" if found is None else f"the one at step {found.step} is used"
        name = self.folder.name
        said = tuple(f"The checkpoint of {name} at step {step} {reason}; {end}." for step, reason in refused)
        if said:
            tell(said)
        for path in damaged:
            with contextlib.suppress(OSError):
                path.replace(path.with_name(f"{path.name}{DAMAGED_SUFFIX}"))
        return found, said

    def paths(self) -> list[Path]:
        """Checkpoints by their names, the newest first; nobody has verified them."""
        return sorted((path for path in self._entries() if _NAME.fullmatch(path.name)), key=_step_of, reverse=True)

    def newest_path(self) -> Path | None:
        """The newest checkpoint by its name; None where there is none."""
        return next(iter(self.paths()), None)

    def clear(self) -> None:
        """Remove everything that this shelf has ever written; raises `OSError` where something stays."""
        for path in [*self.paths(), *self._leftovers(), *self._damaged()]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody keeps something else in it
            self.folder.rmdir()

    def _superfluous(self, written: Path) -> list[Path]:
        scores: dict[Path, float] = {}
        for path in self.paths():
            with contextlib.suppress(BadCheckpoint, OSError):  # what cannot be read counts for nothing and stays
                score = file.peek(path).score
                scores[path] = -math.inf if score is None or math.isnan(score) else score
        kept = {written, *list(scores)[:KEPT_LAST]}
        best = max(scores, key=scores.__getitem__, default=None)
        if best is not None and scores[best] > -math.inf:
            kept.add(best)
        return [path for path in scores if path not in kept]

    def _remove_leftovers(self) -> None:
        for path in self._leftovers():
            with contextlib.suppress(OSError):
                path.unlink()

    def _leftovers(self) -> list[Path]:
        return [path for path in self._entries() if path.name.startswith(".") and path.suffix == file.TEMPORARY_SUFFIX]

    def _damaged(self) -> list[Path]:
        return [path for path in self._entries() if path.suffix == DAMAGED_SUFFIX]

    def _entries(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except FileNotFoundError:
            return []


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-").partition(".")[0])
