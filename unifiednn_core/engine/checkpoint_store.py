"""The checkpoints of one sub-model of one run: keeps the last two and the best, and skips damaged ones."""

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine import checkpoint_file as file
from unifiednn_core.engine.checkpoint import Checkpoint

KEPT_LAST = 2
DAMAGED_SUFFIX = ".damaged"
_NAME = re.compile(r"step-(\d{9,})\.safetensors")


class CheckpointStore:
    """Folder with the checkpoints of one sub-model, named after it; created by the first checkpoint."""

    def __init__(self, folder: Path):
        self.folder = folder

    def put(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, then remove all but the last two and the best.

        Raises `OSError` if it cannot be written, and then removes none. A file that cannot be removed stays.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{checkpoint.step:09d}.safetensors"
        file.write(checkpoint, path)
        _remove(self._to_remove(path))
        return path

    def latest(
        self, on_damage: Callable[[Sequence[str]], object] = lambda sentences: None
    ) -> tuple[Checkpoint | None, tuple[str, ...]]:
        """Read the newest intact checkpoint; returns it with a sentence for each newer one that is damaged.

        After `on_damage` has received the sentences, damaged files are renamed, so that the next call skips them.
        Leftovers of interrupted writes are removed.
        """
        _remove(self._leftovers())
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
            on_damage(said)
        for path in damaged:
            with contextlib.suppress(OSError):
                path.replace(path.with_name(f"{path.name}{DAMAGED_SUFFIX}"))
        return found, said

    def paths(self) -> list[Path]:
        """Checkpoints by their names, the newest first, not verified."""
        named = [path for path in self.folder.glob("step-*") if _NAME.fullmatch(path.name)]
        return sorted(named, key=_step_of, reverse=True)

    def newest_path(self) -> Path | None:
        """The newest checkpoint by its name, not verified; None without one."""
        return next(iter(self.paths()), None)

    def clear(self) -> None:
        """Remove every file that this store has written; raises `OSError` if one stays."""
        for path in [*self.paths(), *self._leftovers(), *self.folder.glob(f"*{DAMAGED_SUFFIX}")]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other files keep the folder
            self.folder.rmdir()

    def _to_remove(self, written: Path) -> list[Path]:
        scores: dict[Path, float] = {}
        for path in self.paths():
            with contextlib.suppress(BadCheckpoint, OSError):  # an unreadable one does not count, and stays
                score = file.peek(path).score
                scores[path] = -math.inf if score is None or math.isnan(score) else score
        kept = {written, *list(scores)[:KEPT_LAST]}
        best = max(scores, key=scores.__getitem__, default=None)
        if best is not None and scores[best] > -math.inf:
            kept.add(best)
        return [path for path in scores if path not in kept]

    def _leftovers(self) -> list[Path]:
        return list(self.folder.glob(f".*{file.TEMPORARY_SUFFIX}"))


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-").partition(".")[0])
