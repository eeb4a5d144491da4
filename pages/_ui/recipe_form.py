"""Parts of the hyper-parameters with an inner life: LR schedulers in a row, parameter groups, samplers, precision."""

from collections.abc import Mapping, Sequence, Set
from typing import Any, get_args

import streamlit as st

from pages._ui import arguments, drafts, frame, listed
from unifiednn_core.spec.choices import CLASSIFICATION, LR_STAGES, OPTIMIZERS, SEQUENCE
from unifiednn_core.spec.run import Hyperparameters
from unifiednn_core.views import markup

NONE = "none"
SEQUENCE_HELP = "One after another; the next one begins after so many epochs (or steps) from the start."
GROUPS_HELP = (
    "Parameters that train in another way, or not at all. The first group whose pattern fits a name counts. Patterns: "
    "* stands for any text, such as backbone.* or *.bias."
)
GROUP_RATE_HELP = "Learning rate of these parameters. Empty: that of the sub-model."
SAMPLERS = {NONE: "each sample once, in random order", "balanced": "each class equally often", "by_length": "by length"}
SAMPLER_HELP = (
    "Equally often draws with replacement, as many as there are samples. By length sorts within windows of batches, so "
    "that a batch has samples of similar length; the transform trim then cuts its padding."
)
PAD_HELP = "The id that fills up short samples."
WINDOW_HELP = "Batches that are sorted together. More make batches more even, and less random."
WEIGHTS_HELP = "The criterion weights each class by labels / (classes * labels of the class) of the training data."
EMA_HELP = "Evaluation and the trained model use a moving average of the weights; 0.999 is usual. Empty: none."
PRECISION_HELP = "Type of convolutions and products. Lower ones need the profile fast. float16 is for GPUs."


