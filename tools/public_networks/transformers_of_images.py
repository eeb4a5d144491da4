"""vit-pytorch: each file whose network maps images, or what is like an image, to scores, in a small size."""

from typing import Any

from tools.public_networks.networks import Network, Source

VIT_PYTORCH = Source("lucidrains/vit-pytorch", "69d24fe9e3024c0d4b02761123b8583a24ebed1e")
_PLAIN: dict[str, Any] = {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 2, "heads": 2}
_VIT = {**_PLAIN, "mlp_dim": 48, "dim_head": 16}
_DROPPED = {**_VIT, "dropout": 0.1, "emb_dropout": 0.1}
_STAGES = {"num_classes": 10, "dim": 16, "heads": 2}
_VIDEO: dict[str, Any] = {
    **{name: value for name, value in _VIT.items() if name != "patch_size"},
    "image_patch_size": 8,
    "frames": 4,
    "frame_patch_size": 2,
}
_FACTORISED = {
    **{name: value for name, value in _VIDEO.items() if name != "depth"},
    "spatial_depth": 1,
    "temporal_depth": 1,
}
_SERIES = {**{name: value for name, value in _VIT.items() if name != "image_size"}, "seq_len": 32}
_ND = {
    **{name: value for name, value in _VIT.items() if name != "image_size"},
    "ndim": 2,
    "input_shape": [32, 32],
    "heads": 2,
}
_CVT = {
    f"s{stage}_{what}": value
    for stage in (1, 2, 3)
    for what, value in (("emb_dim", 16 * stage), ("heads", 1), ("depth", 1))
}
_TWINS = {
    f"s{stage}_{what}": value
    for stage in (1, 2, 3, 4)
    for what, value in (
        ("emb_dim", 8 * stage),
        ("patch_size", 2),
        ("local_patch_size", 2),
        ("global_k", 2),
        ("depth", 1),
    )
} | {"s4_local_patch_size": 1, "s4_global_k": 1}
_IMAGE, _MOVIE = "3,32,32", "3,4,32,32"
_TUPLES = """
from vit_pytorch.{file} import {name}
def network():
    return {name}(**{arguments})
"""
_ENCODER = """
from vit_pytorch.vit import ViT
from vit_pytorch.{file} import {name}
def network():
    return {name}(encoder=ViT(**{vit}), **{arguments})
"""


def _of(place: str, arguments: dict[str, Any], shape: str = _IMAGE, **more: Any) -> Network:
    return Network(VIT_PYTORCH, f"vit_pytorch/{place.replace(':', '.py:')}", (shape,), arguments, **more)


def _of_tuples(place: str, arguments: dict[str, Any], shape: str = _IMAGE) -> Network:
    """A network that asks for tuples, which no command line can give."""
    file, _, name = place.partition(":")
    return _of(place, {}, shape, code=_TUPLES.format(file=file, name=name, arguments=arguments).strip())


def _masked(file: str, name: str, arguments: dict[str, Any]) -> Network:
    """A network that learns from a network, which its constructor takes."""
    return _of(f"{file}:{name}", {}, code=_ENCODER.format(file=file, name=name, vit=_VIT, arguments=arguments).strip())


