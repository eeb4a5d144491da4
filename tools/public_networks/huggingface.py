"""The library transformers: networks of every kind of task, each with a small config.

Their constructors take a config, so that a function has to build them.
"""

from typing import Any

from tools.public_networks.networks import Network, Source

TRANSFORMERS = Source("transformers")
_SIZES: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
_EXPERTS = {**_SIZES, "num_key_value_heads": 1, "num_local_experts": 2, "num_experts_per_tok": 1}
_T5 = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
_PICTURE = {"image_size": 32, "patch_size": 8, "num_labels": 5}
_TEXT, _IMAGE = ("input_ids=12:int64",), ("3,32,32",)
_PAIR = ("input_ids=12:int64", "labels=12:int64")
_CODE = """
from transformers import {config}, {name}
def network():
    return {name}({config}(**{arguments}))
"""


def _of(name: str, config: str, arguments: dict[str, Any], inputs: tuple[str, ...], output: str = "logits") -> Network:
    code = _CODE.format(name=name, config=config, arguments=arguments).strip()
    return Network(TRANSFORMERS, f"transformers:{name}", inputs, code=code, output=output)


NETWORKS = (
    _of("BertForSequenceClassification", "BertConfig", _SIZES, (*_TEXT, "attention_mask=12:int64")),
    _of("BertForMaskedLM", "BertConfig", _SIZES, _PAIR, "loss"),
    _of("RobertaForSequenceClassification", "RobertaConfig", _SIZES, _TEXT),
    _of("ElectraForTokenClassification", "ElectraConfig", {**_SIZES, "embedding_size": 16}, _TEXT),
    _of("AlbertForSequenceClassification", "AlbertConfig", {**_SIZES, "embedding_size": 16}, _TEXT),
    _of(
        "DistilBertForSequenceClassification",
        "DistilBertConfig",
        {"vocab_size": 32, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 32},
        _TEXT,
    ),
    _of(
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
        _PAIR,
        "loss",
    ),
    _of(
        "OPTForCausalLM",
        "OPTConfig",
        {
            "vocab_size": 32,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 32,
            "max_position_embeddings": 32,
            "word_embed_proj_dim": 16,
        },
        _PAIR,
        "loss",
    ),
    _of("LlamaForCausalLM", "LlamaConfig", {**_SIZES, "num_key_value_heads": 1}, _PAIR, "loss"),
    _of("MistralForCausalLM", "MistralConfig", {**_SIZES, "num_key_value_heads": 1}, _TEXT),
    _of("Qwen2ForCausalLM", "Qwen2Config", {**_SIZES, "num_key_value_heads": 1}, _TEXT),
    _of("MixtralForCausalLM", "MixtralConfig", _EXPERTS, _TEXT),
    _of(
        "T5ForConditionalGeneration",
        "T5Config",
        {**_T5, "decoder_start_token_id": 0},
        _PAIR,
        "loss",
    ),
    _of(
        "BartForConditionalGeneration",
        "BartConfig",
        {
            "vocab_size": 32,
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": 32,
        },
        _PAIR,
        "loss",
    ),
    _of("ViTForImageClassification", "ViTConfig", {**_SIZES, **_PICTURE}, _IMAGE),
    _of(
        "SwinForImageClassification",
        "SwinConfig",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [1, 2],
            "window_size": 4,
            "num_labels": 5,
        },
        _IMAGE,
    ),
    _of(
        "ConvNextForImageClassification",
        "ConvNextConfig",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "drop_path_rate": 0.2, "num_labels": 5},
        _IMAGE,
    ),
    _of(
        "ResNetForImageClassification",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 5},
        _IMAGE,
    ),
    _of(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        {
            "hidden_sizes": [8, 8, 16, 16],
            "depths": [1, 1, 1, 1],
            "decoder_hidden_size": 16,
            "num_labels": 3,
            "num_attention_heads": [1, 1, 2, 2],
        },
        ("3,64,64",),
    ),
    _of(
        "Wav2Vec2ForSequenceClassification",
        "Wav2Vec2Config",
        {
            **{k: v for k, v in _SIZES.items() if k != "max_position_embeddings"},
            "conv_dim": [8, 8],
            "conv_kernel": [8, 4],
            "conv_stride": [4, 2],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "classifier_proj_size": 8,
            "num_labels": 3,
        },
        ("400",),
    ),
)
