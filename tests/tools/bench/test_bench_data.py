from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.tools.bench.kit import write_data
from tools.bench import data
from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.datasets import read_dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "targets"),
    [
        ("mnist", (1, 28, 28), "uint8", ()),
        ("cifar10", (3, 32, 32), "uint8", ()),
        ("cifar10_224", (3, 224, 224), "uint8", ()),
        ("sst2", (56,), "int64", ()),
        ("wikitext2", (35,), "int64", (35,)),
    ],
)
def test_every_source_becomes_data_sets_that_can_be_submitted(
    folder: Path, tmp_path: Path, name: str, shape: tuple[int, ...], dtype: str, targets: tuple[int, ...]
) -> None:
    train, test, note = data.write(name, folder, tmp_path, train=2, test=1, vocabulary=20)
    assert note
    for file, count in ((train, 2), (test, 1)):
        read = read_dataset(tmp_path / file)
        assert (read.first.shape, read.targets.shape) == ((count, *shape), (count, *targets))
        assert str(read.first.dtype) == f"torch.{dtype}"


def test_at_most_as_many_samples_as_there_are(folder: Path, tmp_path: Path) -> None:
    train, _, _ = data.write("mnist", folder, tmp_path, train=10**9, test=1, vocabulary=0)
    assert len(load_file(tmp_path / train)["targets"]) == 64


def test_colours_come_before_rows_and_nothing_else_moves(folder: Path, tmp_path: Path) -> None:
    train, _, _ = data.write("cifar10", folder, tmp_path, train=5, test=1, vocabulary=0)
    large, _, _ = data.write("cifar10_224", folder, tmp_path, train=5, test=1, vocabulary=0)
    with np.load(folder / "cifar10_12k.npz") as file:
        given = file["train_inputs"][:5]
    small = load_file(tmp_path / train)["inputs"]
    assert (small.transpose(0, 2, 3, 1) == given).all()
    assert (load_file(tmp_path / large)["inputs"][:, :, 3::7, 3::7] == small).all()


def test_a_sentence_begins_ends_and_is_filled_up(folder: Path, tmp_path: Path) -> None:
    train, _, note = data.write("sst2", folder, tmp_path, train=3, test=1, vocabulary=8)
    inputs = load_file(tmp_path / train)["inputs"]
    assert list(inputs[0][[0, 4, 5]]) == [data.BEGIN, data.END, data.PADDING]
    assert inputs[2][-1] == data.END  # one that is too long is cut
    assert inputs.max() < 8
    assert data.UNKNOWN_NUMBER in inputs
    assert "7 different ones, of which the network knows 4" in note


def test_a_text_is_followed_by_the_same_moved_on_by_a_word(folder: Path, tmp_path: Path) -> None:
    train, _, _ = data.write("wikitext2", folder, tmp_path, train=9, test=1, vocabulary=28_782)
    read = load_file(tmp_path / train)
    assert len(read["inputs"]) == 2
    stream = np.concatenate([read["inputs"].ravel(), read["targets"][-1][-1:]])
    assert (stream[1:] == read["targets"].ravel()).all()
    words = (folder / "wikitext2_test.txt").read_text().lower().split()
    assert stream[1] == 0 == words.index("the")  # the unknown word, as the file has it
    assert len(set(words)) == 9 > stream.max()


def test_different_vocabularies_are_different_files(folder: Path, tmp_path: Path) -> None:
    names = {data.write("wikitext2", folder, tmp_path, train=2, test=1, vocabulary=size)[0] for size in (4, 20)}
    assert len(names) == 2


def test_what_is_missing_is_told_file_by_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mnist.npz").unlink()
    (folder / "sst2_dev.tsv").unlink()
    with pytest.raises(BadInput) as caught:
        data.require(folder, ["mnist", "cifar10", "sst2"])
    assert [finding.field for finding in caught.value.findings] == ["mnist.npz", "sst2_dev.tsv"]
    assert all("Put it there" in finding.remedy for finding in caught.value.findings)
    monkeypatch.delenv(data.ENVIRONMENT, raising=False)
    with pytest.raises(BadInput, match=r"mnist\.npz, cifar10_12k\.npz"):
        data.folder_of(None)
    monkeypatch.setenv(data.ENVIRONMENT, str(folder))
    assert data.folder_of(None) == folder


@pytest.mark.parametrize(("name", "file"), [("mnist", "mnist.npz"), ("sst2", "sst2_dev.tsv")])
def test_a_damaged_file_is_bad_input(folder: Path, tmp_path: Path, name: str, file: str) -> None:
    (folder / file).write_bytes(b"PK\x03\x04 no more")
    with pytest.raises(BadInput) as caught:
        data.write(name, folder, tmp_path, train=2, test=1, vocabulary=20)
    assert caught.value.findings[0].title == "Data not readable"
