"""Names that somebody may give to a run, a file, a column, a class or himself, to do something where they are shown."""

import dataclasses
from collections.abc import Mapping
from typing import Any

NAMES = (
    "a\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J \x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\ \x9b31m",
    "line\nbreak\r\nCopied\rover\ttab\x0b\x0c\x85\u2028\u2029end",
    "\u202egnp.exe\u202c \u2066iso\u2069 \u200emark\u200f \u061c",
    "zero\u200bwidth\u200d\u2060\ufeff\u00ad filler\u3164\u2800\u115f\uffa0 tag\U000e0041 nul\x00del\x7f",
    "lone \udce9 half",
    '<img src=x onerror="window.evil=1"><script>window.evil=1</script><svg/onload=window.evil=1>',
    "</script></style></textarea></title><!--<b>bold</b>--><iframe src=//evil.example>",
    '"><a href=\'javascript:window.evil=1\' onclick="window.evil=1">x</a>',
    "&lt;b&gt; &amp;quot; &#x27; &copy; &nbsp;",
    "![load](https://evil.example/p.png) [click](javascript:window.evil=1) <https://evil.example> [ref][1]",
    "https://evil.example/x www.evil.example me@evil.example HTTP://EVIL.EXAMPLE",
    ":material/skull: :red[x] :blue-background[x] :orange-badge[x] :small[x] :rainbow[x] :skull: :+1: :streamlit:",
    "$x^2$ $$\\href{https://evil.example}{y}$$ \\(z\\) a -> b <- c -- d >= e",
    "**b** __u__ _i_ *i* ~~s~~ ==m== ^sup^ ~sub~ `c` ``d`` [^1] | a | b | {x}",
    "# head",
    "> quote",
    "- item",
    "1. one",
    "`",
    "end\\",
    " \u00a0 ",
    "<b>b</b><br><a href='https://evil.example' target='_top'>x</a><sup>2</sup><span style='color:red'>r</span>",
    "%{x} %{customdata} %{y:,.1f} %{meta[0]} <extra>x</extra> 100 %",
    "[bold red]x[/] [link=https://evil.example]y[/link] [/] \\[z]",
    '=HYPERLINK("https://evil.example","x") +1 -1 @SUM(1) |cmd \'/C calc\'!A0',
    "../../../etc/passwd ..\\..\\x C:\\x /abs ~ $HOME `id` $(id) ;id|id&id",
    'x"; filename="evil.exe\r\nSet-Cookie: a=b\r\n\r\n<html>',
    '"; } subgraph x { label=<<b>b</b>>; URL="javascript:1"',
    "var(--st-font)",
    "x" * 300,
)

SHOWN = frozenset(
    {
        "name",
        "run_name",
        "submodel",
        "reason",
        "now_reason",
        "cause",
        "remedy",
        "message",
        "text",
        "policy_text",
        "checkpoint_text",
        "waits_for",
        "memory_source",
        "source",
        "device",
        "artifact",
        "problem",
        "withheld_because",
        "notes",
        "memory_notes",
        "model_format",
        "state_sha256",
        "filename",
        "format",
        "facts",
        "environment",
        "values",
        "target",
        "class_names",
        "columns",
        "part",
        "title",
        "field",
        "budget_text",
        "submodels",
        "person",
        "by",
        "role",
        "subject",
        "outcome",
        "action",
    }
)
"""Fields of views whose texts strangers can choose, or error messages quote."""


def poisoned(value: Any, name: str, shown: bool = False) -> Any:
    """A view with this name at the end of each of its texts; what was equal stays equal."""
    if isinstance(value, str):
        return f"{value}{name}" if shown and type(value) is str else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return dataclasses.replace(value, **{key: poisoned(one, name, key in SHOWN) for key, one in given.items()})
    if hasattr(value, "model_copy"):
        given = {key: getattr(value, key) for key in type(value).model_fields}
        return value.model_copy(update={key: poisoned(one, name, key in SHOWN) for key, one in given.items()})
    if hasattr(value, "_asdict"):
        return value._replace(**{key: poisoned(one, name, key in SHOWN) for key, one in value._asdict().items()})
    if isinstance(value, Mapping):
        return {key: poisoned(one, name, shown) for key, one in value.items()}
    return type(value)(poisoned(one, name, shown) for one in value) if isinstance(value, tuple | list) else value
