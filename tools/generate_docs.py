"""Writes `docs/generated` from the program's own tables: `python -m tools.generate_docs`."""

import ast
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import typer
from pydantic import BaseModel

from unifiednn_core.cli.main import app
from unifiednn_core.data import arrays, containers
from unifiednn_core.data.transforms.table import build
from unifiednn_core.data.values import ImportOptions
from unifiednn_core.formats import operators
from unifiednn_core.formats.architectures import registry as architectures
from unifiednn_core.formats.architectures.registry import MEMBERS
from unifiednn_core.formats.contracts import general, sizes, spectra
from unifiednn_core.formats.contracts import table as contracts
from unifiednn_core.formats.contracts.contract import Contract, never
from unifiednn_core.formats.registry import FORMATS
from unifiednn_core.scheduling import registry as policies
from unifiednn_core.service import facade
from unifiednn_core.service.permissions import Own, Permission, permissions_of
from unifiednn_core.service.roles import Role
from unifiednn_core.spec import choices
from unifiednn_core.spec import transforms as transform_choices
from unifiednn_core.spec.choice import Argument
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.spec.techniques import TECHNIQUES, Technique, name_of
from unifiednn_core.web import api_page, openapi, rest

FOLDER = Path(__file__).parents[1] / "docs" / "generated"
OWN = {Own.ANYTHING: "yes", Own.SHARE: "own part", Own.PART: "own sub-model or run", Own.RUN: "own run"}
"""What a submitter may do with an action, by what must be theirs."""
SMALLEST = {"mask": 0, "mean": [0], "std": [1], "size": [1, 1], "vocabulary": 2}
"""Values for the required arguments of transforms."""
LONGEST = 80
"""Characters of a default that a table shows."""
DRILLS = {"drill.json": "On one host", "drill-ray.json": "On Ray nodes"}
"""Recorded drills by their files."""
Row = Sequence[object]


def table(heads: Sequence[str], rows: Iterable[Row]) -> str:
    """A Markdown table."""
    cells = ([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *cells)) + "\n"


def page(title: str, *parts: str) -> str:
    """A page that says where it comes from."""
    origin = "Written by `python -m tools.generate_docs` from the program's own tables; do not edit."
    return "\n".join([f"# {title}\n", f"{origin}\n", *parts])


def summary(documented: object) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def code(value: object) -> str:
    """A value as JSON, in code style."""
    return f"`{json.dumps(value, default=str)}`"


def notes_of(model: type[BaseModel]) -> dict[str, str]:
    """The text below or behind each field of a model."""
    found: dict[str, str] = {}
    for kind in reversed([kind for kind in model.__mro__ if issubclass(kind, BaseModel) and kind is not BaseModel]):
        text = inspect.getsource(kind)
        body = ast.parse(text).body[0].body  # type: ignore[attr-defined]
        for node, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign):
                continue
            _, _, note = text.splitlines()[(node.end_lineno or 1) - 1].partition("  # ")
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                note = str(after.value.value)
            found[ast.unparse(node.target)] = " ".join(note.split())
    return found


def takes(schema: Mapping[str, Any]) -> str:
    """The values that a JSON schema allows, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        elsewhere = "TECHNIQUES.md" if name in {one.__name__ for one in TECHNIQUES} else ""
        return f"[{name}]({elsewhere}#{name.lower()})"
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(takes(one) for one in several)
    if "enum" in schema or "const" in schema:
        return ", ".join(map(code, schema.get("enum", [schema.get("const")])))
    limits = ("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"), ("exclusiveMaximum", "below")
    words = [f"{word} {schema[key]:,}" for key, word in limits if key in schema]
    items = schema.get("items") or schema.get("additionalProperties")
    inside = f" of {takes(items)}" if isinstance(items, Mapping) and items else ""
    kind = {"integer": "whole number", "array": "list", "boolean": "true or false", "string": "text"}
    return " ".join([kind.get(schema.get("type", ""), schema.get("type", "anything")) + inside, *words])


def models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model, then those of its fields, each once."""

    def inside(annotation: object) -> Iterator[type[BaseModel]]:
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            yield annotation
        for argument in get_args(annotation):
            yield from inside(argument)

    waiting, seen = [root], set[type[BaseModel]]()
    while waiting:
        if (model := waiting.pop(0)) not in seen:
            seen.add(model)
            yield model
            for field in model.model_fields.values():
                waiting += [one for one in inside(field.annotation) if one not in waiting]


