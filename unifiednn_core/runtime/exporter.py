"""Exports sub-models that have ended as model files, in its own thread, while the others train on."""

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from sqlalchemy.exc import OperationalError

from unifiednn_core.base.errors import SeparationCorrupt, SeparationFailed
from unifiednn_core.base.trouble import log_error
from unifiednn_core.engine.checkpoint import name_of_key
from unifiednn_core.engine.events import Ended
from unifiednn_core.engine.separator import Facts, Separated, separate
from unifiednn_core.formats.base import Definition
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store.telemetry import EpochPoint

TRIES = 120
RETRY_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Exported:
    """A sub-model has left for good: with a verified file, or without one."""

    submodel: str
    event: Event
    separated: Separated | None = None
    cause: str | None = None
    remedy: str | None = None
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class ExportDelayed:
    """A file cannot be written now. The exporter retries, for ten minutes by itself and then after `Exporter.retry`."""

    submodel: str
    message: str
    paused: bool = False


class Exporter:
    """Reports `Exported` for each ended sub-model, after `ExportDelayed` while disk or store refuse it."""

    def __init__(
        self,
        folder_of: Callable[[str], Path],
        definitions: Mapping[str, Definition],
        spec_of: Callable[[str], Mapping[str, object]],
        epochs_of: Callable[[str], Iterable[EpochPoint]],
        report: Callable[[Exported | ExportDelayed], object],
        ships_probes: Callable[[str], bool] = lambda name: True,
        keep: Callable[[str, Separated], object] = lambda name, separated: None,
        facts_of: Callable[[str], Facts] = lambda name: {},
    ):
        """`folder_of` names the folder of a sub-model's file, `spec_of` makes its spec, `epochs_of` reads its epochs.

        `ships_probes` says whether samples of its data may be in the file that people download. `keep` gives the
        files to the server's machine; it raises `SeparationFailed` where that does not work now. `facts_of` finds those
        about its training data.
        """
        self._keep, self._epochs_of, self._facts_of = keep, epochs_of, facts_of
        self._ships_probes = ships_probes
        self._folder_of, self._definitions, self._spec_of, self._report = folder_of, definitions, spec_of, report
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="exporter")
        self._under_way: list[Future[None]] = []
        self._paused: dict[str, Ended] = {}

    def tidy(self, name: str) -> None:
        """Delete what an export of a sub-model left that was killed; others may be writing theirs there."""
        for leftover in self._folder_of(name).glob(f".{escape(name_of_key(name))}-????????"):
            shutil.rmtree(leftover, ignore_errors=True)

    def put(self, ended: Ended) -> None:
        """Export a sub-model. One that failed or never trained has no file to write."""
        if ended.state_dict is None:
            self._report(Exported(ended.submodel, ended.event, None, ended.cause, ended.remedy, ended.discarded))
        else:
            self._under_way.append(self._thread.submit(self._export, ended))

    @property
    def paused(self) -> frozenset[str]:
        """Sub-models whose weights wait in memory for `retry`."""
        return frozenset(self._paused)

    def retry(self, submodel: str) -> None:
        """Export a paused sub-model again."""
        self._under_way.append(self._thread.submit(self._export, self._paused.pop(submodel)))

    def forget(self, submodel: str) -> None:
        """Drop the weights of a paused sub-model that a person discarded."""
        self._report(Exported(submodel, Event.HALT, discarded=self._paused.pop(submodel) is not None))

    @property
    def idle(self) -> bool:
        """Whether every export is reported or paused."""
        return all(future.done() for future in self._under_way)

    def _export(self, ended: Ended) -> None:
        name, said = ended.submodel, ""
        found: Separated | None = None
        try:
            for left in reversed(range(TRIES)):
                try:
                    weights, spec = ended.state_dict or {}, self._spec_of(name)
                    definition, folder, plain = self._definitions[name], self._folder_of(name), name_of_key(name)
                    found = found or separate(
                        plain,
                        definition,
                        weights,
                        spec=spec,
                        figures=self._epochs_of(name),
                        folder=folder,
                        probes=ended.probes,
                        ships_probes=self._ships_probes(name),
                        facts=self._facts_of(name),
                    )
                    self._keep(name, found)
                    self._report(Exported(name, ended.event, found))
                    return
                except (SeparationFailed, OperationalError) as error:
                    why = str(error)
                    if isinstance(error, OperationalError):
                        why = f"The trained model '{name_of_key(name)}' waits: the store cannot be read now."
                    if not left:
                        self._paused[name] = ended
                        waits = f"Its weights wait in memory: make room, then resume {name}."
                        self._report(ExportDelayed(name, f"{why} {waits}", paused=True))
                        return
                    if said != (said := why):
                        self._report(ExportDelayed(name, f"{why} It is tried again every {RETRY_S:g} s."))
                    time.sleep(RETRY_S)
        except SeparationCorrupt as error:
            remedy = "Check the disk for errors, then retry it: it continues from its last checkpoint."
            self._report(Exported(name, Event.FAIL, cause=str(error), remedy=remedy))
        except Exception as error:  # it must reach the operator, not die in a thread
            log_error(_log, "A trained model could not be written.")
            cause = f"The trained model could not be written: {type(error).__name__}."
            remedy = "This is a defect of UnifiedNN; the worker's log in the run folder has the whole trace."
            self._report(Exported(name, Event.FAIL, cause=cause, remedy=remedy))
