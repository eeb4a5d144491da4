"""Networks that save tensors in unusual ways: in place, through views, twice, by functions of their own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """A body before, and a head behind a function of [32, 64]."""

    def __init__(self, middle: Callable[["Net", Tensor], Tensor], **layers: nn.Module):
        super().__init__()
        self.body, self.head, self.middle = nn.Linear(768, 64), nn.Linear(64, 10), middle
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.middle(self, functional.relu(self.body(x.flatten(1)))))


class Cube(torch.autograd.Function):
    """Saves its input and its result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = x**3
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x, result = ctx.saved_tensors
        return gradient * (3 * x * x + 0 * result)


def _in_place(_: Net, x: Tensor) -> Tensor:
    x = x * 2
    x += 1
    x.sigmoid_()
    y = x.clone()
    y[:, ::2] = 0
    y.mul_(0.5).relu_()
    return x + y


def _views(_: Net, x: Tensor) -> Tensor:
    left, right = x.chunk(2, 1)
    turned = x.view(32, 8, 8).transpose(1, 2)
    product = (turned @ turned.transpose(1, 2)).reshape(32, 64)
    return torch.cat([left * right, right.exp()], 1) + product.relu() + x[:, :1].expand(-1, 64).sin()


def _twice(net: Net, x: Tensor) -> Tensor:
    return net.layer(net.layer(net.norm(x)) + net.norm(x))


def _attention(net: Net, x: Tensor) -> Tensor:
    x = x.view(4, 8, 64)
    q, k, v = net.layer(x).view(4, 8, 4, 48).transpose(1, 2).chunk(3, 3)
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + out.transpose(1, 2).reshape(4, 8, 64)
    weights = (q @ k.transpose(2, 3) / 4).masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf).softmax(3)
    return (x + (functional.dropout(weights, 0.2) @ v).transpose(1, 2).reshape(4, 8, 64)).view(32, 64)


def _recurrent(net: Net, x: Tensor) -> Tensor:
    return net.layer(x.view(4, 8, 64))[0].reshape(32, 64)


def _again(reentrant: bool) -> Callable[[Net, Tensor], Tensor]:
    def middle(net: Net, x: Tensor) -> Tensor:
        def part(x: Tensor) -> Tensor:
            return functional.dropout(net.layer(x).relu(), 0.5).tanh()

        return checkpoint(part, checkpoint(part, x, use_reentrant=reentrant), use_reentrant=reentrant)

    return middle


def _second_order(net: Net, x: Tensor) -> Tensor:
    with torch.enable_grad():
        energy = net.layer(x.detach().requires_grad_()).relu().pow(3).sum()
    [force] = torch.autograd.grad(energy, net.layer.weight, create_graph=True)
    return x @ force.relu()


def _through_vmap(net: Net, x: Tensor) -> Tensor:
    return torch.vmap(lambda row: (net.layer.weight @ row).relu() * row.sigmoid())(x)


def _complex(_: Net, x: Tensor) -> Tensor:
    turned = torch.fft.rfft(x).conj()
    return torch.fft.irfft(turned * turned.abs(), n=64) * turned.imag.relu().sum(1, keepdim=True)


def _words(net: Net, x: Tensor) -> Tensor:
    return x[:, :1] * net.words((x.detach() > 0).long())[:, 0]


def _pools(net: Net, x: Tensor) -> Tensor:
    images = net.layer(x.view(32, 1, 8, 8))
    lines = images.flatten(2)
    pooled = [
        functional.max_pool2d(images.relu(), 2).flatten(1),
        functional.avg_pool2d(images, 4, 2, padding=1).flatten(1),
        functional.adaptive_avg_pool2d(images, 3).flatten(1),
        functional.adaptive_max_pool2d(images, 3).flatten(1),
        functional.max_pool1d(lines, 3, 2, padding=1).flatten(1),
        functional.avg_pool1d(lines, 4).flatten(1),
        functional.adaptive_avg_pool1d(lines, 5).flatten(1),
        functional.adaptive_max_pool1d(lines, 5).flatten(1),
        functional.max_pool3d(images[:, None], (1, 2, 2)).flatten(1),
        functional.avg_pool3d(images[:, None], (1, 2, 2)).flatten(1),
        functional.adaptive_avg_pool3d(images[:, None], (2, 3, 3)).flatten(1),
        functional.adaptive_max_pool3d(images[:, None], (2, 3, 3)).flatten(1),
        functional.max_pool2d(images.contiguous(memory_format=torch.channels_last), 3, 1, 1, ceil_mode=True).flatten(1),
        functional.max_pool2d(images, 2, return_indices=True)[0].flatten(1),
    ]
    return functional.pad(torch.cat(pooled, 1)[:, ::8], (0, 64))[:, :64]


def _ranges(_: Net, x: Tensor) -> Tensor:
    y = torch.linspace(-2, 8, 64) * (x + 0.1)
    y = torch.cat([y[:, :-4], y.new_tensor([[0.0, -0.0, 6.0, 7.0]]).expand(32, 4)], 1)
    z = functional.relu6(y * 1.0, inplace=True) + functional.leaky_relu(y * 1.0, 0.3, inplace=True)
    return functional.relu6(y) + functional.leaky_relu(y) + torch.relu(y) + functional.leaky_relu(y, -0.5) + z


def odd(kind: str) -> nn.Module:
    linear = nn.Linear(64, 64)
    return {
        "in place": lambda: Net(_in_place),
        "views": lambda: Net(_views),
        "twice": lambda: Net(_twice, layer=linear, norm=nn.BatchNorm1d(64)),
        "attention": lambda: Net(_attention, layer=nn.Linear(64, 192)),
        "lstm": lambda: Net(_recurrent, layer=nn.LSTM(64, 64, 2, batch_first=True, dropout=0.2)),
        "gru": lambda: Net(_recurrent, layer=nn.GRU(64, 64, batch_first=True)),
        "checkpoint": lambda: Net(_again(False), layer=linear),
        "reentrant": lambda: Net(_again(True), layer=linear),
        "own function": lambda: Net(lambda _, x: Cube.apply(x) + x),
        "second order": lambda: Net(_second_order, layer=linear),
        "vmap": lambda: Net(_through_vmap, layer=linear),
        "complex": lambda: Net(_complex),
        "words": lambda: Net(_words, words=nn.Embedding(2, 64)),
        "pools": lambda: Net(_pools, layer=nn.Conv2d(1, 4, 3, padding=1)),
        "ranges": lambda: Net(_ranges),
    }[kind]()


ODD = (
    "in place",
    "views",
    "twice",
    "attention",
    "lstm",
    "gru",
    "checkpoint",
    "reentrant",
    "own function",
    "second order",
    "vmap",
    "complex",
    "words",
    "pools",
    "ranges",
)
