"""What goes over the wire, as typed structures: they decode, encode and document it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from trimtab.serve.settings import DEFAULT_K

Whole: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Id: TypeAlias = Whole | str
UserId: TypeAlias = Whole | Annotated[str, Meta(min_length=1)]  # "" would be all who are unknown
encode = msgspec.json.Encoder().encode


class Item(Struct, forbid_unknown_fields=True, gc=False):
    """An item and its score."""

    item_id: Id
    score: float


class RerankRequest(Struct, forbid_unknown_fields=True):
    """A list to re-rank, as the engine scored it."""

    items: Annotated[
        list[Item], Meta(description="The engine's list, in any order, each item once.")
    ]
    k: Annotated[Whole, Meta(description="Places to fill.")] = DEFAULT_K
    exclude: Annotated[list[Id] | UnsetType, Meta(description="Items that must not be shown.")] = (
        UNSET
    )
    allowed: Annotated[
        list[Id] | UnsetType, Meta(description="If given, nothing else is shown.")
    ] = UNSET
    user_id: Annotated[
        UserId | UnsetType, Meta(description="Whom the list is for; divides users in a test.")
    ] = UNSET


class BatchRequest(Struct, forbid_unknown_fields=True):
    """Several lists, all answered by one version."""

    lists: list[RerankRequest]


Bucket: TypeAlias = Literal["control", "treatment"] | UnsetType


class Ranked(Struct):
    """A list of a batch, re-ranked."""

    items: list[Item]
    bucket: Bucket = UNSET


class RerankAnswer(Struct):
    """A list, re-ranked: best first."""

    version: int
    items: list[Item]
    bucket: Bucket = UNSET


class BatchAnswer(Struct):
    """Lists, re-ranked, in the order of the request."""

    version: int
    lists: list[Ranked]


class Health(Struct):
    """That the service answers, and by which version."""

    status: Literal["ok"]
    version: int


class RefusedVersion(Struct):
    """A version that could not be read; the one before it goes on serving."""

    version: Annotated[int | None, Meta(description="None if the store does not say which.")]
    reason: str
    at: str


class VersionAnswer(Struct):
    """The version that is served."""

    version: int
    as_of: str
    created: str
    n_items: int
    scale: str
    unlisted: str
    metric: str
    k: int
    loaded_at: str
    refused: RefusedVersion | None


class ReloadAnswer(Struct):
    """What a look at the store came to."""

    version: int
    changed: bool
    refused: RefusedVersion | None


class ExposureStatus(Struct):
    """How the log of exposures fares, in lists since the start."""

    folder: str
    buffered: int
    written: int
    dropped: int


class ExperimentStatus(Struct):
    """The test that is on."""

    salt: str
    share: float


class StatusAnswer(Struct):
    """How the service fares."""

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
    """Why a request was not answered."""

    error: str
