"""What one row of the table of routes says, and the parameters that several rows share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from unifiednn_core.service.facade import PERMISSIONS
from unifiednn_core.service.roles import Role
from unifiednn_core.spec.run_query import NEWEST_ROWS

ROOT = "/api/v1"
RUN, SUBMODEL = "/runs/{run}", "/runs/{run}/submodels/{submodel}"
MOST_ROWS = 100_000


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
    result: Any = dict[str, Any]
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
