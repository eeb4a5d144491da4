import contextlib
import copy
import json
import re
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.unit.formats import kit
from unifiednn_core.base.files import file_sha256
from unifiednn_core.base.paths import Home
from unifiednn_core.data import conversion
from unifiednn_core.preflight import check as room
from unifiednn_core.preflight import dry_run, kept_check
from unifiednn_core.preflight.check import check
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.preflight.trial import OutOfTime
from unifiednn_core.spec.run import parse_run


class Batches(nn.Module):
    """A network whose normalisation needs more than one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.norm, self.head = nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.norm(self.flatten(images)))
        return scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and data sets of all kinds."""
    folder = tmp_path_factory.mktemp("files")
    kit.exported(folder, "cnn")
    kit.exported(folder, "attention")
    kit.export(folder / "batches.pt2", Batches(), torch.randn(3, *kit.IMAGES))
    kit.export(folder / "frozen.pt2", kit.network("cnn").eval(), torch.randn(3, *kit.IMAGES))
    score = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 64)), nn.Linear(64, 1), nn.Flatten(0))
    kit.export(folder / "score.pt2", score, torch.randn(3, *kit.IMAGES))
    kit.export(folder / "eights.pt2", kit.network("cnn"), torch.randn(9, *kit.IMAGES), least=8)
    images, labels = torch.randn(25, *kit.IMAGES), torch.arange(25) % 3
    sets: dict[str, Any] = {
        "train": {"inputs": images, "targets": labels},
        "bytes": {"inputs": (images * 20).to(torch.uint8), "targets": labels},
        "double": {"inputs": images.double(), "targets": labels},
        "wide": {"inputs": torch.randn(25, 3, 8, 8), "targets": labels},
        "many_labels": {"inputs": images, "targets": torch.arange(25)},
        "negative": {"inputs": images, "targets": labels - 1},
        "real": {"inputs": images, "targets": labels.float()},
        "counts": {"inputs": images, "targets": labels.float()},
        "signs": {"inputs": images, "targets": labels.float().clamp(max=1) * 2 - 1},
        "tokens": {"inputs": torch.arange(25 * 5).view(25, 5) % 11, "targets": labels},
        "foreign_token": {"inputs": torch.arange(25 * 5).view(25, 5) % 11, "targets": labels},
    }
    sets["columns"] = {"inputs": images, "targets": labels[:, None]}
    sets["scores"] = {"inputs": images, "targets": nn.functional.one_hot(labels, 3).float()}
    sets["ignored"] = {"inputs": images, "targets": torch.where(torch.arange(25) < 20, labels, -100)}
    sets["foreign_token"]["inputs"][20, 3] = 11
    sets["gap"] = {"inputs": images, "targets": torch.where(labels == 2, 4, labels)}
    sets["ages"] = {"inputs": torch.arange(100).view(25, 4) % 60, "targets": labels}
    kit.export(folder / "ages.pt2", nn.Linear(4, 3), torch.randn(3, 4))
    sets["two"] = {"inputs": images, "targets": labels.clamp(max=1)}
    for name, data in sets.items():
        torch.save(data, folder / f"{name}.pt")
    save_file({"weight": torch.ones(2)}, folder / "weights.safetensors")
    (folder / "damaged.pt").write_bytes((folder / "train.pt").read_bytes()[:3000])
    return folder


def asked(**changes: Any) -> dict[str, Any]:
    hyperparameters = {"batch_size": 8} | changes.pop("hyperparameters", {})
    entry = {"name": "one", "model": "cnn.pt2", "train_data": "train.pt", "test_data": "train.pt"} | changes
    return {**{k: v for k, v in entry.items() if v is not None}, "hyperparameters": hyperparameters}


def checked(folder: Path, home: Home, *submodels: dict[str, Any]) -> CheckReport:
    return check(parse_run({"submodels": list(submodels)}), folder, home)


