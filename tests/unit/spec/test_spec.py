import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.spec.choices import OPTIMIZERS
from unifiednn_core.spec.run import RunSpec, load_run, parse_hyperparameters, parse_run

LINEAR = {"name": "linear"}


def minimal(**hyperparameters: Any) -> dict[str, Any]:
    submodel = {"name": "a", "model": "a.pt2", "train_data": "d.pt", "hyperparameters": hyperparameters}
    return {"submodels": [submodel]}


def findings_of(document: object) -> list[Finding]:
    with pytest.raises(BadInput) as raised:
        parse_run(document)
    return list(raised.value.findings)


MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"optimizer": "sdg"}, "optimizer", "Did you mean 'sgd'?"),
    ({"optimizer": "lbfgs"}, "optimizer", "adamw"),
    ({"learning_rate": -1}, "learning_rate", "a number above 0"),
    ({"learning_rate": 0}, "learning_rate", "a number above 0"),
    ({"learning_rate": "0.1"}, "learning_rate", "Give a number"),
    ({"learning_rate": True}, "learning_rate", "Give a number"),
    ({"epochs": True}, "epochs", "Give a whole number"),
    ({"epochs": 2.5}, "epochs", "Give a whole number"),
    ({"drop_last": "yes"}, "drop_last", "Give true or false"),
    ({"optimizer": ["adam"]}, "optimizer", "Give a text in quotes"),
    ({"optimizer_args": []}, "optimizer_args", "an object of names and values"),
    ({"optimizer_args": {"momentum": 10**400}}, "optimizer_args.momentum", "a number of at least 0"),
    ({"optimizer_args": {"lr": 0.1}}, "optimizer_args.lr", "learning_rate"),
    ({"criterion_args": {"reduction": "sum"}}, "criterion_args.reduction", "the mean over its batch"),
    ({"learning_rate": float("nan")}, "learning_rate", "NaN"),
    ({"epochs": 0}, "epochs", "a number of at least 1"),
    ({"epochs": "many"}, "epochs", "many"),
    ({"learning_rat": 1}, "learning_rat", "Did you mean 'learning_rate'?"),
    ({"xyz": 1}, "xyz", "spelling"),
    ({"optimizer_args": {"momentun": 1}}, "optimizer_args.momentun", "dampening"),
    ({"optimizer_args": {"momentum": float("nan")}}, "optimizer_args.momentum", "does not accept momentum = NaN"),
    ({"techniques": ["zip"]}, "techniques.0", "There is no technique 'zip'."),
    ({"techniques": [{"name": "dropit", "keep": 3}]}, "techniques.dropit.keep", "at most 1"),
    ({"lr_scheduler": {"name": "step"}}, "lr_scheduler.args", "'step_size'"),
    ({"gradient_clipping": {}}, "gradient_clipping", "Give exactly one"),
    ({"gradient_clipping": {"norm": 1, "value": 1}}, "gradient_clipping", "Give exactly one"),
    ({"gradient_clipping": {"norm": 0}}, "gradient_clipping.norm", "a number above 0"),
    ({"warm_up": {"steps": 0}}, "warm_up.steps", "a number of at least 1"),
    ({"warm_up": 5}, "warm_up", "5"),
    ({"accumulation_steps": 0}, "accumulation_steps", "a number of at least 1"),
    ({"early_stopping": {"metric": "loss"}}, "early_stopping.metric", "'test_loss'"),
    ({"criterion": "mse", "early_stopping": {"metric": "test_accuracy"}}, "early_stopping.metric", "no accuracy"),
    ({"lr_scheduler": {"name": "reduce_on_plateau", "per": "step"}}, "lr_scheduler.per", "'epoch'"),
    *(
        ({"lr_scheduler": asked}, f"lr_scheduler{place}", words)
        for asked, place, words in (
            ({"name": "sequence"}, ".of", "two LR schedulers or more"),
            ({"name": "SequentialLR", "of": [LINEAR, LINEAR]}, ".milestones", "2 LR schedulers have 1 milestones"),
            ({"name": "sequence", "of": [LINEAR] * 3, "milestones": [4, 4]}, ".milestones", "do not rise"),
            ({"name": "sequence", "of": [LINEAR] * 2, "milestones": [0]}, ".milestones.0", "at least 1"),
            ({"name": "sequence", "args": {"milestones": [1]}}, ".args.milestones", "takes none"),
            ({**LINEAR, "milestones": [3]}, ".milestones", "Only the LR scheduler 'sequence'"),
            ({"name": "sequence", "of": [LINEAR, {"name": "one_cycle"}]}, ".of.one_cycle.name", "stands alone"),
            ({"name": "sequence", "of": [LINEAR, {"name": "sequence"}]}, ".of.sequence.name", "in a sequence"),
            ({"name": "sequence", "of": [LINEAR, {"name": "step"}]}, ".of.step.args", "'step_size'"),
        )
    ),
    *(
        ({"parameter_groups": [group]}, f"parameter_groups.0{place}", words)
        for group, place, words in (
            ({}, ".names", "missing"),
            ({"names": []}, ".names", "at least 1 item"),
            ({"names": "a", "learning_rate": 0}, ".learning_rate", "a number above 0"),
            ({"names": "a", "weight_decai": 0}, ".weight_decai", "no argument 'weight_decai'"),
            ({"names": "a", "momentum": -1}, ".momentum", "of at least 0"),
            ({"names": "a", "lr": 1}, ".lr", "the entry learning_rate"),
            ({"names": "a", "frozen": True, "momentum": 0.5}, ".momentum", "Frozen"),
            ({"names": "a", "frozen": True, "learning_rate": 0.5}, ".learning_rate", "Leave it out"),
        )
    ),
    ({"precision": "bfloat16"}, "precision", 'Set "profile" to "fast"'),
    ({"precision": "half"}, "precision", "'bfloat16'"),
    ({"ema": {"decay": 1}}, "ema.decay", "a number below 1"),
    ({"sampler": {"name": "random"}}, "sampler.name", "'by_length'"),
    ({"sampler": {"name": "balanced", "pad": 3}}, "sampler.pad", "Only by_length has 'pad'"),
    ({"criterion": "mse", "class_weights": "balanced"}, "class_weights", "no classes"),
    ({"class_weights": "balanced", "criterion_args": {"weight": [1, 2]}}, "class_weights", "weights already"),
]
"""Of hyperparameters: what is asked, the field of the finding, and a word of it."""


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        *((minimal(**asked), f"submodels.a.hyperparameters.{field}", said) for asked, field, said in MISTAKES),
        ({"submodels": []}, "submodels", "Add at least one"),
        ({}, "submodels", "missing"),
        ([], "spec", "an object of names"),
        (
            {"submodels": [{"name": "../a", "model": "m", "train_data": "d"}]},
            "submodels.../a.name",
            "is not a valid name",
        ),
        ({**minimal(), "device": "/dev/gpu"}, "device", 'such as "cuda:0"'),
        ({**minimal(), "profile": "faster"}, "profile", "exact"),
    ],
)
def test_each_mistake_gives_a_finding_with_field_and_remedy(document: object, field: str, said: str) -> None:
    [finding] = findings_of(document)
    assert finding.field == field
    assert said in str(finding)
    assert finding.remedy