def section(model: type[BaseModel]) -> str:
    """The fields of a model."""
    schema, notes = model.model_json_schema(), notes_of(model)
    inside = {one.__name__: summary(one) for one in models(model)}
    rows = []
    for name, one in schema.get("properties", {}).items():
        given, words = code(one.get("default")), takes(one)
        usual = "required" if name in schema.get("required", ()) else given if len(given) < LONGEST else "its defaults"
        about = notes.get(name) or next((text for kind, text in inside.items() if f"[{kind}]" in words), "")
        rows.append((f"`{name}`", words, usual, about))
    return f"## {model.__name__}\n\n{inspect.getdoc(model)}\n\n{table(('entry', 'takes', 'default', 'meaning'), rows)}"


def default(argument: Argument) -> str:
    """Default of an argument, as JSON."""
    return "required" if argument.required else "none" if argument.default is None else code(argument.default)


def of_torch(title: str, named: Mapping[str, Any], refused: Mapping[str, str]) -> str:
    """A table of torch's classes under their short names, and those that are refused."""
    rows = [
        (f"`{name}`", one.torch_class, ", ".join(f"`{each.name}` {default(each)}" for each in one.arguments), one.help)
        for name, one in named.items()
    ]
    words = " ".join(f"`{name}` {reason}." for name, reason in refused.items())
    return f"## {title}\n\n{table(('name', 'of torch', 'arguments', 'what'), rows)}\nRefused: {words}\n"


def spec() -> str:
    """Everything that a spec may say."""
    rows = [
        (
            f"`{card.name}`",
            ", ".join(f"`{one.name}` {code(one.default)}: {one.valid}" for one in card.parameters),
            card.summary,
        )
        for card in policies.describe()
    ]
    return page(
        "The spec",
        "A spec is one JSON object, a [RunSpec](#runspec). A file of hyper-parameters is a"
        " [Hyperparameters](#hyperparameters).\n",
        *(section(model) for model in models(RunSpec) if not issubclass(model, Technique)),
        f"## Policies\n\n{table(('name', 'parameters', 'what'), rows)}",
        of_torch("Optimizers", choices.OPTIMIZERS, choices.REFUSED_OPTIMIZERS),
        of_torch("Criteria", choices.CRITERIA, choices.REFUSED_CRITERIA),
        of_torch("LR schedulers", choices.LR_SCHEDULES, choices.REFUSED_LR_SCHEDULERS),
    )


def techniques() -> str:
    """What each technique does, and its parameters."""
    heads = ("technique", "what it does", "from", "saves", "bits with its defaults")
    rows = [
        (f"{one.title}<br>`{name_of(one)}`", one.summary, one.paper, one.saves, "exact" if one().exact else "**lossy**")
        for one in TECHNIQUES
    ]
    return page("Techniques", table(heads, rows), *(section(one) for one in TECHNIQUES))


def formats() -> str:
    """Model files, and the networks that a file of weights may name."""
    files = [(f"`{one.name}`", " ".join(f"`{end}`" for end in one.suffixes), summary(type(one))) for one in FORMATS]
    named = []
    for name in architectures.families():
        arguments = (f"`{one.name}` {code(one.default)} {one.help}" for one in architectures.parameters_of(name))
        named.append((f"`{name}`", "<br>".join(arguments)))
    members = [(f"`{name}`", f"`{family}`", code(given)) for name, (family, given) in MEMBERS.items()]
    return page(
        "Model files",
        table(("format", "file", "what it holds"), files),
        f"## Architectures\n\n{table(('name', 'arguments with their defaults'), named)}",
        f"These are torchvision's:\n\n{table(('name', 'architecture', 'with'), members)}",
    )