def test_a_good_spec_has_no_finding_and_says_what_would_be_trained(folder: Path, home: Home) -> None:
    report = checked(folder, home, asked())
    assert report.findings == ()
    assert report.submodels["one"].model_dump(
        exclude={"memory", "seconds_per_step", "evaluation_share"}, exclude_defaults=True
    ) == {
        "name": "one",
        "format": "pt2",
        "parameters": 151,
        "weights_bytes": 604,
        "input_shape": (1, 8, 8),
        "samples": 25,
        "test_samples": 25,
        "classes": 3,
        "steps_per_epoch": 4,
        "operators": ("conv2d", "relu", "max_pool2d", "flatten", "dropout", "linear"),
    }
    assert 0 < (report.submodels["one"].seconds_per_step or 0) < 10
    assert 0 < report.submodels["one"].evaluation_share < 1
    assert report.files.keys() == {"cnn.pt2", "train.pt"}
    assert report.files["cnn.pt2"].path == folder / "cnn.pt2"


HYPER = "submodels.one.hyperparameters"
BARE = "weights.safetensors"
NO_TEST = {"test_data": None}
TOKENS = {"model": "attention.pt2", "train_data": "foreign_token.pt", "test_data": None}


def lr_scheduler(name: str, per: str = "epoch", epochs: int = 1, **args: Any) -> dict[str, Any]:
    return {"hyperparameters": {"epochs": epochs, "lr_scheduler": {"name": name, "per": per, "args": args}}}


def sequence(name: str, epochs: int, **args: Any) -> dict[str, Any]:
    """Three epochs of a warm-up, then another."""
    each = [{"name": "linear", "args": {"total_iters": 2}}, {"name": name, "args": args}]
    return {"hyperparameters": {"epochs": epochs, "lr_scheduler": {"name": "sequence", "of": each, "milestones": [3]}}}


MANY: dict[str, Any] = {"train_data": "gap.pt"}
DECAY: dict[str, Any] = {"names": ["*.bias", "*norm*"], "weight_decay": 0}


def hyper(**changes: Any) -> dict[str, Any]:
    return {"hyperparameters": changes}


