"""The architecture registry and its families."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.architectures import registry


def parameters(name: str, args: dict[str, Any]) -> int:
    with torch.device("meta"):
        module = registry.build(name, args)
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


# Numbers of weights that torchvision's documentation gives.
TORCHVISION = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "wide_resnet50_2": 68_883_240,
    "wide_resnet101_2": 126_886_696,
    "resnext50_32x4d": 25_028_904,
    "resnext101_32x8d": 88_791_336,
    "resnext101_64x4d": 83_455_272,
    "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032,
    "mobilenet_v3_small": 2_542_856,
    "vit_b_16": 86_567_656,
    "vit_b_32": 88_224_232,
    "vit_l_16": 304_326_632,
    "vit_l_32": 306_535_400,
}


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("lenet", {"channels": 1, "image_size": 28, "batch_norm": True}, 44_470),  # the paper's table 2
        ("lenet", {"channels": 1, "image_size": 28}, 44_470 - 2 * (6 + 16)),
        ("resnet", {"blocks": [2, 2, 2, 2], "width": 64, "channels": 3, "classes": 10}, 11_173_962),
        ("resnet", {"blocks": [3, 4, 6, 3], "width": 64, "channels": 3, "classes": 100}, 21_328_292),
        ("mlp", {"inputs": 64, "hidden": [32], "classes": 10}, 64 * 32 + 32 + 32 * 10 + 10),
        ("word_language_model", {"vocabulary": 28_782}, 12_025_582 + 2 * 200),  # the paper's table 2, and a last norm
        *((name, {}, number) for name, number in TORCHVISION.items()),
    ],
)
def test_a_known_network_has_its_known_number_of_weights(name: str, args: dict[str, Any], expected: int) -> None:
    assert parameters(name, args) == expected


def test_a_member_of_a_family_takes_the_arguments_of_the_family_and_num_classes() -> None:
    args = {"num_classes": 7, "channels": 1}
    assert registry.arguments("resnet50", args)["classes"] == 7
    with torch.device("meta"):
        weights = registry.build("resnet50", args).state_dict()
    assert (weights["fc.weight"].shape, weights["conv1.weight"].shape) == ((7, 2048), (64, 1, 7, 7))
    told = {parameter.name: parameter.default for parameter in registry.parameters_of("resnet50")}
    assert (told["classes"], told["blocks"], told["bottleneck"]) == (1000, (3, 4, 6, 3), True)
    assert registry.source_file("resnet50") == registry.source_file("resnet")
    with pytest.raises(BadInput, match="no argument 'num_classes'"):
        registry.build("resnet50", {"num_classes": 7, "classes": 7})


# Names and shapes in torchvision, of one layer of each kind.
LAYERS = {
    "resnet50": {"layer1.0.conv3.weight": (256, 64, 1, 1), "layer4.2.bn3.running_var": (2048,)},
    "resnext50_32x4d": {"layer1.0.conv2.weight": (128, 4, 3, 3), "layer4.0.downsample.1.bias": (2048,)},
    "vgg16": {"features.28.weight": (512, 512, 3, 3), "classifier.6.bias": (1000,), "classifier.0.bias": (4096,)},
    "vgg16_bn": {"features.40.weight": (512, 512, 3, 3), "features.41.running_mean": (512,)},
    "mobilenet_v2": {
        "features.1.conv.0.0.weight": (32, 1, 3, 3),
        "features.2.conv.3.running_var": (24,),
        "features.18.0.weight": (1280, 320, 1, 1),
        "classifier.1.weight": (1000, 1280),
    },
    "mobilenet_v3_small": {
        "features.1.block.1.fc1.weight": (8, 16, 1, 1),
        "features.2.block.2.1.bias": (24,),
        "classifier.0.weight": (1024, 576),
        "classifier.3.bias": (1000,),
    },
    "vit_b_16": {
        "class_token": (1, 1, 768),
        "conv_proj.weight": (768, 3, 16, 16),
        "encoder.pos_embedding": (1, 197, 768),
        "encoder.layers.encoder_layer_11.self_attention.in_proj_weight": (2304, 768),
        "encoder.layers.encoder_layer_0.mlp.3.weight": (768, 3072),
        "encoder.ln.bias": (768,),
        "heads.head.weight": (1000, 768),
    },
}


@pytest.mark.parametrize("name", LAYERS)
def test_weights_have_the_names_and_shapes_of_torchvision(name: str) -> None:
    with torch.device("meta"):
        weights = registry.build(name, {}).state_dict()
    assert {key: tuple(weights[key].shape) for key in LAYERS[name]} == LAYERS[name]


def test_resnet_weights_carry_the_names_of_torchvision() -> None:
    with torch.device("meta"):
        keys = set(registry.build("resnet", {}).state_dict())
    block = ("conv1.weight", "bn1.weight", "bn1.running_mean", "conv2.weight", "bn2.num_batches_tracked")
    assert {"conv1.weight", "bn1.bias", "fc.weight", "fc.bias"} <= keys
    assert {f"layer{stage}.{index}.{key}" for stage in (1, 2, 3, 4) for index in (0, 1) for key in block} <= keys
    assert {key for key in keys if key.startswith("layer2.0.downsample.")} >= {"layer2.0.downsample.0.weight"}
    assert not any(key.startswith("layer1.0.downsample.") for key in keys)


OWN = [name for name in registry.families() if name != "huggingface"]  # its arguments are those of another library
NARROW: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    # name: arguments, shape of inputs, numbers below which inputs lie (0: they are real)
    "huggingface": ({}, (4, 12), 50),
    "lenet": ({"image_size": 8}, (4, 1, 8, 8), 0),
    "mlp": ({}, (4, 64), 0),
    "resnet": ({"blocks": [1, 1, 1, 1], "width": 4}, (4, 3, 8, 8), 0),
    "transformer": ({"layers": 1, "model_size": 16}, (4, 8, 8), 0),
    "vgg": ({"width": 4, "convolutions": [1, 1, 1, 1, 1], "classes": 3}, (4, 3, 32, 32), 0),
    "mobilenet_v2": ({"width": 0.1, "dropout": 0.0, "classes": 3}, (4, 3, 32, 32), 0),
    "mobilenet_v3": ({"large": False, "dropout": 0.0, "classes": 3}, (4, 3, 32, 32), 0),
    "vit": ({"image_size": 8, "layers": 1, "model_size": 16, "hidden": 16}, (4, 3, 8, 8), 0),
    "word_language_model": ({"vocabulary": 20, "model_size": 16, "hidden": 16, "longest": 8}, (4, 8), 20),
}


@pytest.mark.parametrize("name", registry.families())
def test_a_narrow_network_learns_a_batch_by_heart(name: str) -> None:
    args, shape, below = NARROW[name]
    torch.manual_seed(0)
    network = registry.build(name, args)
    inputs = torch.randint(2, below, shape) if below else torch.randn(shape)
    outputs = network(inputs)
    targets = torch.randint(0, outputs.shape[1], (len(outputs), *outputs.shape[2:]))
    optimizer, criterion = torch.optim.Adam(network.parameters(), lr=1e-2), torch.nn.CrossEntropyLoss()
    first = last = criterion(outputs, targets)
    for step in range(30):
        optimizer.zero_grad()
        last = criterion(network(inputs), targets)
        last.backward()
        if step == 0:
            assert all(weight.grad is not None for weight in network.parameters())
        optimizer.step()
    assert last < first / 2


IMAGE_SIDE = st.integers(4, 40)


@given(side=IMAGE_SIDE, batch=st.integers(1, 5), channels=st.integers(1, 3), classes=st.integers(1, 12))
def test_every_family_for_images_maps_a_batch_of_them_to_one_row_of_scores_each(
    side: int, batch: int, channels: int, classes: int
) -> None:
    args: dict[str, dict[str, Any]] = {
        "lenet": {"channels": channels, "image_size": side},
        "mlp": {"inputs": channels * side * side, "hidden": [3]},
        "resnet": {"channels": channels, "blocks": [1, 1, 1, 1], "width": 4},
        "transformer": {"row_size": side, "length": channels * side, "model_size": 8, "heads": 2},
        "vit": {"channels": channels, "image_size": side, "patch_size": side, "layers": 1, "model_size": 8},
    }
    with torch.device("meta"):
        images = torch.empty(batch, channels, side, side)
        for name, family_args in args.items():
            network = registry.build(name, {**family_args, "classes": classes}).eval()
            assert network(images).shape == (batch, classes)


@pytest.mark.parametrize("name", registry.families())
def test_building_on_the_meta_device_draws_nothing_from_the_default_rng(name: str) -> None:
    before = torch.get_rng_state()
    with torch.device("meta"):
        registry.build(name, {})
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", OWN)
def test_every_tensor_that_a_network_needs_is_in_its_state_dict(name: str) -> None:
    with torch.device("meta"):
        module = registry.build(name, {})
    tensors = {key for key, _ in [*module.named_parameters(), *module.named_buffers()]}
    assert tensors == set(module.state_dict())


def test_dropout_of_a_transformer_acts_in_training_alone() -> None:
    network = registry.build("transformer", {"dropout": 0.5})
    rows = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(1))
    assert not torch.equal(network(rows), network(rows))
    network.eval()
    assert torch.equal(network(rows), network(rows))


def test_an_unknown_name_is_answered_with_the_valid_ones() -> None:
    for ask in (registry.source_file, registry.parameters_of, lambda name: registry.build(name, {})):
        with pytest.raises(BadInput) as caught:
            ask("../lenet")
        (finding,) = caught.value.findings
        assert finding.field == "architecture.name"
        assert all(name in finding.remedy for name in registry.names())


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("lenet", {"chanels": 1}, "no argument 'chanels'"),
        ("lenet", {"channels": "1"}, "channels: "),
        ("lenet", {"channels": 1.5}, "channels: "),
        ("lenet", {"channels": True}, "channels: "),
        ("lenet", {"batch_norm": 1}, "batch_norm: "),
        ("lenet", {"channels": 0}, "channels and classes must be at least 1"),
        ("lenet", {"image_size": 3}, "image_size must be at least 4"),
        ("resnet", {"blocks": [2, 2, 2]}, "blocks must be 4 numbers"),
        ("resnet", {"blocks": [2, 2, 2, 0]}, "blocks must be 4 numbers"),
        ("resnet", {"blocks": [2, 2, 2, 10**9]}, "blocks must be 4 numbers"),
        ("resnet", {"blocks": [2, 2, 2, "2"]}, "blocks.3: "),
        ("resnet", {"blocks": "2222"}, "blocks: "),
        ("resnet", {"width": -1}, "must be at least 1"),
        ("transformer", {"heads": 3}, "model_size must be a multiple of heads"),
        ("transformer", {"dropout": 1.0}, "dropout must be"),
        ("transformer", {"dropout": float("nan")}, "dropout: "),
        ("transformer", {"layers": 10**6}, "layers must be at most"),
        ("mlp", {"hidden": [0]}, "must be at least 1"),
        ("mlp", {"hidden": [1] * 10_000}, "at most"),
    ],
)
def test_a_wrong_argument_is_told_with_the_arguments_that_exist(name: str, args: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        registry.build(name, args)
    (finding,) = caught.value.findings
    assert finding.field == "architecture.args"
    assert said in finding.message
    assert all(parameter.name in finding.remedy for parameter in registry.parameters_of(name))


@pytest.mark.parametrize("name", OWN)
def test_a_size_that_no_tensor_can_have_is_bad_input(name: str) -> None:
    with torch.device("meta"), pytest.raises(BadInput) as caught:
        registry.build(name, {"vocabulary" if name == "word_language_model" else "classes": 10**30})
    (finding,) = caught.value.findings
    assert (finding.field, finding.message) == ("architecture.args", "No tensor has these sizes.")


ANY_JSON = st.none() | st.booleans() | st.integers(-9, 99) | st.floats() | st.text() | st.lists(st.integers(-1, 9))


@given(name=st.sampled_from(registry.families()), data=st.data())
def test_any_arguments_make_a_network_or_bad_input(name: str, data: st.DataObject) -> None:
    known = st.sampled_from([parameter.name for parameter in registry.parameters_of(name)])
    args = data.draw(st.dictionaries(known | st.text(), ANY_JSON, max_size=3))
    with torch.device("meta"):
        try:
            assert isinstance(registry.build(name, args), torch.nn.Module)
        except BadInput as error:
            assert {finding.field for finding in error.findings} == {"architecture.args"}


def run_alone(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


def test_names_and_arguments_are_known_without_torch() -> None:
    run_alone(
        "import sys; from unifiednn_core.formats.architectures import registry as r;"
        "[r.parameters_of(name) for name in r.names()]; sys.exit('torch' in sys.modules)"
    )


@pytest.mark.slow
def test_every_source_file_alone_builds_its_network(tmp_path: Path) -> None:
    for name in registry.families():
        (tmp_path / f"copy_of_{name}.py").write_bytes(registry.source_file(name).read_bytes())
    run_alone(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from importlib import import_module;"
        "import torch; torch.set_default_device('meta');"  # no weights are drawn
        f"[import_module('copy_of_' + name).build() for name in {registry.families()!r}];"
        "sys.exit(any(module.startswith('unifiednn') for module in sys.modules))"
    )
