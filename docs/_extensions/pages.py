"""Pictures for dark and for small screens, and percentages that stay on one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class DarkTwins(SphinxTransform):
    """Beside name.svg, name-dark.svg is shown on dark screens, if there is one."""

    default_priority = 200

    def apply(self, **_: Any) -> None:
        """Put the dark picture behind the light one."""
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
    """A picture that is drawn to a width is linked to itself, so that a phone can enlarge it."""

    default_priority = 210

    def apply(self, **_: Any) -> None:
        """Give screenshots the width of the page."""
        for image in self.document.findall(nodes.image):
            if image["uri"].endswith(".png"):
                image["width"] = "100%"


class Percentages(SphinxTransform):
    """A number and its sign of percent are not parted."""

    default_priority = 220

    def apply(self, **_: Any) -> None:
        """Put a space between them that does not break."""
        for text in list(self.document.findall(nodes.Text)):
            if not isinstance(text.parent, nodes.literal | nodes.literal_block):
                mended = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)
                if mended != text:
                    text.parent.replace(text, nodes.Text(mended))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    for transform in (DarkTwins, LinkedScreenshots, Percentages):
        app.add_transform(transform)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
