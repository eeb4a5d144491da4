"""All that UnifiedNN asks of Ray. It needs `pip install 'unifiednn[ray]'`, so it is imported for `unifiednn ray` alone.

One detached actor per node holds its agent, and outlives this process. So do placement groups of one device each, which
reserve devices. Whoever watches next finds both.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from unifiednn_core.base.errors import BadInput
from unifiednn_core.runtime.agent import host_named
from unifiednn_core.runtime.ray_node import NodeAgent
from unifiednn_core.runtime.ray_plan import Reservation, TrainingNode
from unifiednn_core.runtime.ray_watch import RayNode
from unifiednn_core.spec.devices import CPU, CUDA

NAMESPACE = "unifiednn"
ANSWERS_WITHIN_S = 10.0
PARKS_WITHIN_S = 90.0
_NODE_LABEL = "ray.io/node-id"
_ENVIRONMENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else an actor without GPUs of its own sees none
    "RAY_kill_child_processes_on_worker_exit": "0",  # else its workers end with the actor
}
_log = logging.getLogger(__name__)


class RayCluster:
    """A connection to a Ray cluster. For one thread."""

    def __init__(self, address: str):
        """Connect; raises `BadInput` if no cluster answers there."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            message = f"No Ray cluster answers at '{address}': {str(error).splitlines()[0]}"
            raise BadInput.of("Ray", "address", message, "Run this on a node of the cluster (ray start).") from None
        self._asked: dict[str, ray.ObjectRef[list[str]]] = {}
        """By group, the task in it that tells which device it got."""

    def close(self) -> None:
        """Disconnect; agents and reservations stay."""
        ray.shutdown()

    # -- nodes and agents

    def nodes(self) -> list[RayNode]:
        """All nodes that Ray knows, also dead ones."""
        return [_node(one) for one in ray.nodes()]

    def start_agents(self, nodes: Iterable[TrainingNode], url: str) -> None:
        """Start the agents of these nodes that are not there yet; `url` is that of the database."""
        known = set(ray.util.list_named_actors())
        for node in nodes:
            if _actor(node.id) not in known:
                ray.remote(NodeAgent).options(
                    name=_actor(node.id),
                    lifetime="detached",
                    get_if_exists=True,
                    num_cpus=0,
                    num_gpus=0,
                    max_restarts=-1,
                    max_task_retries=-1,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
                    runtime_env={"env_vars": _ENVIRONMENT},
                ).remote(url, node.host, CUDA if node.resource == "GPU" else CPU)
                _log.info("An agent starts on %s.", node.host)

    def offer(self, node: str, devices: Sequence[str]) -> None:
        """Tell the agent of a node which devices it offers; it may hear of it later."""
        agent = self._agent(node)
        if agent is not None:
            agent.offer.remote(list(devices))

    def names(self, node: str, ids: Sequence[str]) -> frozenset[str] | None:
        """Names of these devices in the store; None while the agent of the node does not answer."""
        agent = self._agent(node)
        try:
            return None if agent is None else frozenset(ray.get(agent.names.remote(ids), timeout=ANSWERS_WITHIN_S))
        except (RayError, GetTimeoutError):
            return None

    def end(self) -> None:
        """Have all agents park what trains there, end them, and give all devices back."""
        found = [self._agent(name.partition("/")[2]) for name in ray.util.list_named_actors()]
        agents = [agent for agent in found if agent is not None]
        parked = [agent.park.remote() for agent in agents]
        if parked:
            ray.wait(parked, num_returns=len(parked), timeout=PARKS_WITHIN_S)
        for agent in agents:
            ray.kill(agent, no_restart=True)
        for name in self.groups():
            if Reservation.named(name, 0.0) is not None:
                self.release(name)

    def _agent(self, node: str) -> Any:
        try:
            return ray.get_actor(_actor(node))
        except ValueError:  # none yet, or none any more
            return None

    # -- reservations

    def groups(self) -> list[str]:
        """Names of all reservations in the cluster, by any owner."""
        return [one["name"] for one in _table()]

    def reserve(self, group: str, node: TrainingNode) -> None:
        """Ask for a device of a node."""
        bundle: dict[str, float] = {node.resource: node.amount}
        where = [{_NODE_LABEL: node.id}]
        made = placement_group([bundle], name=group, lifetime="detached", bundle_label_selector=where)
        self._ask(group, made, bundle)

    def granted(self, group: str) -> list[str] | None:
        """Ids of the GPUs that a group has got, `cpu` for CPUs; None as long as it waits."""
        if group not in self._asked:  # found after a restart
            bundles = next((one["bundles"] for one in _table() if one["name"] == group), None)
            if bundles is None:  # somebody removed it, or it was never made
                return None
            self._ask(group, get_placement_group(group), *bundles.values())
        done, _ = ray.wait([self._asked[group]], timeout=0)
        try:
            return ray.get(done[0]) if done else None
        except RayError:  # it was removed, or its node died
            del self._asked[group]
            return None

    def release(self, group: str) -> None:
        """Give a reservation back, or withdraw the request."""
        self._asked.pop(group, None)
        try:
            remove_placement_group(get_placement_group(group))
        except ValueError:  # it is gone
            return

    def _ask(self, group: str, reserved: PlacementGroup, bundle: dict[str, float]) -> None:
        inside = PlacementGroupSchedulingStrategy(reserved, placement_group_bundle_index=0)
        gpus = bundle.get("GPU", 0)
        task = ray.remote(_ids).options(
            num_gpus=gpus, num_cpus=0 if gpus else bundle.get("CPU", 0), max_retries=0, scheduling_strategy=inside
        )
        self._asked[group] = task.remote()

    # -- the autoscaler

    def request(self, resource: str, amount: float, more: int) -> None:
        """Ask the autoscaler for a cluster in which `more` bundles fit beside all that is taken now."""
        total, available = ray.cluster_resources().get(resource, 0.0), ray.available_resources().get(resource, 0.0)
        taken = round((total - available) / amount) if more else 0
        request_resources(bundles=[{resource: amount}] * (taken + more))


def _table() -> list[dict[str, Any]]:
    return [one for one in placement_group_table().values() if one["state"] != "REMOVED"]


def _ids() -> list[str]:
    """Ids of the devices of the bundle that this task runs in."""
    return ray.get_runtime_context().get_accelerator_ids().get("GPU") or [CPU]


def _actor(node: str) -> str:
    return f"agent/{node}"


def _node(facts: dict[str, Any]) -> RayNode:
    """A node as `ray.nodes` describes it. Its host is the name that `ray start` gave it, else the machine's."""
    given = facts["NodeName"] if facts["NodeName"] != facts["NodeManagerAddress"] else facts["NodeManagerHostname"]
    try:
        host = host_named(given)
    except BadInput:
        host = f"node-{facts['NodeID'][:8]}"
    has = facts["Resources"]
    return RayNode(facts["NodeID"], host, facts["Alive"], int(has.get("GPU", 0)), int(has.get("CPU", 0)))
