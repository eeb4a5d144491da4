"""Operators that draw from the sub-model's own random numbers."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
dropout dropout_ feature_dropout feature_dropout_ alpha_dropout
alpha_dropout_ feature_alpha_dropout bernoulli bernoulli.p bernoulli_.float rrelu rrelu_ rand randn rand_like randn_like
""")
