"""The settings of a draft: name, policy with its parameters, device, seed, threads, memory, baselines, recovery."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import arm_words, baseline_form, drafts, frame, markup, recovery_form, wording
from unifiednn_core.units import MIB

DEVICES = ("auto", "cpu", "cuda")


def settings(draft: Mapping[str, Any]) -> drafts.Document:
    """Draw the settings seeded with the draft; returns the entries that they now hold."""
    st.html(markup.section("Run"))
    name = st.text_input("Name of the run", draft.get("name", ""), max_chars=100, key="run-name")
    chosen = policy(draft.get("policy") or {}, key="policy")
    one, two, three = st.columns(3)
    known = str(draft.get("device", "auto"))
    devices = [*DEVICES, *([] if known in DEVICES else [known])]
    device = one.selectbox(
        "Device", devices, index=devices.index(known), key="run-device", help="auto takes the GPU where there is one."
    )
    seed = two.number_input("Seed", 0, value=int(draft.get("seed", 0)), key="run-seed")
    threads = three.number_input(
        "Threads",
        1,
        1024,
        value=draft.get("threads"),
        key="run-threads",
        placeholder="auto",
        help="CPU threads of one step. Equal bits need equal threads.",
    )
    entries: dict[str, Any] = {"name": name, "policy": chosen, "device": device, "seed": int(seed)}
    if threads is not None or "threads" in draft:
        entries["threads"] = None if threads is None else int(threads)
    return entries | _memory_limit(draft) | baseline_form.choice(draft) | recovery_form.settings(draft)


def _memory_limit(draft: Mapping[str, Any]) -> drafts.Document:
    known = draft.get("memory_limit_bytes")
    typed = st.number_input(
        "Memory limit (MiB)",
        1,
        value=None if known is None else max(1, round(known / MIB)),
        key="run-memory-limit",
        placeholder="none",
        help=arm_words.MEMORY_LIMIT_HELP,
    )
    if typed is None:
        return {"memory_limit_bytes": None} if "memory_limit_bytes" in draft else {}
    # What was asked for to the byte stays so, unless another number is typed.
    same = known is not None and int(typed) == max(1, round(known / MIB))
    return {"memory_limit_bytes": known if same else int(typed) * MIB}


def policy(seed: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """Draw the choice of a policy with its parameters, seeded with one; returns the one that it now says."""
    cards = {card.name: card for card in frame.service().policies()}
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
            typed = drafts.argument(
                column.text_input(label, drafts.argument_text(value), key=field, help=parameter.valid)
            )
        if typed != parameter.default:
            values[parameter.name] = typed
    return values
