"""Commands of the store as orders for the engine."""

from collections.abc import Callable

from unifiednn_core.lifecycle import Event
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec import PolicySpec
from unifiednn_core.store.commands import Command, Verb
from unifiednn_core.training.orders import AnyOrder, Join, Order, Reorder, SetEpochs, SetPolicy, SetPriority
from unifiednn_core.training.submodel import SubModel


def joins(command: Command) -> str | None:
    """Name of the sub-model that the command brings into the hybrid; None where it brings none."""
    if command.verb is Verb.ADD:
        name: str = command.arguments["submodel"]["name"]
        return name
    return command.submodel if command.verb is Verb.RETRY else None


def order_of(command: Command, prepare: Callable[[], SubModel] | None = None) -> AnyOrder:
    """Order that a command comes to; `prepare` merges the sub-model that an add or a retry brings."""
    name, arguments = command.submodel or "", command.arguments
    match command.verb:
        case Verb.PRIORITY:
            return SetPriority(name, arguments["priority"], command.id)
        case Verb.EPOCHS:
            return SetEpochs(name, arguments["epochs"], command.id)
        case Verb.ORDER:
            return Reorder(tuple(arguments["names"]), command.id)
        case Verb.POLICY:
            policy = PolicySpec.model_validate(arguments["policy"])
            return SetPolicy(policy_named(policy.name, policy.parameters), command.id)
        case Verb.ADD | Verb.RETRY if prepare is not None:
            return Join(joins(command) or "", prepare, command.id)
        case _:
            return Order(Event(command.verb), command.submodel, command.id)
