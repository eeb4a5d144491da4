"""Separates what has ended, in a thread of its own, while the others train on."""

import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.errors import SeparationFailed
from unifiednn_core.hybrid.separator import Separated, separate
from unifiednn_core.intake.base import Definition
from unifiednn_core.lifecycle import Event
from unifiednn_core.training.events import Ended

# A full disk is often full only for a while: the weights wait in memory, and the file is tried again.
TRIES = 120
RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Delivered:
    """A sub-model has left for good: with a verified file, without one, or with the reason why it failed."""

    submodel: str
    event: Event
    separated: Separated | None = None
    cause: str | None = None
    remedy: str | None = None
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class Postponed:
    """A file could not be written yet."""

    submodel: str
    message: str


class Deliveries:
    """Takes ended sub-models, and reports `Delivered` for each; `Postponed` while it has to wait."""

    def __init__(
        self,
        folder: Path,
        definitions: Mapping[str, Definition],
        spec_of: Callable[[str], Mapping[str, object]],
        report: Callable[[Delivered | Postponed], object],
    ):
        self._folder, self._definitions, self._spec_of, self._report = folder, definitions, spec_of, report
        for leftover in folder.glob(".*"):  # of a separation that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="separator")
        self._under_way: list[Future[None]] = []

    def hand_over(self, ended: Ended) -> None:
        """Deliver a sub-model; one that failed or never trained has nothing to write."""
        if ended.state_dict is None:
            self._report(
                Delivered(
                    ended.submodel,
                    ended.event,
                    cause=ended.cause,
                    remedy=ended.remedy,
                    discarded=ended.discarded,
                )
            )
        else:
            self._under_way.append(self._thread.submit(self._deliver, ended))

    @property
    def idle(self) -> bool:
        """Whether everything that was handed over is reported."""
        return all(future.done() for future in self._under_way)

    def _deliver(self, ended: Ended) -> None:
        try:
            said = ""
            for left in reversed(range(TRIES)):
                try:
                    separated = self._separate(ended)
                    self._report(Delivered(ended.submodel, ended.event, separated))
                    return
                except SeparationFailed as error:
                    if not left:
                        raise
                    if said != (said := str(error)):
                        self._report(Postponed(ended.submodel, f"{error} It is tried again every {RETRY_S:g} s."))
                    time.sleep(RETRY_S)
        except SeparationFailed as error:
            remedy = "Make room in the home folder, then submit it again."
            self._report(Delivered(ended.submodel, Event.FAIL, cause=str(error), remedy=remedy))
        except Exception as error:  # whatever goes wrong here must reach the operator, not die in a thread
            traceback.print_exc()
            cause = f"The trained model could not be written: {type(error).__name__}."
            remedy = "This is a defect of UnifiedNN; the worker's log in the run folder has the whole trace."
            self._report(Delivered(ended.submodel, Event.FAIL, cause=cause, remedy=remedy))

    def _separate(self, ended: Ended) -> Separated:
        name = ended.submodel
        return separate(
            name,
            self._definitions[name],
            ended.state_dict or {},
            spec=self._spec_of(name),
            figures=ended.figures,
            folder=self._folder,
        )
