"""The table of routes: as the command line, whole, and described as it is."""

import inspect
import re
from typing import Any

import typer

from unifiednn_core.cli.main import app
from unifiednn_core.service.facade import PERMISSIONS
from unifiednn_core.web import api_page, openapi
from unifiednn_core.web.rest import TABLE, TERMINAL_ALONE
from unifiednn_core.web.routes import routes


def commands(group: Any, before: str = "") -> set[str]:
    """Names of all commands below a group; a group that does something by itself is one."""
    found = {before.strip()} if before and getattr(group, "invoke_without_command", False) else set()
    for name, command in group.commands.items():
        whole = f"{before}{name}"
        found |= commands(command, f"{whole} ") if hasattr(command, "commands") else {whole}
    return found


def test_every_command_has_a_route_or_a_reason_and_no_route_names_another() -> None:
    with_route = {action.command for action in TABLE} - {""}
    there = commands(typer.main.get_command(app))
    assert with_route | set(TERMINAL_ALONE) == there
    assert not with_route & set(TERMINAL_ALONE)


def test_rows_call_what_the_service_has_with_what_the_path_names() -> None:
    addresses = [(action.method, action.address) for action in TABLE]
    assert len(set(addresses)) == len(addresses)
    for action in TABLE:
        assert set(action.calls) <= set(PERMISSIONS), action.path
        if action.does is not None:
            expected = {"service", *openapi.parts_of(action), *(["given"] if action.given else [])}
            given = set(inspect.signature(action.does).parameters)
            assert given in (expected, {"service", "parts"}), action.path


def test_rows_of_files_stand_for_routes_that_exist() -> None:
    there = {
        (method, route.path_format)
        for route in routes(lambda asked: None, lambda: None)
        for method in route.methods or ()
    }  # type: ignore[arg-type,return-value]
    assert {(action.method, action.address) for action in TABLE} <= there


def references(value: Any) -> set[str]:
    """All references inside a document."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_the_openapi_document_is_whole() -> None:
    document = openapi.document()
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= schemas
    ids = []
    for path, operations in document["paths"].items():
        for operation in operations.values():
            ids.append(operation["operationId"])
            named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            assert {"401", "403"} <= set(operation["responses"])
    assert len(set(ids)) == len(ids) == len(TABLE)


def test_the_page_shows_every_route_and_asks_no_other_host() -> None:
    html = api_page.page("http://127.0.0.1:8501")
    assert html.count("<details>") == len(TABLE)
    assert "<script" not in html and "//" not in re.sub(r"http://127\.0\.0\.1:8501", "", html)
