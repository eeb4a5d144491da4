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
ACTIONS = {
    "Runs": {
        "list and search runs, see when they end and what failed; a submitter finds their own": (
            "listing run_choices ends seen"
        ),
        "see a run with its curves, memory, schedule and events": "runs current observe graph_dot",
        "dismiss a failure": "see",
        "list the policies": "policies",
        "list the names of devices; check a spec, and foresee what each policy would do": (
            "device_choices check checked forecast"
        ),
        "submit a run or one network": "submit",
        "keep drafts of runs": "save_draft draft drafts finish_draft run_of_draft",
        "delete a draft": "delete_draft",
        "make a draft of a run": "clone_run",
        "pause, resume, save, stop or discard": "pause resume save stop discard",
        "retry a failed sub-model, change its epochs": "retry set_epochs",
        "add a network, change policy, order, priorities, deadlines or devices": (
            "add_submodel set_policy reorder set_priority set_deadline set_devices set_moves"
        ),
        "foresee such a change": "forecast_change",
        "see what the deletion of a run takes away": "deletion",
        "delete a run that has ended": "delete_run",
        "delete several at once, each as above": "delete",
    },
    "Results": {
        "list trained models; a submitter finds their own": "trained",
        "list the trained models of a run": "finished",
        "download a trained model or a checkpoint": "artifact checkpoint",
        "copy one into a folder of the server (terminal)": "download download_checkpoint",
        "download curves, spec, results and logs": "document metrics_csv spec_document log_text tensorboard_zip",
        "read the newest lines of a worker's log": "worker_log",
        "see what a trained model was made of": "lineage",
        "export to TensorBoard, MLflow or W&B (terminal)": "export",
    },
    "Comparisons": {
        "list comparisons, put runs side by side": "compared side_by_side",
        "see whether a run can be compared, and with what": "why_no_baseline comparable",
        "see a comparison with plain PyTorch": "comparison",
        "download a comparison": "comparison_document report",
        "download runs side by side": "side_by_side_document side_by_side_csv side_by_side_report",
        "train a baseline of a run": "start_baseline",
        "train a spec with plain PyTorch": "submit_arm",
    },
    "Library": {
        "list the architectures": "architectures architecture_defaults",
        "list files and their uses, see the quota; a submitter finds their own": (
            "files shelf file_uses files_used_by kept quota"
        ),
        "upload and import files": "begin_upload finish_upload drop_upload import_file",
        "go on with an upload": "upload append_upload document_in",
        "rename, split or delete a file; get the demo": "rename_file split_data delete_file prepare_samples",
        "take a trained model or checkpoint into the library": "take",
        "describe a file of the server (terminal)": "inspect",
        "list the files in folders of the server": "server_files",
        "import such a file": "import_server_file",
    },
    "Queue and devices": {
        "see the line; a submitter sees their own entries in it": "line",
        "see how devices are used": "cards",
        "see the server in figures (`/metrics`)": "figures require_figures",
        "see by whom devices are used, hosts, hybrids, and how submissions become hybrids": (
            "devices hosts hybrids hybrid pooling"
        ),
        "move what waits, set how submissions become hybrids": "move set_pooling",
        "drain, limit and use devices and hosts, forget a host": (
            "drain_device ready_device limit_device drain_host ready_host forget_host"
        ),
        "see where the server keeps its files and its database": "places",
    },
    "People and server": {
        "see people, quotas, tokens, and who may share a process": "people owned default_quota tokens sharing",
        "give roles, teams, tickets and quotas; set who may share a process": (
            "give_role forget_person give_team give_tickets set_quota set_sharing"
        ),
        "create and revoke tokens": "create_token revoke_token",
        "see the disk, retention, webhooks, health, the machine and protections": (
            "disk_use retention planned webhooks health doctor protections"
        ),
        "set and apply retention": "set_retention apply_retention",
        "add, test and remove webhooks": "add_webhook test_webhook remove_webhook",
        "read the audit log": "audit audit_lines audited_names",
        "download the audit log": "audit_csv",
    },
}
"""What people do, by subject, with the actions of the service that it takes: all with one permission."""
WHOLE = {"figures", "require_figures"}
"""These refuse submitters themselves: they show the work of all."""


def named() -> list[str]:
    """The actions of the service behind all rows."""
    return [name for rows in ACTIONS.values() for names in rows.values() for name in names.split()]


def table() -> str:
    """One row for each thing that people do. Raises `ValueError` if its actions differ in who may do them."""
    rows = [["", *Role, "in the audit log"], ["---"] * (len(Role) + 2)]
    for subject, actions in ACTIONS.items():
        rows.append([f"**{subject}**", *[""] * (len(Role) + 1)])
        for what, names in actions.items():
            [rule] = {PERMISSIONS[name] for name in names.split()}
            cells = {role: _cell(role, rule) for role in Role}
            if WHOLE & set(names.split()):
                cells[Role.SUBMITTER] = "no"
            rows.append([what, *cells.values(), "yes" if rule.audited else "only a refusal"])
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
