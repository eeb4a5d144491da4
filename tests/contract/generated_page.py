"""Command line of the scripts that write generated pages of docs."""

import sys
from pathlib import Path


def main(page: Path, text: str) -> int:
    """Write the page with `--write`; without, return 1 if it differs from the text."""
    if "--write" in sys.argv[1:]:
        page.write_text(text, encoding="utf-8")
        return 0
    return int(page.read_text(encoding="utf-8") != text)
