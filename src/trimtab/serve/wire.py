"""What goes over the wire: messages as types that decode, encode and document, and refusals.

Limits that a type can state are stated there once; the decoder applies them and the OpenAPI
document shows them. `check_list` and `check_batch` do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from trimtab.errors import SettingError
from trimtab.models.widening import choose_instant
from trimtab.serve.settings import DEFAULT_K, LIMITS
from trimtab.tables.times import instant_of

DOCS = "/docs"
_MAX_VALUE_LENGTH, _MAX_SENTENCE_LENGTH = 60, 300  # in sentences of refusals
_MAX_TIME_LENGTH = 50
_INT64_MAX = 2**63 - 1
_NO_TIMES = np.empty(0, np.int64)

_T = TypeVar("_T")
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=_INT64_MAX)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=_INT64_MAX)]
Text: TypeAlias = Annotated[str, Meta(max_length=LIMITS["max_id_length"])]
Id: TypeAlias = Int64 | Text
# "" would be all unknown users
UserId: TypeAlias = Int64 | Annotated[str, Meta(min_length=1, max_length=LIMITS["max_id_length"])]
Filter: TypeAlias = Annotated[list[Id], Meta(max_length=LIMITS["max_filter"])]
encode = msgspec.json.Encoder().encode


class Item(Struct, forbid_unknown_fields=True, gc=False):
    """An item and its score."""

    item_id: Id
    score: float


class RecentItem(Struct, forbid_unknown_fields=True, gc=False):
    """An item that the user bought, and when: `days_ago` or `timestamp`."""

    item_id: Id
    days_ago: Annotated[
        Annotated[float, Meta(ge=0)] | UnsetType,
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
        Positive, Meta(description="Number of different days that this entry stands for.")
    ] = 1


class RerankRequest(Struct, forbid_unknown_fields=True):
    """A list to re-rank, with the engine's scores."""

    items: Annotated[
        list[Item],
        Meta(
            description="The engine's list, in any order, each item once. If the biases reach "
            "unlisted items, scores must be at least 0.",
            max_length=LIMITS["max_items"],
        ),
    ]
    k: Annotated[int, Meta(description="Number of items to return.", ge=1, le=LIMITS["max_k"])] = (
        DEFAULT_K
    )
    exclude: Annotated[Filter | UnsetType, Meta(description="Items that must not be shown.")] = (
        UNSET
    )
    allowed: Annotated[
        Annotated[Filter, Meta(min_length=1)] | UnsetType,
        Meta(description="The only items that may be shown."),
    ] = UNSET
    depth: Annotated[
        Positive | Literal["all"] | UnsetType,
        Meta(
            description="Number of items, the best by score, to re-rank, or 'all'. By default as "
            "many as the lists had that the biases were learned on. If the biases reach unlisted "
            "items, only 'all'."
        ),
    ] = UNSET
    user_id: Annotated[
        UserId | UnsetType, Meta(description="User who sees the list; required in an A/B test.")
    ] = UNSET
    recent: Annotated[
        Annotated[list[RecentItem], Meta(max_length=LIMITS["max_recent"])] | UnsetType,
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

    lists: Annotated[list[RerankRequest], Meta(max_length=LIMITS["max_lists"])]


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


class RefusalError(Exception):
    """Why a request is refused, in words for the client."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers

    def response(self) -> Response:
        """Return the answer for the client."""
        sentence = self.sentence
        if len(sentence) > _MAX_SENTENCE_LENGTH:
            sentence = f"{sentence[:_MAX_SENTENCE_LENGTH]}..."
        return json_response(Problem(sentence), self.status, self.headers)


def json_response(
    answer: Struct, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a message as an answer."""
    return Response(encode(answer), status, media_type="application/json", headers=headers)


def shorten(value: Any) -> str:
    """Return a client's value for use in a sentence, cut to a few characters."""
    text = repr(value[: _MAX_VALUE_LENGTH + 1] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


def decode(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Return the body as a typed request; refuse what is not one."""
    see = f"see {DOCS} for the format of a request"
    try:
        return decoder.decode(body)
    except RecursionError:
        raise RefusalError(400, f"the body is nested too deeply; {see}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)  # field names in it can be as long as the body
        text = text if len(text) <= 110 else f"{text[:80]}...{text[-20:]}"
        if isinstance(error, msgspec.ValidationError):
            raise RefusalError(422, f"{text}; {see}") from None
        raise RefusalError(400, f"the body is not JSON ({text}); {see}") from None


class Rules(Struct, frozen=True):
    """What the version being served, and the settings, ask of a request beyond its type."""

    id_type: type  # int or str
    unlisted: str  # how the biases score unlisted items
    has_test: bool  # whether an A/B test is running
    has_zone: bool | None  # whether the reranker's times have a time zone; None without a reranker
    learned_until: int


def check_list(asked: RerankRequest, rules: Rules) -> None:
    """Refuse a list that cannot be ranked."""
    ids = [item.item_id for item in asked.items]
    _check_ids("items", ids, rules)
    if len(set(ids)) < len(ids):
        seen: set[Any] = set()
        repeated = next(item for item in ids if item in seen or seen.add(item))  # type: ignore[func-returns-value]
        raise RefusalError(
            422, f"item_id {shorten(repeated)} is repeated in items: send each item once"
        )
    if rules.unlisted == "zero":
        _check_for_unlisted(asked)
    for name, listed in (("exclude", asked.exclude), ("allowed", asked.allowed)):
        _check_ids(name, [] if isinstance(listed, UnsetType) else listed, rules)
    if rules.has_test and isinstance(asked.user_id, UnsetType):
        raise RefusalError(422, "user_id is missing: an A/B test is running; send it")
    _check_recent(asked, rules)


def check_batch(lists: Sequence[RerankRequest], rules: Rules) -> None:
    """Refuse a batch that is too large or has a list that cannot be ranked."""
    for position, part in enumerate(lists):
        try:
            check_list(part, rules)
        except RefusalError as refusal:
            raise RefusalError(refusal.status, f"lists[{position}]: {refusal.sentence}") from None
    total, limit = sum(part.k for part in lists), LIMITS["max_batch_slots"]
    if total > limit:
        raise RefusalError(
            422, f"k adds up to {total} over all lists: at most {limit}; split the batch"
        )


def recent_of(asked: RerankRequest) -> list[RecentItem]:
    """Return the recent items in a request."""
    return [] if isinstance(asked.recent, UnsetType) else asked.recent


def _check_ids(name: str, ids: Sequence[Any], rules: Rules) -> None:
    """Refuse ids of another type than the table's."""
    if not set(map(type, ids)) <= {rules.id_type}:
        other = next(item for item in ids if type(item) is not rules.id_type)
        expected = "strings" if rules.id_type is str else "integers"
        raise RefusalError(
            422, f"item_id {shorten(other)} in {name}: the bias table has {expected}; send those"
        )


def _check_for_unlisted(asked: RerankRequest) -> None:
    if isinstance(asked.depth, int):
        raise RefusalError(
            422, f"depth={asked.depth}: the biases reach unlisted items, so items below any depth "
            f"can enter the list; leave it out",
        )  # fmt: skip
    lowest = min((item.score for item in asked.items), default=0.0)
    if lowest < 0:
        raise RefusalError(
            422, f"score={lowest:g}: must be at least 0, because unlisted items score 0 plus their "
            f"bias; shift the scores",
        )  # fmt: skip


def _check_recent(asked: RerankRequest, rules: Rules) -> None:
    """Refuse recent items whose time cannot be used, and a bad `as_of`."""
    recent = recent_of(asked)
    _check_ids("recent", [entry.item_id for entry in recent], rules)
    is_dated = False
    for position, entry in enumerate(recent):
        has_timestamp = not isinstance(entry.timestamp, UnsetType)
        is_dated |= has_timestamp
        try:
            if isinstance(entry.days_ago, UnsetType) != has_timestamp:
                state = "both given" if has_timestamp else "both missing"
                raise RefusalError(
                    422, f"days_ago and timestamp are {state}: send exactly one of them"
                )
            if has_timestamp:
                read_timestamp(entry, rules.has_zone)
        except RefusalError as refusal:
            raise RefusalError(422, f"recent[{position}]: {refusal.sentence}") from None
    if not isinstance(asked.as_of, UnsetType):
        read_as_of(asked.as_of, rules.has_zone, rules.learned_until)
    elif rules.has_zone is False and is_dated:
        raise RefusalError(
            422, "as_of is missing: the version learned from times without a time zone, so the "
            "clock of the service does not tell which timestamps are earlier; send as_of",
        )  # fmt: skip


def read_timestamp(entry: RecentItem, has_zone: bool | None) -> int:
    """Return the time of a recent item in microseconds of UTC."""
    text = str(entry.timestamp)
    moment = _parse_time("timestamp", text)
    if has_zone is not None and (moment.tzinfo is not None) != has_zone:
        state, remedy = (
            ("no time zone, but the version learned from times with one", "add an offset, like Z")
            if has_zone
            else ("a time zone, but the version learned from times without", "leave off the offset")
        )
        raise RefusalError(422, f"timestamp={shorten(text)} has {state}; {remedy}")
    return _to_instant(moment)


def read_as_of(text: str, has_zone: bool | None, learned_until: int) -> int:
    """Return the instant of a request in microseconds of UTC."""
    if has_zone is None or len(text) > _MAX_TIME_LENGTH:
        return _to_instant(_parse_time("as_of", text))
    try:
        return choose_instant(text, _NO_TIMES, learned_until, has_zone)
    except SettingError as error:
        raise RefusalError(422, str(error)) from None


def _parse_time(name: str, text: str) -> datetime:
    if len(text) <= _MAX_TIME_LENGTH:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    raise RefusalError(
        422, f"{name}={shorten(text)}: must be a time like 2026-03-01T10:00:00Z; send ISO text"
    )


def _to_instant(moment: datetime) -> int:
    return instant_of(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
