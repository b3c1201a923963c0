"""A version of the biases, loaded and ready to rank lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trimtab.abtest.buckets import neutral
from trimtab.bias import ItemBias
from trimtab.bias.table import Summary
from trimtab.serve.lookup import make_lookup
from trimtab.serve.ranker import Ranker, make_ranker
from trimtab.serve.wire import RefusedVersion, VersionAnswer
from trimtab.store import Version


@dataclass(frozen=True)
class ServedVersion:
    """A version that is ready to rank lists; it never changes."""

    number: int
    manifest: Mapping[str, Any]
    treatment: Ranker
    control: Ranker | None  # only in an A/B test
    n_items: int
    unlisted: str
    summary: Summary
    loaded_at: str

    def describe(self, refused: RefusedVersion | None) -> VersionAnswer:
        """Return the answer of /version."""
        return VersionAnswer(
            self.number, str(self.manifest["as_of"]), str(self.manifest["created"]), self.n_items,
            self.treatment.scale, self.unlisted, self.summary.metric, self.summary.k,
            self.treatment.depth, self.loaded_at, refused,
        )  # fmt: skip


def prepare_version(version: Version, bias: ItemBias, has_test: bool) -> ServedVersion:
    """Return a version ready to rank lists, with a control group if there is an A/B test."""
    lookup = make_lookup(bias.item_ids)
    control = make_ranker(neutral(bias), lookup) if has_test else None
    return ServedVersion(
        version.number, version.manifest, make_ranker(bias, lookup), control, len(bias),
        bias.unlisted, bias.summary, current_time(),
    )  # fmt: skip


def current_time() -> str:
    """Return the current time in UTC as text."""
    return datetime.now(UTC).isoformat(timespec="seconds")
