"""The drill's side of a zygote: brings one up, sends it requests, ends it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unifiednn_core.drill.plan import Round
from unifiednn_core.drill.requests import Request, ask, named
from unifiednn_core.errors import DrillFailed

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_ENDS_WITHIN_S = 30.0


class Zygote:
    """A running zygote."""

    def __init__(self, socket_path: Path):
        self._socket_path = socket_path

    def ask(self, request: Request) -> int | None:
        """Send a request; raises `DrillFailed` where the zygote is gone."""
        try:
            return ask(self._socket_path, request)
        except OSError as error:
            raise DrillFailed(f"The process that forks workers is gone ({error}). Start the drill again.") from error

    def plan(self, rounds: tuple[Round, ...]) -> None:
        """Tell it what happens to the workers that come next."""
        for number, part in enumerate(rounds):
            fault, damage = part.fault, part.damage
            fate = Request(
                do="next_worker",
                number=number,
                fresh=part.fresh,
                fault=named(fault),
                times=fault.times if fault else 1,
                damage=damage.how if damage else "",
                share=damage.share if damage else 0.0,
            )
            self.ask(fate)


@contextmanager
def zygote(log: Path) -> Iterator[Zygote]:
    """A zygote for the time of the block; it takes all its children with it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNIFIEDNN_")}
    environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PACKAGE_PARENT), environment.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="drill-") as folder, log.open("ab") as written:  # a socket's path is short
        socket_path = Path(folder) / "zygote"
        command = [sys.executable, "-m", "unifiednn_core.drill.zygote", str(socket_path)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written, env=environment
        ) as process:
            try:
                if process.stdout is None or not process.stdout.readline():
                    raise DrillFailed(f"The process that forks workers did not come up; {log} says why.")
                yield Zygote(socket_path)
            finally:
                if process.stdin is not None:
                    process.stdin.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDS_WITHIN_S)
                process.kill()
