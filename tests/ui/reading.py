"""What a page shows, as a test reads it."""

import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any

from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button, Selectbox


def html_of(app: AppTest) -> str:
    """Everything that the page wrote as HTML, without its style sheet."""
    bodies = [element.proto.body for element in app.get("html")]
    return "\n".join(body for body in bodies if not body.startswith("<style"))


def text_of(app: AppTest) -> str:
    """The words of that HTML."""
    return words_in(html_of(app))


def words_in(markup: str) -> str:
    """The words of a piece of HTML."""
    reader = _Words()
    reader.feed(markup)
    return " ".join(reader.words)


def downloads(app: AppTest) -> list[tuple[str, str]]:
    """Label and address of each link that downloads."""
    link = re.compile(r'<a class="u-(?:download|link)[^>]* href="([^"]*)".*?<span class="(?:u-unseen)?">([^<]*)</span>')
    return [(name, address) for element in app.get("html") for address, name in link.findall(element.proto.body)]


def opens(app: AppTest) -> list[str]:
    """Keys of the rows that are links, in order."""
    return re.findall(r'data-open="([^"]*)"', html_of(app))


def tags_in(markup: str) -> set[str]:
    """Names of the elements that a piece of HTML makes."""
    reader = _Words()
    reader.feed(markup)
    return reader.tags


def labels(app: AppTest) -> set[str]:
    """Labels of all buttons."""
    return {button.label for button in app.button}


def button(app: AppTest, label: str) -> Button:
    """The first button of this label."""
    return next(button for button in app.button if button.label == label)


def press(app: AppTest, label: str) -> AppTest:
    """Click the first button of this label; fails where the page raised anything."""
    button(app, label).click().run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def option(app: AppTest, label: str, start: str) -> str:
    """The one option of a selectbox that begins so."""
    [found] = [text for text in box(app, label).options if text.startswith(start)]
    return found


def box(app: AppTest, label: str) -> Selectbox:
    """The first selectbox of this label."""
    return next(box for box in app.selectbox if box.label == label)


class _Words(HTMLParser):
    def __init__(self):
        super().__init__()
        self.words: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.words += data.split()


def chart_names(app: AppTest) -> list[str]:
    """Names of the charts that the page sent to the browser."""
    return [chart["name"] for chart in charts(app)]


def charts(app: AppTest) -> list[dict[str, Any]]:
    """The charts that the page sent to the browser."""
    components = app.get("bidi_component")
    boards = [json.loads(zlib.decompress(one.proto.bytes)) for one in components if one.proto.bytes]
    return [chart for board in boards for chart in board["charts"]]
