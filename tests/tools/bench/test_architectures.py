"""The paper's networks that the product does not build by name."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tools.bench import weights
from tools.bench.architectures import build
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256

VGG16 = {"width": 64, "hidden": 4096, "pooled": 7, "classes": 1000}
NARROW: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    # name: arguments, shape of one input, numbers below which inputs lie (0: real numbers)
    "roberta": ({"vocabulary": 50}, (12,), 50),
    "transformer_lm": ({"vocabulary": 50, "length": 12, "model_size": 16}, (12,), 50),
    "vgg_cbam": ({"dropout": 0.0}, (3, 32, 32), 0),
}


@pytest.mark.parametrize("reduction", [16, 32])
def test_attention_adds_to_vgg16_what_its_four_places_need(reduction: int) -> None:
    with torch.device("meta"):
        count = sum(weight.numel() for weight in build("vgg_cbam", VGG16 | {"reduction": reduction}).parameters())
    plain = 138_357_544  # torchvision's VGG16
    assert count == plain + sum(2 * size * size // reduction + 2 * 7 * 7 for size in (64, 128, 256, 512))


def test_weights_carry_the_names_of_torchvision_and_hugging_face() -> None:
    with torch.device("meta"):
        vgg, roberta = (set(build(name, {}).state_dict()) for name in ("vgg_cbam", "roberta"))
    assert {"features.0.weight", "features.28.bias", "classifier.0.weight", "classifier.6.bias"} <= vgg
    assert not [key for key in vgg if not key.startswith(("features.", "classifier.", "attention."))]
    layer = "roberta.encoder.layer.1"
    assert roberta >= {
        "roberta.embeddings.word_embeddings.weight",
        "roberta.embeddings.LayerNorm.bias",
        f"{layer}.attention.self.query.weight",
        f"{layer}.attention.output.LayerNorm.weight",
        f"{layer}.intermediate.dense.bias",
        f"{layer}.output.dense.weight",
        "classifier.dense.weight",
        "classifier.out_proj.bias",
    }


@pytest.mark.parametrize("name", NARROW)
def test_a_narrow_network_learns_a_batch(name: str) -> None:
    args, shape, below = NARROW[name]
    torch.manual_seed(0)
    network = build(name, args)
    inputs = torch.randint(2, below, (4, *shape)) if below else torch.randn(4, *shape)
    outputs = network(inputs)
    targets = torch.randint(0, outputs.shape[1], (len(outputs), *outputs.shape[2:]))
    optimizer, criterion = torch.optim.Adam(network.parameters(), lr=1e-3), torch.nn.CrossEntropyLoss()
    first = last = criterion(outputs, targets)
    for _ in range(40):
        optimizer.zero_grad()
        last = criterion(network(inputs), targets)
        last.backward()
        optimizer.step()
    assert last < 0.9 * first


def test_a_language_model_knows_nothing_of_the_words_to_come() -> None:
    network = build("transformer_lm", NARROW["transformer_lm"][0]).eval()
    words = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(1))
    other = words.clone()
    other[:, 7:] = 49 - other[:, 7:]
    scores, others = network(words), network(other)
    assert scores.shape == (2, 50, 12)
    assert torch.equal(scores[..., :7], others[..., :7])
    assert not torch.equal(scores[..., 7], others[..., 7])
    assert torch.allclose(network(words[:, :5]), scores[..., :5], atol=1e-5)


def test_a_roberta_does_not_see_padding() -> None:
    network = build("roberta", {"vocabulary": 50}).eval()
    words = torch.randint(2, 50, (3, 9), generator=torch.Generator().manual_seed(1))
    longer = torch.nn.functional.pad(words, (0, 4), value=1)
    assert torch.allclose(network(words), network(longer), atol=1e-6)


@pytest.mark.parametrize("name", NARROW)
def test_a_network_is_written_as_a_graph_with_the_weights_of_its_seed(name: str, tmp_path: Path) -> None:
    args, shape, below = NARROW[name]
    path = tmp_path / f"{name}.pt2"
    weights.write(path, name, args, 7, shape, "int64" if below else "float32")
    with torch.random.fork_rng():
        torch.manual_seed(7)
        expected = build(name, args)
    assert state_sha256(ExportedFormat().read(path, None).build().state_dict()) == state_sha256(expected.state_dict())