NETWORKS = (
    _of("vit:ViT", _DROPPED),
    _of("simple_vit:SimpleViT", _VIT),
    _of("ats_vit:ViT", {**_VIT, "max_tokens_per_depth": [8, 4]}),
    _of("cait:CaiT", {**_DROPPED, "cls_depth": 1, "layer_dropout": 0.05}),
    _of("cct:cct_2", {"img_size": 32, "n_conv_layers": 1, "kernel_size": 3, "stride": 1, "padding": 1}),
    _of(
        "cct_3d:CCT",
        {
            "img_size": 32,
            "num_frames": 4,
            "embedding_dim": 32,
            "num_layers": 2,
            "num_heads": 2,
            "mlp_ratio": 1,
            "num_classes": 10,
        },
        _MOVIE,
    ),
    _of(
        "cross_vit:CrossViT",
        {
            "image_size": 32,
            "num_classes": 10,
            "sm_dim": 16,
            "lg_dim": 32,
            "sm_patch_size": 4,
            "lg_patch_size": 8,
            "lg_enc_depth": 1,
            "cross_attn_depth": 1,
            "depth": 1,
            "sm_enc_mlp_dim": 32,
            "lg_enc_mlp_dim": 32,
        },
    ),
    _of_tuples(
        "crossformer:CrossFormer",
        {
            "num_classes": 10,
            "dim": (32, 32, 64, 64),
            "depth": (1, 1, 1, 1),
            "global_window_size": (4, 2, 2, 1),
            "local_window_size": (4, 2, 2, 1),
        },
    ),
    _of("cvt:CvT", {"num_classes": 10, **_CVT}),
    _of("deepvit:DeepViT", _DROPPED),
    _of(
        "efficient:ViT",
        {},
        code="""
import torch
from vit_pytorch.efficient import ViT
def network():
    layer = torch.nn.TransformerEncoderLayer(32, 2, 48, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2)
    return ViT(image_size=32, patch_size=8, num_classes=10, dim=32, transformer=encoder)
""".strip(),
    ),
    _of("jet_vit:JetViT", _VIT),
    _of("jumbo_vit:JumboViT", {**_VIT, "jumbo_cls_k": 2}),
    _of(
        "levit:LeViT",
        {"image_size": 64, "num_classes": 10, "dim": 32, "depth": 1, "heads": 2, "mlp_mult": 2},
        "3,64,64",
    ),
    _of("local_vit:LocalViT", _DROPPED),
    _of(
        "look_vit:LookViT",
        {
            "dim": 32,
            "image_size": 32,
            "num_classes": 10,
            "depth": 1,
            "patch_size": 8,
            "heads": 2,
            "highres_patch_size": 4,
            "cross_attn_heads": 2,
        },
    ),
    _of_tuples("max_vit:MaxViT", {"num_classes": 10, "dim": 16, "depth": (1, 1), "dim_head": 8, "window_size": 4}),
    _of_tuples(
        "max_vit_with_registers:MaxViT",
        {"num_classes": 10, "dim": 16, "depth": (1, 1), "dim_head": 8, "window_size": 4},
    ),
    _of(
        "mobile_vit:MobileViT",
        {
            "image_size": [64, 64],
            "dims": [32, 48, 64],
            "num_classes": 10,
            "channels": [8, 8, 16, 16, 24, 24, 32, 32, 48, 48, 64],
        },
        "3,64,64",
    ),
    _of("na_vit:NaViT", _DROPPED),
    _of_tuples(
        "nest:NesT",
        {
            "image_size": 32,
            "patch_size": 4,
            "num_classes": 10,
            "dim": 16,
            "heads": 2,
            "num_hierarchies": 2,
            "block_repeats": (1, 1),
        },
    ),
    _of("normalized_vit:nViT", _VIT),
    _of("parallel_vit:ViT", _DROPPED),
    _of_tuples("pit:PiT", {**_DROPPED, "patch_size": 4, "depth": (1, 1)}),
    _of_tuples(
        "regionvit:RegionViT",
        {"dim": (16, 16, 32, 32), "depth": (1, 1, 1, 1), "window_size": 4, "num_classes": 10},
        "3,128,128",
    ),
    _of("rvt:RvT", _VIT),
    _of_tuples(
        "scalable_vit:ScalableViT",
        {
            **_STAGES,
            "heads": (1, 2, 2, 2),
            "depth": (1, 1, 1, 1),
            "ssa_dim_key": 8,
            "reduction_factor": (4, 2, 1, 1),
            "window_size": (8, 4, None, None),
        },
    ),
    _of_tuples(
        "sep_vit:SepViT",
        {"num_classes": 10, "dim": 16, "dim_head": 8, "heads": (1, 2), "depth": (1, 1), "window_size": 7},
        "3,56,56",
    ),
    _of("simple_flash_attn_vit:SimpleViT", _VIT),
    _of("simple_flash_attn_vit_3d:SimpleViT", _VIDEO, _MOVIE),
    _of("simple_uvit:SimpleUViT", _VIT),
    _of("simple_vit_1d:SimpleViT", _SERIES, "3,32"),
    _of("simple_vit_3d:SimpleViT", _VIDEO, _MOVIE),
    _of("simple_vit_attn_residual:SimpleViTAttnResidual", _VIT),
    _of("simple_vit_orthog_residual_update:SimpleViT", _VIT),
    _of("simple_vit_with_fft:SimpleViT", {**_VIT, "freq_patch_size": 8}),
    _of("simple_vit_with_patch_dropout:SimpleViT", _VIT),
    _of("simple_vit_with_qk_norm:SimpleViT", _VIT),
    _of("simple_vit_with_register_tokens:SimpleViT", _VIT),
    _of("simple_vit_with_specialized_cls:SimpleViT", _VIT),
    _of("simple_vit_with_value_residual:SimpleViT", _VIT),
    _of_tuples(
        "t2t:T2TViT", {**{k: v for k, v in _DROPPED.items() if k != "patch_size"}, "t2t_layers": ((7, 4), (3, 2))}
    ),
    _of("twins_svt:TwinsSVT", {"num_classes": 10, **_TWINS}, "3,64,64"),
    _of("vit_1d:ViT", _SERIES, "3,32"),
    _of("vit_3d:ViT", _VIDEO, _MOVIE),
    _of("vit_detpool:ViTDetPool", _VIT),
    _of("vit_for_small_dataset:ViT", _DROPPED),
    _of("vit_nd:ViTND", _ND),
    _of("vit_with_decorr:ViT", _VIT),
    _of("vit_with_keel_post_ln:ViT", _VIT),
    _of("vit_with_patch_dropout:ViT", _DROPPED),
    _of("vit_with_patch_merger:ViT", {**_DROPPED, "patch_merge_layer": 1}),
    _of("vivit:ViViT", _FACTORISED, _MOVIE),
    _of("wwt:WWT", {**_PLAIN, "num_slots": 4, "dim_head": 16}),
    _of("xcit:XCiT", {**_DROPPED, "cls_depth": 1, "layer_dropout": 0.05}),
    _masked("mae", "MAE", {"decoder_dim": 32, "decoder_heads": 2, "decoder_dim_head": 16}),
    _masked("simmim", "SimMIM", {}),
)
