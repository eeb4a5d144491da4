"""Tiny networks of every kind that a sub-model can be, and every way to train them.

Images [batch, 1, 6, 6] go in, class scores [batch, 4] come out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from unifiednn_core.formats.base import Definition, count_parameters, size_bytes
from unifiednn_core.spec.choices import LR_SCHEDULERS, OPTIMIZERS

CLASSES = 4


def mlp(dropout: float = 0.5) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, CLASSES))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)
    )


class Residual(nn.Module):
    """Two convolutions with batch norm and a way around them, downsampled where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.body(images) + self.downsample(images))


def resnet() -> nn.Module:
    return nn.Sequential(
        Residual(1, 4, stride=1),
        Residual(4, 4, stride=1),
        Residual(4, 8, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )


class Transformer(nn.Module):
    """Rows of the image as tokens; dropout in the attention, after it and in the feed-forward part."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.register_buffer("positions", torch.linspace(-1, 1, 6)[:, None].expand(6, 8).clone(), persistent=False)
        self.encoder = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        encoded = self.encoder(self.embed(images.squeeze(1)) + self.positions)
        scores: Tensor = self.head(encoded.mean(1))
        return scores


class Recurrent(nn.Module):
    """Rows of the image as a sequence; dropout between the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden, _ = self.lstm(images.squeeze(1))
        scores: Tensor = self.head(hidden[:, -1])
        return scores


def definition_over(make: Callable[[], nn.Module], seed: int = 0) -> Definition:
    """A definition over what this makes, with initial weights that follow from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        weights = make().state_dict()

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            module = make()
        module.load_state_dict(weights)
        return module

    module = build()
    return Definition(
        format="kit",
        path=Path("kit"),
        build=build,
        parameters=count_parameters(module),
        weights_bytes=size_bytes(module.state_dict()),
    )


ZOO: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet": resnet,
    "transformer": Transformer,
    "lstm": Recurrent,
}

WEIGHT_DECAY: tuple[dict[str, Any], ...] = ({}, {"weight_decay": 0.01})
OPTIMIZER_ARGS: dict[str, tuple[dict[str, Any], ...]] = {
    "sgd": ({}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}),
    "adam": ({}, {"amsgrad": True}),
    "rmsprop": ({}, {"momentum": 0.9, "centered": True}),
}


# Optimizers without a momentum that an LR scheduler could cycle.
WITHOUT_MOMENTUM = frozenset({"adagrad", "adadelta", "adafactor", "asgd", "rprop"})
CLIPPING: tuple[dict[str, float] | None, ...] = (None, {"norm": 0.5}, {"value": 0.02})
EARLY_STOPPING: tuple[dict[str, Any] | None, ...] = (
    None,
    {"metric": "test_loss", "patience": 1, "min_delta": 0.05},
    {"metric": "test_accuracy", "patience": 1},
)


@st.composite
def hyperparameters(draw: st.DrawFn, samples: int) -> dict[str, Any]:
    """Everything that can be asked for, on batches with and without a partial last one, and groups of them.

    Muon alone is left out: it takes networks of matrices, which the zoo has not.
    """
    epochs, batch_size = draw(st.integers(1, 3)), draw(st.sampled_from([5, 8, 12, 37, 64]))
    optimizer = draw(st.sampled_from(sorted(OPTIMIZERS.keys() - {"muon"})))
    drop_last = batch_size <= samples and draw(st.booleans())
    batches = samples // batch_size if drop_last else -(-samples // batch_size)
    accumulation_steps = draw(st.sampled_from([1, 1, 2, 3]))
    steps_per_epoch = -(-batches // accumulation_steps)
    return {
        "epochs": epochs,
        "batch_size": batch_size,
        "drop_last": drop_last,
        "batch_split": draw(st.sampled_from([1, 1, 3])),
        "accumulation_steps": accumulation_steps,
        "gradient_clipping": draw(st.sampled_from(CLIPPING)),
        "warm_up": draw(st.sampled_from([None, {"steps": 3}])),
        "early_stopping": draw(st.sampled_from(EARLY_STOPPING)),
        "optimizer": optimizer,
        "optimizer_args": draw(st.sampled_from(OPTIMIZER_ARGS.get(optimizer, ({},))))
        | draw(st.sampled_from(WEIGHT_DECAY if optimizer != "rprop" else ({},))),
        "learning_rate": draw(st.sampled_from([0.001, 0.01, 0.03])),
        "criterion_args": draw(st.sampled_from([{}, {"label_smoothing": 0.1}, {"weight": [1, 2, 0.5, 3]}])),
        "lr_scheduler": draw(st.none() | lr_schedulers(optimizer, epochs, epochs * steps_per_epoch)),
        "seed": draw(st.integers(0, 2**63 - 1)),
    }


@st.composite
def lr_schedulers(draw: st.DrawFn, optimizer: str, epochs: int, steps_total: int) -> dict[str, Any]:
    args: dict[str, dict[str, Any]] = {
        "step": {"step_size": 1, "gamma": 0.5},
        "multi_step": {"milestones": [1, 2], "gamma": 0.3},
        "exponential": {"gamma": 0.9},
        "cosine": {"T_max": epochs},
        "linear": {"total_iters": 3},
        "constant": {"factor": 0.5, "total_iters": 2},
        "polynomial": {"total_iters": 4, "power": 2},
        "cosine_warm_restarts": {"T_0": 1, "T_mult": 2},
        "reduce_on_plateau": {"patience": 0, "factor": 0.5, "threshold": 0.05},
        "one_cycle": {"max_lr": 0.02, "total_steps": steps_total, "cycle_momentum": optimizer not in WITHOUT_MOMENTUM},
        "cyclic": {
            "base_lr": 0.001,
            "max_lr": 0.02,
            "step_size_up": 2,
            "cycle_momentum": optimizer not in WITHOUT_MOMENTUM,
        },
    }
    name = draw(st.sampled_from(sorted(LR_SCHEDULERS)))
    meant = LR_SCHEDULERS[name].per if name in ("one_cycle", "reduce_on_plateau") else ""
    return {"name": name, "args": args[name], "per": meant or draw(st.sampled_from(["epoch", "step"]))}
