"""The table of `docs/ACCESS.md`, from the table of permissions: `python -m tests.unit.access.access_table --write`."""

import sys
from pathlib import Path

from unifiednn_core.access.permissions import RULES, Own, Rule
from unifiednn_core.access.roles import Role

PAGE = Path(__file__).parents[3] / "docs" / "ACCESS.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
OF_HIS_OWN = {
    Own.ANYTHING: "yes",
    Own.SHARE: "own part",
    Own.PART: "own sub-model or run",
    Own.RUN: "own run",
}


def table() -> str:
    """One row for all actions of the same rule, in the order in which they come up."""
    by_rule: dict[Rule, list[str]] = {}
    for action, rule in RULES.items():
        by_rule.setdefault(rule, []).append(f"`{action}`")
    rows = [["action", *Role, "in the ledger"], ["---"] * (len(Role) + 2)]
    for rule, actions in by_rule.items():
        cells = [_cell(role, rule) for role in Role]
        rows.append([", ".join(actions), *cells, "yes" if rule.told else "only a refusal"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(role: Role, rule: Rule) -> str:
    if role.rank < rule.least.rank:
        return "no"
    return OF_HIS_OWN[rule.own] if role is Role.SUBMITTER else "yes"


def page(text: str) -> str:
    """The page with the table as it has to be."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    made = page(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(made, encoding="utf-8")
    else:
        sys.stdout.write(made)
