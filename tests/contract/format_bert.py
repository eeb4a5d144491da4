"""A BERT of the transformers library that gives its scores alone."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification


class Scores(BertForSequenceClassification):
    """No token here is padding."""

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = super().forward(tokens, attention_mask=torch.ones_like(tokens)).logits
        return scores


def made(config: Mapping[str, Any]) -> Scores:
    return Scores(BertConfig(**{key: value for key, value in config.items() if key != "model_type"}))
