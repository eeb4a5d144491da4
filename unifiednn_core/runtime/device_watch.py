"""A thread beside the supervisor's that samples the devices. NVML may hang with a broken card: nothing waits for it."""

import logging
from dataclasses import asdict

from unifiednn_core.base.trouble import log_error
from unifiednn_core.machine.device_samples import DeviceSampler
from unifiednn_core.runtime.background import Background
from unifiednn_core.spec.devices import SERVER, host_of
from unifiednn_core.store import Store
from unifiednn_core.store.devices import AWAY
from unifiednn_core.store.schema import HybridRow

PERIOD_S, IDLE_S = 2.0, 10.0
"""Between samples, while something trains and while nothing does; the first comes as soon as something does."""
PATIENCE_S = 5.0

_log = logging.getLogger(__name__)


class DeviceWatch(Background):
    """Samples the devices of this machine, every two seconds while something trains; `start` begins the thread."""

    name = "device-watch"
    patience_s = PATIENCE_S

    def __init__(self, store: Store, sampler: DeviceSampler | None = None):
        self._store, self._sampler = store, sampler or DeviceSampler()
        super().__init__()

    def sample(self) -> None:
        """Write one sample of each device that is there."""
        rows = self._store.devices.all()
        devices = [row.device for row in rows if row.state != AWAY and host_of(row.name) == SERVER]
        held, sizes = self._held(), self._store.telemetry.memory_now()
        workers = {hybrid.worker_pid for hybrid in held if hybrid.worker_pid is not None}
        own_bytes = {
            name: sizes.get(hybrid.id, 0) if name == hybrid.device else 0
            for hybrid in held
            if hybrid.device is not None
            for name in (hybrid.device, *hybrid.also)
        }
        found = self._sampler.sample(devices, workers, own_bytes)
        if found:
            self._store.device_samples.write(map(asdict, found))

    def _held(self) -> list[HybridRow]:
        return [hybrid for hybrid in self._store.workers.held() if host_of(hybrid.device) == SERVER]

    def _watch(self) -> None:
        since_s = IDLE_S
        while not self._stop.wait(PERIOD_S):
            since_s += PERIOD_S
            try:
                if since_s >= IDLE_S or self._held():
                    self.sample()
                    since_s = 0.0
            except Exception:  # a full disk or a locked store: figures of devices are no reason to stop
                log_error(_log, "The devices could not be sampled; it is tried again.")
