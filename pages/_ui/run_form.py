"""The settings of a draft: name, policy with its parameters, device, profile, and how it recovers."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import arms, drafts, frame
from unifiednn_core.base.units import MIB
from unifiednn_core.spec.run import BASELINES, MOST_LANES, CheckpointSpec, Mode, RunSpec
from unifiednn_core.views import markup, wording

SECTION = "part-settings"
"""Id of the heading."""
DEVICES = ("auto", "cpu", "cuda")
BEFORE, AFTER = "before", "after"
RECOVERY_DEFAULTS: drafts.Document = {
    "checkpoint": CheckpointSpec().model_dump(exclude_none=True),
    **{name: RunSpec.model_fields[name].default for name in ("recovery", "step_limit_s")},
}
THREADS_HELP = "CPU threads of one step. Equal bits need equal threads."
LANES_HELP = "Most sub-models that step at once, while memory allows it and it is faster. No bits depend on it."
_AGAIN = "settings-again"
"""Entry that counts how often the settings began anew: a fresh number gives fresh fields."""
PROFILES = ("exact", "fast")
PROFILE_HELP = (
    "exact gives the bits of the plain loop. fast rounds differently: equal networks may train fused, a GPU uses TF32, "
    "and sub-models may have a lower precision."
)
MEMORY_HELP = "Most memory that the run may use on its device. Empty means all of it."
EVERY_HELP = "How often a checkpoint is written. A crash costs at most this much training, which is then repeated."
STEPS_HELP = "Steps of the run, all sub-models together. With both periods, the first to pass counts."
LIMIT_HELP = "A longer step counts as endless: its sub-model fails and the others continue."
RECOVERY = {"auto": "Restart by itself", "ask": "Wait for me"}


def restart() -> None:
    """Let the settings begin anew with those of the draft."""
    st.session_state[_AGAIN] = st.session_state.get(_AGAIN, 0) + 1


def name_key() -> str:
    """Key of a field that is always drawn."""
    return _key("run-name")


def _key(name: str) -> str:
    again = st.session_state.get(_AGAIN, 0)
    return f"{name}-{again}" if again else name


def settings(draft: Mapping[str, Any]) -> drafts.Document:
    """Draw the settings seeded with the draft; returns the entries that they now hold."""
    st.html(markup.section("Run", place=SECTION))
    name = st.text_input("Name of the run", draft.get("name", ""), max_chars=100, key=_key("run-name"))
    chosen = policy(draft.get("policy") or {}, key=_key("policy"))
    one, two, three, four = st.columns(4)
    known = str(draft.get("device", "auto"))
    devices = list(dict.fromkeys((*DEVICES, known)))
    tip = "auto takes the GPU if there is one."
    device = one.selectbox("Device", devices, index=devices.index(known), key=_key("run-device"), help=tip)
    seed = two.number_input("Seed", 0, value=int(draft.get("seed", 0)), key=_key("run-seed"))
    threads = three.number_input(
        "Threads", 1, 1024, draft.get("threads"), key=_key("run-threads"), placeholder="auto", help=THREADS_HELP
    )
    limits = ["auto", *range(1, MOST_LANES + 1)]
    lanes = four.selectbox(
        "Lanes", limits, limits.index(draft.get("lanes", "auto")), key=_key("run-lanes"), help=LANES_HELP
    )
    entries: dict[str, Any] = {"name": name, "policy": chosen, "device": device, "seed": seed}
    if lanes != "auto" or "lanes" in draft:
        entries["lanes"] = lanes
    if threads is not None or "threads" in draft:
        entries["threads"] = threads
    chosen_profile = profile(str(draft.get("profile", PROFILES[0])), key=_key("run-profile"))
    if chosen_profile != PROFILES[0] or "profile" in draft:
        entries["profile"] = chosen_profile
    return entries | _memory_limit(draft) | _baselines(draft) | _recovery(draft)


def profile(known: str, *, key: str) -> str:
    """Draw the choice of the profile, and return it."""
    return frame.segments("Profile", PROFILES, known if known in PROFILES else PROFILES[0], key, help=PROFILE_HELP)


def _memory_limit(draft: Mapping[str, Any]) -> drafts.Document:
    known = draft.get("memory_limit_bytes")
    shown = None if known is None else max(1, round(known / MIB))
    typed = st.number_input(
        "Memory limit (MiB)", 1, value=shown, key=_key("run-memory-limit"), placeholder="none", help=MEMORY_HELP
    )
    if typed is None:
        return {"memory_limit_bytes": None} if "memory_limit_bytes" in draft else {}
    # A limit to the byte stays as it is until another number is typed.
    return {"memory_limit_bytes": known if typed == shown else typed * MIB}


def by_priority(policy: Mapping[str, Any]) -> bool:
    """Whether a policy looks at priorities."""
    card = next((card for card in frame.service().runs.policies() if card.name == policy.get("name")), None)
    return card is None or card.by_priority


def policy(seed: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """Draw the choice of a policy with its parameters, seeded with one; returns the one that it now says."""
    cards = {card.name: card for card in frame.service().runs.policies()}
    known = str(seed.get("name") if seed.get("name") in cards else next(iter(cards)))
    label = "Policy: which sub-model trains next"
    card = cards[frame.segments(label, list(cards), known, f"{key}-name", wording.title)]
    st.html(markup.small(card.summary))
    values: dict[str, Any] = {"name": card.name}
    for column, parameter in zip(st.columns(max(2, len(card.parameters))), card.parameters, strict=False):
        value = seed.get(parameter.name, parameter.default) if card.name == seed.get("name") else parameter.default
        field, plain = f"{key}-{card.name}-{parameter.name}", parameter.name.removesuffix("_s")
        label = plain.replace("_", " ").capitalize() + (" (s)" if plain != parameter.name else "")
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
    """Draw the choice; returns its entries that the draft has already or that differ from none."""
    known, first = plan(draft)
    names, chosen = list(arms.CHOICES), arms.choice_of(known)
    modes = arms.CHOICES[
        frame.segments("Run the baseline too", names, chosen, _key("run-baselines"), help=arms.CHOICE_HELP)
    ]
    if modes:
        when, key = BEFORE if first else AFTER, _key("run-baselines-when")
        first = (
            frame.segments("Before or after the hybrid", [BEFORE, AFTER], when, key, lambda one: one.capitalize())
            == BEFORE
        )
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
    every_s, limit_s = None if every_s is None else float(every_s), float(known["step_limit_s"])
    with st.expander("Recovery", icon=":material/history:", key=_key("run-recovery")):
        one, two = st.columns(2)
        seconds = one.number_input(
            "Checkpoint every (s)", 0.0, None, every_s, 10.0, "%g", _key("run-every-s"), EVERY_HELP, placeholder="never"
        )
        steps = two.number_input(
            "or every (steps)", 0, value=every_steps, key=_key("run-every-steps"), placeholder="never", help=STEPS_HELP
        )
        ways, title = list(RECOVERY), lambda one: RECOVERY[one]
        recovery = frame.segments("After a crash", ways, known["recovery"], _key("run-after-crash"), title)
        limit_s = st.number_input(
            "Longest step (s)", 0.0, None, limit_s, 60.0, "%g", _key("run-step-limit"), LIMIT_HELP
        )
    checkpoint = {"every_s": seconds} | ({} if steps is None else {"every_steps": steps})
    now = {"checkpoint": checkpoint, "recovery": recovery, "step_limit_s": limit_s}
    return {entry: value for entry, value in now.items() if entry in draft or value != RECOVERY_DEFAULTS[entry]}
