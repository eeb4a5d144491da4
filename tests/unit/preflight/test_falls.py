"""Where a step comes down from its peak, as the check measures it, is where it does."""

from typing import Any

import pytest
import torch

from tests.unit.preflight.test_need import SAMPLES, found, trial
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.scheduling.company import POINTS
from unifiednn_core.techniques.live_bytes import LiveBytes

ORDER_BYTES = 8 * SAMPLES


def rest_of_a_step(network: str, **hyperparameters: Any) -> dict[str, int]:
    """Most bytes of a step once each parameter has its gradient, by an own count."""
    a_trial = trial(network, **hyperparameters)
    tried, live = dry_run(a_trial), LiveBytes(64)
    state = [
        one for values in tried.optimizer.state.values() for one in values.values() if isinstance(one, torch.Tensor)
    ]
    tried.optimizer.zero_grad(set_to_none=True)
    rest_bytes = live.track(
        [*tried.module.parameters(), *tried.module.buffers(), *state, *a_trial.train.entries.values()]
    )
    places: dict[str, int] = {}
    for name, parameter in tried.module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: places.update({name: len(live.timeline)}))

    def learn() -> None:
        size = a_trial.spec.hyperparameters.batch_size
        batch = tried.step.prepare(a_trial.train.batch(torch.arange(size) % SAMPLES), training=True)
        with tried.techniques.part(tried.module, batch.tensors):
            loss = tried.step.loss(tried.criterion, tried.step.forward(tried.module, batch), batch)
            loss.backward()

    with live:
        learn()
        tried.optimizer.step()
    return {name: max(live.timeline[at:]) - rest_bytes for name, at in places.items()}


@pytest.mark.parametrize("network", ["resnet", "transformer"])
@pytest.mark.parametrize("techniques", [[], ["compression"]])
def test_after_a_fall_a_step_needs_no_more(network: str, techniques: list[str]) -> None:
    need = found(trial(network, batch_size=32, techniques=techniques))
    measured = rest_of_a_step(network, batch_size=32, techniques=techniques)
    peak_bytes = need.gradients_bytes + need.transient_bytes
    assert 0 < len(need.falls) <= POINTS and max(need.curve) <= peak_bytes
    assert need.falls[-1].bytes < 0.7 * peak_bytes, "the activations are gone"
    for fall in need.falls:
        assert measured[fall.parameter] <= fall.bytes
        assert fall.bytes - ORDER_BYTES < 1.2 * measured[fall.parameter] + 4096, "nor is it far off"


@pytest.mark.parametrize(
    "asked", [{"batch_split": 2}, {"accumulation_steps": 2}, {"techniques": [{"name": "virtual_nodes", "nodes": 2}]}]
)
def test_a_step_in_parts_climbs_several_times_and_has_no_falls(asked: dict[str, Any]) -> None:
    need = found(trial("resnet", batch_size=32, **asked))
    assert (need.curve, need.falls) == ((), ())


def test_another_batch_size_has_no_falls_until_it_is_measured() -> None:
    need = found(trial("resnet", batch_size=32))
    assert need.falls and not need.changed(batch_split=2).falls and need.changed().falls == need.falls
