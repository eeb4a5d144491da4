"""Rows of the table of routes that concern the server: queue, devices, library, people, tokens, webhooks."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.values import ImportOptions
from unifiednn_core.service.doctor import Check
from unifiednn_core.service.facade import Service
from unifiednn_core.service.notifications import NewWebhook, WebhookView
from unifiednn_core.service.roles import NO_ROLE, Role
from unifiednn_core.spec.pooling import PoolMode
from unifiednn_core.spec.retention import Retention
from unifiednn_core.spec.run import PolicySpec
from unifiednn_core.spec.sharing import Sharing
from unifiednn_core.store.webhooks import OF_RUNS
from unifiednn_core.views.devices import DeviceCard, ListedDevice, device_document
from unifiednn_core.views.hosts import ListedHost
from unifiednn_core.views.monitoring import Figures, Health
from unifiednn_core.views.people import AuditView, PersonView, SharingView, TokenView
from unifiednn_core.views.runs import FileView
from unifiednn_core.web.action import MOST_ROWS, Action, Given

Document = dict[str, Any]
DEVICE, HOST = "/devices/{name}", "/hosts/{host}"
PERSON, UPLOAD, WEBHOOK = "/people/{person}", "/files/uploads/{upload}", "/webhooks/{hook}"


class PoolingChanges(Given):
    """How shared submissions become hybrids; what is left out stays."""

    mode: PoolMode | None = None
    gather_s: float | None = None
    """Seconds for which gathering collects."""
    gather_n: int | None = None
    """Submissions after which it ends at once."""
    policy: str | PolicySpec | None = None
    lanes: Literal["auto"] | int | None = None


class DeviceLimit(Given):
    """Most memory that may be used of a device."""

    limit_bytes: int | None
    """null lifts the limit."""


class PersonChanges(Given):
    """What an admin gives to a person; what is left out stays."""

    role: Literal[Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN, "none"] | None = None
    team: str | None = None
    """"" means no team."""
    tickets: int | None = None
    quota_bytes: Annotated[int, Field(ge=0)] | None = None
    """Most that their files may take; 0 removes it."""


class SharingChoice(Given):
    """Who may share a process."""

    sharing: Sharing


class NewToken(Given):
    """A token to create."""

    person: str
    role: Role
    days: float = 30


class CreatedToken(Given):
    """The token; it cannot be read again."""

    token: str


class RevokedToken(Given):
    """A token that counts no longer."""

    token_id: str


class NewHook(Given):
    """An address to tell of events."""

    url: str
    events: tuple[str, ...] = OF_RUNS
    """`run.completed`, `run.failed`, `run.interrupted`, the same of `submodel`, and `submodel.ready`."""


class ForgottenHost(Given):
    """A host that is no longer known."""

    host: str


class Hook(Given):
    """A webhook that was removed, or that took a test."""

    webhook_id: str


class PlaceInLine(Given):
    """A place in the line."""

    place: Annotated[int, Field(ge=1)]
    """1 runs next."""


class FileName(Given):
    """Another name for a file."""

    filename: str


class DeletedFile(Given):
    """A file that is no longer in the library."""

    sha256: str


class LastLines(Given):
    """How much of the audit log is asked for."""

    last: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 50


def queue(service: Service) -> Document:
    """The line; for operators also hybrids and pooling."""
    found: Document = {"line": service.queue.line()}
    if _operates(service):
        found |= {"hybrids": service.queue.hybrids(), "pooling": service.queue.pooling()}
    return found


def change_pooling(service: Service, given: PoolingChanges) -> Document:
    """Set how shared submissions become hybrids."""
    values = given.model_dump(exclude_none=True)
    if isinstance(given.policy, str):
        values["policy"] = {"name": given.policy}
    pooling = service.queue.pooling().changed(**values)
    service.queue.set_pooling(pooling)
    return pooling.model_dump(mode="json")


def devices(service: Service) -> object:
    """The devices; submitters see names and kinds alone."""
    if not _operates(service):
        return service.devices.device_choices()
    cards = {card.name: card for card in service.devices.cards()}
    return [device_document(one, cards.get(one.name)) for one in service.devices.devices()]


def drain(service: Service, name: str) -> ListedDevice:
    """Place nothing new on a device."""
    service.devices.drain_device(name)
    return _device(service, name)


def ready(service: Service, name: str) -> ListedDevice:
    """Use a device again."""
    service.devices.ready_device(name)
    return _device(service, name)


def drain_host(service: Service, host: str) -> ListedHost:
    """Place nothing new on a host."""
    service.devices.drain_host(host)
    return _host(service, host)


def ready_host(service: Service, host: str) -> ListedHost:
    """Use a host again."""
    service.devices.ready_host(host)
    return _host(service, host)


def forget_host(service: Service, host: str) -> ForgottenHost:
    """Forget a host that does not return."""
    service.devices.forget_host(host)
    return ForgottenHost(host=host)


def limit(service: Service, name: str, given: DeviceLimit) -> ListedDevice:
    """Limit the memory of a device."""
    service.devices.limit_device(name, given.limit_bytes)
    return _device(service, name)


def bring_in(service: Service, upload: str, given: ImportOptions) -> Document:
    """Import an upload that is complete, with options."""
    file = service.library.finish_upload(upload, given)
    return {"sha256": file.sha256, "kind": file.kind, "facts": file.facts}


def change_person(service: Service, person: str, given: PersonChanges) -> list[PersonView]:
    """Give a person a role, a team, tickets, or a quota; returns what the person has now."""
    if given == PersonChanges():
        raise BadInput.of("Changes", "body", "Nothing is given.", "Give role, team, tickets or quota_bytes.")
    if given.role is not None:
        service.people.give_role(person, NO_ROLE if given.role == NO_ROLE else Role.of(given.role).value)
    if given.team is not None:
        service.people.give_team(person, given.team)
    if given.tickets is not None:
        service.people.give_tickets(person, given.tickets)
    if given.quota_bytes is not None:
        service.people.set_quota(given.quota_bytes or None, person)
    return _person(service, person)


def forget(service: Service, person: str) -> list[PersonView]:
    """Remove a given role; returns what the person still has."""
    service.people.forget_person(person)
    return _person(service, person)


def set_sharing(service: Service, given: SharingChoice) -> SharingView:
    """Set who may share a process."""
    service.people.set_sharing(given.sharing.value)
    return service.people.sharing()


def create_token(service: Service, given: NewToken) -> CreatedToken:
    """Create a token."""
    return CreatedToken(token=service.people.create_token(given.person, given.role, given.days))


def revoke_token(service: Service, token_id: str) -> RevokedToken:
    """Revoke a token."""
    service.people.revoke_token(token_id)
    return RevokedToken(token_id=token_id)


def move(service: Service, run: str, given: PlaceInLine) -> Document:
    """Move a waiting run in the line; returns its new place."""
    return {"run_id": run, "place": service.queue.move(run, given.place)}


def retention(service: Service) -> Document:
    """How long ended runs stay, and what is due to be deleted, as the command prints it."""
    due = [
        {**one.run._asdict(), "what": one.what, "why": one.why, "frees_bytes": one.size_bytes}
        for one in service.retention.planned()
    ]
    rules = service.retention.retention().model_dump()
    return {"retention": rules, "due": due, "disk": asdict(service.retention.disk_use())}


def set_retention(service: Service, given: Retention) -> Document:
    """Set how long ended runs stay."""
    service.retention.set_retention(given)
    return retention(service)


def apply_retention(service: Service) -> Document:
    """Delete now what is due."""
    gone = len(service.retention.apply_retention())
    return {**retention(service), "deleted": gone}


def rename_file(service: Service, sha256: str, given: FileName) -> list[FileView]:
    """Give a file of one's own another name."""
    service.library.rename_file(sha256, given.filename)
    return [one for one in service.library.files() if one.sha256 == sha256]


