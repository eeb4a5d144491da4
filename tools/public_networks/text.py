"""Networks for text, series and graphs, and the scripts of two collections of examples."""

from typing import Any

from tools.public_networks.networks import Network, Source

EXAMPLES = Source("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
TUTORIAL = Source("yunjey/pytorch-tutorial", "0500d3df5a2a8080ccfccbc00aca0eacc21818db")
MINGPT = Source("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26")
NANOGPT = Source("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")
TCN = Source("locuslab/TCN", "2f8c2b817050206397458dfd1f5a25ce8a32fe65")
ATTENTION = Source("jadore801120/attention-is-all-you-need-pytorch", "132907dd272e2cc92e3c10e6c4e783a87ff8893d")

_TCN: dict[str, Any] = {"num_channels": [8, 8], "kernel_size": 3, "dropout": 0.1}
_RNN = """
import torch
from model import RNNModel
class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = RNNModel({kind!r}, 20, 16, 16, 2, 0.2)
    def forward(self, input):
        scores = self.net(input.t(), self.net.init_hidden(len(input)))[0]
        return scores.view(input.shape[1], len(input), -1).transpose(0, 1)
network = Words
"""
_TRANSLATOR = """
import torch
from src.model import Translator
class Pairs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Translator(1, 1, 16, 2, 20, 20, 32, 0.1)
    def forward(self, src, trg):
        return self.net(src.t(), trg.t(), None, self.net.transformer.generate_square_subsequent_mask(trg.shape[1]),
                        None, None, None).transpose(0, 1)
network = Pairs
"""
_GPT = """
from mingpt.model import GPT
def network():
    config = GPT.get_default_config()
    config.model_type, config.vocab_size, config.block_size = "gpt-nano", 32, 16
    return GPT(config)
"""
_NANO = """
from model import GPT, GPTConfig
def network():
    return GPT(GPTConfig(block_size=16, vocab_size=32, n_layer=2, n_head=2, n_embd=16, dropout=0.1))
"""
_DDP_GPT = """
from mingpt.model import GPT, GPTConfig
def network():
    return GPT(GPTConfig(vocab_size=32, block_size=16, n_layer=2, n_head=2, n_embd=16))
"""
_LLAMA = """
from {module} import ModelArgs, Transformer
def network():
    return Transformer(ModelArgs(dim=32, n_layers=2, n_heads=2, vocab_size=32, max_seq_len=16))
"""
_SNLI = """
import types, torch
from model import SNLIClassifier
class Pairs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = dict(n_embed=20, d_embed=8, d_proj=8, d_hidden=8, n_layers=1, n_cells=2, d_out=3, dp_ratio=0.1)
        self.net = SNLIClassifier(types.SimpleNamespace(birnn=True, fix_emb=False, projection=True, **sizes))
    def forward(self, premise, hypothesis):
        return self.net(types.SimpleNamespace(premise=premise.t(), hypothesis=hypothesis.t()))
network = Pairs
"""
_ATTENTION = """
import torch
from transformer.Models import Transformer
class Pairs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Transformer(20, 20, 1, 1, 16, 16, 32, 1, 2, 8, 8)
    def forward(self, src_seq, trg_seq):
        return self.net(src_seq, trg_seq).view(len(trg_seq), -1, 20)
network = Pairs
"""
_SINES = """
from train import Sequence
def network():
    return Sequence().double()
"""


def _script(folder: str, name: str, shape: str, arguments: dict[str, Any] | None = None) -> Network:
    """A script of the tutorial; each has its network in `main.py`."""
    return Network(
        TUTORIAL,
        f"main.py:{name}",
        (shape,),
        arguments or {},
        f"tutorials/{folder}",
        title=f"{folder.partition('/')[2]}:{name}",
    )


NETWORKS = (
    Network(EXAMPLES, "mnist/main.py:Net", ("1,28,28",)),
    Network(EXAMPLES, "main.py:Net", ("1,28,28",), folder="mnist_hogwild", title="mnist_hogwild:Net"),
    Network(EXAMPLES, "mnist_rnn/main.py:Net", ("28,28",)),
    Network(EXAMPLES, "siamese_network/main.py:SiameseNetwork", ("input1=1,28,28", "input2=1,28,28")),
    Network(EXAMPLES, "super_resolution/model.py:Net", ("1,16,16",), {"upscale_factor": 2}),
    Network(
        EXAMPLES,
        "train.py:Sequence",
        ("10:float64",),
        folder="time_sequence_prediction",
        code=_SINES.strip(),
        title="time_sequence_prediction:Sequence",
    ),
    Network(EXAMPLES, "vae/main.py:VAE", ("784",)),
    Network(EXAMPLES, "fast_neural_style/neural_style/transformer_net.py:TransformerNet", ("3,32,32",)),
    Network(
        EXAMPLES,
        "gcn/main.py:GCN",
        ("input_tensor=16", "adj_mat=2"),
        {"input_dim": 16, "hidden_dim": 8, "output_dim": 4},
    ),
    Network(
        EXAMPLES,
        "gat/main.py:GAT",
        ("input_tensor=16", "adj_mat=2"),
        {"in_features": 16, "n_hidden": 8, "n_heads": 2, "num_classes": 4},
    ),
    Network(
        EXAMPLES,
        "src/model.py:Translator",
        ("src=12:int64", "trg=10:int64"),
        {
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "embed_size": 16,
            "num_heads": 2,
            "src_vocab_size": 20,
            "tgt_vocab_size": 20,
            "dim_feedforward": 32,
            "dropout": 0.1,
        },
        "language_translation",
        _TRANSLATOR.strip(),
        "wrapper",
        title="language_translation:Translator",
    ),
    *(
        Network(
            EXAMPLES,
            "model.py:RNNModel",
            ("input=12:int64",),
            {"rnn_type": kind, "ntoken": 20, "ninp": 16, "nhid": 16, "nlayers": 2},
            "word_language_model",
            _RNN.format(kind=kind).strip(),
            "wrapper",
            title=f"word_language_model:RNNModel {kind}",
        )
        for kind in ("LSTM", "GRU")
    ),
    Network(
        EXAMPLES,
        "word_language_model/model.py:TransformerModel",
        ("12:int64",),
        {"ntoken": 20, "ninp": 16, "nhead": 2, "nhid": 32, "nlayers": 2},
    ),
    Network(
        EXAMPLES,
        "model.py:SNLIClassifier",
        ("premise=12:int64", "hypothesis=9:int64"),
        folder="legacy/snli",
        code=_SNLI.strip(),
        kind="wrapper",
        title="legacy/snli:SNLIClassifier",
    ),
    Network(
        EXAMPLES,
        "mingpt/model.py:GPT",
        ("idx=16:int64", "targets=16:int64"),
        {},
        "distributed/minGPT-ddp",
        _DDP_GPT.strip(),
        output="1",
        title="minGPT-ddp:GPT",
    ),
    Network(
        EXAMPLES,
        "model.py:Transformer",
        ("12:int64",),
        {},
        "distributed/FSDP2",
        _LLAMA.format(module="model").strip(),
        title="FSDP2:Transformer",
    ),
    Network(
        EXAMPLES,
        "llama2_model.py:Transformer",
        ("12:int64",),
        {},
        "distributed/tensor_parallelism",
        _LLAMA.format(module="llama2_model").strip(),
        title="tensor_parallelism:Transformer",
    ),
    _script(
        "01-basics/feedforward_neural_network",
        "NeuralNet",
        "784",
        {"input_size": 784, "hidden_size": 50, "num_classes": 10},
    ),
    _script("02-intermediate/convolutional_neural_network", "ConvNet", "1,28,28"),
    _script(
        "02-intermediate/recurrent_neural_network",
        "RNN",
        "28,28",
        {"input_size": 28, "hidden_size": 16, "num_layers": 2, "num_classes": 10},
    ),
    _script(
        "02-intermediate/bidirectional_recurrent_neural_network",
        "BiRNN",
        "28,28",
        {"input_size": 28, "hidden_size": 16, "num_layers": 2, "num_classes": 10},
    ),
    _script("03-advanced/variational_autoencoder", "VAE", "784"),
    Network(MINGPT, "mingpt/model.py:GPT", ("idx=16:int64", "targets=16:int64"), code=_GPT.strip(), output="1"),
    Network(NANOGPT, "model.py:GPT", ("idx=16:int64", "targets=16:int64"), code=_NANO.strip(), output="1"),
    Network(
        TCN,
        "TCN/adding_problem/model.py:TCN",
        ("2,20",),
        {**_TCN, "input_size": 2, "output_size": 1},
    ),
    Network(
        TCN,
        "TCN/copy_memory/model.py:TCN",
        ("1,20",),
        {**_TCN, "input_size": 1, "output_size": 10},
    ),
    Network(
        TCN,
        "TCN/mnist_pixel/model.py:TCN",
        ("1,28",),
        {**_TCN, "input_size": 1, "output_size": 10},
    ),
    Network(
        TCN,
        "TCN/poly_music/model.py:TCN",
        ("20,8",),
        {**_TCN, "input_size": 8, "output_size": 8},
    ),
    *(
        Network(TCN, f"TCN/{name}/model.py:TCN", ("20:int64",), {**_TCN, "input_size": 8, "output_size": 16})
        for name in ("char_cnn", "word_cnn", "lambada_language")
    ),
    Network(
        ATTENTION,
        "transformer/Models.py:Transformer",
        ("src_seq=12:int64", "trg_seq=10:int64"),
        {
            "n_src_vocab": 20,
            "n_trg_vocab": 20,
            "src_pad_idx": 1,
            "trg_pad_idx": 1,
            "d_word_vec": 16,
            "d_model": 16,
            "d_inner": 32,
            "n_layers": 1,
            "n_head": 2,
            "d_k": 8,
            "d_v": 8,
        },
        code=_ATTENTION.strip(),
        kind="wrapper",
    ),
)
