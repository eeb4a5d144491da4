"""Names that strangers gave, in a real browser: on every page they are text, and nothing but text."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.hostile.names import NAMES
from tests.hostile.signed import COOKIE, SignedHouse, signed_house
from tests.hostile.test_names import data_set
from tests.ui import fake_arms, fake_views
from tests.ui.seed import Seeded
from unifiednn_core.base.paths import Home
from unifiednn_core.base.visible import visible
from unifiednn_core.preflight.report import CertificateCheck
from unifiednn_core.views.figures.layout import as_label

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(200)]
ALL = " | ".join(name for name in NAMES if "\udce9" not in name and len(name) < 200)
"""For texts that may be long. The store takes no half of a character, and is tried without one."""
FIRST = [f"{start} {ALL}" for start in ("# head", "> quote", "- item", "1. one", ":material/skull:")]
ADMIN = "ada@example.org"
THERE = """texts => {
  const all = document.body.textContent.replaceAll('\\u2060', '').replace(/\\s+/g, ' ');
  return texts.some(text => all.includes(text));
}"""
# What a name could have made: an element that obeys, loads, links or draws.
MADE = """() => [...document.querySelectorAll('*')].filter(node =>
  node.getAttributeNames().some(name => /^on/i.test(name)
    || (/^(href|src|srcset|action|formaction|data|style|xlink:href|background)$/i.test(name)
        && /evil|javascript:/i.test(node.getAttribute(name))))
  || /skull/.test(node.getAttribute('aria-label') || '') && node.matches('[role=img]')
  || node.matches('iframe, object, embed, form[action], .katex, .stMarkdownBadge')
  || node.matches('img') && !/^(data:image\\/(png|svg)|http:\\/\\/127)/.test(node.src)
).map(node => node.outerHTML.slice(0, 300))"""


@pytest.fixture
def house(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[SignedHouse]:
    seeded = Seeded(home, monkeypatch)
    train = fake_views.mid_flight()
    hurt = {"cause": ALL, "remedy": ALL}
    first, *others = train.submodels
    checked = CertificateCheck(what="weights", outcome="differs", text=ALL)
    untrue = fake_arms.certificate(first.name, holds=False, compared=(checked,), snippet=ALL, versions={"torch": ALL})
    train = replace(train, submodels=(replace(first, certificate=untrue), *others))
    home.log("r-live").parent.mkdir(parents=True, exist_ok=True)
    home.log("r-live").write_text("\n".join(map(visible, NAMES)), encoding="utf-8")
    # A beat in the future stays fresh, however long the pages take.
    seeded.listed = [
        replace(
            train,
            name=FIRST[0],
            now_reason=ALL,
            heartbeat_age_s=-600.0,
            events=tuple(replace(event, message=ALL, code="", fields={}) for event in train.events),
        ),
        replace(fake_views.interrupted(), name=FIRST[1], **hurt),
        replace(fake_views.failed(), name=FIRST[2], **hurt),
        replace(fake_arms.hybrid(), name=FIRST[3], memory_notes=(ALL,)),
        replace(fake_arms.baseline("concurrent"), name=FIRST[4]),
    ]
    short = ALL[:140]
    seeded.held = [
        replace(fake_views.library()[0], filename=f"{short}.pt2", facts={"parameters": 1, "optimizer": ALL}),
        replace(data_set(f" {short}"), filename=f"{short}.csv"),
    ]
    seeded.store.library.save_draft("d-1", {"name": f"draft {ALL}", "submodels": []}, ADMIN)
    seeded.people.give_role(f"sub:{ALL}", "viewer")
    seeded.people.create_token(f"sub:{ALL}", "viewer", 1)
    seeded.close()
    with signed_house(home, {"bosses": "admin"}) as house:
        yield house


def test_a_name_makes_no_element_on_any_page(house: SignedHouse, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    signed = house.cookie(ADMIN, groups=["bosses"], name=ALL[:140])
    context.add_cookies([{"name": COOKIE, "value": signed, "url": house.origin}])
    page, asked, troubles = context.new_page(), list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))

    def shows(*texts: str) -> None:
        """Everything is there, literally, and made nothing."""
        for text in texts:
            # HTML shows line ends as the blanks that they are there, labels show their escapes.
            wanted = [" ".join(visible(text, keep).split()) for keep in ("", "\t\n\r")]
            page.wait_for_function(THERE, arg=wanted)
        assert page.evaluate(MADE) == []
        assert page.evaluate("() => window.evil") is None

    def opened(path: str, *texts: str) -> None:
        page.goto(f"{house.origin}/{path}")
        shows(*texts)

    opened("", *FIRST, ALL, f"{ALL[:140]}, admin", f"draft {ALL}")
    page.get_by_role("button", name="Stop", exact=True).first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    shows(FIRST[0])
    page.get_by_role("button", name="Discard…").click()
    expect(page.get_by_label("Type its name to confirm")).to_be_visible()
    shows(f"Type its name to confirm: {FIRST[0]}")
    opened("run?run=r-live", FIRST[0], ALL)
    page.get_by_role("tab", name="Logs").click()
    shows(*(name for name in NAMES if not set(name) & set("\t\n\udce9")))
    page.get_by_role("tab", name="Models").click()
    shows(f"torch {ALL}")
    page.get_by_role("button", name="Adjust").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    shows(f"Adjust {FIRST[0]}")
    labels_are_text(page)
    opened("run?run=r-failed", FIRST[2], ALL)
    opened("compare?run=r-hybrid", FIRST[3])
    opened("compare?runs=r-live,r-failed", FIRST[0], FIRST[2])
    opened("queue", FIRST[0])
    opened("library", f"{ALL[:140]}.pt2")
    page.get_by_role("tab", name="Data").click()
    shows(f"{ALL[:140]}.csv", f"cat {ALL[:140]}")
    opened("people", f"sub:{ALL}")
    for tab in ("Tokens", "Audit log"):
        page.get_by_role("tab", name=tab).click()
        shows(f"sub:{ALL}")
    assert [url for url in asked if not url.startswith((house.origin, "data:", "blob:"))] == []
    assert troubles == [] and "Traceback" not in (house.server.home.root / "server.log").read_text()
    context.close()


def labels_are_text(page: Page) -> None:
    """Plotly itself, with every name as title, legend, tick and hover text."""
    names = [as_label(name) for name in NAMES if len(name) < 200]
    page.wait_for_function("() => window.Plotly")
    drawn = page.evaluate(
        """async names => {
          const read = [];
          for (const name of names) {
            const node = document.body.appendChild(document.createElement('div'));
            const trace = {type: 'bar', x: [1, 2], y: [name, 'b'], name, orientation: 'h'};
            await Plotly.newPlot(node, [trace], {showlegend: true, title: {text: name}});
            const texts = ['.gtitle', '.legendtext', '.ytick text'].map(one => node.querySelector(one)?.textContent);
            read.push([texts, node.querySelectorAll('text a, image, script, tspan[style]').length]);
            node.remove();
          }
          return read;
        }""",
        names,
    )
    for name, (texts, made) in zip([name for name in NAMES if len(name) < 200], drawn, strict=True):
        shown = " ".join(visible(name).split())
        assert made == 0 and {" ".join(text.split()) for text in texts if text} <= {shown}, (name, texts)
