"""Optimizers, criteria and LR schedulers that a hyper-parameter file can name, with torch's own names and arguments.

Each has a short name and also goes by its class name: "adamw" is "AdamW". Forms, JSON validation, checks and the
trainer all use these tables. They do not import torch; a test compares them with torch.
"""

from unifiednn_core.spec.choice import (
    Argument,
    Choice,
    CriterionChoice,
    LRSchedulerChoice,
    checked_arguments,
    known,
    shown,
)
from unifiednn_core.spec.criteria import CLASSIFICATION, CRITERIA, IGNORE_INDEX, REFUSED_CRITERIA
from unifiednn_core.spec.lr_schedulers import LR_SCHEDULERS, REFUSED_LR_SCHEDULERS
from unifiednn_core.spec.optimizers import OPTIMIZERS, REFUSED_OPTIMIZERS

__all__ = [
    "CLASSIFICATION",
    "CRITERIA",
    "IGNORE_INDEX",
    "LR_SCHEDULERS",
    "OPTIMIZERS",
    "REFUSED_CRITERIA",
    "REFUSED_LR_SCHEDULERS",
    "REFUSED_OPTIMIZERS",
    "Argument",
    "Choice",
    "CriterionChoice",
    "LRSchedulerChoice",
    "checked_arguments",
    "known",
    "shown",
]
