"""What to do with a file that is a program: pack the network on its owner's machine, or convert it in the sandbox."""

import os

SANDBOX_SETTING = "UNIFIEDNN_SANDBOX"
PACK = "On your own machine, run `unifiednn pack your_module.py:make_network`, and hand in the .pt2 file."


def sandbox_is_on() -> bool:
    """Whether whoever runs this installation lets foreign code be run, behind walls; off by default."""
    return os.environ.get(SANDBOX_SETTING, "").strip().lower() in ("on", "1", "true", "yes")


def pack_or_convert(options: str = "") -> str:
    """The way to a `.pt2`; `options` are what `unifiednn convert` needs beside the file and its input shape."""
    if not sandbox_is_on():
        return PACK
    command = " ".join(filter(None, ("unifiednn convert FILE --input SHAPE", options)))
    return f"{PACK} Or convert it in the sandbox of this installation: `{command}`."
