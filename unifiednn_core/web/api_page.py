"""The routes for people: a page of this server without scripts and foreign hosts."""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from unifiednn_core.views import markup
from unifiednn_core.views.report.html import HERE
from unifiednn_core.web.action import ROOT, Action
from unifiednn_core.web.openapi import ABOUT, document, fields_of, parts_of
from unifiednn_core.web.rest import KEY, TABLE

A_DAY = {"Cache-Control": "public, max-age=86400"}
GROUPS = {
    "runs": "Runs",
    "submissions": "Runs",
    "check": "Runs",
    "baselines": "Runs",
    "comparisons": "Runs",
    "policies": "Runs",
    "queue": "Queue and devices",
    "devices": "Queue and devices",
    "files": "Files",
    "uploads": "Files",
}
"""Heading by the first word of a path; the others concern people."""
OTHERS = "People and server"
_FROM_FILES = ("spec", "network")
TOKEN = '-H "Authorization: Bearer $UNIFIEDNN_TOKEN"'
INTRODUCTION = (
    ABOUT,
    "In a browser the sign-in counts, too. A server without sign-in answers only the user who runs it.",
    "A request that changes something takes JSON (`Content-Type: application/json`, at most 4 MiB) and is refused if a "
    "page of another site caused it. A refusal is a problem document (RFC 9457) whose `findings` name the field, what "
    "is wrong and what to do: 400 not JSON, 401 no token, 403 not allowed, 404 not found or not yours, 409 not now, "
    "413 too large, 415 not sent as JSON, 422 wrong input.",
    f"Where the table says *once*, the header `{KEY}` with a text of your own makes it safe to repeat a request whose "
    "answer was lost: for a day the first answer comes again.",
)
_STYLE = """
:root { --bg: #fff; --soft: #f4f5f7; --u-text: #171b22; --u-line: #dfe2e8; --u-faint: #5b6472; --u-accent: #2b5fd9; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #101318; --soft: #1a1e25; --u-text: #e4e7ec; --u-line: #2b313b; --u-faint: #98a1b0;
    --u-accent: #86a8ff; }
}
body { margin: 0; background: var(--bg); color: var(--u-text);
  font: 15px/1.5 "Source Sans Pro", system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 0.4rem; }
a { color: var(--u-accent); } code, pre { font: 0.82rem "Source Code Pro", ui-monospace, monospace; }
pre { background: var(--soft); border-radius: 6px; padding: 0.6rem 0.8rem; overflow-x: auto; margin: 0.6rem 0; }
details { border-bottom: 1px solid var(--u-line); }
summary { cursor: pointer; padding: 0.6rem 0; display: flex; gap: 0.2rem 0.8rem; flex-wrap: wrap;
  align-items: baseline; }
summary b { min-width: 4rem; color: var(--u-accent); } summary code { overflow-wrap: anywhere; }
summary span { color: var(--u-faint); flex-basis: 100%; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--u-accent); outline-offset: 2px; }
"""


def routes() -> list[Route]:
    """The page and the document; they hold no data, so anyone who can reach the server may read them."""
    return [Route(f"{ROOT}/openapi.json", _document), Route(ROOT, _page)]


async def _document(_: Request) -> Response:
    return JSONResponse(document(), headers=A_DAY)


async def _page(request: Request) -> Response:
    return HTMLResponse(page(f"{request.url.scheme}://{request.headers['host']}"))


def grouped() -> Iterator[tuple[str, list[Action]]]:
    """Rows of the table under their headings."""
    headings = [*dict.fromkeys(GROUPS.values()), OTHERS]
    placed = sorted(TABLE, key=lambda action: headings.index(_heading(action)))
    return ((heading, list(rows)) for heading, rows in groupby(placed, _heading))


@lru_cache(maxsize=8)
def page(server: str) -> str:
    """The page of a server at this address."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Routes · UnifiedNN</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{(HERE / 'parts.css').read_text(encoding='utf-8')}{_STYLE}</style></head><body><main>",
        f'<h1>Routes of UnifiedNN</h1><p><a href="/">Dashboard</a> · <a href="{ROOT}/openapi.json">OpenAPI 3.1</a></p>',
        *(f"<p>{_marked(text)}</p>" for text in INTRODUCTION),
    ]
    for heading, actions in grouped():
        parts += [f"<h2>{markup.text(heading)}</h2>", *(_details(action, server) for action in actions)]
    return "".join([*parts, "</main></body></html>\n"])


def example(action: Action, server: str) -> str:
    """A command line that asks a server."""
    address = action.address
    for name in parts_of(action):
        address = address.replace(f"{{{name}}}", name.upper())
    fields = fields_of(action)
    needed = {name: one for name, one in fields.items() if one["required"]} or dict(list(fields.items())[:1])
    parts = ["curl", TOKEN]
    if action.method == "GET" or action.does is None:
        parts += ["" if action.method == "GET" else f"-X {action.method}", f"{server}{address}"]
    elif not fields:
        parts += [f"-X {action.method}", f"{server}{address}"]
    else:
        body = json.dumps({name: _sample(name, one) for name, one in needed.items()})
        for name in _FROM_FILES:
            body = body.replace(f'"{name}": {{}}', f'"{name}": \'"$(cat {name}.json)"\'')
        parts += ["" if action.method == "POST" else f"-X {action.method}", f"--json '{body}'", f"{server}{address}"]
    return " ".join(part for part in parts if part)


def _heading(action: Action) -> str:
    return GROUPS.get(action.path.split("/")[1], OTHERS)


def _sample(name: str, schema: dict[str, Any]) -> object:
    """A value that fits a parameter, for an example."""
    one = next((part for part in schema.get("anyOf", ()) if part.get("type") != "null"), schema)
    if options := one.get("enum"):
        return options[0]
    simple = {"integer": 1, "number": 0.01, "boolean": True, "array": [name.upper()], "object": {}}
    return simple.get(one.get("type", ""), "admin" if "$ref" in one and name == "role" else name.upper())


def _details(action: Action, server: str) -> str:
    rows = "".join(
        f"<tr><td><code>{markup.text(name)}</code></td><td>{'needed' if one['required'] else ''}</td>"
        f"<td><code>{markup.text(_type_text(one))}</code></td><td>{_marked(one.get('description', ''))}</td></tr>"
        for name, one in fields_of(action).items()
    )
    table = '<div class="u-scroll"><table class="u-table"><tr><th scope="col">Parameter</th><th scope="col"></th>'
    table += f'<th scope="col">Type</th><th scope="col">Meaning</th></tr>{rows}</table></div>'
    command = f" In a terminal: <code>unifiednn {markup.text(action.command)}</code>." if action.command else ""
    once = f" Takes <code>{KEY}</code>." if action.once else ""
    return (
        f"<details><summary><b>{action.method}</b><code>{markup.text(action.address)}</code><span>{markup.text(action.about)}</span>"
        f"</summary><p>Needs the role <b>{action.least}</b> or a higher one.{command}{once}</p>{table if rows else ''}"
        f"<pre>{markup.text(example(action, server))}</pre></details>"
    )


def _type_text(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type_text(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    return str(schema.get("type") or schema.get("const") or schema.get("$ref", "").rpartition("/")[2])


def _marked(text: str) -> str:
    """Text with `code` and *words* as HTML."""
    parts = [markup.text(part) for part in text.split("`")]
    coded = "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
    return "".join(f"<em>{part}</em>" if place % 2 else part for place, part in enumerate(coded.split("*")))