def data() -> str:
    """Files of data, and how an import may be asked to read them."""
    files = [(f"`{one.name}`", (one.sniff.__doc__ or "").removeprefix("Whether ")) for one in containers.CONTAINERS]
    words = groupby(arrays.MEANINGS.items(), key=lambda named: named[1])
    names = [(f"`{meaning}`", ", ".join(f"`{word}`" for word, _ in each)) for meaning, each in words]
    return page(
        "Data files",
        "A file is recognised by its content, in this order:\n",
        table(("kind", "taken for it if"), files),
        f"## Names of arrays\n\n{table(('array', 'names that a file may give it'), names)}",
        "The options of an import follow; its `table` may hold a plan for the columns.\n",
        *(section(model) for model in models(ImportOptions)),
    )


def transforms() -> str:
    """What each transform computes and draws."""
    parts = []
    for name, choice in transform_choices.TRANSFORMS.items():
        given = {one.name: SMALLEST[one.name] for one in choice.arguments if one.name in SMALLEST}
        [made] = build([transform_choices.TransformSpec.model_validate({"name": name, **given})])
        when = "for training" if made.training_only else "in training and evaluation"
        graph = " It reads a value of the device, so no CUDA graph is recorded." if made.reads_values else ""
        rows = [(f"`{one.name}`", one.takes, default(one)) for one in choice.arguments]
        draws = [f"- `{call}`: {use}" for call, use in choice.draws] or ["- nothing"]
        parts.append(f"## {name}\n\n{choice.help} Source: {choice.source}. Runs {when}.{graph}\n")
        parts += [table(("argument", "takes", "default"), rows), f"{choice.does}\n\nDraws:\n", *draws, ""]
    refused = [f"- `{name}` {reason}." for name, reason in transform_choices.REFUSED.items()]
    return page("Transforms", *parts, "## Not here\n", *refused, "")


