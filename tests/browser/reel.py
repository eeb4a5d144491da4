"""A short film of a page, as a GIF."""

from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Locator, Page

SHOWN = (960, 640)
COLOURS = 160
POINTER, RING = "#2b5fd9", 15
STILL = """() => {
  const main = document.querySelector('[data-testid=stMainBlockContainer]'), now = performance.now();
  const height = main && !main.querySelector('[data-testid=stSkeleton], .u-busy') ? main.scrollHeight : -1;
  const seen = window.lastSeen?.height === height ? window.lastSeen : (window.lastSeen = {height, since: now});
  return height > 0 && now - seen.since > 900;
}"""
"""Whether the page has had one height for a while."""


def settled(page: Page) -> None:
    """Wait until all that the page draws at first is there."""
    page.wait_for_function(STILL, timeout=60_000)


class Reel:
    """Frames of one page, each with the milliseconds for which it is shown."""

    WIDTH, HEIGHT = 1280, 853

    def __init__(self, page: Page):
        self._page = page
        self._frames: list[tuple[Image.Image, int]] = []
        self._taken: list[Image.Image] = []

    def keep(self, shown_ms: int, on: Locator | None = None) -> None:
        """Add what is in view, with a ring where the pointer presses `on`."""
        self._frames.append((self._look(on), shown_ms))

    def take(self) -> None:
        """Take a frame of what moves; `thin` says how many of them stay."""
        self._taken.append(self._look())

    def thin(self, to: int, each_ms: int) -> None:
        """Add at most `to` of the frames that were taken, evenly apart, the last one among them."""
        count = min(to, len(self._taken))
        chosen = [self._taken[(at + 1) * len(self._taken) // count - 1] for at in range(count)]
        self._frames += [(frame, each_ms) for frame in chosen]
        self._taken.clear()

    def write(self, path: Path) -> None:
        """Write all frames; only what changed is stored of each."""
        # One palette of all, so that nothing flickers between frames.
        sheet = Image.new("RGB", (SHOWN[0], SHOWN[1] * len(self._frames)))
        for at, (frame, _) in enumerate(self._frames):
            sheet.paste(frame, (0, SHOWN[1] * at))
        palette = sheet.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
        first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame, _ in self._frames]
        durations = [shown_ms for _, shown_ms in self._frames]
        first.save(path, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)

    def _look(self, on: Locator | None = None) -> Image.Image:
        shown = Image.open(BytesIO(self._page.screenshot())).convert("RGB")
        box = None if on is None else on.bounding_box()
        if box is not None:
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            ImageDraw.Draw(shown).ellipse((x - RING, y - RING, x + RING, y + RING), outline=POINTER, width=4)
        return shown.resize(SHOWN, Image.Resampling.LANCZOS)
