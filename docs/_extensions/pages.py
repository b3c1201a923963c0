"""Pictures for dark and small screens, and percentages that do not break across lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class DarkPictures(SphinxTransform):
    """Shows name-dark.svg instead of name.svg on dark screens, if it exists."""

    default_priority = 200

    def apply(self, **_: Any) -> None:
        """Insert the dark picture after the light one."""
        folder = Path(self.document["source"]).parent
        for light in list(self.document.findall(nodes.image)):
            place = Path(light["uri"])
            twin = place.with_name(f"{place.stem}-dark{place.suffix}")
            if (folder / twin).exists():
                dark = light.deepcopy()
                dark["uri"] = twin.as_posix()
                dark["classes"].append("only-dark")
                light["classes"].append("only-light")
                light.parent.insert(light.parent.index(light) + 1, dark)


class LinkedScreenshots(SphinxTransform):
    """Links each screenshot to its file, so a phone can enlarge it."""

    default_priority = 210

    def apply(self, **_: Any) -> None:
        """Set the width of screenshots, which makes Sphinx link them."""
        for image in self.document.findall(nodes.image):
            if image["uri"].endswith(".png"):
                image["width"] = "100%"


class Percentages(SphinxTransform):
    """Keeps a number and its percent sign together."""

    default_priority = 220

    def apply(self, **_: Any) -> None:
        """Replace the space between them by a non-breaking one."""
        for text in list(self.document.findall(nodes.Text)):
            if not isinstance(text.parent, nodes.literal | nodes.literal_block):
                mended = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)
                if mended != text:
                    text.parent.replace(text, nodes.Text(mended))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    for transform in (DarkPictures, LinkedScreenshots, Percentages):
        app.add_transform(transform)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
