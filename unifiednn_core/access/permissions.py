"""The one table of permissions: for each action the least role, and on what of his own a submitter may take it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from unifiednn_core.access.roles import Actor, Role
from unifiednn_core.errors import Forbidden


class Own(StrEnum):
    """What has to be a submitter's own. Everybody above acts on everything."""

    ANYTHING = "anything"
    """Nothing has to be: it is about no run and no file, or about what the person hands in."""
    SHARE = "share"
    """A sub-model of the run; the others in it are left out of what he is shown."""
    PART = "part"
    """The sub-model that is named; where none is, the whole run."""
    RUN = "run"
    """The whole run: he handed it in, and all its sub-models are his."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may take an action, and whether the ledger is told."""

    least: Role
    own: Own = Own.ANYTHING
    told: bool = True


def _looking(least: Role, own: Own = Own.ANYTHING) -> Rule:
    return Rule(least, own, told=False)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        # What there is to choose from, and whether anything goes on.
        "policies": _looking(Role.VIEWER),
        "architectures": _looking(Role.VIEWER),
        "architecture_defaults": _looking(Role.VIEWER),
        "supervisor_alive": _looking(Role.VIEWER),
        "start_supervisor": _looking(Role.VIEWER),
        # Looking at runs.
        "runs": _looking(Role.VIEWER, Own.SHARE),
        "observe": _looking(Role.VIEWER, Own.SHARE),
        "graph_dot": _looking(Role.VIEWER, Own.SHARE),
        "comparable": _looking(Role.VIEWER, Own.SHARE),
        "comparison": _looking(Role.VIEWER, Own.RUN),
        # Files, and what is being put together.
        "files": _looking(Role.SUBMITTER),
        "trained": _looking(Role.SUBMITTER),
        "inspect": _looking(Role.SUBMITTER),
        "check": _looking(Role.SUBMITTER),
        "draft": _looking(Role.SUBMITTER),
        "import_file": Rule(Role.SUBMITTER),
        "prepare_samples": Rule(Role.SUBMITTER),
        "save_draft": _looking(Role.SUBMITTER),
        "delete_draft": Rule(Role.SUBMITTER),
        "begin_upload": Rule(Role.SUBMITTER),
        "upload": _looking(Role.SUBMITTER),
        "append_upload": _looking(Role.SUBMITTER),
        "finish_upload": Rule(Role.SUBMITTER),
        "drop_upload": Rule(Role.SUBMITTER),
        "server_files": _looking(Role.SUBMITTER),
        "import_server_file": Rule(Role.OPERATOR),
        "sandbox": _looking(Role.VIEWER),
        "import_converted": Rule(Role.SUBMITTER),
        "split_data": Rule(Role.SUBMITTER),
        # Runs.
        "submit": Rule(Role.SUBMITTER),
        "submit_arm": Rule(Role.SUBMITTER),
        "start_baseline": Rule(Role.SUBMITTER, Own.RUN),
        "add_submodel": Rule(Role.SUBMITTER, Own.RUN),
        "reorder": Rule(Role.SUBMITTER, Own.RUN),
        "set_policy": Rule(Role.SUBMITTER, Own.RUN),
        "set_priority": Rule(Role.SUBMITTER, Own.RUN),
        "set_epochs": Rule(Role.SUBMITTER, Own.PART),
        "pause": Rule(Role.SUBMITTER, Own.PART),
        "resume": Rule(Role.SUBMITTER, Own.PART),
        "save": Rule(Role.SUBMITTER, Own.PART),
        "stop": Rule(Role.SUBMITTER, Own.PART),
        "discard": Rule(Role.SUBMITTER, Own.PART),
        "retry": Rule(Role.SUBMITTER, Own.PART),
        # Downloads.
        "artifact": Rule(Role.SUBMITTER, Own.PART),
        "download": Rule(Role.SUBMITTER, Own.PART),
        "checkpoint": Rule(Role.SUBMITTER, Own.PART),
        "download_checkpoint": Rule(Role.SUBMITTER, Own.PART),
        "document": Rule(Role.SUBMITTER, Own.SHARE),
        "spec_document": Rule(Role.SUBMITTER, Own.SHARE),
        "comparison_document": Rule(Role.SUBMITTER, Own.RUN),
        "report": Rule(Role.SUBMITTER, Own.RUN),
        # People.
        "people": _looking(Role.ADMIN),
        "give_role": Rule(Role.ADMIN),
        "forget_person": Rule(Role.ADMIN),
        "tokens": _looking(Role.ADMIN),
        "create_token": Rule(Role.ADMIN),
        "revoke_token": Rule(Role.ADMIN),
        "ledger": _looking(Role.ADMIN),
    }
)


def require_role(actor: Actor, action: str) -> Rule:
    """The rule of an action; raises `Forbidden` where the actor's role is too low for it."""
    rule = RULES[action]
    if actor.role.rank < rule.least.rank:
        raise Forbidden(
            f"{actor.name} has the role {actor.role}, and this takes the role {rule.least}. Ask an admin for it."
        )
    return rule