def rates(criterion: str = "poisson_nll", poisson_data: str = "counts") -> dict[str, Any]:
    """A network of one number for each sample, which a criterion compares with the targets."""
    data = {"train_data": f"{poisson_data}.pt", "test_data": "counts.pt"}
    return {"model": "score.pt2", **data, **hyper(criterion=criterion)}


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"model": "absent.pt2"}, "submodels.one.model", "no such file"),
    ({"model": "../" * 40 + "etc/passwd"}, "submodels.one.model", "describes no network and is not a table"),
    ({"model": "sha256:../../etc/passwd"}, "submodels.one.model", "no such file"),
    ({"model": "\0"}, "submodels.one.model", "cannot be read"),
    ({"model": "train.pt"}, "submodels.one.architecture", "weights alone"),
    ({"model": BARE, "architecture": {"name": "odd"}}, "submodels.one.architecture.name", "odd"),
    ({"model": BARE, "architecture": {"name": "lenet", "args": {"x": 1}}}, "submodels.one.architecture.args", "'x'"),
    ({"model": BARE, "architecture": {"name": "lenet"}}, "submodels.one.model", "missing"),
    ({"train_data": "absent.pt"}, "submodels.one.train_data", "no such file"),
    ({"train_data": "damaged.pt"}, "submodels.one.train_data", "damaged"),
    ({"test_data": "damaged.pt"}, "submodels.one.test_data", "damaged"),
    ({"train_data": "cnn.pt2"}, "submodels.one.train_data", "not one of these: .pt"),
    ({"train_data": "wide.pt"}, "submodels.one.train_data", r"\[3, 8, 8\]; the network takes \[1, 8, 8\]"),
    ({"test_data": "wide.pt"}, "submodels.one.test_data", r"\[3, 8, 8\]"),
    ({"train_data": "bytes.pt"}, "submodels.one.scale", "uint8.*0.0039"),
    (
        {"model": "ages.pt2", "train_data": "ages.pt", "test_data": "ages.pt"},
        "submodels.one.scale",
        r"int64[^/]*float32, or set \"scale\"\.$",
    ),
    ({"train_data": "double.pt"}, "submodels.one.train_data", "float64.*float32"),
    ({"train_data": "many_labels.pt"}, "submodels.one.train_data", "3 classes .* 22 targets"),
    ({"test_data": "many_labels.pt"}, "submodels.one.test_data", "3 classes"),
    ({"train_data": "negative.pt"}, "submodels.one.train_data", "such as -1"),
    ({"train_data": "real.pt"}, "submodels.one.train_data", "class numbers"),
    ({"hyperparameters": {"criterion": "mse"}}, "submodels.one.train_data", r"mse.*\[8, 3\] and \[8\]"),
    ({"model": "score.pt2", "hyperparameters": {"criterion": "mse"}}, "submodels.one.train_data", "real numbers"),
    ({"model": "score.pt2"}, "submodels.one.model", "single number"),
    (TOKENS, "submodels.one.train_data", "0 to 11"),
    ({"hyperparameters": {"optimizer_args": {"nesterov": True}}}, f"{HYPER}.optimizer_args", "Nesterov"),
    ({"hyperparameters": {"optimizer": "muon"}}, f"{HYPER}.optimizer_args", "2D"),
    ({"hyperparameters": {"criterion_args": {"weight": [1, 2]}}}, f"{HYPER}.criterion_args", "weight"),
    (lr_scheduler("one_cycle", "step", 3, max_lr=1, total_steps=11), f"{HYPER}.lr_scheduler.args", "takes 12"),
    ({"hyperparameters": {"batch_size": 26, "drop_last": True}}, f"{HYPER}.batch_size", "25 samples"),
    (hyper(early_stopping={"patience": 2}, epochs=3) | NO_TEST, f"{HYPER}.early_stopping.metric", "train_l"),
    (rates("bce_with_logits", "signs") | NO_TEST, "submodels.one.train_data", "from 0 to 1; these go from -1 to 1"),
    (rates("soft_margin", "counts") | NO_TEST, "submodels.one.train_data", "these go from 0 to 2"),
    ({"model": "batches.pt2"}, f"{HYPER}.batch_size", "one sample"),
    ({"model": "batches.pt2", "hyperparameters": {"batch_size": 1}}, f"{HYPER}.batch_size", "one sample"),
    ({"model": "eights.pt2"}, f"{HYPER}.batch_size", "at least 8"),
    ({"model": "batches.pt2", **hyper(batch_split=8, drop_last=True)}, f"{HYPER}.batch_split", "one sample.*fewer"),
    ({"model": "eights.pt2", **hyper(batch_split=2, drop_last=True)}, f"{HYPER}.batch_split", "at least 8.* has 4"),
    (
        {"train_data": "columns.pt", "test_data": None},
        "submodels.one.train_data",
        r"class numbers \[batch\]; these are",
    ),
    ({"train_data": "ignored.pt", "test_data": None}, "submodels.one.train_data", "5 of 25 samples.*-100"),
    ({"test_data": "ignored.pt"}, "submodels.one.test_data", "5 of 25 samples"),
    (hyper(criterion_args={"weight": [0, 1, 1]}) | NO_TEST, "submodels.one.train_data", "9 of 25.*weight 0"),
    (lr_scheduler("constant", epochs=3, factor=0, total_iters=2), f"{HYPER}.lr_scheduler.args", "after 2 of 3 steps"),
    (lr_scheduler("exponential", epochs=9, gamma=1e9), f"{HYPER}.lr_scheduler.args", "1e\\+43 after 5 of 9"),
    ({"scale": 1e38, "mean": -1e38}, f"{HYPER}.criterion", "first batch is (nan|inf)"),
    (
        {"hyperparameters": {"criterion": "bce"}, "train_data": "scores.pt"} | NO_TEST,
        "submodels.one.train_data",
        "0 and 1",
    ),
    (
        hyper(parameter_groups=[{"names": "bone.*"}]),
        f"{HYPER}.parameter_groups.0.names",
        "'bone.*'. The network has .*0.b",
    ),
    (hyper(parameter_groups=[DECAY, {"names": "0.bias"}]), f"{HYPER}.parameter_groups.1.names", "before them"),
    (hyper(parameter_groups=[{"names": "*", "frozen": True}]), f"{HYPER}.parameter_groups", "freeze every weight"),
    (hyper(parameter_groups=[DECAY | {"nesterov": True}]), f"{HYPER}.parameter_groups.0", "Nesterov"),
    (hyper(class_weights="balanced") | MANY, f"{HYPER}.class_weights", "cannot be balanced: class 2 has no sample"),
    (hyper(class_weights="balanced") | {"train_data": "two.pt"}, f"{HYPER}.class_weights", "scores 3 classes"),
    (hyper(sampler={"name": "balanced"}) | {"train_data": "columns.pt"}, f"{HYPER}.sampler.name", "one class number"),
    (hyper(sampler={"name": "by_length"}), f"{HYPER}.sampler.name", "not rows of whole numbers"),
    (hyper(sampler={"name": "by_length", "input": "ids"}), f"{HYPER}.sampler.input", "they have inputs"),
    (sequence("exponential", 9, gamma=1e9), f"{HYPER}.lr_scheduler.args", "after 8 of 9"),
    (rates("multi_label_margin") | NO_TEST, "submodels.one.train_data", "class numbers|scores"),
]


