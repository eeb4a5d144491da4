"""Makes the certificate of a separated model: its file is read here, in a process that knows nothing of the hybrid.

The zip comes from a worker or from a download, so it counts as hostile: its names are checked, nothing in it is run,
and its networks are read like uploaded ones. The load.py that is run is written again, of the submitted file and the
weights, and compared with that of the zip.
"""

import hashlib
import io
import json
import platform
import re
import runpy
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.base.files import file_sha256, folder_lock, sync
from unifiednn_core.base.units import abbreviated
from unifiednn_core.base.visible import visible
from unifiednn_core.data.containers import open_data
from unifiednn_core.data.datasets import TARGETS
from unifiednn_core.engine import kinds
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.kinds import Kind
from unifiednn_core.engine.probes import FILENAME as PROBES
from unifiednn_core.engine.probes import Probes, outputs_of, outputs_sha256
from unifiednn_core.engine.separator import ANSWERS, SNIPPET, deliver, step_of
from unifiednn_core.formats import registry
from unifiednn_core.formats.weights import shapes_of, state_sha256
from unifiednn_core.preflight.inspection import attempt
from unifiednn_core.preflight.report import Certificate, CertificateCheck, CertifyJob, CertifyReport
from unifiednn_core.spec.devices import torch_name
from unifiednn_core.spec.run import ArchitectureSpec, SubModelSpec
from unifiednn_core.spec.techniques import name_of

FILENAME = "certificate.json"
WEIGHTS, SPEC = "weights.safetensors", "spec.json"
MOST_FILES, MOST_TEXT_BYTES, MOST_THREADS = 64, 1024**2, 256
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,199}")
_TITLE = "Separated model"
_CPU = torch.device("cpu")
_NEAR = 1e-2
"""Part of the largest value by which answers may differ between kinds of devices; wrong scales differ by more."""
_What = Literal["files", "weights", "keys", "outputs", "answers"]


def certify(job: CertifyJob) -> CertifyReport:
    """Compare a zip with what is known of its sub-model; with `put_in` the zip then holds the certificate."""
    with tempfile.TemporaryDirectory(dir=job.scratch, prefix="certify-") as name:
        found, findings = attempt(lambda: _certified(job, Path(name)), job.archive.name)
        if found is None:
            return CertifyReport(findings=findings)
        return found


def _certified(job: CertifyJob, folder: Path) -> CertifyReport:
    before = job.archive.stat()
    try:
        files = _unpack(job.archive, folder)
    except (BadInput, HostileFile) as error:
        if not job.put_in:
            raise
        return CertifyReport(
            certificate=_of_damaged(job, error.findings[0].message if isinstance(error, BadInput) else str(error)),
            size_bytes=before.st_size,
        )
    unpacked = _Unpacked(folder, job, files)
    certificate = unpacked.certificate()
    size_bytes = before.st_size
    if job.put_in:
        size_bytes = _put_in(job.archive, folder, certificate, before.st_ino)
    return CertifyReport(certificate=certificate, size_bytes=size_bytes)


def _unpack(archive: Path, folder: Path) -> dict[str, str]:
    """Unpack a zip of plain files; returns their SHA-256 by name. Raises `BadInput` or `HostileFile`."""
    try:
        with zipfile.ZipFile(archive) as held:
            infos = held.infolist()
            names = [info.filename for info in infos]
            if len(names) > MOST_FILES or len({*map(str.lower, names)}) < len(names):
                raise HostileFile(f"The zip holds {len(names)} files, or two of one name.")
            if sum(info.file_size for info in infos) > archive.stat().st_size:
                raise HostileFile("The zip claims to hold more bytes than it has.")
            found = {}
            for info in infos:
                if not _NAME.fullmatch(info.filename) or info.compress_type != zipfile.ZIP_STORED:
                    raise HostileFile(f"The zip holds a file that no separated model has: {info.filename[:100]!r}.")
                digest = hashlib.sha256()
                with held.open(info) as source, (folder / info.filename).open("xb") as target:
                    while block := source.read(2**20):
                        digest.update(block)
                        target.write(block)
                found[info.filename] = digest.hexdigest()
            return found
    except zipfile.BadZipFile as error:
        message = f"The zip is damaged ({str(error)[:100]})."
        raise BadInput.of(_TITLE, archive.name, message, "Download it again.") from None


