"""A user's own file: networks that can be packed, and networks that cannot."""

import argparse
import collections
import dataclasses
import random

import torch
from torch import nn

SCALES = [1.0, 2.0]


class Net(nn.Module):
    """Buffers, dropout, tied weights: everything that training may change."""

    def __init__(self, width=4, classes=3):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.5)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        hidden = self.drop(torch.relu(self.norm(self.conv(x)))).mean((2, 3))
        return self.head(torch.relu(self.second(torch.relu(self.first(hidden)))))


class Words(nn.Module):
    """Ids, of any length."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 4)

    def forward(self, ids):
        return self.head(self.embed(ids).mean(1))


class Linear(nn.Linear):
    """The start of all that cannot be packed."""

    def __init__(self):
        super().__init__(4, 2)


class Branching(Linear):
    def forward(self, x):
        if x.sum() > 0:
            return super().forward(x)
        return super().forward(-x)


class Texts(Linear):
    def forward(self, x):
        return "a", len(x)


class Mean(Linear):
    def forward(self, x):
        return super().forward(x).mean(0)


class OneBatch(Linear):
    def forward(self, x):
        return super().forward(x.reshape(-1, 4)).reshape(x.shape[0], 2) + torch.zeros(len(x) if len(x) == 9 else 8, 1)


class Outside(Linear):
    def forward(self, x):
        return super().forward(torch.from_numpy(x.detach().numpy() * 2))


class Dividing(Linear):
    def forward(self, x):
        places = torch.arange(x.shape[1])
        return super().forward(x) + torch.div(places, places + 1, rounding_mode="trunc").sum()


class Noisy(Linear):
    def forward(self, x):
        return super().forward(x) * random.random()


class Counting(Linear):
    def forward(self, x):
        SCALES[0] += 1.0
        return super().forward(x) * SCALES[0]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.layers(x, mask=mask).mean(1)


class Untrainable(Linear):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(nn.Linear(4, 2))

    def forward(self, x):
        return self.inner(x)


def number():
    return 3


def broken(width):
    raise KeyError(width)


class Sampling(nn.Module):
    """Draws random numbers in evaluation, too, as a variational autoencoder does."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x) + torch.randn_like(self.head(x))


class Modes(Sampling):
    """Two courses, a graph for each."""

    def forward(self, x):
        return self.head(x) if self.training else self.head(x) * 2


class State(Sampling):
    """Takes a state beside its input."""

    def forward(self, x, state):
        return self.head(x) + state


class Twins(nn.Module):
    """One backbone under two names, which sees the input twice, as in a Siamese network."""

    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))
        self.right = nn.Sequential(self.left, nn.ReLU())

    def forward(self, x):
        return self.left(x) - self.right(x.flip(1))


class Seen(Sampling):
    """Counts in a buffer of its own, which has the name of a normalisation's, in evaluation, too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x):
        self.num_batches_tracked.add_(1)
        return self.head(x) / self.num_batches_tracked


class SeenInTraining(Seen):
    """Counts in training alone, which one graph cannot tell."""

    def forward(self, x):
        if self.training:
            self.num_batches_tracked.add_(1)
        return self.head(x)


class Rewriting(Sampling):
    """It writes into its input, which is its own."""

    def forward(self, x):
        return self.head(x.mul_(0.5))


class OlderNorm(nn.BatchNorm1d):
    """As copies of older versions of torch write it; export drops the assignment."""

    def forward(self, x):
        if self.training:
            self.num_batches_tracked = self.num_batches_tracked + 1
        return nn.functional.batch_norm(x, self.running_mean, self.running_var, training=self.training)


class Assigning(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 3), OlderNorm(3))


class Averaging(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None))


class Probabilities(nn.Module):
    """Compares with its input, which must be from 0 to 1."""

    def __init__(self):
        super().__init__()
        self.code = nn.Linear(6, 6)

    def forward(self, x):
        return nn.functional.binary_cross_entropy(self.code(x).sigmoid(), x, reduction="none").mean(1)


class EncoderDecoder(nn.Module):
    """Two inputs of lengths of their own."""

    def __init__(self):
        super().__init__()
        self.embed, self.drop = nn.Embedding(9, 6), nn.Dropout(0.2)
        self.encoder, self.decoder, self.head = nn.GRUCell(6, 6), nn.Linear(6, 6), nn.Linear(6, 9)

    def forward(self, src, tgt):
        state = self.encoder(self.drop(self.embed(src)).mean(1))
        return self.head(torch.tanh(self.decoder(self.embed(tgt)) + state.unsqueeze(1))).transpose(1, 2)


class Keywords(nn.Module):
    """A loss inside, inputs after defaults, and outputs in a dict."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, scale=2.0, *, mask=None, targets=None):
        scores = self.layer(x * mask) * scale
        loss = (scores.log_softmax(1) * targets).sum(1).neg().mean()
        return {"loss": loss, "scores": scores, "parts": (None, scores.sum(1)), "note": "text"}


