"""A launcher that has its workers forked by the zygote, and otherwise behaves as the local one does."""

from pathlib import Path

from unifiednn_core.drill.requests import Request, ask
from unifiednn_core.drill.scene import Scene
from unifiednn_core.runtime import at_work


class ForkLauncher:
    """Workers as forks of a process that has torch loaded already. They outlive the process that asks for them."""

    def __init__(self, scene: Scene, socket_path: Path):
        self._scene, self._socket_path = scene, socket_path
        self._pids: dict[str, int] = {}

    def start(self, run_id: str, threads: int, mode: str) -> int | None:
        """Start the worker of a run; what happens to it was told the zygote before."""
        request = Request(do="worker", folder=str(self._scene.folder), run_id=run_id, threads=threads)
        pid = ask(self._socket_path, request)
        if pid is not None:
            self._pids[run_id] = pid
        return pid

    def exit_code(self, run_id: str) -> int | None:
        """Exit code of a worker that was started here and has ended."""
        pid = self._pids.get(run_id)
        return None if pid is None else ask(self._socket_path, Request(do="code", pid=pid))

    def close(self) -> None:
        """Let go of the workers; they go on."""
        self._pids.clear()

    def last_mark(self, run_id: str) -> str | None:
        """What the last worker of a run did last, as `NAME:DOING`."""
        return at_work.last_mark(self._scene.home.at_work(run_id))
