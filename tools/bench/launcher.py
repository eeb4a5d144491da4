"""Starts the workers of a bench cold or warm, as asked, and nothing beside a template that does not count it."""

from tools.machine import until
from unifiednn_core.preflight.client import template
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.store.schema import HYBRID


class BenchLauncher(LocalLauncher):
    """The product's launcher. Before each start, the template has loaded everything, or is gone."""

    warm = False
    """Whether the next hybrid is forked from the template."""

    def start(self, run_id: str, threads: int, mode: str) -> int:
        """Start a worker; returns its process id. Raises `ToolFailed` if the template does not come up."""
        if self.warm and mode == HYBRID:
            template.start()
            until(template.ready, "the template")
        else:
            template.stop()
        return super().start(run_id, threads, mode)
