"""What a hyper-parameter file may name: optimizers, criteria and LR schedulers, by torch's own names and arguments.

Each has a short name, and is known by the name of its class too: "adamw" is "AdamW". Forms, JSON validation, checks
and the trainer are all built from these tables. This room has no torch; a test holds the tables against torch.
"""

from unifiednn_core.choices.argument import Argument, shown
from unifiednn_core.choices.choice import Choice, CriterionChoice, LRSchedulerChoice, checked_arguments, known
from unifiednn_core.choices.criteria import CLASSIFICATION, CRITERIA, IGNORE_INDEX, REFUSED_CRITERIA
from unifiednn_core.choices.lr_schedulers import LR_SCHEDULERS, REFUSED_LR_SCHEDULERS
from unifiednn_core.choices.optimizers import OPTIMIZERS, REFUSED_OPTIMIZERS

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