def _of_damaged(job: CertifyJob, reason: str) -> Certificate:
    """The certificate of a zip that cannot be read any more; nothing can be put into it."""
    return Certificate(
        submodel=job.archive.stem if job.submodel is None else job.submodel.name,
        model=job.model or "",
        made_at_s=time.time(),
        holds=False,
        compared=(
            _differs("files", f"The zip cannot be read: {reason} Continue or retry the sub-model to export it again."),
        ),
        state_sha256=job.state_sha256 or "",
        versions=versions(),
    )


def _put_in(archive: Path, folder: Path, certificate: Certificate, inode: int) -> int:
    """Write the zip again with the certificate in it, and put it in its place at once; returns its size.

    Raises `HostileFile` if the zip is not the same any more: it was exported again.
    """
    (folder / FILENAME).write_text(document_of(certificate), encoding="utf-8")
    written = folder / ".archive"
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as file:
        for name in sorted({*certificate.files, FILENAME}):
            file.write(folder / name, name)
    size_bytes = written.stat().st_size
    sync(written)  # takes seconds for a large one
    with folder_lock(archive.parent, exclusive=True):  # as the export does while it renames
        if archive.stat().st_ino != inode:
            raise HostileFile("The zip was written again meanwhile.")
        written.replace(archive)
    sync(archive.parent)
    return size_bytes


