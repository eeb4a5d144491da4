"""Writes docs/API.md: `python -m tests.contract.api_page --write`."""

import sys
from pathlib import Path

from tests.contract import generated_page
from unifiednn_core.web.api_page import markdown

PAGE = Path(__file__).parents[2] / "docs" / "API.md"

if __name__ == "__main__":
    sys.exit(generated_page.main(PAGE, markdown()))
