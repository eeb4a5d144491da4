"""Networks that a JSON document describes: configurations of transformers."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.architectures import registry as architectures
from unifiednn_core.formats.huggingface import HuggingFace
from unifiednn_core.formats.registry import sniff, unknown
from unifiednn_core.spec.run import ArchitectureSpec

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "num_labels": 3,
}
VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 1,
    "num_labels": 3,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "albert": SMALL | {"embedding_size": 8},
    "bert": SMALL,
    "deit": VIT,
    "distilbert": {
        "vocab_size": 50,
        "dim": 16,
        "hidden_dim": 24,
        "n_heads": 2,
        "n_layers": 2,
        "max_position_embeddings": 20,
        "id2label": {"0": "a", "1": "b", "2": "c"},
    },
    "electra": SMALL | {"embedding_size": 8},
    "gpt2": {
        "vocab_size": 50,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": 20,
        "num_labels": 3,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
    },
    "roberta": SMALL,
    "vit": VIT,
    "xlm-roberta": SMALL,
}


def stored(document: Any, folder: Path) -> Path:
    (folder / "m.json").write_text(json.dumps(document))
    return folder / "m.json"


def config(name: str) -> dict[str, Any]:
    return {"model_type": name, **CONFIGS[name]}


def inputs_of(name: str) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if name in ("vit", "deit"):
        return torch.rand(4, 1, 8, 8, generator=generator)
    return torch.randint(2, 50, (4, 9), generator=generator)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_handed_back_loads_in_transformers_with_the_same_scores(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = HuggingFace()
    definition = known.read(stored(config(name), tmp_path), None)
    module, inputs = definition.build(), inputs_of(name)
    (tmp_path / "out").mkdir()
    delivery = known.write(definition, module.state_dict(), tmp_path / "out", "trained")
    monkeypatch.chdir(tmp_path / "out")
    found: dict[str, Any] = {}
    exec(delivery.load_script, found)  # noqa: S102  (written by the format itself)
    masked = {} if inputs.is_floating_point() else {"attention_mask": torch.ones_like(inputs)}
    with torch.no_grad():
        scores = module.eval()(inputs)
        assert torch.equal(scores, found["model"](inputs, **masked).logits)
        assert scores.shape == (4, 3)
        assert module(inputs[:1]).shape == (1, 3)


def test_padding_is_not_seen(tmp_path: Path) -> None:
    module = HuggingFace().read(stored(config("bert"), tmp_path), None).build().eval()
    inputs = inputs_of("bert")
    with torch.no_grad():
        assert torch.allclose(module(inputs), module(nn.functional.pad(inputs, (0, 4))), atol=1e-6)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "llama"}, "model_type must be one of"),
    ({"model_type": ["bert"]}, "model_type must be one of"),
    ({"model_type": "bert", "architectures": ["Evil"]}, "architectures must be"),
    ({"model_type": "bert", "auto_map": {"AutoModel": "somebody/code--Evil"}}, "auto_map"),
    ({"model_type": "bert", "quantization_config": {"a": 1}}, "quantization_config"),
    ({"model_type": "bert", "is_decoder": True}, "is_decoder"),
    ({"model_type": "bert", "hidden_size": "x"}, "transformers refuses"),
    ({"model_type": "bert", "hidden_size": 2**40}, "hidden_size"),
    ({"model_type": "bert", "hidden_size": -16}, "from 0"),
    ({"model_type": "bert", "vocab_size": 2**31 - 1, "hidden_size": 12 * 2**10}, "MiB of weights"),
    ({"model_type": "bert", "num_hidden_layers": 10**6}, "num_hidden_layers"),
    ({"model_type": "bert", "hidden_act": "evil"}, "evil"),
    ({"model_type": "vit", "patch_size": 0}, "makes no network"),
]


@pytest.mark.parametrize(("document", "words"), WRONG)
def test_a_configuration_that_is_not_taken_is_a_finding(document: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        HuggingFace().read(stored(document, tmp_path), None)
    assert caught.value.findings[0].field == "m.json"


def test_without_transformers_the_finding_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BadInput, match=r"unifiednn\[huggingface\]"):
        HuggingFace().read(stored(config("bert"), tmp_path), None)
    with pytest.raises(BadInput, match=r"unifiednn\[huggingface\]"):
        architectures.build("huggingface", {})


def test_a_description_apart_from_its_weights_is_refused_with_the_file_to_take(tmp_path: Path) -> None:
    known = HuggingFace()
    definition = known.read(stored(config("bert"), tmp_path), None)
    (tmp_path / "out").mkdir()
    delivery = known.write(definition, definition.build().state_dict(), tmp_path / "out", "trained")
    alone = next(path for path in delivery.files if path.suffix == ".json")
    assert sniff(alone) is None
    assert "safetensors" in unknown(alone).findings[0].remedy


def test_an_architecture_beside_a_description_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        HuggingFace().read(stored(config("bert"), tmp_path), ArchitectureSpec(name="lenet"))
    assert caught.value.findings[0].field == "architecture"


def test_files_that_are_programs_are_refused_with_the_line_that_packs_them(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning):
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), str(tmp_path / "m.pt"))
    (tmp_path / "m.py").write_text("import torch\n\nclass Net(torch.nn.Module): ...\n")
    for name, title in (("m.pt", "TorchScript"), ("m.py", "Python source")):
        assert sniff(tmp_path / name) is None
        (finding,) = unknown(tmp_path / name).findings
        assert finding.title == title
        assert "unifiednn pack my_module.py:make_model" in finding.remedy
