"""A published version, loaded and ready to rank lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from trimtab.abtest.buckets import neutral
from trimtab.models import ItemBias, Reranker, Summary
from trimtab.serve.lookup import make_lookup
from trimtab.serve.personal_ranker import PersonalRanker, make_personal_ranker
from trimtab.serve.ranker import Ranker, make_ranker
from trimtab.serve.wire import RefusedVersion, RerankerAnswer, VersionAnswer
from trimtab.store import Version
from trimtab.tables.times import as_datetime


@dataclass(frozen=True)
class ServedVersion:
    """A version that is ready to rank lists; it never changes."""

    number: int
    manifest: Mapping[str, Any]
    treatment: Ranker
    personal: PersonalRanker | None  # for users with recent items, if the version has a reranker
    control: Ranker | None  # only in an A/B test
    n_items: int
    unlisted: str
    summary: Summary
    loaded_at: str

    @property
    def has_zone(self) -> bool | None:
        """Whether the times of the reranker have a time zone; None without a reranker."""
        return None if self.personal is None else self.personal.reranker.has_zone

    def describe(self, refused: RefusedVersion | None) -> VersionAnswer:
        """Return the answer of /version."""
        return VersionAnswer(
            self.number, str(self.manifest["as_of"]), str(self.manifest["created"]), self.n_items,
            self.treatment.scale, self.unlisted, self.summary.metric, self.summary.k,
            self.treatment.depth, self.summary.strength, self._describe_reranker(),
            self.loaded_at, refused,
        )  # fmt: skip

    def _describe_reranker(self) -> RerankerAnswer | None:
        if self.personal is None:
            return None
        reranker = self.personal.reranker
        until = as_datetime(reranker.learned_until).isoformat()
        sources = list(reranker.summary.sources)
        return RerankerAnswer(reranker.summary.kept, sources, until, reranker.has_zone)


class ReadVersion(NamedTuple):
    """A version as it was read from the store."""

    version: Version
    bias: ItemBias
    reranker: Reranker | None

    @classmethod
    def read(cls, version: Version) -> ReadVersion:
        """Read a version; all files that are used must be whole.

        The biases of a version with a reranker are those of the reranker.
        """
        bias, reranker = version.bias(), version.reranker()
        return cls(version, bias if reranker is None else reranker.bias, reranker)

    def with_strength(self, strength: float) -> ReadVersion:
        """Return the version with a share of what it has learned."""
        if self.reranker is None:
            return self._replace(bias=self.bias.with_strength(strength))
        reranker = self.reranker.with_strength(strength)
        return self._replace(bias=reranker.bias, reranker=reranker)


def prepare_version(read: ReadVersion, has_test: bool) -> ServedVersion:
    """Return a version ready to rank lists, with a control group if there is an A/B test."""
    version, bias, reranker = read
    lookup = make_lookup(bias.item_ids)
    treatment = make_ranker(bias, lookup)
    personal = None if reranker is None else make_personal_ranker(reranker, treatment)
    control = make_ranker(neutral(bias), lookup) if has_test else None
    return ServedVersion(
        version.number, version.manifest, treatment, personal, control, len(bias), bias.unlisted,
        bias.summary, current_time(),
    )  # fmt: skip


def current_time() -> str:
    """Return the current time in UTC as text."""
    return datetime.now(UTC).isoformat(timespec="seconds")