def delete_file(service: Service, sha256: str) -> DeletedFile:
    """Delete a file from one's library."""
    service.library.delete_file(sha256)
    return DeletedFile(sha256=sha256)


def remove_webhook(service: Service, hook: str) -> Hook:
    """Send nothing more to an address."""
    service.notifications.remove_webhook(hook)
    return Hook(webhook_id=hook)


def test_webhook(service: Service, hook: str) -> Hook:
    """Send a test to an address now."""
    service.notifications.test_webhook(hook)
    return Hook(webhook_id=hook)


def _operates(service: Service) -> bool:
    return service.actor.role.rank >= Role.OPERATOR.rank


def _device(service: Service, name: str) -> ListedDevice:
    return next(one for one in service.devices.devices() if one.name == name)


def _host(service: Service, name: str) -> ListedHost:
    return next(one for one in service.devices.hosts() if one.name == name)


def _person(service: Service, person: str) -> list[PersonView]:
    return [one for one in service.people.people() if one.person == person.strip().lower()]


SERVER = (
    Action(
        method="GET",
        path="/queue",
        about="What waits for a device; for operators also hybrids and pooling.",
        calls=("line",),
        command="queue",
        does=queue,
    ),
    Action(
        method="PATCH",
        path="/queue/pooling",
        about="Set how shared submissions become hybrids.",
        calls=("set_pooling",),
        command="queue mode",
        does=change_pooling,
        given=PoolingChanges,
    ),
    Action(
        method="PUT",
        path="/runs/{run}/place",
        about="Move a waiting run in the line; 1 runs next.",
        calls=("move",),
        command="queue move",
        does=move,
        given=PlaceInLine,
    ),
    Action(
        method="GET",
        path="/hosts",
        about="List the machines that offer devices.",
        calls=("hosts",),
        command="hosts",
        does=lambda service: service.devices.hosts(),
        result=tuple[ListedHost, ...],
    ),
    Action(
        method="POST",
        path=f"{HOST}/drain",
        about="Place nothing new on a host.",
        calls=("drain_host",),
        command="hosts drain",
        does=drain_host,
        result=ListedHost,
    ),
    Action(
        method="POST",
        path=f"{HOST}/ready",
        about="Use a host again.",
        calls=("ready_host",),
        command="hosts ready",
        does=ready_host,
        result=ListedHost,
    ),
    Action(
        method="DELETE",
        path=HOST,
        about="Forget a host that is away and does not return.",
        calls=("forget_host",),
        command="hosts forget",
        does=forget_host,
        result=ForgottenHost,
    ),
    Action(
        method="GET",
        path="/devices",
        about="List the devices; submitters see names and kinds alone.",
        calls=("device_choices",),
        command="devices",
        does=devices,
        result=list[Document],
    ),
    Action(
        method="GET",
        path="/devices/use",
        about="Memory, load, temperature and power of each device now.",
        calls=("cards",),
        does=lambda service: service.devices.cards(),
        result=tuple[DeviceCard, ...],
    ),
    Action(
        method="POST",
        path=f"{DEVICE}/drain",
        about="Place nothing new on a device.",
        calls=("drain_device",),
        command="devices drain",
        does=drain,
        result=ListedDevice,
    ),
    Action(
        method="POST",
        path=f"{DEVICE}/ready",
        about="Use a device again.",
        calls=("ready_device",),
        command="devices ready",
        does=ready,
        result=ListedDevice,
    ),
    Action(
        method="PUT",
        path=f"{DEVICE}/limit",
        about="Limit the memory that may be used of a device.",
        calls=("limit_device",),
        command="devices limit",
        does=limit,
        given=DeviceLimit,
        result=ListedDevice,
    ),
    Action(
        method="GET",
        path="/files",
        about="Models and data sets of your library, newest first.",
        calls=("files",),
        does=lambda service: service.library.files(),
        result=tuple[FileView, ...],
    ),
    Action(
        method="PATCH",
        path="/files/{sha256}",
        about="Give a file of your own another name.",
        calls=("rename_file",),
        does=rename_file,
        given=FileName,
        result=list[FileView],
    ),
    Action(
        method="DELETE",
        path="/files/{sha256}",
        about="Delete a file from your library.",
        calls=("delete_file",),
        does=delete_file,
        result=DeletedFile,
    ),
    Action(
        method="POST",
        path="/files/uploads",
        about="Begin an upload of any size.",
        calls=("begin_upload",),
        command="import",
        does=None,
        status=201,
    ),
    Action(
        method="GET",
        path=UPLOAD,
        about="How many bytes of an upload have arrived.",
        calls=("upload",),
        command="import",
        does=None,
    ),
    Action(
        method="PATCH",
        path=UPLOAD,
        about="Send bytes from Upload-Offset on.",
        calls=("append_upload",),
        command="import",
        does=None,
        status=204,
    ),
    Action(method="DELETE", path=UPLOAD, about="Delete an upload.", calls=("drop_upload",), does=None, status=204),
    Action(
        method="POST",
        path=f"{UPLOAD}/finish",
        about="Import an upload that is complete, as it is.",
        calls=("finish_upload",),
        command="import",
        does=None,
        result=FileView,
    ),
    Action(
        method="POST",
        path="/uploads/{upload}/import",
        about="Import an upload that is complete, with options.",
        calls=("finish_upload",),
        command="import",
        does=bring_in,
        given=ImportOptions,
    ),
    Action(
        method="GET",
        path="/people",
        about="People with an assigned role, team or tickets.",
        calls=("people",),
        command="people list",
        does=lambda service: service.people.people(),
        result=tuple[PersonView, ...],
    ),
    Action(
        method="PATCH",
        path=PERSON,
        about="Give a person a role, a team, tickets, or a quota.",
        calls=("give_role", "give_team", "give_tickets", "set_quota"),
        command="people give",
        does=change_person,
        given=PersonChanges,
        result=list[PersonView],
    ),
    Action(
        method="DELETE",
        path=f"{PERSON}/role",
        about="Remove an assigned role.",
        calls=("forget_person",),
        command="people forget",
        does=forget,
        result=list[PersonView],
    ),
    Action(
        method="GET",
        path="/sharing",
        about="Whose networks may share a process.",
        calls=("sharing",),
        command="people sharing",
        does=lambda service: service.people.sharing(),
        result=SharingView,
    ),
    Action(
        method="PUT",
        path="/sharing",
        about="Set whose networks may share a process.",
        calls=("set_sharing",),
        command="people sharing",
        does=set_sharing,
        given=SharingChoice,
        result=SharingView,
    ),
    Action(
        method="GET",
        path="/tokens",
        about="All tokens, newest first, without their secrets.",
        calls=("tokens",),
        command="token list",
        does=lambda service: service.people.tokens(),
        result=tuple[TokenView, ...],
    ),
    Action(
        method="POST",
        path="/tokens",
        about="Create a token; it is shown once.",
        calls=("create_token",),
        command="token create",
        does=create_token,
        given=NewToken,
        result=CreatedToken,
        status=201,
    ),
    Action(
        method="DELETE",
        path="/tokens/{token_id}",
        about="Revoke a token at once.",
        calls=("revoke_token",),
        command="token revoke",
        does=revoke_token,
        result=RevokedToken,
    ),
    Action(
        method="GET",
        path="/audit",
        about="Who did what and when, newest first.",
        calls=("audit",),
        command="audit",
        does=lambda service, given: service.people.audit(given.last),
        given=LastLines,
        result=tuple[AuditView, ...],
    ),
    Action(
        method="GET",
        path="/retention",
        about="How long ended runs stay, and what is due to be deleted.",
        calls=("retention", "planned", "disk_use"),
        command="retention",
        does=retention,
    ),
    Action(
        method="PUT",
        path="/retention",
        about="Set how long ended runs stay; null keeps everything.",
        calls=("set_retention",),
        command="retention",
        does=set_retention,
        given=Retention,
    ),
    Action(
        method="POST",
        path="/retention/apply",
        about="Delete now what is due.",
        calls=("apply_retention",),
        command="retention",
        does=apply_retention,
    ),
    Action(
        method="GET",
        path="/webhooks",
        about="Addresses that receive events, without their secrets.",
        calls=("webhooks",),
        command="webhooks list",
        does=lambda service: service.notifications.webhooks(),
        result=tuple[WebhookView, ...],
    ),
    Action(
        method="POST",
        path="/webhooks",
        about="Tell an address of events; its secret is shown once.",
        calls=("add_webhook",),
        command="webhooks add",
        given=NewHook,
        result=NewWebhook,
        status=201,
        does=lambda service, given: service.notifications.add_webhook(given.url, given.events),
    ),
    Action(
        method="DELETE",
        path=WEBHOOK,
        about="Send nothing more to an address.",
        calls=("remove_webhook",),
        command="webhooks remove",
        does=remove_webhook,
        result=Hook,
    ),
    Action(
        method="POST",
        path=f"{WEBHOOK}/test",
        about="Send a test to an address now.",
        calls=("test_webhook",),
        command="webhooks test",
        does=test_webhook,
        result=Hook,
    ),
    Action(
        method="GET",
        path="/figures",
        about="The figures of /metrics as JSON.",
        calls=("figures",),
        does=lambda service: service.monitoring.figures(),
        result=Figures,
    ),
    Action(
        method="GET",
        path="/health",
        about="Health of the parts of the server.",
        calls=("health",),
        does=lambda service: service.monitoring.health(),
        result=Health,
    ),
    Action(
        method="GET",
        path="/doctor",
        about="What this machine offers and lacks, and what keeps people apart on it.",
        calls=("doctor",),
        command="doctor",
        does=lambda service: service.monitoring.doctor(),
        result=tuple[Check, ...],
    ),
)
