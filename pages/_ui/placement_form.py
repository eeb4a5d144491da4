"""The placement of a sub-model: on how many devices its network runs, and what each may need."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from unifiednn_core.spec.placement import MOST_DEVICES, PLAN
from unifiednn_core.views import markup

HELP = (
    "Lets each operator of the network run on one of several devices, none of which needs more than its limit. The "
    "check decides where, and shows it. The bits stay the same. Logical devices share the memory of the run's device."
)
CLAIM_HELP = "The run holds so many devices of one kind, such as GPUs, while it trains, and waits until they are free."
CAP_HELP = "For weights, gradients, optimizer state and activations. One number for all, or one for each with commas."


def placement(seed: Mapping[str, Any], *, key: str) -> dict[str, Any] | None:
    """Draw the form seeded with a placement; returns the one that it now says, None for none."""
    with st.expander("Several devices", icon=":material/account_tree:", expanded=bool(seed)):
        st.html(markup.small(HELP))
        one, two = st.columns([1, 2], vertical_alignment="bottom")
        devices = one.number_input("Devices", 1, MOST_DEVICES, seed.get("devices", 1), key=f"{key}-devices")
        typed = two.text_input(
            "Limit of each device (MiB)",
            _text(seed.get("cap_mib")),
            key=f"{key}-cap",
            help=CAP_HELP,
            placeholder="none",
            disabled=devices == 1,
        )
        own = st.checkbox(
            "Devices of its own", seed.get("claim", False), key=f"{key}-claim", help=CLAIM_HELP, disabled=devices == 1
        )
    if devices == 1 and seed.get("devices") != 1:
        return None
    cap = _caps(typed)
    said: dict[str, Any] = {"devices": devices} | ({} if cap is None else {"cap_mib": cap})
    said |= {"claim": own} if own or "claim" in seed else {}
    same = (devices, cap) == (seed.get("devices"), seed.get("cap_mib"))
    return said | ({PLAN: seed[PLAN]} if same and PLAN in seed else {})


def _text(cap: Any) -> str:
    known = cap if isinstance(cap, list) else [] if cap is None else [cap]
    return ", ".join(f"{one:g}" if isinstance(one, float | int) else str(one) for one in known)


def _caps(typed: str) -> Any:
    """The numbers, or what was typed where it is none: the check of the spec says so."""
    try:
        caps = [float(one) for one in typed.split(",") if one.strip()]
    except ValueError:
        return typed
    return None if not caps else caps[0] if len(caps) == 1 else caps
