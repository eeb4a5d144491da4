"""Tables of HTML from rows."""

import re

from unifiednn_core.views.markup import table


def cells(html: str, tag: str) -> list[tuple[bool, str]]:
    """Whether each is set to the right, and its content."""
    return [("u-num" in looks, said) for looks, said in re.findall(rf"<{tag}\b([^>]*)>(.*?)</{tag}>", html)]


def test_rows_may_lack_what_others_have_and_numbers_are_set_to_the_right():
    html = table("", [{"a": "<", "b": None}, {"b": 1200, "c": True, "d": 0.5}], {"d": "{:.1%}".format}, right={"a"})
    assert cells(html, "th") == [(True, "a"), (True, "b"), (False, "c"), (True, "d")]
    first, second = cells(html, "td")[:4], cells(html, "td")[4:]
    assert first == [(True, "&lt;"), (True, "-"), (False, "-"), (True, "-")]
    assert second == [(True, "-"), (True, "1,200"), (False, "1"), (True, "50.0%")]


def test_a_table_without_rows_has_no_columns():
    assert cells(table("", []), "th") == []
