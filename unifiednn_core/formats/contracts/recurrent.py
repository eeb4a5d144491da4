"""Recurrent layers: their kernels read states and weights without a look at their sizes."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
lstm.input gru.input rnn_tanh.input rnn_relu.input
""")
