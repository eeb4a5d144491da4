"""A network of the transformers library, made from its configuration, never with code from elsewhere."""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import Tensor, nn

_TEXT = {
    "albert": "Albert",
    "bert": "Bert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "gpt2": "GPT2",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
_IMAGES = {"deit": "DeiT", "vit": "ViT"}
FAMILIES: dict[str, tuple[str, str]] = {
    **{name: (f"{kind}Config", f"{kind}ForSequenceClassification") for name, kind in _TEXT.items()},
    **{name: (f"{kind}Config", f"{kind}ForImageClassification") for name, kind in _IMAGES.items()},
}
"""Class of the configuration and class of the network, by `model_type`."""
_LEFT_OUT = {
    "architectures",
    "dtype",
    "id2label",
    "label2id",
    "output_hidden_states",
    "problem_type",
    "return_dict",
    "transformers_version",
    "use_cache",
}
"""The network takes one tensor, returns scores alone, and starts untrained in float32."""
_NEVER = ("auto_map", "is_decoder", "is_encoder_decoder", "add_cross_attention", "quantization_config")
_COUNTS = ("num_hidden_layers", "n_layers", "n_layer", "inner_group_num", "num_hidden_groups")
MOST_LAYERS = 200
LARGEST = 2**31
MOST_CLASSES = 100_000  # the library keeps a name for each


def build(
    config: Mapping[str, Any] = {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "vocab_size": 64,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
        "num_labels": 3,
    },
) -> nn.Module:
    """Make a classifier of texts `[batch, length]` of token ids, or of images `[batch, channels, height, width]`.

    Padding tokens are masked. Raises `ValueError` if the library is missing or has no such network.

    Args:
        config: Content of the `config.json` that the library saves beside a network.
    """
    settings_class, head_class = classes_of(config)
    try:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the library must fetch nothing
        library = import_module("transformers")
    except ImportError:
        raise ValueError("transformers is missing; the operator can: pip install 'unifiednn[huggingface]'") from None
    settings = _settings(getattr(library, settings_class), config)
    try:
        return _scores_of(getattr(library, head_class))(settings)
    except (TypeError, KeyError, AttributeError, AssertionError, ZeroDivisionError) as error:
        raise ValueError(f"transformers makes no network of this config ({str(error)[:200]})") from None


def classes_of(config: Mapping[str, Any]) -> tuple[str, str]:
    """Find the two classes; raises `ValueError` for a configuration of an unknown network."""
    found = FAMILIES.get(str(config.get("model_type")))
    if found is None:
        raise ValueError(f"model_type must be one of {', '.join(FAMILIES)}")
    if config.get("architectures") not in (None, [], [found[1]]):
        raise ValueError(f"architectures must be ['{found[1]}'] for model_type '{config['model_type']}'")
    for key in _NEVER:
        if config.get(key):
            raise ValueError(f"a config with '{key}' is not supported")
    return found


def _settings(kind: Any, config: Mapping[str, Any]) -> Any:
    library = import_module("transformers")
    inner = library.PreTrainedConfig.__dataclass_fields__.keys() - {"chunk_size_feed_forward"}
    own = kind.__dataclass_fields__.keys() - inner - _LEFT_OUT
    known = {key: value for key, value in config.items() if key in own}
    for key, value in known.items():
        sized = not isinstance(value, int) or 0 <= value < LARGEST
        if not isinstance(value, bool | int | float | str | None) or not sized:
            raise ValueError(f"{key} must be a number from 0 of a reasonable size, a word or null")
        if key in _COUNTS and not (type(value) is int and 0 < value <= MOST_LAYERS):
            raise ValueError(f"{key} must lie between 1 and {MOST_LAYERS}")
    labels = config.get("id2label")
    classes = config.get("num_labels", len(labels) if isinstance(labels, dict) else 2)
    if type(classes) is not int or not 0 < classes <= MOST_CLASSES:
        raise ValueError(f"num_labels must be a number from 1 to {MOST_CLASSES}")
    try:
        return kind(**known, num_labels=classes)
    except Exception as error:  # the library has its own errors for bad values
        reason = " ".join(str(error).split())
        raise ValueError(f"transformers refuses the config: {reason[:200]}") from None


def _scores_of(head: type[nn.Module]) -> type[nn.Module]:
    """Make a class of networks with a `forward` that takes one tensor and returns the scores alone."""

    def forward(self: Any, inputs: Tensor) -> Tensor:
        given = {}
        if not inputs.is_floating_point() and self.config.pad_token_id is not None:
            given["attention_mask"] = inputs.ne(self.config.pad_token_id).long()
        scores: Tensor = head.forward(self, inputs, **given).logits
        return scores

    return type(head.__name__, (head,), {"forward": forward, "__module__": head.__module__})
