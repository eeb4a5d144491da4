"""What one row of the table of routes says, how rows are added, and the parameters that several rows share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from unifiednn_core.service.facade import PERMISSIONS, Service
from unifiednn_core.service.roles import Role
from unifiednn_core.spec.run_query import NEWEST_ROWS

ROOT = "/api/v1"
RUN, SUBMODEL = "/runs/{run}", "/runs/{run}/submodels/{submodel}"
MOST_ROWS = 100_000
Document = dict[str, Any]
Does = TypeVar("Does", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A route: what it does, what it takes, and what it answers."""

    method: str
    path: str
    """Below `ROOT`; the names in braces are arguments of `does`."""
    about: str
    calls: tuple[str, ...]
    """Actions of the service, by name; they decide who may use the route."""
    does: Callable[..., object] | None
    """Called with the service, the parts of the path, and `given`; None if the route is one of files, elsewhere."""
    command: str = ""
    """Command of the terminal that does the same."""
    given: type[BaseModel] | None = None
    """Parameters: of a GET in the address, otherwise as JSON in the body."""
    result: Any = Document
    """Type of the document that it answers."""
    status: int = 200
    once: bool = False
    """Whether the header `Idempotency-Key` makes a repeated request harmless."""

    @property
    def address(self) -> str:
        """Path of the route on the server."""
        return self.path if self.does is None else f"{ROOT}{self.path}"

    @property
    def least(self) -> Role:
        """The least role that may use it."""
        return max((PERMISSIONS[name].least for name in self.calls), key=lambda role: role.rank)


@dataclass(frozen=True, slots=True)
class Routes:
    """Rows of the table, in the order in which they were added."""

    rows: list[Action] = field(default_factory=list)

    def add(self, method: str, path: str, *calls: str, result: Any = None, **others: Any) -> Callable[[Does], Does]:
        """Decorator: the function carries the route out; its docstring and its annotations are those of the route."""

        def declare(does: Does) -> Does:
            kinds, about = does.__annotations__, inspect.getdoc(does) or ""
            found = {"given": kinds.get("given"), "result": result or kinds["return"]}
            self.rows.append(Action(method=method, path=path, about=about, calls=calls, does=does, **found, **others))
            return does

        return declare

    def get(self, path: str, about: str, action: str, result: Any = Document, command: str = "") -> None:
        """A route that answers what one action of the service returns for the parts of the path."""

        def does(service: Service, **parts: str) -> object:
            return attrgetter(action)(service)(*parts.values())

        does.__doc__ = about
        self.add("GET", path, action.rpartition(".")[2], result=result, command=command)(does)

    def order(self, path: str, about: str, action: str, then: Callable[..., object], command: str) -> None:
        """A route that calls one action of the service with the parts of the path, and answers what `then` returns."""

        def does(service: Service, **parts: str) -> object:
            attrgetter(action)(service)(*parts.values())
            return then(service, *parts.values())

        does.__doc__ = about
        result = then.__annotations__["return"]
        self.add("POST", path, action.rpartition(".")[2], result=result, command=command)(does)

    def file(self, path: str, about: str, *calls: str, method: str = "GET", result: Any = bytes, **others: Any) -> None:
        """A route of files, which is served elsewhere."""
        self.rows.append(Action(method=method, path=path, about=about, calls=calls, does=None, result=result, **others))


class Given(BaseModel):
    """Parameters of a request."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Page(Given):
    """How much of a list is asked for."""

    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = NEWEST_ROWS
    """Most entries, the newest first."""


class StateNow(BaseModel):
    """State of a run or sub-model after a request, as the commands print it with `--json`."""

    run_id: str
    submodel: str | None = None
    status: str
