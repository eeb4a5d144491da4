"""Rows of the table of routes that concern the server: queue, devices, library, people, tokens, webhooks."""

from dataclasses import asdict
from typing import Annotated, Literal

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
from unifiednn_core.views.monitoring import Figures, Health
from unifiednn_core.views.people import AuditView, PersonView, SharingView, TokenView
from unifiednn_core.views.runs import FileView
from unifiednn_core.web.action import MOST_ROWS, Document, Given, Routes

DEVICE = "/devices/{name}"
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


def _operates(service: Service) -> bool:
    return service.actor.role.rank >= Role.OPERATOR.rank


def _device(service: Service, name: str) -> ListedDevice:
    return next(one for one in service.devices.devices() if one.name == name)


def _person(service: Service, person: str) -> list[PersonView]:
    return [one for one in service.people.people() if one.person == person.strip().lower()]


SERVER = Routes()


@SERVER.add("GET", "/queue", "line", command="queue")
def queue(service: Service) -> Document:
    """What waits for a device; for operators also hybrids and pooling."""
    found: Document = {"line": service.queue.line()}
    if _operates(service):
        found |= {"hybrids": service.queue.hybrids(), "pooling": service.queue.pooling()}
    return found


@SERVER.add("PATCH", "/queue/pooling", "set_pooling", command="queue mode")
def change_pooling(service: Service, given: PoolingChanges) -> Document:
    """Set how shared submissions become hybrids."""
    values = given.model_dump(exclude_none=True)
    if isinstance(given.policy, str):
        values["policy"] = {"name": given.policy}
    pooling = service.queue.pooling().changed(**values)
    service.queue.set_pooling(pooling)
    return pooling.model_dump(mode="json")


@SERVER.add("PUT", "/runs/{run}/place", "move", command="queue move")
def move(service: Service, run: str, given: PlaceInLine) -> Document:
    """Move a waiting run in the line; 1 runs next."""
    return {"run_id": run, "place": service.queue.move(run, given.place)}


@SERVER.add("GET", "/devices", "device_choices", command="devices", result=list[Document])
def devices(service: Service) -> object:
    """List the devices; submitters see names and kinds alone."""
    if not _operates(service):
        return service.devices.device_choices()
    cards = {card.name: card for card in service.devices.cards()}
    return [device_document(one, cards.get(one.name)) for one in service.devices.devices()]


SERVER.get(
    "/devices/use", "Memory, load, temperature and power of each device now.", "devices.cards", tuple[DeviceCard, ...]
)
SERVER.order(f"{DEVICE}/drain", "Place nothing new on a device.", "devices.drain_device", _device, "devices drain")
SERVER.order(f"{DEVICE}/ready", "Use a device again.", "devices.ready_device", _device, "devices ready")


@SERVER.add("PUT", f"{DEVICE}/limit", "limit_device", command="devices limit")
def limit(service: Service, name: str, given: DeviceLimit) -> ListedDevice:
    """Limit the memory that may be used of a device."""
    service.devices.limit_device(name, given.limit_bytes)
    return _device(service, name)


SERVER.get("/files", "Models and data sets of your library, newest first.", "library.files", tuple[FileView, ...])


@SERVER.add("PATCH", "/files/{sha256}", "rename_file")
def rename_file(service: Service, sha256: str, given: FileName) -> list[FileView]:
    """Give a file of your own another name."""
    service.library.rename_file(sha256, given.filename)
    return [one for one in service.library.files() if one.sha256 == sha256]


@SERVER.add("DELETE", "/files/{sha256}", "delete_file")
def delete_file(service: Service, sha256: str) -> DeletedFile:
    """Delete a file from your library."""
    service.library.delete_file(sha256)
    return DeletedFile(sha256=sha256)


SERVER.file(
    "/files/uploads",
    "Begin an upload of any size.",
    "begin_upload",
    command="import",
    status=201,
    result=Document,
    method="POST",
)
SERVER.file(UPLOAD, "How many bytes of an upload have arrived.", "upload", command="import", result=Document)
SERVER.file(
    UPLOAD,
    "Send bytes from Upload-Offset on.",
    "append_upload",
    command="import",
    status=204,
    result=Document,
    method="PATCH",
)
SERVER.file(UPLOAD, "Delete an upload.", "drop_upload", status=204, result=Document, method="DELETE")
SERVER.file(
    f"{UPLOAD}/finish",
    "Import an upload that is complete, as it is.",
    "finish_upload",
    command="import",
    result=FileView,
    method="POST",
)


