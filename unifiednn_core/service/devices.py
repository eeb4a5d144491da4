"""Devices: which there are, which take new work, and how much of their memory may be used."""

from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine.devices import devices_of_host
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.roles import Role
from unifiednn_core.store.devices import AWAY, DRAINING, READY, DeviceRow, Devices
from unifiednn_core.views.devices import DeviceChoice, ListedDevice
from unifiednn_core.views.people import view_of


class DeviceService:
    """Shows devices and what a spec can ask for; drains devices and limits their memory."""

    def __init__(self, guard: Guard, devices: Devices):
        self.guard, self._devices = guard, devices

    @permission(Role.OPERATOR, audited=False)
    def devices(self) -> tuple[ListedDevice, ...]:
        """All devices, also those that drain or are away: GPUs first."""
        return tuple(view_of(ListedDevice, row, cpus=tuple(row.cpus)) for row in self._known())

    @permission(Role.SUBMITTER, audited=False)
    def device_choices(self) -> tuple[DeviceChoice, ...]:
        """Name and kind of each device that is there, and nothing about its use."""
        return tuple(view_of(DeviceChoice, row) for row in self._known() if row.state != AWAY)

    @permission(Role.OPERATOR, about="{name}")
    def drain_device(self, name: str) -> None:
        """Place nothing new on a device; what trains there goes on elsewhere. Raises `NotFound`."""
        self._known()
        self._devices.set_state(name, DRAINING)

    @permission(Role.OPERATOR, about="{name}")
    def ready_device(self, name: str) -> None:
        """Use a device again that drains; raises `NotFound`, and `BadInput` for one that is away."""
        if any(row.name == name and row.state == AWAY for row in self._known()):
            message, remedy = f"{name} is away: its machine does not have it now.", "It gets ready when it returns."
            raise BadInput.of("Device", "name", message, remedy)
        self._devices.set_state(name, READY)

    @permission(Role.OPERATOR, about="{name} {limit_bytes}")
    def limit_device(self, name: str, limit_bytes: int | None) -> None:
        """Use at most so much memory of a device from now on, or all of it with None.

        What trains there goes on. Raises `NotFound`, and `BadInput` for a limit that no device has.
        """
        if limit_bytes is not None and not 0 < limit_bytes < 2**63:
            remedy = 'Give a size such as 4GiB, or "none". To use nothing of it, drain it.'
            raise BadInput.of("Limit", "limit", f"A device cannot be limited to {limit_bytes} bytes.", remedy)
        self._known()
        self._devices.set_limit(name, limit_bytes)

    def _known(self) -> list[DeviceRow]:
        """All devices, as they are now also where no supervisor runs."""
        if not self._devices.are_watched():
            self._devices.write(devices_of_host())
        return self._devices.all()
