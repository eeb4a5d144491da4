"""The updates of all members of a gang by a few launches, where that gives what their own optimizers give.

SGD only, with equal arguments except for the learning rate: it is the usual sweep, and its update is shorter than the
launches that it takes. Everything else keeps the optimizer of each member.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import SGD

from unifiednn_core.engine import optimizers
from unifiednn_core.engine.submodel import SubModel

_EQUAL = ("momentum", "dampening", "weight_decay", "nesterov", "maximize")
_LARGEST_ERROR = 1e-6


class StackedSgd:
    """Updates members as SGD does. The first update is also made by their own optimizers, which decides."""

    def __init__(self, members: Sequence[SubModel], *, exact: bool):
        """Take members whose gradients are those of one step; with `exact` only the same bits count."""
        self._members, self._exact = list(members), exact
        groups = [group for member in members for group in member.optimizer.param_groups]
        self._settings = groups[0]
        self._ones: list[Tensor] = []
        self._checked = False
        self._possible = len(groups) == len(members) and all(
            type(member.optimizer) is SGD and member.spec.hyperparameters.gradient_clipping is None
            for member in members
        )
        self._possible = self._possible and all(
            all(group[name] == groups[0][name] for name in _EQUAL) and not group["maximize"] for group in groups
        )

    def __call__(self) -> bool:
        """Update the weights; returns False, and does nothing, if each member has to do it by itself."""
        if not self._possible:
            return False
        trained = [[one for one in member.eager.trained if one.grad is not None] for member in self._members]
        parameters: list[Tensor] = [one for own in trained for one in own]
        gradients = [one.grad for one in parameters if one.grad is not None]
        buffers: list[Tensor] = []
        if self._settings["momentum"]:
            found = [
                member.optimizer.state[one].get("momentum_buffer")
                for member, own in zip(self._members, trained, strict=True)
                for one in own
            ]
            buffers = [one for one in found if one is not None]
            if len(buffers) < len(parameters):
                return False  # the first step makes them
        rates = [-_rate(member) for member, own in zip(self._members, trained, strict=True) for _ in own]
        if not self._checked:
            self._check(parameters, gradients, buffers, rates)
            return True
        self._launch(parameters, gradients, buffers, rates)
        for member in self._members:
            member.optimizer._opt_called = True  # type: ignore[attr-defined]  # what an LR scheduler asks for
        return True

    @torch.no_grad()
    def _launch(
        self, parameters: list[Tensor], gradients: list[Tensor], buffers: list[Tensor], rates: list[float]
    ) -> None:
        """Do what `torch.optim.SGD` does; a sum with a factor for each tensor exists only with a product inside."""
        settings = self._settings
        if settings["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=settings["weight_decay"]))
        if buffers:
            torch._foreach_mul_(buffers, settings["momentum"])
            torch._foreach_add_(buffers, gradients, alpha=1 - settings["dampening"])
            nesterov = settings["nesterov"]
            gradients = (
                list(torch._foreach_add(gradients, buffers, alpha=settings["momentum"])) if nesterov else buffers
            )
        if len(self._ones) != len(parameters):
            each = len(parameters) // len(self._members)
            self._ones = [torch.ones_like(one) for one in parameters[:each]] * len(self._members)
        torch._foreach_addcmul_(parameters, gradients, self._ones, rates)

    def _check(
        self, parameters: list[Tensor], gradients: list[Tensor], buffers: list[Tensor], rates: list[float]
    ) -> None:
        """Update by the members' own optimizers, and compare."""
        stacked, held = ([one.detach().clone() for one in some] for some in (parameters, buffers))
        self._launch(stacked, gradients, held, rates)
        for member in self._members:
            hyperparameters, trained = member.spec.hyperparameters, member.eager.trained
            optimizers.update(member.optimizer, trained, hyperparameters, member.steps_done + 1)
        pairs = list(zip((*stacked, *held), (*parameters, *buffers), strict=True))
        self._checked = True
        if self._exact:
            self._possible = all(torch.equal(one, own) for one, own in pairs)
        else:
            self._possible = all(torch.allclose(one, own, _LARGEST_ERROR, _LARGEST_ERROR) for one, own in pairs)


def _rate(member: SubModel) -> float:
    """Learning rate of the next step."""
    rate = float(member.optimizer.param_groups[0]["lr"])
    share = optimizers.share_of_rate(member.spec.hyperparameters, member.steps_done + 1)
    return rate if share == 1.0 else rate * share