@SERVER.add("POST", "/uploads/{upload}/import", "finish_upload", command="import")
def bring_in(service: Service, upload: str, given: ImportOptions) -> Document:
    """Import an upload that is complete, with options."""
    file = service.library.finish_upload(upload, given)
    return {"sha256": file.sha256, "kind": file.kind, "facts": file.facts}


SERVER.get(
    "/people", "People with an assigned role, team or tickets.", "people.people", tuple[PersonView, ...], "people list"
)


@SERVER.add("PATCH", PERSON, "give_role", "give_team", "give_tickets", "set_quota", command="people give")
def change_person(service: Service, person: str, given: PersonChanges) -> list[PersonView]:
    """Give a person a role, a team, tickets, or a quota."""
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


@SERVER.add("DELETE", f"{PERSON}/role", "forget_person", command="people forget")
def forget(service: Service, person: str) -> list[PersonView]:
    """Remove an assigned role."""
    service.people.forget_person(person)
    return _person(service, person)


SERVER.get("/sharing", "Whose networks may share a process.", "people.sharing", SharingView, "people sharing")


@SERVER.add("PUT", "/sharing", "set_sharing", command="people sharing")
def set_sharing(service: Service, given: SharingChoice) -> SharingView:
    """Set whose networks may share a process."""
    service.people.set_sharing(given.sharing.value)
    return service.people.sharing()


SERVER.get(
    "/tokens", "All tokens, newest first, without their secrets.", "people.tokens", tuple[TokenView, ...], "token list"
)


@SERVER.add("POST", "/tokens", "create_token", command="token create", status=201)
def create_token(service: Service, given: NewToken) -> CreatedToken:
    """Create a token; it is shown once."""
    return CreatedToken(token=service.people.create_token(given.person, given.role, given.days))


@SERVER.add("DELETE", "/tokens/{token_id}", "revoke_token", command="token revoke")
def revoke_token(service: Service, token_id: str) -> RevokedToken:
    """Revoke a token at once."""
    service.people.revoke_token(token_id)
    return RevokedToken(token_id=token_id)


@SERVER.add("GET", "/audit", "audit", command="audit")
def audit(service: Service, given: LastLines) -> tuple[AuditView, ...]:
    """Who did what and when, newest first."""
    return service.people.audit(given.last)


@SERVER.add("GET", "/retention", "retention", "planned", "disk_use", command="retention")
def retention(service: Service) -> Document:
    """How long ended runs stay, and what is due to be deleted."""
    due = [
        {**one.run._asdict(), "what": one.what, "why": one.why, "frees_bytes": one.size_bytes}
        for one in service.retention.planned()
    ]
    rules = service.retention.retention().model_dump()
    return {"retention": rules, "due": due, "disk": asdict(service.retention.disk_use())}


@SERVER.add("PUT", "/retention", "set_retention", command="retention")
def set_retention(service: Service, given: Retention) -> Document:
    """Set how long ended runs stay; null keeps everything."""
    service.retention.set_retention(given)
    return retention(service)


@SERVER.add("POST", "/retention/apply", "apply_retention", command="retention")
def apply_retention(service: Service) -> Document:
    """Delete now what is due."""
    gone = len(service.retention.apply_retention())
    return {**retention(service), "deleted": gone}


SERVER.get(
    "/webhooks",
    "Addresses that receive events, without their secrets.",
    "notifications.webhooks",
    tuple[WebhookView, ...],
    "webhooks list",
)


@SERVER.add("POST", "/webhooks", "add_webhook", command="webhooks add", status=201)
def add_webhook(service: Service, given: NewHook) -> NewWebhook:
    """Tell an address of events; its secret is shown once."""
    return service.notifications.add_webhook(given.url, given.events)


@SERVER.add("DELETE", WEBHOOK, "remove_webhook", command="webhooks remove")
def remove_webhook(service: Service, hook: str) -> Hook:
    """Send nothing more to an address."""
    service.notifications.remove_webhook(hook)
    return Hook(webhook_id=hook)


@SERVER.add("POST", f"{WEBHOOK}/test", "test_webhook", command="webhooks test")
def test_webhook(service: Service, hook: str) -> Hook:
    """Send a test to an address now."""
    service.notifications.test_webhook(hook)
    return Hook(webhook_id=hook)


SERVER.get("/figures", "The figures of /metrics as JSON.", "monitoring.figures", Figures)
SERVER.get("/health", "Health of the parts of the server.", "monitoring.health", Health)
SERVER.get(
    "/doctor",
    "What this machine offers and lacks, and what keeps people apart on it.",
    "monitoring.doctor",
    tuple[Check, ...],
    "doctor",
)
