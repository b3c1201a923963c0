"""What goes over the wire: messages as types that decode, encode and document, and refusals.

Limits that a type can state are stated there once: the decoder applies them, and the OpenAPI
document shows them and the docstrings. `ranking.py` checks what depends on the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trimtab.serve.settings import DEFAULT_K, LIMITS

DOCUMENT = "/openapi.json"
_MAX_VALUE_LENGTH, _MAX_SENTENCE_LENGTH = 60, 300  # in sentences of refusals
_INT64_MAX = 2**63 - 1

_T = TypeVar("_T")
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=_INT64_MAX)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=_INT64_MAX)]
Text: TypeAlias = Annotated[str, Meta(max_length=LIMITS["max_id_length"])]
Id: TypeAlias = Int64 | Text
# "" would be all unknown users
UserId: TypeAlias = Int64 | Annotated[str, Meta(min_length=1, max_length=LIMITS["max_id_length"])]
Filter: TypeAlias = Annotated[list[Id], Meta(max_length=LIMITS["max_filter"])]
Bucket: TypeAlias = Literal["control", "treatment"] | UnsetType


class Item(Struct, forbid_unknown_fields=True, gc=False):
    """An item and its score."""

    item_id: Id
    score: float


class RecentItem(Struct, forbid_unknown_fields=True, gc=False):
    """An item that the user bought, and when: `days_ago` or `timestamp`.

    `days_ago` is the number of whole days before `as_of`, 0 for the 24 hours before it.
    `timestamp` is ISO text, with an offset if the version learned from times with a time zone, and
    without one if not. `count` is the number of different days that this entry stands for.
    """

    item_id: Id
    days_ago: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    count: Positive = 1


class RerankRequest(Struct, forbid_unknown_fields=True):
    """A list to re-rank: the engine's items with their scores, in any order, each item once.

    If the biases reach unlisted items, scores must be at least 0. `k` is the number of items to
    return. `exclude` has items that must not be shown, `allowed` the only items that may be.

    `depth` is the number of items, the best by score, to re-rank, or "all". By default it is as
    many as the lists had that the biases were learned on. If the biases reach unlisted items, only
    "all" is accepted.

    `user_id` is the user who sees the list; required in an A/B test.

    `recent` is what the user bought of late, in any order. If the version has a reranker, the list
    is ranked by it, and items can be added; without recent items it is ranked by the biases.
    `as_of` is the instant that the list is for, as ISO text like `timestamp`; not before the end
    of what the reranker learned from. Now by default.
    """

    items: Annotated[list[Item], Meta(max_length=LIMITS["max_items"])]
    k: Annotated[int, Meta(ge=1, le=LIMITS["max_k"])] = DEFAULT_K
    exclude: Filter | UnsetType = UNSET
    allowed: Annotated[Filter, Meta(min_length=1)] | UnsetType = UNSET
    depth: Positive | Literal["all"] | UnsetType = UNSET
    user_id: UserId | UnsetType = UNSET
    recent: Annotated[list[RecentItem], Meta(max_length=LIMITS["max_recent"])] | UnsetType = UNSET
    as_of: str | UnsetType = UNSET


class BatchRequest(Struct, forbid_unknown_fields=True):
    """Several lists, all re-ranked with one version."""

    lists: Annotated[list[RerankRequest], Meta(max_length=LIMITS["max_lists"])]


class RecentUse(Struct):
    """What became of the recent items of a request.

    `used` counts the entries that the list is ranked by; 0 if it is ranked by the biases. Left out
    are `unknown_items`, neither learned nor listed, and `later`, at or after `as_of`.
    """

    used: int = 0
    unknown_items: int = 0
    later: int = 0


class Ranked(Struct):
    """A re-ranked list, best item first.

    `unknown_items` counts the items of the request that the version does not know; they have no
    bias.
    """

    items: list[Item]
    unknown_items: int
    bucket: Bucket = UNSET
    recent: RecentUse | UnsetType = UNSET


class RerankAnswer(Struct):
    """A re-ranked list, as in a batch, and the version that ranked it."""

    version: int
    items: list[Item]
    unknown_items: int
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
    """A version that could not be loaded; the one before it is still served.

    `version` is null if the store does not say which.
    """

    version: int | None
    reason: str
    at: str


class RerankerAnswer(Struct):
    """The reranker of a version.

    `kept` is the share kept of what recent items add; 0: the biases rank all. `sources` says where
    items come from that are added to lists: trending, own. `as_of` must not be before
    `learned_until`. `has_zone` says whether timestamps need an offset.
    """

    kept: float
    sources: list[str]
    learned_until: str
    has_zone: bool


class VersionAnswer(Struct):
    """The version being served.

    `depth` is null if whole lists are re-ranked. `strength` is the share in use of what was
    learned.
    """

    version: int
    as_of: str
    created: str
    n_items: int
    scale: str
    unlisted: str
    metric: str
    k: int
    depth: int | None
    strength: float
    reranker: RerankerAnswer | None
    loaded_at: str
    refused: RefusedVersion | None = None


class ReloadAnswer(Struct):
    """The result of checking the store."""

    version: int
    changed: bool
    refused: RefusedVersion | None


class Problem(Struct):
    """Why a request was refused."""

    error: str


class RefusalError(HTTPException):
    """Why a request is refused: a status, a sentence for the client in `detail`, and headers."""

    def at(self, place: str) -> RefusalError:
        """Return the same refusal, of a part of the request."""
        return RefusalError(self.status_code, f"{place}: {self.detail}")

    def response(self) -> Response:
        """Return the answer for the client."""
        sentence = self.detail
        if len(sentence) > _MAX_SENTENCE_LENGTH:
            sentence = f"{sentence[:_MAX_SENTENCE_LENGTH]}..."
        return json_response(Problem(sentence), self.status_code, self.headers)


def json_response(
    answer: Struct, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a message as an answer."""
    return Response(msgspec.json.encode(answer), status, headers, "application/json")


def shorten(value: Any) -> str:
    """Return a client's value for use in a sentence, cut to a few characters."""
    text = repr(value[: _MAX_VALUE_LENGTH + 1] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


def decode(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Return the body as a typed request; refuse what is not one."""
    see = f"see {DOCUMENT} for the format of a request"
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