def document_of(certificate: Certificate) -> str:
    """The text of `certificate.json`."""
    return certificate.model_dump_json(indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class _Unpacked:
    """An unpacked zip, and what it is compared with."""

    folder: Path
    job: CertifyJob
    files: Mapping[str, str]

    def certificate(self) -> Certificate:
        """Compare everything; raises `BadInput` for a zip that is none of a separated model."""
        earlier = self._earlier()
        described = self._described()
        entry = self._entry(described)
        model = self.job.model or (earlier.model if earlier else "")
        if model not in self.files:
            message = f"The zip has no model file '{model[:80]}'." if model else "The zip has no certificate."
            raise BadInput.of(_TITLE, self.job.archive.name, message, "Download the model again.")
        expected = self.job.state_sha256 or (earlier.state_sha256 if earlier else "")
        weights, findings = attempt(lambda: self._weights(model), model)
        compared = [] if earlier is None else [self._compare_files(earlier)]
        if weights is None:
            compared.append(_differs("weights", f"{model} cannot be read. {findings[0].message}"))
        else:
            compared.append(self._compare_weights(model, weights, expected))
            compared.append(self._compare_keys(entry, weights))
            compared.append(self._compare_outputs(entry, model, expected))
            if self.job.put_in and ANSWERS in self.files and all(one.outcome != "differs" for one in compared):
                compared.append(self._compare_answers(entry, model, weights))
        if earlier is not None:  # load.py is run where it was written alone
            compared += [one for one in earlier.compared if one.what == "answers"]
        certain = any(one.what == "weights" and one.outcome == "equal" for one in compared)
        listed = {name: digest for name, digest in self.files.items() if name != FILENAME}
        return Certificate(
            submodel=entry.name,
            model=model,
            made_at_s=time.time(),
            holds=certain and all(one.outcome != "differs" for one in compared),
            compared=tuple(compared),
            state_sha256=expected,
            tensors=len(weights or ()),
            files=listed,
            versions=versions(),
            spec=described,
            techniques=tuple(
                f"{name_of(type(one))}, {'exact' if one.exact else 'lossy'}" for one in entry.hyperparameters.techniques
            ),
            snippet=visible(self._text(SNIPPET).partition("\n\n\nif __name__")[0], keep="\n"),  # to be pasted anywhere
        )

    def _described(self) -> dict[str, object]:
        """The sub-model's entry in the spec of the zip, as it was written; empty if there is none."""
        with suppress(ValueError, TypeError, KeyError, IndexError, RecursionError):
            return dict(json.loads(self._text(SPEC))["submodels"][0])
        return {}

    def _entry(self, described: Mapping[str, object]) -> SubModelSpec:
        if self.job.submodel is not None:
            return self.job.submodel
        try:
            return SubModelSpec.model_validate(described)
        except ValidationError:
            message, remedy = "The zip holds no spec of a sub-model.", "Name a zip that UnifiedNN has written."
            raise BadInput.of(_TITLE, self.job.archive.name, message, remedy) from None

    def _earlier(self) -> Certificate | None:
        """The certificate in the zip."""
        text = "" if self.job.put_in else self._text(FILENAME)
        try:
            return Certificate.model_validate_json(text) if text else None
        except ValidationError:
            message = "Its certificate.json is damaged, or of another version of UnifiedNN."
            raise BadInput.of(_TITLE, self.job.archive.name, message, "Download it again.") from None

    def _text(self, name: str) -> str:
        path = self.folder / name
        if name not in self.files or path.stat().st_size > MOST_TEXT_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")

    def _compare_files(self, earlier: Certificate) -> CertificateCheck:
        now = {name: digest for name, digest in self.files.items() if name != FILENAME}
        other = sorted(name for name in now.keys() | earlier.files.keys() if now.get(name) != earlier.files.get(name))
        if other:
            return _differs("files", f"These files are not what the certificate lists: {abbreviated(other)}.")
        return _equal("files", f"All {len(now)} files have the SHA-256 that it lists.")

    def _weights(self, model: str) -> dict[str, Tensor]:
        """The weights of the model file; raises `BadInput` or `HostileFile`."""
        return registry.format_of(self.folder / model).read_state_dict(self.folder / model)

    def _compare_weights(self, model: str, weights: Mapping[str, Tensor], expected: str) -> CertificateCheck:
        """Compare the hash of the weights in every file that holds them."""
        if not expected:
            return _not_compared("weights", "Nobody knows the hash of the separated weights.")
        others: dict[str, Callable[[], Mapping[str, Tensor]]] = {}
        for name in sorted(self.files.keys() - {model, PROBES}):
            path = self.folder / name
            if name == WEIGHTS:
                others[name] = partial(load_file, path)
            elif (known := attempt(partial(registry.sniff, path), name)[0]) is not None:
                others[name] = partial(known.read_state_dict, path)
        wrong = [] if state_sha256(weights) == expected else [model]
        for name, read in others.items():
            held = attempt(read, name)[0]
            if held is None or state_sha256(held) != expected:
                wrong.append(name)
        if wrong:
            return _differs("weights", f"Weights that are not those of the hybrid: {abbreviated(wrong)}.")
        text = f"{', '.join([model, *others])}: the hash of the weights is that of the hybrid, bit for bit."
        return _equal("weights", text)

    def _compare_keys(self, entry: SubModelSpec, weights: Mapping[str, Tensor]) -> CertificateCheck:
        """Compare names and shapes with the submitted network."""
        upload = self.job.upload
        if upload is None or not upload.is_file():
            return _not_compared("keys", "The submitted file is not at hand here.")
        built, findings = attempt(lambda: _network(upload, entry.architecture), "the submitted file")
        if built is None:
            return _not_compared("keys", f"The submitted file could not be read here: {findings[0].message}")
        given, now = shapes_of(built.state_dict()), shapes_of(weights)
        other = sorted(key for key in given.keys() | now.keys() if given.get(key) != now.get(key))
        if other:
            return _differs("keys", f"Names or shapes are not those of the submitted network: {abbreviated(other)}.")
        text = f"All {len(now)} names, shapes and types are those of the submitted network."
        return _equal("keys", text)

    def _compare_outputs(self, entry: SubModelSpec, model: str, expected: str) -> CertificateCheck:
        """Run what the files hold on the probes."""
        path = self.job.probes if self.job.probes is not None else self.folder / PROBES
        if not path.is_file():
            return _not_compared("outputs", "No probes were kept with it.")
        read, findings = attempt(lambda: _probes(path), PROBES)
        if read is None:
            return _differs("outputs", f"The probes are damaged. {findings[0].message}")
        probes, written = read
        if probes.missing or written is None:
            return _not_compared("outputs", f"There are no probes: {probes.missing}.")
        if probes.state_sha256 != expected:
            return _not_compared("outputs", "The probes belong to another state of the network.")
        device, threads = _usable(self.job.device), min(written.threads or 1, MOST_THREADS)
        with exact_profile(device, threads):
            return self._compare_outputs_on(device, threads, entry, model, probes, written)

    def _compare_outputs_on(
        self, device: torch.device, threads: int, entry: SubModelSpec, model: str, probes: Probes, written: Kind
    ) -> CertificateCheck:
        elsewhere = kinds.differences(written, kinds.current_kind(device, threads))
        # The one for inference of a `.pt2` is another file, with another graph.
        names = [model, *(name for name in self.files if name == f"{Path(model).stem}.eval{Path(model).suffix}")]
        plain = entry.architecture and ArchitectureSpec(name=entry.architecture.name, args=entry.architecture.args)
        for name in names:
            outputs, findings = attempt(partial(_outputs, self.folder / name, plain, probes, device), name)
            if outputs is None and device != _CPU:  # most likely others have taken its memory
                return self._compare_outputs_on(_CPU, threads, entry, model, probes, written)
            if outputs is None:
                return _differs("outputs", f"{name} cannot be run on the probes. {findings[0].message}")
            if outputs_sha256(outputs) == probes.outputs_sha256:
                continue
            if elsewhere:
                return _not_compared(
                    "outputs", f"{elsewhere[0]} Bits may differ. {_distance(outputs, probes.outputs)}".strip()
                )
            return _differs("outputs", f"{name} gives other outputs. {_distance(outputs, probes.outputs)}".strip())
        count = len(probes.inputs[0])
        text = (
            f"{', '.join(names)}: the outputs for {count} {probes.data} samples are those of the hybrid, bit for bit "
            f"({written.text})."
        )
        return _equal("outputs", text)

    def _compare_answers(self, entry: SubModelSpec, model: str, weights: Mapping[str, Tensor]) -> CertificateCheck:
        """Run load.py on samples as they lie in the data set."""
        upload, data, path = self.job.upload, self.job.data, self.job.probes
        if upload is None or data is None or path is None or not path.is_file():
            return _not_compared("answers", "The samples, or the submitted file, are not at hand here.")
        probes = Probes.read(path)
        if probes.missing or not probes.outputs:
            return _not_compared("answers", f"{probes.missing or 'The outputs are too large to keep'}.".capitalize())
        definition = replace(registry.format_of(upload).read(upload, entry.architecture), filename=model)
        step = step_of(entry, definition, self.job.facts)
        if step is None or any(one.draws and not one.training_only for one in step.transforms):
            return _not_compared("answers", "An evaluation draws random numbers, and load.py does not.")
        again = self.folder / ".again"
        again.mkdir()
        deliver(entry.name, definition, weights, again, entry, self.job.facts)
        code = {path.name: path for path in again.iterdir() if path.suffix in (".py", ".json")}
        if other := sorted(name for name, path in code.items() if file_sha256(path) != self.files.get(name)):
            return _differs("answers", f"Not run, for it is not what this version writes: {abbreviated(other)}.")
        place = min(step.output, len(probes.outputs) - 1)
        expected, count = probes.outputs[place], len(probes.inputs[0])
        given = _samples(data, count, again, shorter=step.targets == "next")
        rows, findings = attempt(lambda: _answers(again, given), SNIPPET)
        if rows is None:
            return _differs("answers", f"load.py could not be run on {count} samples. {findings[0].message}")
        outputs = torch.tensor([row["outputs"] for row in rows]).to(expected.dtype)
        asked = f"{count} {probes.data} samples ({given[0].suffix})"
        if outputs_sha256([outputs]) == outputs_sha256([expected]):
            text = f"load.py was run on {asked}: its answers are those of the hybrid, bit for bit."
            return _equal("answers", text)
        distance = _distance((outputs,), (expected,))
        kind = _probes(path)[1]
        elsewhere = kind and kinds.differences(kind, kinds.current_kind(_CPU, torch.get_num_threads()))
        most = _NEAR * float(expected.double().abs().max())
        if elsewhere and outputs.shape == expected.shape and float((outputs - expected).double().abs().max()) <= most:
            return _not_compared("answers", f"load.py was run on {asked}. {elsewhere[0]} Bits may differ. {distance}")
        return _differs("answers", f"load.py, run on {asked}, gives other answers than the hybrid. {distance}")


def _samples(data: Path, count: int, folder: Path, *, shorter: bool) -> list[Path]:
    """Write the first samples of a data set as files for load.py: as pictures where they are."""
    held = {name: tensor[:count].clone() for name, tensor in open_data(data).entries.items() if name != TARGETS}
    if shorter:  # the last id is a target alone
        longest = max(one.shape[1] for one in held.values() if one.dim() > 1)
        held = {
            name: one[:, :-1].contiguous() if one.dim() > 1 and one.shape[1] == longest else one
            for name, one in held.items()
        }
    [first, *others] = held.values()
    if others or first.dtype is not torch.uint8 or first.dim() != 4 or first.shape[1] not in (1, 3):
        save_file(held, folder / "samples.safetensors")
        return [folder / "samples.safetensors"]
    paths = [folder / f"sample-{place}.png" for place in range(count)]
    for path, pixels in zip(paths, first.permute(0, 2, 3, 1).numpy(), strict=True):
        Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(path)
    return paths


def _answers(folder: Path, given: Sequence[Path]) -> list[dict[str, Any]]:
    """What `python load.py FILE... --json` prints, in this process, which has torch loaded; raises what it raises."""
    before, printed = (sys.argv, sys.path[:], {*sys.modules}), io.StringIO()
    sys.argv, sys.path[:0] = ["load.py", *map(str, given), "--json"], [str(folder)]
    try:
        with chdir(folder), redirect_stdout(printed):
            runpy.run_path(SNIPPET, run_name="__main__")
    except (Exception, SystemExit) as error:  # it may raise anything
        raise BadInput.of(_TITLE, SNIPPET, f"{type(error).__name__}: {str(error)[:200]}", "Report this.") from None
    finally:
        sys.argv, sys.path[:] = before[:2]
        for name in {*sys.modules} - before[2]:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
    found: list[dict[str, Any]] = json.loads(printed.getvalue())
    return found


def _probes(path: Path) -> tuple[Probes, Kind | None]:
    """Read probes and the kind of device that computed them, which those without samples lack."""
    probes = Probes.read(path)
    if probes.missing:
        return probes, None
    recipe = {"device_type": probes.kind["type"], "torch": probes.kind["torch"], "kinds": [dict(probes.kind)]}
    return probes, kinds.of_recipe(recipe)[-1]


def versions() -> dict[str, str]:
    """Versions of what made this certificate."""
    try:
        own = version("unifiednn")
    except PackageNotFoundError:
        own = "unknown"
    return {"torch": str(torch.__version__), "python": platform.python_version(), "unifiednn": own}


def _network(path: Path, architecture: ArchitectureSpec | None) -> nn.Module:
    """The network of a file; raises `BadInput` or `HostileFile`."""
    return registry.format_of(path).read(path, architecture).build()


def _usable(name: str) -> torch.device:
    """The device of this name, or the CPU if torch cannot compute there now."""
    device = torch.device(torch_name(name))
    if device.type == "cuda":
        with suppress(RuntimeError, AssertionError):  # no driver, no memory for a context, a torch for CPUs
            torch.zeros(1, device=device)
            return device
    return _CPU


def _outputs(
    path: Path, architecture: ArchitectureSpec | None, probes: Probes, device: torch.device
) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return outputs_of(_network(path, architecture).eval().to(device), [one.to(device) for one in probes.inputs])


def _distance(outputs: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str:
    """The largest difference of outputs, as a sentence; empty if the expected ones were too large to keep."""
    pairs = list(zip(outputs, expected, strict=False))
    if not expected or any(ours.shape != theirs.shape for ours, theirs in pairs) or len(outputs) != len(expected):
        return "Their number or their shapes differ." if expected else ""
    largest = max((float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel()), default=0.0)
    size = max((float(b.double().abs().max()) for _, b in pairs if b.numel()), default=0.0)
    return f"The largest difference is {largest:.3g}, where values reach {size:.3g}."


def _equal(what: _What, text: str) -> CertificateCheck:
    return CertificateCheck(what=what, outcome="equal", text=text)


def _differs(what: _What, text: str) -> CertificateCheck:
    return CertificateCheck(what=what, outcome="differs", text=visible(text))


def _not_compared(what: _What, text: str) -> CertificateCheck:
    return CertificateCheck(what=what, outcome="not compared", text=visible(text))
