"""`docs/TRANSFORMS.md` says what the table of transforms says."""

import json
import re

from tests.contract import transform_table
from unifiednn_core.data.transforms.table import TRANSFORMS, build
from unifiednn_core.spec.transforms import TransformSpec

WRITE = "docs/TRANSFORMS.md is not what the table says: python -m tests.contract.transform_table --write"


def test_the_page_says_what_the_table_says() -> None:
    assert transform_table.PAGE.read_text(encoding="utf-8") == transform_table.page(), WRITE


def test_the_page_has_a_section_for_every_transform_and_its_example_is_valid() -> None:
    text = transform_table.PAGE.read_text(encoding="utf-8")
    assert TRANSFORMS.keys() <= set(re.findall(r"^## (\w+)$", text, re.MULTILINE))
    [example] = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    entries = json.loads(f"{{{example}}}")["transforms"]
    assert len(build(map(TransformSpec.model_validate, entries))) == 3
