import dataclasses

import pytest
import torch

from tests.tools.bench.kit import ASKED
from tools.bench import probe, probe_training, report
from tools.bench.probe import Answer, Setting
from tools.bench.probe_training import Training

CPU = Setting(torch.device("cpu"), steps=1)


def test_a_step_is_the_plain_loop_and_a_state_taken_back_repeats_it() -> None:
    training = Training("lenet", CPU.device, seed=4, optimizer="Adam").with_dropout(0.5)
    training.step()
    state, random = training.state(), torch.get_rng_state()
    found = []
    for _ in range(2):
        torch.set_rng_state(random)
        training.restore(state)
        for _ in range(3):  # the second one begins an epoch
            training.step()
        found.append(training.bits())
    assert found[0] == found[1]
    training.step()
    assert training.bits() != found[0]


def test_an_error_is_an_answer_and_time_ends_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    def cases(setting: Setting) -> list[probe.Case]:
        def broken() -> probe.Figures:
            raise RuntimeError("no such kernel\nand a trace")

        return [("one", lambda: {"ms": 1.5, "same_bits": True}), ("two", broken)]

    monkeypatch.setattr(probe, "QUESTIONS", {"Why?": cases})
    found = probe.ask(CPU)
    assert found == [
        Answer("Why?", "one", {"ms": 1.5, "same_bits": True}),
        Answer("Why?", "two", {"error": "RuntimeError: no such kernel"}),
    ]
    document = probe.described(found, CPU)
    assert document["passed"] is False
    asked = {"bench": "gpu-probe", **ASKED, "threads": 1, "repeats": 1, "repeats_asked": 1, "complete": True}
    text = report.section("gpu-probe-cpu.json", asked | document, ())
    assert "| one | 1.500 | yes |  |" in text
    assert [answer.figures for answer in probe.ask(CPU, budget_s=-1)] == [{"not asked": "no time was left"}] * 2


def test_every_question_has_cases_on_a_gpu_and_most_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = Setting(torch.device("cuda", 0), steps=1)
    monkeypatch.setattr(torch, "tensor", lambda *_, **__: torch.zeros(1))  # there is no device for it
    counts = {setting: [len(list(cases(setting))) for cases in probe.QUESTIONS.values()] for setting in (CPU, on_gpu)}
    assert counts[CPU] == [1, 3, 0, 0, 4, 3]
    assert counts[on_gpu] == [1, 3, 4, 1, 18, 3]


def test_two_threads_train_what_one_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_training, "_SAMPLES", {"cpu": 600})
    [lenets, *_] = [measure for name, measure in probe._lanes(dataclasses.replace(CPU, steps=2))]
    assert lenets()["same_bits"] is True
