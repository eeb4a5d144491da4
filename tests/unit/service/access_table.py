"""The table of `docs/ACCESS.md`, from the declared permissions: `python -m tests.unit.service.access_table --write`."""

import sys
from pathlib import Path

from unifiednn_core.service.facade import PERMISSIONS
from unifiednn_core.service.permissions import Own, Permission
from unifiednn_core.service.roles import Role

PAGE = Path(__file__).parents[3] / "docs" / "ACCESS.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
OF_THEIR_OWN = {
    Own.ANYTHING: "yes",
    Own.SHARE: "own part",
    Own.PART: "own sub-model or run",
    Own.RUN: "own run",
}


def table() -> str:
    """One row for all actions with the same permission, in the order of their declaration."""
    by_rule: dict[Permission, list[str]] = {}
    for action, rule in PERMISSIONS.items():
        by_rule.setdefault(rule, []).append(f"`{action}`")
    rows = [["action", *Role, "in the audit log"], ["---"] * (len(Role) + 2)]
    for rule, actions in by_rule.items():
        cells = [_cell(role, rule) for role in Role]
        rows.append([", ".join(actions), *cells, "yes" if rule.audited else "only a refusal"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(role: Role, rule: Permission) -> str:
    if role.rank < rule.least.rank:
        return "no"
    allowed = OF_THEIR_OWN[rule.own] if role is Role.SUBMITTER else "yes"
    return f"{allowed}, at the machine" if rule.here else allowed


def page(text: str) -> str:
    """The page with the current table."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    made = page(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(made, encoding="utf-8")
    else:
        sys.stdout.write(made)