class Auxiliary(nn.Module):
    """A second head in training alone, as in GoogLeNet."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Linear(4, 5), nn.BatchNorm1d(5)
        self.head, self.side = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        hidden = torch.relu(self.norm(self.body(x)))
        return Scores(self.head(hidden), self.side(hidden)) if self.training else self.head(hidden)


Scores = collections.namedtuple("Scores", ["logits", "aux"])


class DropPath(nn.Module):
    """Stochastic depth with a constant of its own in each mode, and a buffer that training writes."""

    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        path = self.norm(self.body(x))
        if self.training:
            self.seen.add_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
            path = path * torch.rand(x.shape[0], 1).ge(0.3) / 0.7
        else:
            path = path + torch.tensor([0.1, 0.2, 0.3, 0.4]) * self.seen
        return self.head(x + path)


@dataclasses.dataclass
class Reconstruction:
    image: torch.Tensor
    loss: torch.Tensor
    cache: object = None


class Variational(nn.Module):
    """A VAE with its loss; it draws in training alone, and returns a dataclass."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(2, 4)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else mean
        image = self.decoder(code)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1)
        return Reconstruction(image, ((image - x).pow(2).sum(1) + divergence).mean(), cache=object())


class Exploding(Sampling):
    """Its outputs are so large that a step makes every number of it NaN, in both modes."""

    def forward(self, x):
        return self.head(x) * (1e3 if self.training else 2e3)


class Momentum(nn.Module):
    """A second network that follows the first without gradients, as in MoCo; and regions inside of each other."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.add_module("last layer", nn.Linear(3, 3))
        for weight in self.key.parameters():
            weight.requires_grad = False

    def forward(self, x):
        with torch.no_grad():
            for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)
            key, still = self.key(x), self.query(x)
            with torch.enable_grad():
                moving = self.query(x) * 2
        query = self.query(x)
        with torch.no_grad():
            query.mul_(2)  # its gradient stays that of the layer
        return self.get_submodule("last layer")(self.head(torch.cos(query + key) * still + moving))


class Lengths(nn.Module):
    """Packs sequences by lengths that it reads from the ids."""

    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(9, 4), nn.LSTM(4, 4, batch_first=True)

    def forward(self, ids):
        lengths = (ids >= 0).sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(ids), lengths, batch_first=True, enforce_sorted=False)
        return self.layer(packed)[1][0][-1]


class Blank(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("layer:1", nn.Linear(4, 2))

    def forward(self, x):
        return getattr(self, "layer:1")(x)


class OnGpu(Linear):
    def forward(self, x):
        return super().forward(x.cuda())


class TinyDepth(nn.Module):
    """Drops paths that change its output by next to nothing."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        y = self.linear(x)
        return y + 1e-7 * y * torch.floor(torch.rand(x.shape[0], 1) + 0.5) if self.training else y


class Otherwise(nn.Module):
    """Sums in another order while it is exported."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        y = self.linear(x)
        return y / 3 if torch.compiler.is_compiling() else y * 0.33


class Moved(nn.Module):
    """Assigns a buffer to itself in forward, and needs it for its gradient."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("table", torch.arange(2.0))

    def forward(self, x):
        self.table = self.table.to(x.device)
        return self.linear(x) * self.table


class Attending(Assigning):
    """Names its attention as transformers does."""

    config = argparse.Namespace(_attn_implementation="sdpa")


def decoder(attention="sdpa"):
    """A decoder of transformers with fewer heads of keys than of queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False, attn_implementation=attention))