@pytest.mark.parametrize(("changes", "field", "words"), CASES, ids=[f"{c[1]}-{c[2][:12]}" for c in CASES])
def test_a_mistake_is_a_finding_at_its_place(
    changes: dict[str, Any], field: str, words: str, folder: Path, home: Home
) -> None:
    found = [finding for finding in checked(folder, home, asked(**changes)).findings if finding.severity == "error"]
    assert {finding.field for finding in found} == {field}
    assert re.search(words, " ".join(finding.message + finding.remedy for finding in found))
    assert all(finding.remedy for finding in found)


def test_mistakes_of_all_submodels_are_found_at_once(folder: Path, home: Home) -> None:
    wrong_files = asked(name="a", model="absent.pt2", train_data="damaged.pt")
    wrong_labels = asked(name="c", train_data="many_labels.pt")
    report = checked(folder, home, wrong_files, asked(name="b"), wrong_labels)
    assert [finding.field for finding in report.findings] == [
        "submodels.a.model",
        "submodels.a.train_data",
        "submodels.c.train_data",
    ]
    assert report.submodels.keys() == {"b", "c"}


def test_a_plateau_without_test_data_is_doubtful(folder: Path, home: Home) -> None:
    report = checked(folder, home, asked(test_data=None, **lr_scheduler("reduce_on_plateau", epochs=20)))
    assert f"{HYPER}.lr_scheduler.name" in {finding.field for finding in report.findings}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"test_data": None}, "submodels.one.test_data"),
        (lr_scheduler("one_cycle", max_lr=1, total_steps=9), f"{HYPER}.lr_scheduler.per"),
        (lr_scheduler("cosine", epochs=9, T_max=4), f"{HYPER}.lr_scheduler.args"),
        (lr_scheduler("cosine", epochs=3, T_max=4), f"{HYPER}.lr_scheduler.args"),
        (lr_scheduler("cosine", "step", epochs=2, T_max=7), f"{HYPER}.lr_scheduler.args"),
        (lr_scheduler("one_cycle", "step", 3, max_lr=1, total_steps=13), f"{HYPER}.lr_scheduler.args"),
        (lr_scheduler("cyclic", base_lr=0.1, max_lr=1), f"{HYPER}.lr_scheduler.per"),
        (lr_scheduler("step", epochs=3, step_size=3), f"{HYPER}.lr_scheduler.args"),
        (lr_scheduler("multi_step", "step", 2, milestones=[9, 8]), f"{HYPER}.lr_scheduler.args"),
        (sequence("cosine", 9, T_max=4), f"{HYPER}.lr_scheduler.of.1.args"),
        (sequence("cosine", 2, T_max=4), f"{HYPER}.lr_scheduler.milestones"),
        (
            lr_scheduler("warmup_linear", epochs=9, num_warmup_steps=2, num_training_steps=9),
            f"{HYPER}.lr_scheduler.per",
        ),
        (
            lr_scheduler("warmup_cosine", "step", 2, num_warmup_steps=2, num_training_steps=6),
            f"{HYPER}.lr_scheduler.args",
        ),
        (
            hyper(
                parameter_groups=[DECAY | {"learning_rate": 1.0}],
                lr_scheduler={"name": "one_cycle", "args": {"max_lr": 1, "total_steps": 4}, "per": "step"},
            ),
            f"{HYPER}.parameter_groups",
        ),
        (
            {
                **TOKENS,
                **hyper(sampler={"name": "by_length", "window": 1}),
                "train_data": "tokens.pt",
                "test_data": "tokens.pt",
            },
            f"{HYPER}.sampler.window",
        ),
        (hyper(accumulation_steps=2, class_weights="balanced"), f"{HYPER}.criterion_args.weight"),
        (hyper(ema={"decay": 0.999}, epochs=2), f"{HYPER}.ema.decay"),
        (hyper(warm_up={"steps": 8}, epochs=2), f"{HYPER}.warm_up.steps"),
        (hyper(accumulation_steps=5), f"{HYPER}.accumulation_steps"),
        (hyper(accumulation_steps=2, criterion_args={"weight": [1, 2, 3]}), f"{HYPER}.criterion_args.weight"),
        (hyper(batch_split=2, criterion_args={"ignore_index": 7}), f"{HYPER}.criterion_args.ignore_index"),
        (hyper(early_stopping={"patience": 4}, epochs=4), f"{HYPER}.early_stopping.patience"),
        (rates(poisson_data="signs"), "submodels.one.train_data"),
        (hyper(optimizer="rprop", warm_up={"steps": 2}), f"{HYPER}.optimizer"),
        (hyper(criterion="nll"), f"{HYPER}.criterion"),
        ({"model": "frozen.pt2"}, "submodels.one.model"),
    ],
)
def test_what_is_merely_doubtful_is_a_warning(changes: dict[str, Any], field: str, folder: Path, home: Home) -> None:
    report = checked(folder, home, asked(**changes))
    assert [(finding.severity, finding.field) for finding in report.findings] == [("warning", field)]
    assert not report.has_errors