def contract_rows(title: str, of: Mapping[str, Contract]) -> str:
    """A heading and a table; operators of one contract share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, contract in of.items():
        text = "; ".join(rule.text for rule in contract.rules) or "the rules for every operator alone"
        when = "shapes" if contract.depends_on_values is never else "shapes; every call where values decide the shape"
        rows.setdefault((text, when), []).append(short(name))
    heads, cells = ("operators", "contract", "checked for new"), ((" ".join(ns), *key) for key, ns in rows.items())
    return f"## {title.strip().splitlines()[0].rstrip('.')}\n\n{table(heads, cells)}"


def short(operator: str) -> str:
    """Name of an operator without its package, in code style."""
    return f"`{operator.removeprefix('torch.ops.aten.').removeprefix('_operator.')}`"


def operator_contracts() -> str:
    """What each operator of a `.pt2` may get."""
    return page(
        "Operators",
        "An operator that is not here is refused when the file is read. Each call is checked on the tensors that its"
        " kernel gets, when a shape, layout, type, device or mode is new.\n\n## Every operator\n",
        *(f"- {text}" for text in general.TEXTS),
        "\nAn operator whose name ends in `_` writes to its first argument. In addition:\n",
        *(f"- {text[0].upper()}{text[1:]}." for text in general.IN_PLACE),
        "",
        *(contract_rows(str(family.__doc__), family.CONTRACTS) for family in (*contracts.FAMILIES, sizes)),
        f"Left out when a graph is built: {', '.join(map(short, sorted(operators.ASSERTIONS)))}.\n",
        f"These also take complex numbers: {' '.join(map(short, sorted(spectra.ALSO_COMPLEX)))}.\n",
    )


def commands(group: Any, before: str = "unifiednn") -> Iterator[tuple[str, Any]]:
    """All commands below a group, with their whole names."""
    for name, command in group.commands.items():
        whole = f"{before} {name}"
        if not hasattr(command, "commands"):
            yield whole, command
            continue
        if command.invoke_without_command:
            yield whole, command
        yield from commands(command, whole)


def terminal() -> str:
    """The commands with their arguments and options."""
    parts = []
    for name, command in commands(typer.main.get_command(app)):
        options = [f"- `{' / '.join(one.opts + one.secondary_opts)}`: {one.help or ''}" for one in command.params]
        parts += [f"## {name}\n", f"{summary(command.callback)}\n", *options]
        parts.append("")
    return page("The terminal", "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.\n", *parts)


def rest_routes() -> str:
    """The routes for programs."""
    parts = []
    for heading, actions in api_page.grouped():
        rows = []
        for one in actions:
            given = (f"`{name}`{'' if each['required'] else '?'}" for name, each in openapi.fields_of(one).items())
            command = f"`unifiednn {one.command}`" if one.command else ""
            route = f"`{one.method} {one.address}`{' *once*' * one.once}"
            rows.append((route, one.about, command, ", ".join(given), one.least))
        parts.append(f"## {heading}\n\n{table(('route', 'does', 'in a terminal', 'parameters', 'least role'), rows)}")
    alone = [f"- `unifiednn {name}`: {reason}" for name, reason in rest.TERMINAL_ALONE.items()]
    parts += ["`?` marks parameters that may be left out. These commands have no route:\n", *alone, ""]
    return page("REST", *(f"{text}\n" for text in api_page.INTRODUCTION), *parts)


def roles() -> str:
    """Who may call which action of the service."""
    parts = []
    for kind in filter(inspect.isclass, vars(facade).values()):
        rows = []
        for name, rule in permissions_of(kind).items():
            cells = (_cell(role, rule) for role in Role)
            audited = "yes" if rule.audited else "only a refusal"
            rows.append((f"`{name}`", summary(getattr(kind, name)), *cells, audited))
        if rows:
            heads = ("action", "what", *Role, "in the audit log")
            parts.append(f"## {summary(kind).split('. ')[0].rstrip('.')}\n\n{table(heads, rows)}")
    return page("Roles", *parts)


def _cell(role: Role, rule: Permission) -> str:
    if role.rank < rule.least.rank:
        return "no"
    return (OWN[rule.own] if role is Role.SUBMITTER else "yes") + ", at the machine" * rule.here


def crashes() -> str:
    """What the last drills found."""
    parts = []
    for name, title in DRILLS.items():
        path = FOLDER.parent / "results" / name
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            parts.append(f"## {title}\n\n[{name}](../results/{name})\n\n{drilled(found)}")
    return page("Drills", *parts)


def drilled(found: Mapping[str, Any]) -> str:
    """The figures of a drill."""
    machine, times_s = found["machine"], found["recovery_s"]
    versions = ", ".join(f"{package} {version}" for package, version in found["versions"].items())
    rows = [
        *((f"killed: {kind}", count) for kind, count in found["kills"].items()),
        ("kills per minute", found["kills_per_minute"]),
        *((f"servers with a fault at {point}", count) for point, count in found["servers_with_faults"].items()),
        *found["counts"].items(),
        ("recoveries", len(times_s)),
        ("median of their seconds", times_s[len(times_s) // 2] if times_s else "none"),
        ("findings", len(found["findings"])),
        *(("", finding) for finding in found["findings"]),
    ]
    return (
        f"`{found['command']}` of commit `{found['commit']}` on {found['date']} took {found['seconds']:.0f} s on"
        f" {machine['cpu']}, {machine['cores']} cores, {machine['os']}, Python {machine['python']},"
        f" torch {machine['torch']}, SQLite {machine['sqlite']}, {versions}.\n\n{table(('what', 'found'), rows)}"
    )


PAGES: dict[str, Callable[[], str]] = {
    "SPEC.md": spec,
    "FORMATS.md": formats,
    "DATA.md": data,
    "TRANSFORMS.md": transforms,
    "OPERATORS.md": operator_contracts,
    "TECHNIQUES.md": techniques,
    "TERMINAL.md": terminal,
    "REST.md": rest_routes,
    "ROLES.md": roles,
    "CRASHES.md": crashes,
}


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
