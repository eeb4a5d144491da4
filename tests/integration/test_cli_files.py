import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pages._ui import uploads
from tests.integration.cli_kit import unifiednn, unifiednn_process
from unifiednn_core.base.paths import Home
from unifiednn_core.cli import main as cli

NETWORK = """\
import torch
from torch import nn

print("hello from the user's code")


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
"""
REPOSITORY = Path(__file__).parents[2]
SHOWN = uploads.COMMAND.split()[1:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder that holds nothing but their own file."""
    place = tmp_path / "user"
    place.mkdir()
    (place / "model.py").write_text(NETWORK)
    return place


def named(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")


def findings_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    assert done.returncode == 2
    return list(json.loads(done.stdout)["findings"])


@pytest.mark.slow
def test_the_command_that_is_shown_writes_a_network_and_its_hyperparameters(home: Home, folder: Path) -> None:
    """The user's code imports its own modules, whatever ours are called, and sees its own command line."""
    ours = {path.stem for root in (REPOSITORY, REPOSITORY / "unifiednn_core") for path in root.iterdir()}
    theirs = sorted(name for name in ours | {"units", "training"} if name.isidentifier() and name != "unifiednn_core")
    assert {"data", "engine", "pages", "tests", "tools"} <= {*theirs}
    for name in theirs:
        (folder / f"{name}.py").write_text("IS_THEIRS = True")
    own = f"import argparse, {', '.join(theirs)}\nargparse.ArgumentParser().parse_args()\n"
    (folder / "model.py").write_text(f"{own}assert {' and '.join(f'{name}.IS_THEIRS' for name in theirs)}\n{NETWORK}")
    done = unifiednn_process(home, *SHOWN, "--arg", "width=5", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["path"], report["hyperparameters"], report["findings"]) == ("Net.pt2", "Net.json", [])
    assert (report["facts"]["input_shape"], report["facts"]["parameters"]) == ([1, 28, 28], 5 * 9 + 15 + 60)
    assert {*named(folder)} == {"Net.json", "Net.pt2", "model.py", *(f"{name}.py" for name in theirs)}
    assert "hello from the user's code" in done.stderr


def test_pack_says_what_is_wrong_and_writes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli.app, ["pack", "model.py", "--input", "1,28,28"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Write FILE.py:NAME or MODULE:NAME, such as model.py:Net" in done.stderr
    assert named(folder) == ["model.py"]


@pytest.mark.long
def test_code_that_ends_its_process_is_told(home: Home, folder: Path) -> None:
    (folder / "model.py").write_text("import os\nos._exit(7)\n")
    [finding] = findings_of(unifiednn(home, *SHOWN, "--json", cwd=folder))
    assert "ended its process with code 7" in finding["message"]
    assert named(folder) == ["model.py"]


@pytest.mark.slow
def test_tables_and_texts_are_imported_in_one_step_each(home: Home, tmp_path: Path) -> None:
    rows = [
        f"the {thing} was {word}\t{at % 2}" for at, (thing, word) in enumerate([("cat", "old"), ("dog", "new")] * 3)
    ]
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "test.tsv").write_text("a dog was old\t1\nold\t0\n")
    refused = unifiednn(home, "import", str(tmp_path / "train.tsv"), "--text-column", "sentence", "--json")
    assert [one["message"] for one in findings_of(refused)] == [  # type: ignore[arg-type]
        "There is no column 'sentence'. There are 'column 1', 'column 2'."
    ]
    train = unifiednn(home, "import", str(tmp_path / "train.tsv"), "--text-column", "column 1", "--mask")
    assert train.returncode == 0 and "tokens by words, 4 each" in train.stdout and "sha256:" in train.stdout
    test = unifiednn(home, "import", str(tmp_path / "test.tsv"), "--like", "train.tsv", "--json")
    facts = json.loads(test.stdout)["facts"]
    assert facts["inputs"] == {"attention_mask": "int64 [4]", "input_ids": "int64 [4]"} and facts["samples"] == 2
    (tmp_path / "tokenizer.json").write_text(TOKENIZER)
    (tmp_path / "plan.json").write_text(
        json.dumps({"columns": [{"kind": "number", "name": "column 2", "whole": True}], "header": False})
    )
    (tmp_path / "book.txt").write_text("a b\nb a\n")
    book = unifiednn(
        home,
        "import",
        str(tmp_path / "book.txt"),
        "--tokenizer",
        str(tmp_path / "tokenizer.json"),
        "--length",
        "2",
        "--json",
    )
    assert json.loads(book.stdout)["facts"]["preview"]["samples"][0]["values"] == "0, 1"
    numbers = unifiednn(home, "import", str(tmp_path / "train.tsv"), "--plan", str(tmp_path / "plan.json"), "--json")
    assert json.loads(numbers.stdout)["facts"]["input_dtype"] == "int64"
    absent = unifiednn(home, "import", str(tmp_path / "book.txt"), "--tokenizer", "1" * 64, "--json")
    assert "no tokenizer" in findings_of(absent)[0]["message"]  # type: ignore[arg-type]


TOKENIZER = json.dumps(
    {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"},
    }
)
