"""Commands that take results out: downloads, certificates, exports to other tools."""

import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.files import apply_user_umask
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import DONE, FAILED, AsJson, Folder, MaybeSubModel, RunId, bad_option, opened, refusing
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import CertifyJob


class Tool(StrEnum):
    """What a run can be exported to."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


def download(run_id: RunId, submodel: MaybeSubModel = None, to: Folder = Path()) -> None:
    """Copy the zip of a separated model into a folder; without a name, those of all that have ended."""
    with opened() as service:
        if not to.is_dir():
            raise bad_option("--to", f"{to} is not a folder.", "Create it first.")
        names = [submodel] if submodel is not None else service.runs.finished(run_id)
        service.settle_certificates(run_id)
        certificates = {part.name: part.certificate for part in service.runs.observe(run_id).submodels}
        for name in names:
            path = service.runs.download(run_id, name, to)
            apply_user_umask(path)
            terminal.say(str(path))
            found = certificates.get(name)
            if found is not None and not found.holds:
                terminal.say(f"Its certificate does not hold. {' '.join(found.findings)}", to=terminal.err)


def verify(archive: Annotated[Path, typer.Argument(help="Zip of a separated model.")], as_json: AsJson = False) -> None:
    """Compare a downloaded model with its certificate: files, weights, and outputs for the probes in it."""
    with refusing(as_json):
        if not archive.is_file():
            raise BadInput.of("File not found", str(archive), f"{archive} does not exist.", "Correct the path.")
        with tempfile.TemporaryDirectory() as scratch:
            report = client.certify(CertifyJob(archive=archive.resolve(), scratch=Path(scratch)))
        if report.certificate is None:
            raise BadInput(report.findings)
    found = report.certificate
    if as_json:
        terminal.print_json(found.model_dump(mode="json"))
    else:
        for one in found.compared:
            terminal.say(f"{one.what}: {one.outcome}. {one.text}")
        terminal.say(f"{archive.name}: {'the certificate holds' if found.holds else 'the certificate does not hold'}.")
    raise typer.Exit(DONE if found.holds else FAILED)


def export(
    run_id: RunId,
    tool: Annotated[Tool, typer.Option("--to", help="Tool that reads it.")],
    place: Annotated[str, typer.Argument(help="Folder (send that of wandb with `wandb sync`), or an MLflow server.")],
    as_json: AsJson = False,
) -> None:
    """Export the curves and settings of a run, one run of TensorBoard, MLflow or W&B for each sub-model."""
    with opened(as_json) as service:
        written = service.exports.export(run_id, tool.value, place)
        if as_json:
            terminal.print_json({"run_id": run_id, "to": tool.value, "place": place, "written": written})
        else:
            for one in written:
                terminal.say(one)
