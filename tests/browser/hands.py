"""The dashboard used by keyboard alone: things are found by role and name."""

import re
from pathlib import Path
from typing import Literal

from playwright.sync_api import Download, FileChooser, Locator, Page, expect

Role = Literal["button", "link", "tab", "radio", "textbox", "spinbutton", "combobox"]
PATIENCE_MS = 30_000
MOST_TABS = 200
LOOK = """node => {
  const seen = [node, node.parentElement, node.parentElement?.parentElement];
  const label = node.closest('label');
  if (label) seen.push(label, ...label.querySelectorAll('*'));
  return seen.filter(Boolean).map(one => {
    const { outlineStyle, outlineWidth, outlineColor, boxShadow, borderColor } = getComputedStyle(one);
    return [outlineStyle === 'none' ? '' : outlineWidth + outlineColor, boxShadow, borderColor].join();
  }).join(';');
}"""
"""What a ring or outline would change, of an element and of what is around it."""
WITHOUT_FOCUS = f"""node => {{
  const had = node === document.activeElement;
  if (had) node.blur();
  const look = ({LOOK})(node);
  if (had) node.focus();
  return look;
}}"""


def found(page: Page, role: Role, name: str, within: str = "body") -> Locator:
    """What has this role and a name that begins so; icons before a name are skipped."""
    return page.locator(within).first.get_by_role(role, name=re.compile(rf"^\s*(\w+ icon )?{re.escape(name)}")).first


class Keyboard:
    """Never points: Tab, arrows, Space, Enter, Escape and letters alone. All that it reaches must show it."""

    def __init__(self, page: Page):
        self.page = page

    def press(self, role: Role, name: str, *, within: str = "body") -> None:
        """Press what has this role and a name that begins so, once it can be pressed."""
        self.reach(found(self.page, role, name, within))
        self.key("Enter")

    def write(self, role: Role, name: str, text: str, *, within: str = "body") -> None:
        """Replace what a field holds."""
        self.reach(found(self.page, role, name, within))
        self.key("Control+a")
        self.page.keyboard.type(text)
        self.key("Enter")

    def choose(self, name: str, option: str) -> None:
        """Choose the first option that begins so, in a field that is not empty to a list."""
        self.reach(self.page.get_by_role("combobox", name=name).first)
        self.page.keyboard.type(option)
        expect(self.page.get_by_role("option", name=option).first).to_be_visible(timeout=PATIENCE_MS)
        self.key("ArrowDown")
        self.key("Enter")

    def pick(self, group: str, option: str) -> None:
        """Pick one of few that stand side by side."""
        radios = self.page.get_by_role("radiogroup", name=group).get_by_role("radio")
        wanted = self.page.get_by_role("radiogroup", name=group).get_by_role("radio", name=option)
        self.reach(radios.and_(self.page.locator("[tabindex='0']")).first)
        for _ in range(radios.count()):
            if has_focus(wanted):
                break
            self.key("ArrowRight")
        self.key("Space")

    def send(self, files: list[Path], *, within: str = "body") -> None:
        """Send files by the first place for them."""
        choosers: list[FileChooser] = []
        self.page.once("filechooser", lambda chooser: choosers.append(chooser))
        place = self.page.locator(within).locator("input[type=file]").first
        for _ in range(10):
            self.reach(place)
            self.key("Enter")
            self.page.wait_for_timeout(300)
            if choosers:
                break
        choosers[0].set_files(files)

    def take(self, role: Role, name: str) -> Download:
        """Download by what has this name."""
        with self.page.expect_download() as caught:
            self.press(role, name)
        return caught.value

    def close(self) -> None:
        """Close the dialog that is open."""
        self.key("Escape")

    def key(self, name: str) -> None:
        self.page.keyboard.press(name)

    def reach(self, target: Locator) -> None:
        """Press Tab until something has the focus; fails where nothing shows that it has."""
        expect(target).to_be_enabled(timeout=PATIENCE_MS)
        before = target.evaluate(WITHOUT_FOCUS)
        for _ in range(MOST_TABS):
            if has_focus(target):
                break
            self.key("Tab")
        else:
            raise AssertionError(f"Tab never reaches {target}; the focus is at {focused(self.page)}")
        for _ in range(20):  # it may be faded in
            if target.evaluate(LOOK) != before:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"nothing shows that this has the focus: {focused(self.page)}")


def has_focus(target: Locator) -> bool:
    """Whether a thing has the focus of the keyboard."""
    return bool(target.evaluate("node => node === document.activeElement"))


def focused(page: Page) -> str:
    """The start of what has the focus."""
    return str(page.evaluate("document.activeElement.outerHTML.slice(0, 300)"))
