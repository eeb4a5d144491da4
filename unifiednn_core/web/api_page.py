"""The routes for people: a page of this server without scripts and foreign hosts, and the text of docs/API.md."""

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
from unifiednn_core.web.rest import KEY, TABLE, TERMINAL_ALONE

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
    "hosts": "Queue and devices",
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


def markdown() -> str:
    """Text of docs/API.md."""
    lines = ["# Routes", "", "`python -m tests.contract.api_page --write` writes this page from the table of routes; a"]
    lines += [
        "test fails if it differs. A running server shows the same at `/api/v1`, with an OpenAPI 3.1 document at",
        "",
    ]
    lines[-1] = "`/api/v1/openapi.json`."
    for text in INTRODUCTION:
        lines += ["", text]
    for heading, actions in grouped():
        lines += ["", f"## {heading}", "", "| route | does | in a terminal | parameters | least role |"]
        lines.append("|---|---|---|---|---|")
        for action in actions:
            names = ", ".join(f"`{name}`{'' if one['required'] else '?'}" for name, one in fields_of(action).items())
            command = f"`unifiednn {action.command}`" if action.command else ""
            once = " *once*" if action.once else ""
            cells = (f"`{action.method} {action.address}`{once}", action.about, command, names, str(action.least))
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "`?` marks parameters that may be left out. These commands have no route:", ""]
    lines += [f"- `unifiednn {name}`: {reason}" for name, reason in TERMINAL_ALONE.items()]
    lines += ["", _AFTER]
    return "\n".join(lines)


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


_AFTER = """\
## Submit a spec from a script

```sh
sha256=$(unifiednn import lenet.pt2 --json | jq -r .sha256)     # or by /files/uploads, from another machine
curl -H "Authorization: Bearer $UNIFIEDNN_TOKEN" -H "Idempotency-Key: night-17" \\
     --json "{\\"spec\\": $(cat spec.json)}" http://127.0.0.1:8501/api/v1/runs
```

An upload from another machine is announced, sent and imported: `POST /files/uploads` with `filename` and `size_bytes`,
`PATCH` with the header `Upload-Offset`, then `POST /files/uploads/{upload}/finish`, or
`POST /api/v1/uploads/{upload}/import` with options. After a lost connection, `GET` tells the offset to go on from.

## Prometheus and health

`GET /metrics` has runs and sub-models by state, length of the queue and its oldest wait, workers and their restarts,
steps, memory, load, temperature and power of each device, disk, library, and whether the supervisor runs. It names
devices, and no people and no runs. On a server with sign-in, create a token with `unifiednn token create --for
prometheus --role viewer --days 365` and give it to Prometheus; a submitter's token gets 403. Without sign-in Prometheus
has to run as the same user on the same machine.

```yaml
scrape_configs:
  - job_name: unifiednn
    authorization: { credentials_file: /etc/prometheus/unifiednn.token }
    static_configs: [{ targets: ["unifiednn.example.org:443"] }]
    scheme: https
```

`GET /health` answers 200, or 503 if the store, the supervisor or the disk does not allow work, and says which, to
anyone who can reach the server. The answer also has the state of the process that reads files; it does
not count, because that process starts when it is needed.

## Webhooks

An admin adds addresses with `unifiednn webhooks add URL`, on the page Admin, or by `POST /api/v1/webhooks`. Each event
is one `POST` of JSON: `id`, `event`, `run`, `name`, `mode`, `submodel` (of sub-models), `state`, `cause`, `at`, `link`
and `text`, which Slack and its like show. Events are `run.completed`, `run.failed`, `run.interrupted` (not of a run
that goes on), the same of `submodel`, and `submodel.ready` once its model can be downloaded.

- An answer 2xx within 20 s counts as taken. Otherwise the event is sent again after 30 s and after 10 min, and then
  given up. Events of one address are sent in order. A restart loses nothing; what comes twice has the same `id`.
- They are signed as [Standard Webhooks](https://www.standardwebhooks.com) say: `webhook-signature` is `v1,` and the
  Base64 of the HMAC-SHA256 of `webhook-id`, `webhook-timestamp` and the body, joined by points, with the secret that is
  shown once (Base64 after `whsec_`). The server stores the secret as it is, in its private home.
- Public addresses need HTTPS. Only somebody at the machine can add one in a private network or on the server itself.
  It is checked before each delivery, and the connection goes to the address that was checked. Redirects are not
  followed.
- `link` begins with the first name in `UNIFIEDNN_HOSTS`, or with `http://127.0.0.1:8501`.
- They are sent by whatever process runs the supervisor: the dashboard, or a command that trains.
"""
