"""The settings of a draft: name, policy with its parameters, device, seed, threads, memory, baselines, recovery."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import arm_words, drafts, frame, markup, wording
from unifiednn_core.base.units import MIB
from unifiednn_core.spec.run import BASELINES, CheckpointSpec, Mode, RunSpec

DEVICE_HELP = "auto takes the GPU where there is one."
THREADS_HELP = "CPU threads of one step. Equal bits need equal threads."
DEVICES = ("auto", "cpu", "cuda")
BEFORE, AFTER = "before", "after"
RECOVERY_DEFAULTS: drafts.Document = {
    "checkpoint": CheckpointSpec().model_dump(exclude_none=True),
    "recovery": RunSpec.model_fields["recovery"].default,
    "step_limit_s": RunSpec.model_fields["step_limit_s"].default,
}


def settings(draft: Mapping[str, Any]) -> drafts.Document:
    """Draw the settings seeded with the draft; returns the entries that they now hold."""
    st.html(markup.section("Run"))
    name = st.text_input("Name of the run", draft.get("name", ""), max_chars=100, key="run-name")
    chosen = policy(draft.get("policy") or {}, key="policy")
    one, two, three = st.columns(3)
    known = str(draft.get("device", "auto"))
    devices = [*DEVICES, *([] if known in DEVICES else [known])]
    device = one.selectbox("Device", devices, index=devices.index(known), key="run-device", help=DEVICE_HELP)
    seed = two.number_input("Seed", 0, value=int(draft.get("seed", 0)), key="run-seed")
    threads = three.number_input(
        "Threads", 1, 1024, draft.get("threads"), key="run-threads", placeholder="auto", help=THREADS_HELP
    )
    entries: dict[str, Any] = {"name": name, "policy": chosen, "device": device, "seed": seed}
    if threads is not None or "threads" in draft:
        entries["threads"] = threads
    return entries | _memory_limit(draft) | _baselines(draft) | _recovery(draft)


def _memory_limit(draft: Mapping[str, Any]) -> drafts.Document:
    known = draft.get("memory_limit_bytes")
    shown = None if known is None else max(1, round(known / MIB))
    tip = "Most memory that the run may use on its device. Empty means all of it."
    typed = st.number_input("Memory limit (MiB)", 1, value=shown, key="run-memory-limit", placeholder="none", help=tip)
    if typed is None:
        return {"memory_limit_bytes": None} if "memory_limit_bytes" in draft else {}
    # What was asked for to the byte stays so, unless another number is typed.
    return {"memory_limit_bytes": known if typed == shown else typed * MIB}


def policy(seed: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """Draw the choice of a policy with its parameters, seeded with one; returns the one that it now says."""
    cards = {card.name: card for card in frame.service().runs.policies()}
    known = seed.get("name") if seed.get("name") in cards else next(iter(cards))
    chosen = st.segmented_control(
        "Policy: which sub-model trains next",
        list(cards),
        default=known,
        required=True,
        format_func=wording.policy_title,
        key=f"{key}-name",
    )
    card = cards[chosen or str(known)]
    st.html(markup.small(card.summary))
    values: dict[str, Any] = {"name": card.name}
    for column, parameter in zip(st.columns(max(2, len(card.parameters))), card.parameters, strict=False):
        value = seed.get(parameter.name, parameter.default) if card.name == seed.get("name") else parameter.default
        field, label = f"{key}-{card.name}-{parameter.name}", parameter.name.replace("_", " ").capitalize()
        if parameter.choices:
            options = list(parameter.choices)
            index = options.index(value) if value in options else 0
            typed: object = column.selectbox(label, options, index=index, key=field)
        else:
            text = column.text_input(label, drafts.argument_text(value), key=field, help=parameter.valid)
            typed = drafts.argument(text)
        if typed != parameter.default:
            values[parameter.name] = typed
    return values


def _baselines(draft: Mapping[str, Any]) -> drafts.Document:
    """Draw the choice; returns the entries that it needs, those of the draft or what differs from none."""
    known, first = plan(draft)
    name = st.segmented_control(
        "Run the baseline too",
        list(arm_words.CHOICES),
        default=arm_words.choice_of(known),
        required=True,
        key="run-baselines",
        help=arm_words.CHOICE_HELP,
    )
    modes = arm_words.CHOICES[name]
    if modes:
        when = st.segmented_control(
            "Before or after the hybrid",
            [BEFORE, AFTER],
            default=BEFORE if first else AFTER,
            required=True,
            format_func=str.capitalize,
            key="run-baselines-when",
        )
        first = when == BEFORE
    now = {"baselines": list(modes), "baselines_first": bool(first and modes)}
    return {entry: value for entry, value in now.items() if entry in draft or value}


def plan(draft: Mapping[str, Any]) -> tuple[tuple[Mode, ...], bool]:
    """Baselines that a draft asks for, and whether they run first."""
    asked = draft.get("baselines", ())
    return tuple(mode for mode in BASELINES if mode in asked), bool(draft.get("baselines_first"))


def _recovery(draft: Mapping[str, Any]) -> drafts.Document:
    """Draw the settings, folded away; returns those that the draft has already or that differ from the defaults."""
    known = RECOVERY_DEFAULTS | dict(draft)
    every_s, every_steps = (known["checkpoint"].get(entry) for entry in ("every_s", "every_steps"))
    with st.expander("Recovery", icon=":material/history:", key="run-recovery"):
        one, two = st.columns(2)
        seconds = one.number_input(
            "Keep progress every (s)",
            0.0,
            value=None if every_s is None else float(every_s),
            step=10.0,
            format="%g",
            key="run-every-s",
            placeholder="never",
            help=wording.CHECKPOINT_HELP,
        )
        steps = two.number_input(
            "or every (steps)",
            0,
            value=every_steps,
            key="run-every-steps",
            placeholder="never",
            help=wording.STEPS_HELP,
        )
        recovery = st.segmented_control(
            "After a crash",
            list(wording.RECOVERY),
            default=known["recovery"],
            required=True,
            format_func=wording.RECOVERY.__getitem__,
            key="run-after-crash",
        )
        limit_s = st.number_input(
            "Longest step (s)",
            0.0,
            value=float(known["step_limit_s"]),
            step=60.0,
            format="%g",
            key="run-step-limit",
            help=wording.STEP_LIMIT_HELP,
        )
    checkpoint = {"every_s": seconds} | ({} if steps is None else {"every_steps": steps})
    now = {"checkpoint": checkpoint, "recovery": recovery, "step_limit_s": limit_s}
    return {entry: value for entry, value in now.items() if entry in draft or value != RECOVERY_DEFAULTS[entry]}
