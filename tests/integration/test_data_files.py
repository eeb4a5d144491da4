"""Data sets through the whole way into the library: conversion, preview, split, and a run on what came of it."""

from pathlib import Path

import pytest
import torch

from tests.unit.data import data_files as made
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.paths import Home
from unifiednn_core.data.datasets import read_dataset
from unifiednn_core.data.values import ImportOptions
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.columns import TableImportOptions
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import parse_run

CLASSES = ("ant", "bee", "cow")


def table(rows: int = 30) -> bytes:
    lines = (f"{row % 7},{row / 3:.3f},{CLASSES[row % 3]},{row % 5}" for row in range(rows))
    return "\n".join(["a,b,label,c", *lines]).encode()


def test_one_file_with_a_training_and_a_test_part_becomes_two_data_sets(service: Service, home: Home) -> None:
    content = made.zipped(home.quarantine / "mnist", made.mnist()).read_bytes()
    (home.quarantine / "mnist").unlink()
    train = service.library.import_file("mnist.zip", [content], ("data",))
    held = {view.filename: view for view in service.library.files()}
    test = held["mnist-test.safetensors"]
    assert held["mnist-train.safetensors"] == train
    assert (train.facts["samples"], test.facts["samples"], train.format, test.format) == (6, 3, "idx", "idx")
    for view, part in ((train, "train"), (test, "test")):
        assert view.preview is not None and view.preview.notes.part == part
        assert read_dataset(home.file(view.sha256)).samples == view.facts["samples"]
    assert not list(home.quarantine.iterdir())


def test_a_split_table_trains(service: Service, home: Home, tmp_path: Path) -> None:
    whole = service.library.import_file("t.csv", [table()], ("data",))
    train, test = service.library.split_data(whole.sha256, test_share=0.2, seed=1)
    assert (whole.filename, whole.format) == ("t.csv", "csv")
    assert (train.filename, test.filename) == ("t-train80-seed1.safetensors", "t-test20-seed1.safetensors")
    assert (train.facts["samples"], test.facts["samples"]) == (24, 6)
    assert test.preview is not None and test.preview.class_counts == (2, 2, 2)
    torch.save(torch.nn.Sequential(torch.nn.Linear(3, 3)), tmp_path / "linear.pt")
    part = {"name": "one", "model": "linear.pt", "hyperparameters": {"epochs": 1, "batch_size": 8}}
    part |= {"train_data": f"sha256:{train.sha256}", "test_data": f"sha256:{test.sha256}"}
    run_id = service.runs.submit(parse_run({"submodels": [part], "device": "cpu"}), tmp_path)
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)
    view = service.runs.observe(run_id)
    assert view.state is State.COMPLETED, view.cause
    with pytest.raises(NotFound):
        service.library.split_data("0" * 64)
    with pytest.raises(BadInput, match="share"):
        service.library.split_data(whole.sha256, test_share=1.0)


@pytest.mark.long
def test_test_data_of_other_words_are_found_and_like_the_training_data_they_train(
    service: Service, tmp_path: Path
) -> None:
    def reviews(noun: str) -> bytes:
        return b"text,label\n" + b"".join(f"{word} {noun},{at % 2}\n".encode() for at, word in enumerate("abcd"))

    alone = ImportOptions(table=TableImportOptions(tokenizer="words", text_columns=("text",)))
    train = service.library.import_file("train.csv", [reviews("film")], ("data",), alone)
    other = service.library.import_file("test.csv", [reviews("play")], ("data",), alone)
    as_train = ImportOptions(table=TableImportOptions(like=train.sha256))
    like = service.library.import_file("test.csv", [reviews("play")], ("data",), as_train)
    network = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    torch.save(network, tmp_path / "net.pt")
    part = {"name": "one", "model": "net.pt", "train_data": f"sha256:{train.sha256}"}
    errors = []
    for test in (other, like):
        spec = parse_run({"submodels": [part | {"test_data": f"sha256:{test.sha256}"}]})
        found = service.runs.check(spec, tmp_path).findings
        errors.append([finding.message for finding in found if finding.severity == "error"])
    assert errors == [["The test data became numbers in another way than the training data: column text."], []]
    with pytest.raises(BadInput, match="no data set"):
        service.library.import_file(
            "t.csv", [reviews("x")], ("data",), ImportOptions(table=TableImportOptions(like="0" * 64))
        )


@pytest.mark.long
def test_a_spec_may_name_a_table_by_its_path_and_other_classes_are_found(service: Service, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(table())
    (tmp_path / "other.csv").write_bytes(table().replace(b"ant", b"elk"))
    torch.save(torch.nn.Sequential(torch.nn.Linear(3, 3)), tmp_path / "linear.pt")
    part = {"name": "one", "model": "linear.pt", "train_data": "t.csv", "test_data": "other.csv"}
    found = service.runs.check(parse_run({"submodels": [part]}), tmp_path).findings
    assert [finding.title for finding in found if finding.severity == "error"] == ["Other classes"]
    part["test_data"] = "t.csv"
    run_id = service.runs.submit(parse_run({"submodels": [part], "device": "cpu"}), tmp_path)
    held = {view.filename: view.format for view in service.library.files()}
    assert held["t.csv"] == "csv"
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)
    assert service.runs.observe(run_id).state is State.COMPLETED
    assert not list(service.home.quarantine.iterdir())
