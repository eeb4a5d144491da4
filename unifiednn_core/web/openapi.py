"""The OpenAPI 3.1 document of the routes, from the table that they are made from."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import BaseModel, TypeAdapter

from unifiednn_core.base.errors import Finding
from unifiednn_core.web.action import Action
from unifiednn_core.web.answers import PROBLEM, TITLES
from unifiednn_core.web.rest import JSON, KEY, LONGEST_KEY, TABLE

Schema = dict[str, Any]
ABOUT = (
    "The actions of the command line over HTTP. Specs name files by their content, `sha256:...`; upload them first. "
    "Send a token as `Authorization: Bearer TOKEN`."
)
_COMMON = (401, 403)
_OF_BODY = (400, 413, 415, 422)


class Problem(BaseModel):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    findings: tuple[Finding, ...]


def package_version() -> str:
    """Version of the program."""
    try:
        return version("unifiednn")
    except PackageNotFoundError:  # a clone that is not installed
        return "0"


@cache
def document() -> Schema:
    """The whole document."""
    asked: list[tuple[tuple[int, str], Any, TypeAdapter[Any]]] = [
        ((-1, "problem"), "serialization", TypeAdapter(Problem))
    ]
    for place, action in enumerate(TABLE):
        if action.given is not None:
            asked.append(((place, "given"), "validation", TypeAdapter(action.given)))
        if action.result is not bytes:
            asked.append(((place, "result"), "serialization", TypeAdapter(action.result)))
    schemas, definitions = TypeAdapter.json_schemas(asked, ref_template="#/components/schemas/{model}")
    paths: dict[str, Schema] = {}
    for place, action in enumerate(TABLE):
        given = schemas.get(((place, "given"), "validation"))
        result = schemas.get(((place, "result"), "serialization"))
        paths.setdefault(action.address, {})[action.method.lower()] = _operation(action, given, result, definitions)
    return {
        "openapi": "3.1.0",
        "info": {"title": "UnifiedNN", "version": package_version(), "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(definitions.get("$defs", {}).items())),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "_streamlit_user"},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def parts_of(action: Action) -> list[str]:
    """Names in the path of a route."""
    return re.findall(r"{(\w+)}", action.path)


def fields_of(action: Action) -> Mapping[str, Schema]:
    """Schemas of the parameters of a route, by name; each has `required`."""
    if action.given is None:
        return {}
    schema = action.given.model_json_schema()
    needed = schema.get("required", ())
    return {name: {**one, "required": name in needed} for name, one in schema.get("properties", {}).items()}


def _operation(action: Action, given: Schema | None, result: Schema | None, definitions: Schema) -> Schema:
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parts_of(action)
    ]
    told: Schema = {
        "operationId": "_".join([action.method.lower(), *re.findall(r"\w+", action.path)]),
        "summary": action.about,
        "description": _description(action),
        "tags": [re.findall(r"\w+", action.path)[0]],
        "parameters": parameters,
    }
    if action.given is not None and action.method == "GET":
        parameters += [
            {"name": name, "in": "query", "required": one.pop("required"), "schema": one}
            for name, one in fields_of(action).items()
        ]
    elif given is not None:
        told["requestBody"] = {"required": _needs_body(given, definitions), "content": {JSON: {"schema": given}}}
    if action.once:
        about = "A repeated request with this key is answered, not carried out again."
        schema = {"type": "string", "maxLength": LONGEST_KEY}
        parameters.append({"name": KEY, "in": "header", "required": False, "description": about, "schema": schema})
    answer: Schema = {"description": "Done"}
    if action.status != 204:
        kind = {"application/octet-stream": {}} if result is None else {JSON: {"schema": result}}
        answer["content"] = kind
    refusals = (*_COMMON, *((404,) if parameters else ()), *(() if action.method == "GET" else (409, *_OF_BODY)))
    told["responses"] = {str(action.status): answer} | {str(status): _refusal(status) for status in sorted(refusals)}
    return told


def _refusal(status: int) -> Schema:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": TITLES[status], "content": {PROBLEM: {"schema": schema}}}


def _description(action: Action) -> str:
    command = f" In a terminal: `unifiednn {action.command}`." if action.command else ""
    return f"Needs the role {action.least} or a higher one.{command}"


def _needs_body(given: Schema, definitions: Schema) -> bool:
    name = str(given.get("$ref", "")).rpartition("/")[2]
    return bool(definitions.get("$defs", {}).get(name, given).get("required"))
