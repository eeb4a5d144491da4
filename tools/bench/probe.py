"""What to run first on a GPU: what its steps, graphs, streams and random numbers do, without the product.

Every question is a table. Nothing is promised, and an error is an answer. Without a GPU, the questions that need none
are answered for the CPU.
"""

import copy
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from tools.bench.probe_training import BATCHES, Training, branches, captured, timed, wait
from unifiednn_core.engine.device import exact_profile

BUDGET_S = 480.0
"""Nothing is asked later, unless the caller names another time."""
ABOUT = "What steps, CUDA graphs, streams and random numbers do here, measured with plain loops of torch."
_IMPORT = "import time; began = time.perf_counter(); import torch; print(time.perf_counter() - began)"
_SAME_AFTER_STEPS, _REFERENCE_STEPS = 20, 10
_PAIRS = (("lenet", "lenet"), ("lenet", "resnet18"), ("resnet18", "resnet34"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found for one case of a question."""

    question: str
    case: str
    figures: Mapping[str, float | bool | str]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where it is asked, and how many steps are timed."""

    device: torch.device
    steps: int

    @property
    def on_gpu(self) -> bool:
        """Whether graphs can be made, and streams."""
        return self.device.type == "cuda"


Figures = dict[str, float | bool | str]
Case = tuple[str, Callable[[], Figures]]


def _start(setting: Setting) -> Iterator[Case]:
    def measure() -> Figures:
        began_s = perf_counter()
        torch.zeros(1, device=setting.device)
        wait(setting.device)
        context_s = perf_counter() - began_s
        loads = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
        figures: Figures = {"import_s": float(loads.stdout), "context_s": context_s}
        if setting.on_gpu:
            free, total = torch.cuda.mem_get_info()
            figures |= {"gpu": torch.cuda.get_device_name(), "taken_mib": (total - free) / 2**20}
        return figures

    yield f"torch {torch.__version__}", measure


def _steps(setting: Setting) -> Iterator[Case]:
    def measure(name: str) -> Figures:
        training, began_s = Training(name, setting.device), perf_counter()
        training.step()
        wait(setting.device)
        first_s, eager = perf_counter() - began_s, timed(training.step, setting.steps, setting.device)
        figures: Figures = {"first_step_s": first_s, "eager_ms": eager.ms, "eager_cpu_ms": eager.cpu_ms}
        for way in ("learn", "whole") if setting.on_gpu else ():
            plain, graphed = (Training(name, setting.device, seed=5) for _ in range(2))
            for _ in range(3):
                plain.step()
                graphed.step()
            step, capture_s = captured(graphed, whole=way == "whole")
            for _ in range(_SAME_AFTER_STEPS):
                plain.step()
                step()
            figures[f"{way}_same_bits"] = plain.bits() == graphed.bits()
            timing = timed(step, setting.steps, setting.device)
            figures |= {f"{way}_ms": timing.ms, f"{way}_cpu_ms": timing.cpu_ms, f"{way}_capture_ms": 1e3 * capture_s}
        if setting.on_gpu:
            figures["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
        return figures

    for name, batch in BATCHES.items():
        yield f"{name}, batches of {batch}", partial(measure, name)


def _learning_rates(setting: Setting) -> Iterator[Case]:
    """Does a captured optimizer follow its learning rate? A number stays as it was when it was captured."""

    def measure(optimizer: str, arguments: dict[str, Any]) -> Figures:
        training = Training("lenet", setting.device, seed=1, optimizer=optimizer, **arguments)
        training.step()
        step, _ = captured(training, whole=True)
        step()
        before = training.weights[0].detach().clone()
        for group in training.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(0.0)
            else:
                group["lr"] = 0.0
        step()
        return {"follows": bool(torch.equal(before, training.weights[0]))}

    if setting.on_gpu:
        rate = torch.tensor(0.01, device=setting.device)
        yield "SGD, a number", partial(measure, "SGD", {})
        yield "SGD, a tensor", partial(measure, "SGD", {"lr": rate})
        yield "Adam, a number", partial(measure, "Adam", {"capturable": True})
        yield "Adam, a tensor", partial(measure, "Adam", {"lr": rate.clone(), "capturable": True})


def _random_numbers(setting: Setting) -> Iterator[Case]:
    def measure() -> Figures:
        plain, graphed = (Training("lenet", setting.device, seed=3).with_dropout(0.5) for _ in range(2))
        plain.step()
        torch.cuda.manual_seed(11)
        for _ in range(6):
            plain.step()
        graphed.step()
        step, _ = captured(graphed, whole=False)
        torch.cuda.manual_seed(11)
        for _ in range(6):
            step()
        return {"same_bits": plain.bits() == graphed.bits()}

    if setting.on_gpu:
        yield "dropout in a graph", measure


def _gangs(setting: Setting) -> Iterator[Case]:
    """A step of each of K equal networks: one after the other, as graphs, as one graph, and fused."""

    def trainings(count: int) -> list[Training]:
        return [Training("lenet", setting.device, seed=seed, lr=0.01 * (1 + seed)) for seed in range(count)]

    def in_turn(count: int) -> Figures:
        found, steps = trainings(count), max(3, setting.steps // count)
        eager = timed(partial(_each, [training.step for training in found]), steps, setting.device)
        figures: Figures = {"eager_ms": eager.ms, "eager_cpu_ms": eager.cpu_ms}
        if setting.on_gpu:
            graphs = [captured(training, whole=True)[0] for training in found]
            figures["graphs_ms"] = timed(partial(_each, graphs), steps, setting.device).ms
        return figures

    def as_branches(count: int) -> Figures:
        plain, found = trainings(count), trainings(count)
        for training in plain:
            training.step()
        graph, capture_s = branches(found)

        def step() -> None:
            for training in found:
                training.advance()
            graph.replay()

        for _ in range(_REFERENCE_STEPS):
            step()
            for training in plain:
                training.step()
        same = sum(one.bits() == other.bits() for one, other in zip(plain, found, strict=True))
        timing = timed(step, max(5, setting.steps // 4), setting.device)
        replay = timed(graph.replay, max(5, setting.steps // 4), setting.device)
        return {"same_bits_of": same, "ms": timing.ms, "cpu_ms": timing.cpu_ms, "replay_ms": replay.ms,
                "capture_s": capture_s}  # fmt: skip

    def fused(count: int) -> Figures:
        found = trainings(count)
        weights, buffers = stack_module_state([training.module for training in found])
        weights = {name: value.detach() for name, value in weights.items()}
        skeleton, first = copy.deepcopy(found[0].module).to("meta"), found[0]
        rates = torch.linspace(0.01, 0.1, count, device=setting.device)

        def loss(weights: Any, buffers: Any, inputs: Tensor, targets: Tensor) -> Tensor:
            scores = functional_call(skeleton, (weights, buffers), (inputs,))
            return torch.nn.functional.cross_entropy(scores, targets)

        learn = vmap(grad_and_value(loss), randomness="different")
        places = torch.randint(0, len(first.inputs), (count, first.batch), device=setting.device)

        def step() -> None:
            gradients, _ = learn(weights, buffers, first.inputs[places].float() / 255, first.targets[places])
            with torch.no_grad():
                for name, weight in weights.items():
                    weight.sub_(gradients[name] * rates.view(-1, *[1] * (weight.dim() - 1)))

        timing = timed(step, max(3, setting.steps // 8), setting.device)
        return {"ms": timing.ms, "cpu_ms": timing.cpu_ms}

    for count in (1, 2, 4, 8, 16, 32) if setting.on_gpu else (1, 3):
        yield f"{count} in turn", partial(in_turn, count)
        if setting.on_gpu:
            yield f"{count} as branches of one graph", partial(as_branches, count)
        yield f"{count} fused by vmap", partial(fused, count)


def _lanes(setting: Setting) -> Iterator[Case]:
    """Two networks in two threads, on CUDA each with a stream, beside one after the other."""

    def lane(training: Training, gate: threading.Barrier) -> None:
        if not setting.on_gpu:
            torch.set_num_threads(1)
            gate.wait()
            _many(training, setting.steps)
            return
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            gate.wait()
            _many(training, setting.steps)
            stream.synchronize()

    def measure(pair: tuple[str, str]) -> Figures:
        alone, together = ([Training(name, setting.device, seed=place) for place, name in enumerate(pair)]
                           for _ in range(2))  # fmt: skip
        for training in (*alone, *together):
            training.step()
        wait(setting.device)
        began_s = perf_counter()
        for training in alone:
            _many(training, setting.steps)
        wait(setting.device)
        alone_s, gate = perf_counter() - began_s, threading.Barrier(3)
        threads = [threading.Thread(target=lane, args=(training, gate)) for training in together]
        for thread in threads:
            thread.start()
        gate.wait()
        began_s = perf_counter()
        for thread in threads:
            thread.join()
        wait(setting.device)
        same = all(one.bits() == other.bits() for one, other in zip(alone, together, strict=True))
        return {"one_after_the_other_s": alone_s, "together_s": perf_counter() - began_s, "same_bits": same}

    for pair in _PAIRS:
        yield " and ".join(pair), partial(measure, pair)


def _each(steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        step()


def _many(training: Training, steps: int) -> None:
    for _ in range(steps):
        training.step()


QUESTIONS: Mapping[str, Callable[[Setting], Iterator[Case]]] = {
    "What does it take to start?": _start,
    "What does a step cost, eagerly and by a graph of forward and backward or of the whole step?": _steps,
    "Does a captured optimizer follow its learning rate?": _learning_rates,
    "Does dropout in a graph draw what it draws eagerly?": _random_numbers,
    "What do K equal networks cost?": _gangs,
    "What do two threads give?": _lanes,
}


def ask(setting: Setting, budget_s: float = BUDGET_S) -> list[Answer]:
    """Ask everything that there is time for; an error is the answer to its case alone."""
    answers, until_s = [], perf_counter() + budget_s
    with exact_profile(setting.device, 1):
        for question, cases in QUESTIONS.items():
            for name, measure in cases(setting):
                if perf_counter() > until_s:
                    figures: Figures = {"not asked": "no time was left"}
                else:
                    try:
                        figures = measure()
                    except Exception as error:  # an answer, too
                        text = (str(error).strip().splitlines() or [""])[0]
                        figures = {"error": f"{type(error).__name__}: {text[:200]}"}
                answers.append(Answer(question, name, figures))
                if setting.on_gpu:
                    torch.cuda.empty_cache()
    return answers


def described(found: list[Answer], setting: Setting) -> dict[str, Any]:
    """A table for each question."""
    tables = []
    for question in dict.fromkeys(answer.question for answer in found):
        own = [answer for answer in found if answer.question == question]
        names = list(dict.fromkeys(name for answer in own for name in answer.figures))
        rows = [[answer.case, *(_text(answer.figures.get(name)) for name in names)] for answer in own]
        heads = ["", *(name.replace("_", " ") for name in names)]
        tables.append({"title": f"**{question}**", "heads": heads, "rows": rows})
    return {
        "scale": "paper" if setting.on_gpu else "cpu",
        "about": ABOUT,
        "passed": not any("error" in answer.figures for answer in found),
        "thresholds": [],
        "notes": [f"{setting.steps} steps each; fewer of gangs."],
        "tables": tables,
        "measured": [asdict(answer) for answer in found],
    }


def _text(value: float | bool | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return value if isinstance(value, str) else f"{value:,.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Ask here, on the first GPU if there is one, and print the document."""
    on_gpu = torch.cuda.is_available()
    setting = Setting(torch.device("cuda", 0) if on_gpu else torch.device("cpu"), 200 if on_gpu else 10)
    budget_s = float(sys.argv[2]) if len(sys.argv) > 2 else BUDGET_S
    sys.stdout.write(json.dumps(described(ask(setting, budget_s), setting)) + "\n")


if __name__ == "__main__":
    main()
