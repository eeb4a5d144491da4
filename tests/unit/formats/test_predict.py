"""What load.py reads and prints for files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from unifiednn_core.formats import predict

PIXELS = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4)
IMAGE = {"inputs": ("uint8", [3, 4, 4])}
NAMES = ("cat", "dog", "eel")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Ask a network for the mean of each channel, or of each input, and return what is printed."""
    monkeypatch.chdir(tmp_path)

    def answer(given: Any) -> Any:
        if isinstance(given, Tensor):
            return (given.double().flatten(2).mean(2) if given.dim() > 2 else given.double(),)
        return {"logits": torch.stack([one.double().reshape(len(one), -1).mean(1) for one in given.values()], 1)}

    def ask(*files: str, samples: Any = IMAGE, names: Any = NAMES, scores: bool = True) -> tuple[str, str]:
        monkeypatch.setattr("sys.argv", ["load.py", *files])
        predict.main(answer, samples, names, scores=scores)
        return capsys.readouterr()

    return ask


def test_pictures_and_arrays_of_one_sample_or_several_get_the_same_answer(run: Callable[..., Any]) -> None:
    Image.fromarray(PIXELS.transpose(1, 2, 0)).save("a.png")
    np.save("a.npy", PIXELS)
    np.savez("a.npz", x=np.stack([PIXELS, 47 - PIXELS]))
    torch.save({"inputs": torch.tensor(PIXELS[None]), "targets": torch.zeros(1)}, "a.pt")
    save_file({"inputs": torch.tensor(PIXELS)}, "a.safetensors")
    found = json.loads(run("a.png", "a.npy", "a.npz", "a.pt", "a.safetensors", "--json")[0])
    assert [(row["file"], row.get("sample"), row["class"]) for row in found] == [
        ("a.png", None, "eel"),
        ("a.npy", None, "eel"),
        ("a.npz", 0, "eel"),
        ("a.npz", 1, "cat"),
        ("a.pt", None, "eel"),
        ("a.safetensors", None, "eel"),
    ]
    assert found[0]["outputs"] == [7.5, 23.5, 39.5] and found[3]["class_number"] == 0
    assert run("a.npz")[0] == "a.npz[0]: eel\na.npz[1]: cat\n"
    assert run("a.png", names=())[0] == "a.png: 2\n"
    assert run("a.png", scores=False)[0] == "a.png: 7.5 23.5 39.5\n"


def test_a_picture_of_another_size_is_cut_and_resized_as_the_import_does_and_says_so(run: Callable[..., Any]) -> None:
    wide = np.zeros((8, 12), np.uint8)
    wide[:, 2:10] = 100
    Image.fromarray(wide).save("wide.png")
    found, said = run("wide.png", "--json")
    grey = Image.fromarray(wide).convert("RGB").resize((4, 4), Image.Resampling.BILINEAR, (2, 0, 10, 8))
    assert json.loads(found)[0]["outputs"] == [np.array(grey).mean()] * 3
    assert said == "wide.png is 8x12: the square in its middle is resized to 4x4.\n"


def test_several_inputs_come_in_one_file(run: Callable[..., Any]) -> None:
    np.savez("two.npz", **{"inputs.a": np.ones((2, 3)), "b": np.zeros(2, np.int64)})
    two = {"a": ("float32", [3]), "b": ("int64", [])}
    assert run("two.npz", samples=two)[0] == "two.npz[0]: cat\ntwo.npz[1]: cat\n"


@pytest.mark.parametrize(
    ("file", "samples", "says"),
    [
        ("a.csv", IMAGE, "encoded numbers"),
        ("a.npy", {"inputs": ("float32", [7])}, "a sample is [7], but 'inputs' is [3, 4, 4]"),
        ("a.npy", {"a": ("uint8", [1]), "b": ("uint8", [1])}, "no array 'a'"),
        ("a.png", {"inputs": ("float32", [3, 4, 4])}, "not on pictures"),
        ("a.png", {"inputs": ("uint8", [3, 4, 5])}, "a.png is 4x4, but the network was trained on 4x5"),
        ("bad.png", IMAGE, "cannot identify"),
        ("deep.png", IMAGE, "8 bits"),
        ("none.png", IMAGE, "No such file"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_sentence(
    run: Callable[..., Any], file: str, samples: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.fromarray(PIXELS.transpose(1, 2, 0)).save("a.png")
    Image.fromarray(np.zeros((4, 4), np.uint16)).save("deep.png")
    np.save("a.npy", PIXELS)
    Path("bad.png").write_bytes(b"no picture")
    Path("a.csv").write_text("1,2\n")
    with pytest.raises(SystemExit, match="2"):
        run(file, samples=samples)
    assert says in capsys.readouterr().err
