"""LR schedules that are functions: the share of the learning rate after so many steps, as transformers defines them."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from unifiednn_core.spec.choices import LR_FORMULAS


def share_after(name: str, args: Mapping[str, Any], learning_rate: float) -> Callable[[int], float]:
    """Return the function of a schedule of `LR_FORMULAS`; the polynomial one needs the learning rate that it scales."""
    given: dict[str, Any] = {argument.name: argument.default for argument in LR_FORMULAS[name].arguments} | dict(args)
    warm_up: int = given["num_warmup_steps"]
    total: int = given.get("num_training_steps", 0)

    def after(steps: int) -> float:
        if steps < warm_up:
            return steps / max(1, warm_up)
        if name == "warmup_constant":
            return 1.0
        if name == "warmup_linear":
            return max(0.0, (total - steps) / max(1, total - warm_up))
        if name == "warmup_cosine":
            done = (steps - warm_up) / max(1, total - warm_up)
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * given["num_cycles"] * 2.0 * done)))
        end: float = given["lr_end"]
        if steps > total:
            return end / learning_rate
        left = 1 - (steps - warm_up) / (total - warm_up)
        share: float = ((learning_rate - end) * left ** given["power"] + end) / learning_rate
        return share

    return after
