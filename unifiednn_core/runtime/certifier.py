"""Makes the certificates of separated models, one at a time, while nobody waits for them.

The supervisor's process does this and not the worker: it has the template, whose forks have torch loaded (a new
interpreter would cost 3 s of processor time), no network and limits, and know nothing of the hybrid. What is left to do
is in the store, so a certificate that a kill or a restart prevented is made later; the zip is replaced as a whole.
"""

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import IntakeFailed, NotFound
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import log_error
from unifiednn_core.base.units import GIB
from unifiednn_core.machine.budget import budget_of, device_type, slot
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import CertifyJob, CertifyReport
from unifiednn_core.runtime.background import Background
from unifiednn_core.spec.devices import CPU, type_named
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.events import Code
from unifiednn_core.store.schema import RunRow, SubModelRow

LOOK_S = 1.0
AGAIN_S, TRIES = 60.0, 3
ENDS_WITHIN_S = 3.0
CONTEXT_BYTES, COPIES = 2 * GIB, 4
"""Of a GPU: what its context and workspaces may take, and how often a network of some samples takes its file."""
_log = logging.getLogger(__name__)


class Certifier(Background):
    """Makes pending certificates in a thread (`start`), or now (`settle`). One process of a home does so at a time."""

    name = "certifier"
    patience_s = ENDS_WITHIN_S  # nobody waits for a large model

    def __init__(
        self, home: Home, store: Store, clock: Clock, *, certify: Callable[[CertifyJob], CertifyReport] = client.certify
    ):
        """`certify` compares one zip in another process."""
        self._home, self._store, self._clock, self._certify = home, store, clock, certify
        self._tries: Counter[tuple[str, str]] = Counter()
        super().__init__()

    @property
    def busy(self) -> bool:
        """Whether certificates are due that the thread makes."""
        return self.alive and bool(self._due())

    def settle(self, run_id: str) -> None:
        """Make the certificates of a run that are due now, in the calling thread."""
        with self._alone(wait=True):
            for run, row in self._due():
                if run.id == run_id:
                    self._make(run, row)

    def tick(self) -> None:
        """Make the certificate that waits longest, unless a baseline is measured, whose figures it would change."""
        with self._alone(wait=False) as first:  # what is due is read inside, else two processes make the same one
            due = self._due() if first else []
            if due and not self._store.runs.measuring():
                self._make(*due[0])

    def _due(self) -> list[tuple[RunRow, SubModelRow]]:
        """Sub-models to certify now. On a GPU their files are run there, which must not count as the run's own time."""
        found = self._store.runs.uncertified(self._clock.utc_s())
        return [(run, row) for run, row in found if device_type(run.device) == CPU or State(run.state) in ENDED]

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.tick()
            except Exception:  # a full disk or a locked store must not end the watch
                log_error(_log, "A certificate could not be made; it is tried again.")

    @contextmanager
    def _alone(self, *, wait: bool) -> Iterator[bool]:
        """Hold the lock of the home; False if another process has it."""
        handle = os.open(self._home.root / ".certifying", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(handle)  # which also gives the lock back

    def _make(self, run: RunRow, row: SubModelRow) -> None:
        """Make one certificate, or try again in a minute; after three tries the history says why there is none."""
        runs, key = self._store.runs, (row.run_id, row.name)
        try:
            report = self._certify(self._job(run, row))
        except (NotFound, ValidationError):  # deleted, or a spec of another version
            runs.certify_later(row, None)
            return
        except IntakeFailed as error:
            cause = str(error)
        except Exception as error:  # else this one would stay the first for ever, and no other would get any
            log_error(_log, "The certificate of %s of run %s could not be made.", row.name, row.run_id)
            cause = f"An unexpected error: {type(error).__name__}."
        else:
            failpoints.passing("certificate.before_record")
            if report.certificate is not None:
                found, code = report.certificate, Code.CERTIFIED if report.certificate.holds else Code.UNCERTIFIED
                fields = {} if found.holds else {"findings": list(found.findings)}
                document = found.model_dump(mode="json")
                runs.record_certificate(row, document, code, size_bytes=report.size_bytes, **fields)
                self._tries.pop(key, None)
                return
            cause = " ".join(finding.message for finding in report.findings)
        self._tries[key] += 1
        again = self._tries[key] < TRIES
        runs.certify_later(row, self._clock.utc_s() + AGAIN_S if again else None)
        if not again:
            self._tries.pop(key)
            with suppress(NotFound):
                runs.warn(row.run_id, row.name, [f"The certificate of {row.name} could not be made. {cause}"])

    def _job(self, run: RunRow, row: SubModelRow) -> CertifyJob:
        """Raises `NotFound` if the model is gone."""
        archive = self._home.kept(row.run_id, f"models/{row.artifact or ''}")
        if row.artifact is None or not archive.is_file():
            raise NotFound(f"The model of {row.name} is gone.")
        probes = self._home.kept(row.run_id, f"models/{row.name}.probes.safetensors")
        spec = RunSpec.model_validate(run.spec)
        [submodel] = [part for part in spec.submodels if part.name == row.name]
        data = self._home.file((submodel.test_data or submodel.train_data).removeprefix("sha256:"))
        return CertifyJob(
            archive=archive,
            scratch=self._home.quarantine,
            submodel=submodel,
            upload=self._home.file(submodel.model.removeprefix("sha256:")),
            probes=probes,
            model=Path(row.model_path or "").name,
            state_sha256=row.state_sha256,
            put_in=True,
            device=_device_for(run.device, archive.stat().st_size),
            data=data if data.is_file() else None,
            facts=self._store.library.facts(submodel.train_data.removeprefix("sha256:")),
        )


def _device_for(asked: str, size_bytes: int) -> str:
    """The GPU that a run asks for, if it has the memory for a context and a network of this size; else the CPU."""
    name = slot(asked)
    needed_bytes = CONTEXT_BYTES + COPIES * size_bytes
    return name if type_named(name) != CPU and (budget_of(name).free_bytes or 0) >= needed_bytes else CPU