def sequence(seed: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """Draw LR schedulers one after another, seeded with a sequence; returns the one that they now are."""
    of, milestones = seed.get("of", ()), seed.get("milestones", ())
    seeds = [{**stage, "begins": begins} for stage, begins in zip(of, [None, *milestones], strict=False)]
    if not of:
        seeds = [{"name": "linear"}, {"name": "cosine", "begins": 5}]
    st.html(markup.small(SEQUENCE_HELP))
    stages: list[dict[str, Any]] = []
    begins: list[int] = []
    rows = listed.entries(seeds, key=key)
    for at, (number, stage) in enumerate(rows):
        own = f"{key}-{number}"
        with st.container(border=True, key=own):
            listed.head(f"LR scheduler {at + 1}", "", at, key=key)
            one, two = st.columns([3, 2])
            name = arguments.choose(one, "Name", LR_STAGES, stage["name"], f"{own}-name")
            if at:
                known = int(stage.get("begins") or max(1, 10 * number))  # fixed, or the field would begin anew
                begins.append(two.number_input("Begins after", 1, value=known, key=f"{own}-begins"))
            args = stage.get("args", {}) if stage["name"] == name else {}
            stages.append({"name": name, "args": arguments.fields(LR_STAGES[name].arguments, args, f"{own}-{name}")})
    st.button(
        "Add an LR scheduler",
        key=f"{key}-add",
        icon=":material/add:",
        on_click=listed.add,
        args=(key, {"name": "cosine"}),
    )
    return {"name": SEQUENCE, "of": stages, "milestones": begins}


def groups(
    seeds: Sequence[Mapping[str, Any]], optimizer: str, *, key: str, opened: bool = False
) -> list[dict[str, Any]]:
    """Draw the parameter groups seeded with those of a spec; returns those that the form now holds."""
    with st.expander(
        "Parameter groups", icon=":material/account_tree:", expanded=opened or bool(seeds), key=f"{key}-fold"
    ):
        st.html(markup.small(GROUPS_HELP))
        rows = listed.entries(seeds, key=key)
        values = [_group(seed, at, optimizer, f"{key}-{number}", key) for at, (number, seed) in enumerate(rows)]
        st.button(
            "Add a group", key=f"{key}-add", icon=":material/add:", on_click=listed.add, args=(key, {"names": []})
        )
    return values


def _group(seed: Mapping[str, Any], at: int, optimizer: str, key: str, list_key: str) -> dict[str, Any]:
    with st.container(border=True, key=key):
        listed.head(f"Group {at + 1}", "", at, key=list_key)
        one, two, three = st.columns([3, 2, 1], vertical_alignment="bottom")
        text = ", ".join(seed.get("names", ()))
        names = one.text_input("Names of parameters", text, key=f"{key}-names", placeholder="*.bias, *norm*")
        rate = seed.get("learning_rate")
        text = "" if rate is None else drafts.argument_text(rate)
        typed = two.text_input("Learning rate", text, key=f"{key}-rate", placeholder="as above", help=GROUP_RATE_HELP)
        frozen = three.checkbox("Frozen", bool(seed.get("frozen")), key=f"{key}-frozen")
        group: dict[str, Any] = {"names": drafts.names(names)}
        group |= {"learning_rate": drafts.argument(typed)} if typed.strip() else {}
        if frozen:
            return group | {"frozen": True}
        return group | arguments.fields(OPTIMIZERS[optimizer].arguments, seed, f"{key}-{optimizer}")


def samples_and_precision(
    known: Mapping[str, Any], criterion: str, *, key: str, wrong: Set[str] = frozenset()
) -> dict[str, Any]:
    """Draw sampler, class weights, average and precision; returns their entries, None for an unused one."""
    base = Hyperparameters()
    entries = ("sampler", "class_weights", "ema", "precision")
    wanted = bool(wrong & set(entries)) or any(
        known[entry] and known[entry] != getattr(base, entry) for entry in entries
    )
    with st.expander("Samples, averaging, precision", expanded=wanted, key=f"{key}-fold"):
        sampler = _sampler(known["sampler"] or {}, key=f"{key}-sampler")
        one, two, three = st.columns([1, 1, 2], vertical_alignment="bottom")
        options = list(get_args(Hyperparameters.model_fields["precision"].annotation))
        index = options.index(known["precision"]) if known["precision"] in options else 0
        precision = one.selectbox("Precision", options, index, key=f"{key}-precision", help=PRECISION_HELP)
        decay = (known["ema"] or {}).get("decay")
        text = "" if decay is None else drafts.argument_text(decay)
        ema = two.text_input("Decay of averages", text, key=f"{key}-ema", placeholder="none", help=EMA_HELP)
        weighted = False
        if criterion in CLASSIFICATION or known["class_weights"]:
            weighted = three.checkbox(
                "Weight rare classes more", bool(known["class_weights"]), key=f"{key}-weights", help=WEIGHTS_HELP
            )
    average = {"decay": drafts.argument(ema)} if ema.strip() else None
    values = {"sampler": sampler, "precision": precision, "ema": average}
    return values | {"class_weights": "balanced" if weighted else None}


def _sampler(seed: Mapping[str, Any], *, key: str) -> dict[str, Any] | None:
    known: dict[str, Any] = {"name": NONE, "pad": 0, "window": 50, "input": None} | dict(seed)
    way = frame.segments("Draw", list(SAMPLERS), known["name"], key, lambda one: SAMPLERS[one], help=SAMPLER_HELP)
    if way != "by_length":
        return None if way == NONE else {"name": way}
    one, two, three = st.columns(3)
    pad = one.number_input("Pad", value=known["pad"], key=f"{key}-pad", help=PAD_HELP)
    window = two.number_input("Window (batches)", 1, 1_000_000, known["window"], key=f"{key}-window", help=WINDOW_HELP)
    name = three.text_input("Input of the data", known["input"] or "", key=f"{key}-input", placeholder="the first")
    return {"name": way, "pad": pad, "window": window} | ({"input": name.strip()} if name.strip() else {})
