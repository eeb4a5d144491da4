from typing import Any

from tools.bench import figure14, paper, scenarios


def arm(bits: str, memory_bytes: float = 2.0**29) -> dict[str, Any]:
    parts = {
        name: {"service_s": [1.0, 2.0], "test_accuracy": 0.5, "state_sha256": [bits] * 2} for name in ("lenet", "net")
    }
    return {"memory_bytes": [memory_bytes] * 2, "makespan_s": [3.0, 3.0], "cpu_s": [4.0, 4.0], "submodels": parts}


def test_all_arms_of_the_figure_stand_in_one_table() -> None:
    plain, dropped, published = scenarios.scenario("figure-14", "cpu").cases
    assert plain.baselines == ("concurrent", "concurrent-pipedream")
    assert dropped.baselines == published.baselines == ("concurrent-techniques",)
    assert [case.tasks[0].techniques for case in (plain, dropped)] == [
        (),
        ({"name": "dropit", "keep": figure14.KEEP, "form": "deduplicated"},),
    ]
    assert {one.name for case in (plain, dropped, published) for one in case.hybrids} == {"priority"}
    others = {case.name: {mode: arm(mode) for mode in case.baselines} for case in (plain, dropped, published)}
    cases = [{"name": name, "hybrids": {"priority": arm("a")}, "baselines": arms} for name, arms in others.items()]
    others[plain.name]["concurrent"] = arm("a", 2.0**30)
    measured, printed = figure14.tables(cases, paper.read())
    assert [row[0] for row in measured["rows"]] == [
        "PyTorch, concurrent", "PipeDream", "DropIT, as published", "DropIT",
        "UnifiedNN", "UnifiedNN + DropIT, as published", "UnifiedNN + DropIT",
    ]  # fmt: skip
    assert {len(row) for row in measured["rows"]} == {len(measured["heads"])} == {9}
    assert [row[-1] for row in measured["rows"]] == ["yes", "no", "no", "no", "yes", "yes", "yes"]
    assert measured["rows"][0][1] == "1,024 MiB"
    assert printed["rows"][0] == ("all, peak gpu mem", "5,034 MiB", "4,592 MiB", "2,396 MiB", "2,230 MiB")
    assert [row[0] for row in printed["rows"]][1:] == [
        f"{name}, train time" for name in ("LeNet", "ResNet18", "ResNet50")
    ]
    assert figure14.tables([], ())[0]["rows"] == []