def test_dropping_the_last_batch_saves_a_network_that_needs_more_than_one_sample(folder: Path, home: Home) -> None:
    report = checked(folder, home, asked(model="batches.pt2", hyperparameters={"drop_last": True}))
    assert report.findings == ()
    assert report.submodels["one"].steps_per_epoch == 3


def test_a_scale_makes_integer_images_fit(folder: Path, home: Home) -> None:
    report = checked(folder, home, asked(train_data="bytes.pt", test_data="bytes.pt", scale=1 / 255))
    assert report.findings == ()


def test_a_check_draws_no_random_number(folder: Path, home: Home) -> None:
    before = torch.get_rng_state()
    checked(folder, home, asked())
    assert torch.equal(before, torch.get_rng_state())


def test_a_data_set_is_read_once_however_many_name_it(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    original = room.read_dataset
    monkeypatch.setattr(room, "read_dataset", lambda path, **how: read.append(path) or original(path, **how))
    checked(folder, home, asked(name="a"), asked(name="b"), asked(name="c"))
    assert read == [folder / "train.pt"]


def test_the_same_content_is_not_tried_twice(folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    original = room.dry_run
    monkeypatch.setattr(room, "dry_run", lambda trial: tried.append(trial.spec.name) or original(trial))
    first = checked(folder, home, asked(name="a"), asked(name="b"))
    assert checked(folder, home, asked(name="a"), asked(name="b")) == first
    assert tried == ["a", "b"]
    checked(folder, home, asked(name="a", train_data="double.pt"))
    for _ in range(2):  # what has errors is tried again
        assert checked(
            folder, home, asked(name="c", hyperparameters={"batch_size": 24}, model="batches.pt2")
        ).has_errors
    assert tried == ["a", "b", "a", "c", "c"]


@pytest.mark.parametrize(("slow_cpu_s", "sizes"), [(dry_run.SLOW_FORWARD_CPU_S, {8, 5}), (-1.0, {2})])
def test_a_few_samples_are_tried_however_large_the_batch_and_two_by_a_slow_network(
    slow_cpu_s: float, sizes: set[int], folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_run, "SLOW_FORWARD_CPU_S", slow_cpu_s)
    seen: list[int] = []
    original = dry_run._Tryout._outputs
    monkeypatch.setattr(dry_run._Tryout, "_outputs", lambda *of: seen.append(len(of[1].targets)) or original(*of))
    memory = checked(folder, home, asked(hyperparameters={"batch_size": 20})).submodels["one"].memory
    assert memory is not None and memory.batch_size == 20
    assert set(seen) == sizes
    assert not checked(folder, home, asked(model="eights.pt2", **hyper(batch_size=25))).has_errors
    assert max(seen) == 8, "a network may take no fewer"


def endless(*_: object, **__: object) -> None:
    for _ in repeat(None):
        with contextlib.suppress(ValueError, RuntimeError):
            torch.ones(2) + 1


def test_a_measurement_that_takes_too_long_only_leaves_the_prediction_out(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MEASURE_CPU_S", 0.01)
    monkeypatch.setattr(room, "measure", endless)
    report = checked(folder, home, asked())
    assert not report.has_errors
    [finding] = [found for found in report.findings if found.title == "Memory not predicted"]
    assert finding.message == "The memory of 'one' could not be counted within 0.01 s of processor time."
    assert report.submodels["one"].memory is None


def test_a_network_that_is_too_slow_to_be_tried_is_admitted_with_a_warning(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "DRY_RUN_CPU_S", 0.01)
    monkeypatch.setattr(room, "dry_run", endless)
    report = checked(folder, home, asked())
    [finding] = report.findings
    assert (finding.severity, finding.title, finding.field) == ("warning", "Not tried", "submodels.one.model")
    assert "starts without a prediction" in finding.message and "smaller" not in finding.remedy
    assert report.submodels["one"].samples == 25 and report.submodels["one"].memory is None
    wrong = asked(hyperparameters={"batch_size": 26, "drop_last": True})
    assert checked(folder, home, wrong).has_errors, "what was found wrong without a step is an error all the same"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"train_data": "many_labels.pt"}, "3 classes"),
        ({"test_data": "many_labels.pt"}, "3 classes"),
        (TOKENS, "0 to 11"),
    ],
    ids=["right", "labels", "labels of the test", "ids"],
)
def test_a_network_that_is_too_slow_needs_right_labels_and_ids_on_a_gpu(
    changes: dict[str, Any], words: str | None, folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There they would end the process, and all trainings in it."""
    monkeypatch.setattr(room, "dry_run", out_of_time)

    def found(device: str, epochs: int = 1) -> list[tuple[str, str]]:
        spec = parse_run({"submodels": [asked(**changes, **hyper(epochs=epochs))], "device": device})
        findings = check(spec, folder, home).findings
        return [(finding.severity, finding.message) for finding in findings if finding.title != "No test data"]

    [(severity, message)] = found("cuda:0")
    assert severity == ("error" if words else "warning") and (words or "") in message
    assert [severity for severity, _ in found("cpu")] == ["warning"]
    monkeypatch.setattr(room, "try_numbers", out_of_time)
    [(severity, message)] = found("cuda:0", epochs=2)
    assert severity == "error" and "unchecked" in message


def out_of_time(_: object) -> None:
    raise OutOfTime


def test_data_that_cannot_be_streamed_are_resident_and_a_finding_says_so(folder: Path, home: Home) -> None:
    images, labels = torch.load(folder / "train.pt").values()
    turned = {"inputs": images.numpy().transpose(3, 2, 1, 0).copy().transpose(), "targets": labels.numpy()}
    np.savez(folder / "turned.npz", **turned)
    streamed = {"loading": "streamed", "test_data": None}
    report = checked(folder, home, asked(train_data="turned.npz", **streamed))
    [finding] = [finding for finding in report.findings if finding.title == "Not streamed"]
    assert (finding.severity, finding.field) == ("warning", "submodels.one.train_data")
    assert not report.submodels["one"].streamed
    conversion.convert(folder / "turned.npz", folder / "turned.safetensors")
    report = checked(folder, home, asked(train_data="turned.safetensors", **streamed))
    assert report.submodels["one"].streamed and "Not streamed" not in {found.title for found in report.findings}


def test_a_check_tells_what_it_does(folder: Path, home: Home) -> None:
    told: list[str] = []
    spec = parse_run({"submodels": [asked(name="a"), asked(name="b", model="absent.pt2"), asked(name="c")]})
    check(spec, folder, home, lambda progress: told.append(progress.line))
    steps = ("Reading the files", "Trying a step", "Measuring the memory", "Timing a step")
    whole = [[f"{step} of {name} ({at} of 3)…" for step in steps] for at, name in ((1, "a"), (3, "c"))]
    assert told == [*whole[0], "Reading the files of b (2 of 3)…", *whole[1]]
    del told[4:]
    check(spec, folder, home, lambda progress: told.append(progress.text))
    assert told[4:] == [f"Reading the files of {name}" for name in "abc"], "kept reports are not tried again"


def test_files_are_found_by_content_in_the_home(folder: Path, home: Home) -> None:
    names = {}
    for name in ("cnn.pt2", "train.pt"):
        sha256 = file_sha256(folder / name)
        home.file(sha256).parent.mkdir(parents=True)
        home.file(sha256).write_bytes((folder / name).read_bytes())
        names[name] = f"sha256:{sha256}"
    by_content = asked(model=names["cnn.pt2"], train_data=names["train.pt"], test_data=names["train.pt"])
    assert checked(folder, home, by_content).findings == ()


def test_a_disk_that_is_nearly_full_is_a_finding(folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_check, "SPARE_BYTES", 2**62)
    (finding,) = checked(folder, home, asked()).findings
    assert finding.field == "home"


def test_a_report_survives_json(folder: Path, home: Home) -> None:
    report = checked(folder, home, asked(test_data=None))
    assert CheckReport.model_validate_json(json.dumps(json.loads(report.model_dump_json()))) == report
    assert copy.deepcopy(report) == report


def test_samples_without_a_target_are_taken_where_no_batch_is_made_of_them_alone(folder: Path, home: Home) -> None:
    """5 of 25: never a whole batch of 12, and in the test, which has 13 in its last batch, never alone."""
    changes = {"train_data": "ignored.pt", **hyper(batch_size=12, drop_last=True)}
    assert not checked(folder, home, asked(**changes)).has_errors
    assert not checked(folder, home, asked(test_data="ignored.pt", **hyper(batch_size=13))).has_errors


def test_a_lower_precision_is_tried_and_float16_needs_a_gpu(folder: Path, home: Home) -> None:
    def found(precision: str, device: str) -> list[str]:
        entry = asked(hyperparameters={"precision": precision})
        spec = parse_run({"submodels": [entry], "profile": "fast", "device": device})
        return [finding.field for finding in check(spec, folder, home).findings]

    assert found("bfloat16", "cpu") == []
    assert found("float16", "cpu") == [f"{HYPER}.precision"]
