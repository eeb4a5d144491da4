"""JSON that describes networks: layer lists and Hugging Face configs that ask for more than a network."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Maker = Callable[[Path], Path]
LAYERS = "unifiednn-layers"


def _document(content: Any, name: str = "net.json") -> Maker:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return folder / name

    return make


def _layers(*layers: Any, **more: Any) -> Maker:
    return _document({"format": LAYERS, "seed": 0, "layers": list(layers), **more})


def _bert(**more: Any) -> Maker:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 50, **sizes}
    return _document({**config, **more}, "config.json")


def _nested(depth: int) -> Any:
    layers: Any = ["ReLU"]
    for _ in range(depth):
        layers = ["Sequential", [layers]]
    return layers


MAKERS: dict[str, Maker] = {
    "unknown layer": _layers(["os.system", {"command": "true"}]),
    "private layer": _layers(["Module", {}]),
    "unknown argument": _layers(["Linear", {"in_features": 2, "out_features": 2, "device": "cuda"}]),
    "giant layer": _layers(["Linear", {"in_features": 10**6, "out_features": 10**6}]),
    "giant kernel": _layers(["Conv2d", {"in_channels": 1, "out_channels": 1, "kernel_size": 10**6}]),
    "negative layer": _layers(["Linear", {"in_features": -1, "out_features": 2}]),
    "endless layers": _layers(*[["ReLU"]] * 100_000),
    "deep layers": _layers(_nested(300)),
    "no layers": _layers(),
    "layers of text": _document({"format": LAYERS, "layers": "Linear"}),
    "nested without end": _document(b"[" * 100_000 + b"]" * 100_000),
    "remote code": _bert(auto_map={"AutoModel": "evil--repo/modeling.Evil"}, trust_remote_code=True),
    "unknown model type": _bert(model_type="evil"),
    "unknown head": _bert(architectures=["Evil"]),
    "giant network": _bert(hidden_size=2**20, num_attention_heads=16, num_hidden_layers=10_000),
    "negative size": _bert(hidden_size=-16),
    "size of text": _bert(hidden_size="__import__('os').mkdir('canary')"),
}
