"""JSON that describes networks: Hugging Face configs that ask for more than a network."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Maker = Callable[[Path], Path]


def _document(content: Any, name: str = "net.json") -> Maker:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return folder / name

    return make


def config(**more: Any) -> dict[str, Any]:
    """A small BERT, changed."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    start = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 50, **sizes}
    return {**start, **more}


def _bert(**more: Any) -> Maker:
    return _document(config(**more), "config.json")


def _gpt2(**more: Any) -> Maker:
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50}
    return _document({"model_type": "gpt2", "architectures": ["GPT2ForSequenceClassification"], **sizes, **more})


def _vit(**more: Any) -> Maker:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return _document({"model_type": "vit", **sizes, "image_size": 8, "patch_size": 4, **more})


def _inside_weights(key: str, document: Any) -> Maker:
    """A description in the header of a safetensors file."""

    def make(folder: Path) -> Path:
        entries = {"__metadata__": {key: json.dumps(document)}}
        weight = {"0.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
        text = json.dumps({**entries, **weight}).encode()
        (folder / "net.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
        return folder / "net.safetensors"

    return make


MAKERS: dict[str, Maker] = {
    "number of 5000 digits": _document(f'{{"model_type": "bert", "hidden_size": {"9" * 5000}}}'.encode()),
    "number that is none": _document(b'{"model_type": "bert", "hidden_size": NaN}'),
    "giant number": _document(b'{"model_type": "bert", "hidden_size": 1e999}'),
    "true for a number": _bert(num_hidden_layers=True),
    "deep within Python": _document(b'{"model_type": "bert", "id2label": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    "the second type counts": _document(b'{"model_type": "bert", "model_type": "evil"}'),
    "half a character": _document(rb'{"model_type": "\ud800"}'),
    "letters that look alike": _bert(model_type="b\u0435rt"),
    "text that turns round": _bert(model_type="\u202etreb\x1b]0;title\x07"),
    "NUL": _bert(model_type="bert\0"),
    "bad bytes": _document(b'{"model_type": "\xff\xfe"}'),
    "nested without end": _document(b"[" * 100_000 + b"]" * 100_000),
    "objects without end": _document(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a configuration within weights": _inside_weights("unifiednn.huggingface", {"model_type": "evil"}),
    "half a character within weights": _inside_weights("unifiednn.huggingface", {"model_type": "\ud800"}),
    "weights of another network": _inside_weights("unifiednn.huggingface", config()),
    "remote code": _bert(auto_map={"AutoModel": "evil--repo/modeling.Evil"}, trust_remote_code=True),
    "unknown model type": _bert(model_type="evil"),
    "model type of a list": _bert(model_type=["bert"]),
    "unknown head": _bert(architectures=["Evil"]),
    "two heads": _bert(architectures=["BertForSequenceClassification"] * 2),
    "head by path": _bert(architectures=["../../evil.Evil"]),
    "giant network": _bert(hidden_size=2**20, num_attention_heads=16, num_hidden_layers=10_000),
    "giant vocabulary": _bert(vocab_size=2**31 - 1, hidden_size=2**16),
    "giant number of classes": _bert(num_labels=10**9),
    "names of 10^6 classes": _bert(id2label={str(number): "x" for number in range(60_000)}, num_labels=2**31),
    "giant text length": _gpt2(n_positions=2**30),
    "giant image": _vit(image_size=2**20, patch_size=1),
    "patch of nothing": _vit(patch_size=0),
    "negative size": _bert(hidden_size=-16),
    "size of text": _bert(hidden_size="__import__('os').mkdir('canary')"),
    "heads that do not fit": _bert(num_attention_heads=3),
    "activation of a path": _bert(hidden_act="/etc/passwd"),
    "decoder": _bert(is_decoder=True, add_cross_attention=True),
    "quantized": _bert(quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}),
    "object for a number": _bert(layer_norm_eps={"__reduce__": ["os.system", "true"]}),
    "rate beyond one": _bert(hidden_dropout_prob=7.0),
}
# Names of files, places in the net and kernels from elsewhere are left aside; the network is an ordinary one.
HARMLESS: dict[str, Maker] = {
    "config with places in the net": _bert(
        _name_or_path="https://127.0.0.1:9/evil",
        name_or_path="/etc/passwd",
        _commit_hash="0" * 40,
        torch_dtype="evil",
        _attn_implementation="kernels-community/evil",
        attn_implementation="evil/repo",
        _auto_class="Evil",
        extra_files="/etc/passwd",
        base_model_tp_plan="evil",
        custom_pipelines={"evil": "code"},
        torchscript=True,
        pruned_heads={"0": [0]},
        attribute_map="evil",
        tokenizer_class="Evil",
    )
}
