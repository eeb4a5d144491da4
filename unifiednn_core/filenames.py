"""Names of files as strangers give them."""

import re
import unicodedata

from unifiednn_core.errors import BadInput

LONGEST = 160


def plain_name(given: str) -> str:
    """Reduce a name to its last part without anything that hides or moves: folders, control and direction marks.

    Raises `BadInput` where nothing is left.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", given))[-1]
    shown = "".join(sign for sign in last if unicodedata.category(sign)[0] != "C").strip(" .")
    if not shown:
        raise BadInput.of(
            "Name", field="filename", message="This file has no name.", remedy="Give it one, such as model.pt2."
        )
    stem, dot, suffix = shown.rpartition(".")
    return shown if len(shown) <= LONGEST else f"{stem[: LONGEST - len(suffix) - 1]}{dot}{suffix}"[:LONGEST]