def test_two_submodels_of_one_name_are_refused_even_in_other_letters() -> None:
    one = {"name": "net", "model": "m", "train_data": "d"}
    [finding] = findings_of({"submodels": [one, {**one, "name": "Net"}]})
    assert finding.field == "submodels.Net.name"
    assert "own name" in finding.remedy


def test_all_mistakes_are_told_at_once() -> None:
    assert len(findings_of(minimal(optimizer="x", learning_rate=-1, epochs=0))) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": ', "line 1"),
        (b'{"a": [{"seed": 1, "seed": 2}]}', "'seed' occurs twice"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"[" * 100_000, "JSON"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_spec_gives_a_finding_that_names_it(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "spec.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as raised:
        load_run(path)
    [finding] = raised.value.findings
    assert finding.field == str(path)
    assert said in finding.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(json_values)
def test_no_json_at_all_gets_past_without_a_spec_or_findings(document: object) -> None:
    for parse in (parse_run, parse_hyperparameters):
        try:
            parse(document)
        except BadInput as error:
            assert error.findings


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,10}", fullmatch=True)


@given(
    st.lists(names, min_size=1, max_size=4, unique_by=str.lower),
    st.sampled_from(sorted(OPTIMIZERS)),
    st.floats(1e-9, 1e3),
    st.integers(-5, 5),
)
def test_a_spec_survives_json(submodels: list[str], optimizer: str, learning_rate: float, priority: int) -> None:
    hyperparameters = {"optimizer": optimizer, "learning_rate": learning_rate}
    spec = parse_run(
        {
            "submodels": [
                {
                    "name": name,
                    "model": "m",
                    "train_data": "d",
                    "priority": priority,
                    "hyperparameters": hyperparameters,
                }
                for name in submodels
            ],
            "policy": {"name": "sjf", "by": "epochs"},
        }
    )
    assert parse_run(json.loads(spec.to_json())) == spec
    assert spec.policy.parameters == {"by": "epochs"}


def test_a_submodel_without_a_seed_takes_the_seed_of_the_run() -> None:
    spec: RunSpec = parse_run({**minimal(), "seed": 5})
    assert spec.seed_of(spec.submodels[0]) == 5
    spec = parse_run({**minimal(seed=7), "seed": 5})
    assert spec.seed_of(spec.submodels[0]) == 7


def test_everything_new_survives_json() -> None:
    asked = {
        "optimizer": "Adafactor",
        "optimizer_args": {"eps": [None, 0.001]},
        "accumulation_steps": 4,
        "gradient_clipping": {"norm": 1.0},
        "warm_up": {"steps": 10},
        "early_stopping": {"metric": "train_loss", "patience": 3, "min_delta": 0.5},
        "lr_scheduler": {"name": "ReduceLROnPlateau"},
    }
    parsed = parse_hyperparameters(asked)
    assert parse_hyperparameters(json.loads(parsed.model_dump_json(exclude_none=True))) == parsed
    assert parsed.model_dump(include=asked.keys() - {"optimizer", "lr_scheduler"}, exclude_none=True) == {
        name: asked[name] for name in asked.keys() - {"optimizer", "lr_scheduler"}
    }


@pytest.mark.parametrize(
    ("batch_size", "accumulation_steps", "drop_last", "steps"),
    [(8, 1, False, 5), (8, 2, False, 3), (8, 2, True, 2), (8, 3, True, 2), (8, 9, False, 1), (64, 2, True, 0)],
)
def test_steps_count_groups_of_batches(batch_size: int, accumulation_steps: int, drop_last: bool, steps: int) -> None:
    asked = {"batch_size": batch_size, "accumulation_steps": accumulation_steps, "drop_last": drop_last}
    assert parse_hyperparameters(asked).steps_per_epoch(37) == steps
