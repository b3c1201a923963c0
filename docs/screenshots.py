"""Take the screenshots of the documentation from real pages; needs playwright and chromium.

`trimtab demo`, then `python docs/screenshots.py trimtab-demo/report.html`: reading-the-report.md.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "images"
WIDTH = 960
# The name of each screenshot, and its first and last element on the page.
SHOTS = {
    "report-headline": ("#headline h2", "#headline .tiles"),
    "report-methods": ("#methods .table >> nth=0", "#methods .table >> nth=0"),
    "report-parts": ("#parts .table >> nth=0", "#parts .table >> nth=0"),
    "report-moved": ("#moved .panels >> nth=2", "#moved .panels >> nth=2"),
}
MARGIN = 12


def main(page: Path) -> None:
    """Write every screenshot."""
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page(
            viewport={"width": WIDTH, "height": 900}, color_scheme="light", device_scale_factor=1.2
        )
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-charts=drawn]")
        tab.click("#unfold")
        tab.evaluate("scrollTo(0, 0)")  # boxes are measured from the top of the screen
        for name, (first, last) in SHOTS.items():
            boxes = [tab.locator(place).bounding_box() for place in (first, last)]
            top, bottom = boxes[0], boxes[1]
            assert top is not None
            assert bottom is not None
            height = bottom["y"] + bottom["height"] - top["y"]
            clip = {
                "x": 0, "y": top["y"] - MARGIN, "width": WIDTH, "height": height + 2 * MARGIN
            }  # fmt: skip
            tab.screenshot(path=FOLDER / f"{name}.png", clip=clip, full_page=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
