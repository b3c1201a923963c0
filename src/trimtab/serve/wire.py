"""The JSON messages as types: they decode, encode and document what goes over the wire."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from trimtab.serve.settings import DEFAULT_K

Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Id: TypeAlias = Int64 | str
UserId: TypeAlias = Int64 | Annotated[str, Meta(min_length=1)]  # "" would be all unknown users
encode = msgspec.json.Encoder().encode


class Item(Struct, forbid_unknown_fields=True, gc=False):
    """An item and its score."""

    item_id: Id
    score: float


class RecentItem(Struct, forbid_unknown_fields=True, gc=False):
    """An item that the user bought, and when: `days_ago` or `timestamp`."""

    item_id: Id
    days_ago: Annotated[
        float | UnsetType,
        Meta(description="Whole days before `as_of`; 0 for the 24 hours before it."),
    ] = UNSET
    timestamp: Annotated[
        str | UnsetType,
        Meta(
            description="ISO text; with an offset if the version learned from times with a time "
            "zone, without one if not."
        ),
    ] = UNSET
    count: Annotated[
        Int64, Meta(description="Number of different days that this entry stands for.")
    ] = 1


class RerankRequest(Struct, forbid_unknown_fields=True):
    """A list to re-rank, with the engine's scores."""

    items: Annotated[
        list[Item], Meta(description="The engine's list, in any order, each item once.")
    ]
    k: Annotated[Int64, Meta(description="Number of items to return.")] = DEFAULT_K
    exclude: Annotated[list[Id] | UnsetType, Meta(description="Items that must not be shown.")] = (
        UNSET
    )
    allowed: Annotated[
        list[Id] | UnsetType, Meta(description="The only items that may be shown.")
    ] = UNSET
    depth: Annotated[
        Int64 | Literal["all"] | UnsetType,
        Meta(
            description="Number of items, the best by score, to re-rank, or 'all'. By default as "
            "many as the lists had that the biases were learned on."
        ),
    ] = UNSET
    user_id: Annotated[
        UserId | UnsetType, Meta(description="User who sees the list; required in an A/B test.")
    ] = UNSET
    recent: Annotated[
        list[RecentItem] | UnsetType,
        Meta(
            description="What the user bought of late, in any order. If the version has a "
            "reranker, the list is ranked by it, and items can be added; without recent items it "
            "is ranked by the biases."
        ),
    ] = UNSET
    as_of: Annotated[
        str | UnsetType,
        Meta(
            description="The instant that the list is for, as ISO text like `timestamp`; not "
            "before the end of what the reranker learned from. Now by default."
        ),
    ] = UNSET


class BatchRequest(Struct, forbid_unknown_fields=True):
    """Several lists, all re-ranked with one version."""

    lists: list[RerankRequest]


Bucket: TypeAlias = Literal["control", "treatment"] | UnsetType


class RecentUse(Struct):
    """What became of the recent items of a request."""

    used: Annotated[
        int, Meta(description="Entries that the list is ranked by; 0: ranked by the biases.")
    ]
    unknown_items: Annotated[
        int, Meta(description="Entries left out: items that were neither learned nor listed.")
    ]
    later: Annotated[int, Meta(description="Entries left out: at or after `as_of`.")]


UnknownItems: TypeAlias = Annotated[
    int,
    Meta(description="Items of the request that the version does not know; they have no bias."),
]


class Ranked(Struct):
    """A re-ranked list in a batch."""

    items: list[Item]
    unknown_items: UnknownItems
    bucket: Bucket = UNSET
    recent: RecentUse | UnsetType = UNSET


class RerankAnswer(Struct):
    """A re-ranked list, best item first."""

    version: int
    items: list[Item]
    unknown_items: UnknownItems
    bucket: Bucket = UNSET
    recent: RecentUse | UnsetType = UNSET


class BatchAnswer(Struct):
    """Re-ranked lists, in the order of the request."""

    version: int
    lists: list[Ranked]


class Health(Struct):
    """The service answers requests with this version."""

    status: Literal["ok"]
    version: int


class RefusedVersion(Struct):
    """A version that could not be loaded; the one before it is still served."""

    version: Annotated[int | None, Meta(description="Null if the store does not say which.")]
    reason: str
    at: str


class RerankerAnswer(Struct):
    """The reranker of a version."""

    kept: Annotated[
        float, Meta(description="Share kept of what recent items add; 0: the biases rank all.")
    ]
    sources: Annotated[
        list[str], Meta(description="Sources of the items added to lists: trending, own.")
    ]
    learned_until: Annotated[str, Meta(description="`as_of` must not be before it.")]
    has_zone: Annotated[bool, Meta(description="Whether timestamps need an offset.")]


class VersionAnswer(Struct):
    """The version being served."""

    version: int
    as_of: str
    created: str
    n_items: int
    scale: str
    unlisted: str
    metric: str
    k: int
    depth: Annotated[int | None, Meta(description="Null if whole lists are re-ranked.")]
    strength: Annotated[float, Meta(description="Share in use of what was learned.")]
    reranker: RerankerAnswer | None
    loaded_at: str
    refused: RefusedVersion | None


class ReloadAnswer(Struct):
    """The result of checking the store."""

    version: int
    changed: bool
    refused: RefusedVersion | None


class ExposureStatus(Struct):
    """State of the exposure log, in lists since the start."""

    folder: str
    buffered: int
    written: int
    dropped: int


class ExperimentStatus(Struct):
    """The A/B test that is running."""

    salt: str
    share: float


class StatusAnswer(Struct):
    """Service status."""

    store: str
    started_at: str
    requests_now: int
    swaps: int
    refusals: int
    served: VersionAnswer
    experiment: ExperimentStatus | None
    exposures: ExposureStatus | None
    limits: dict[str, int]


class Problem(Struct):
    """Why a request was refused."""

    error: str
