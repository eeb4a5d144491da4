"""Networks of the kinds that people bring, small, in plain torch, each in every form that can say it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sample_models.architectures import build
from sample_models.paper_networks import NETWORKS as PAPER
from tests.contract.format_several import Auxiliary, EncoderDecoder, StochasticDepth, Vae
from unifiednn_core.spec.run import ArchitectureSpec

SAMPLES = 14  # with batches of 4: three whole ones and a partial one of 2


class LstmClassifier(nn.Module):
    """Two layers of LSTM with dropout; the last step is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 12, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        steps, _ = self.lstm(self.embedding(tokens))
        scores: Tensor = self.head(steps[:, -1])
        return scores


class UNet(nn.Module):
    """One level down and up again, with the skip between them; a class for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.bottom = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.head = nn.Conv2d(8, 3, 1)

    def forward(self, images: Tensor) -> Tensor:
        level = self.down(images)
        scores: Tensor = self.head(torch.cat((level, self.up(self.bottom(level))), 1))
        return scores


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 16) * 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens + self.weight


class Vit(nn.Module):
    """Patches of 4x4, learned positions, one Transformer layer with dropout, and the mean of the patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 16, 4, stride=4)
        self.positions = Positions()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, activation="gelu", batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).permute(0, 2, 1)
        scores: Tensor = self.head(self.layer(self.positions(tokens)).mean(1))
        return scores


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 16),
        nn.Tanh(),
        nn.Dropout(0.1),
        nn.Linear(16, 64),
        nn.Sigmoid(),
        nn.Unflatten(1, (1, 8, 8)),
    )


def transformer() -> nn.Module:
    """Of torch's own layers alone."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(20, 8), encoder, nn.Flatten(), nn.Linear(72, 3))


BERT = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
    "num_labels": 3,
}


def bert() -> nn.Module:
    """As a user of transformers makes it."""
    from tests.contract.format_bert import made  # a library of seconds

    return made(BERT)


@dataclass(frozen=True)
class Case:
    """One network in plain torch, with data for it."""

    title: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """Of one sample."""
    classes: int
    """Classes of a sample; 0 where the inputs are the targets."""
    below: int = 0
    """Inputs are whole numbers from 1 to below this; 0: real numbers."""
    dense: bool = False
    """Whether every place of a sample has a class of its own."""
    architecture: ArchitectureSpec | None = None
    names: tuple[str, ...] = ("inputs",)
    """Inputs of the network, all of this shape."""
    outputs: tuple[str, ...] = ("outputs",)
    auxiliary: Mapping[str, float] = field(default_factory=dict)
    """Weights of further outputs whose losses are added in training."""
    own_loss: bool = False
    """Whether the last output is the loss."""
    config: Mapping[str, Any] = field(default_factory=dict)

    def network(self) -> nn.Module:
        """Untrained, with weights that are the same each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make().train()

    def inputs(self, seed: int) -> dict[str, Tensor]:
        """Inputs by name; the first are those of `data`."""
        return {name: self.data(seed + 100 * place)[0] for place, name in enumerate(self.names)}

    @property
    def is_packed(self) -> bool:
        """Whether its `.pt2` needs `unifiednn pack`."""
        return len(self.names) > 1 or self.outputs != ("outputs",) or self.title.endswith("depth")

    def data(self, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""
        generator = torch.Generator().manual_seed(seed)
        size = (SAMPLES, *self.shape)
        inputs = (
            torch.randint(1, self.below, size, generator=generator)
            if self.below
            else torch.rand(size, generator=generator)
        )
        if not self.classes:
            return inputs, inputs
        places = self.shape[-2:] if len(self.shape) == 3 else self.shape
        target_size = (SAMPLES, *places) if self.dense else (SAMPLES,)
        return inputs, torch.randint(0, self.classes, target_size, generator=generator)


def _paper(key: str, shape: tuple[int, ...], classes: int, args: Mapping[str, Any], **more: Any) -> Case:
    network = PAPER[key]
    arguments = {**network.narrow, **args}
    known = network.suffix == ".safetensors"
    return Case(
        title=network.title,
        make=lambda: build(network.architecture, arguments),
        shape=shape,
        classes=classes,
        architecture=ArchitectureSpec(name=network.architecture, args=arguments) if known else None,
        **more,
    )


CASES: Mapping[str, Case] = {
    "lenet": _paper("lenet", (1, 28, 28), 10, {}),
    "resnet18": _paper("resnet18", (3, 8, 8), 10, {"width": 4}),
    "resnet34": _paper("resnet34", (3, 8, 8), 100, {"width": 4}),
    "vgg16_cbam": _paper("vgg16_cbam", (3, 32, 32), 10, {"width": 4, "hidden": 16, "reduction": 4}),
    "transformer_lm": _paper(
        "transformer_lm", (12,), 50, {"vocabulary": 50, "model_size": 16, "hidden": 16}, below=50, dense=True
    ),
    "xlm_roberta": _paper("xlm_roberta", (12,), 2, {"vocabulary": 50, "model_size": 16, "hidden": 32}, below=50),
    "lstm": Case("LSTM classifier", LstmClassifier, (9,), 3, below=20),
    "unet": Case("U-Net", UNet, (1, 8, 8), 3, dense=True),
    "vit": Case("ViT", Vit, (1, 8, 8), 3),
    "transformer": Case("Transformer encoder of torch.nn", transformer, (9,), 3, below=20),
    "autoencoder": Case("Autoencoder", autoencoder, (1, 8, 8), 0),
    "bert": Case(
        "BERT (transformers)",
        bert,
        (12,),
        3,
        below=50,
        config=BERT,
        architecture=ArchitectureSpec(name="huggingface", args={"config": BERT}),
    ),
    "encoder_decoder": Case(
        "Encoder and decoder, two inputs", EncoderDecoder, (9,), 20, below=20, dense=True, names=("src", "tgt")
    ),
    "auxiliary": Case(
        "Auxiliary head in training", Auxiliary, (1, 8, 8), 3, outputs=("logits", "aux"), auxiliary={"aux": 0.4}
    ),
    "stochastic_depth": Case("Stochastic depth", StochasticDepth, (1, 8, 8), 3),
    "vae": Case("VAE with its own loss", Vae, (1, 8, 8), 0, outputs=("images", "loss"), own_loss=True),
}
