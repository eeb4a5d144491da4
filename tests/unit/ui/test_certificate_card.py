from html.parser import HTMLParser

from pages._ui.certificate_card import card
from tests.ui.fake_views import certificate
from unifiednn_core.base.texts import speak


class Tags(HTMLParser):
    def __init__(self, html: str):
        super().__init__()
        self.names: list[str] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_card_says_whether_it_holds_and_what_was_compared() -> None:
    speak("en")
    held, broken = (Tags(card(certificate("lenet", holds=holds))) for holds in (True, False))
    assert "computes exactly what the hybrid computed" in held.words and "differs" not in held.words
    assert "is not what the hybrid trained" in broken.words and "Outputs: differs." in broken.words
    assert 'torch.export.load("lenet.eval.pt2")' in held.words
    assert "<details" in card(certificate("lenet")) and " open" not in card(certificate("lenet")).partition("style")[0]
    assert " open" in card(certificate("lenet", holds=False)).partition("style")[0]


def test_nothing_in_a_certificate_is_markup() -> None:
    evil = '<img src=x onerror="alert(1)">\u202e'
    hostile = certificate("lenet").model_copy(
        update={"submodel": evil, "model": evil, "snippet": evil, "versions": {evil: evil}, "files": {evil: evil}}
    )
    checks = tuple(one.model_copy(update={"text": evil}) for one in hostile.compared)
    seen = Tags(card(hostile.model_copy(update={"compared": checks})))
    assert "img" not in seen.names and "\u202e" not in seen.words and "<img" in seen.words
