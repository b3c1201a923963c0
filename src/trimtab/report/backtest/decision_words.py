"""The decision in words: the title of the page, and why."""

from __future__ import annotations

from trimtab.replay.methods import BEST_SELLERS, RERANKER
from trimtab.report.backtest.judged_methods import decide_engine, find_records
from trimtab.report.backtest.overview import SELLERS, Overview
from trimtab.report.decision import DO_NOT, INSTEAD, SWITCH_ON, UNKNOWN, Decision, Record, beats
from trimtab.report.words import capitalize, counted, day, interval, join_words, percent

_IN_TITLE = {"default": "the bias"}
ENOUGH_DATES = 8  # recommended if there are few
_COUNT = "To have it, count the purchases of the last days and change the engine's scores by them."
_RETRAIN = "To have it, train the engine like this."
_HOW_TO = {  # by kind of rival
    "ratio": _COUNT,
    "recent": _COUNT,
    "distrdiff": _COUNT,
    "truncate": _RETRAIN,
    "decay": _RETRAIN,
    BEST_SELLERS: (
        "To have them, count the purchases of the last days and show the items with the most: that "
        "needs neither an engine nor Trimtab."
    ),
}


def write_title(view: Overview, decision: Decision) -> str:
    """Return the one line on top: what to do."""
    title = _say_beaten(view, decision) or _write_action(view, decision)
    if not view.few or decision.action in (DO_NOT, UNKNOWN):
        return title
    return f"{title}, as far as {counted(len(view.dates), 'date')} can tell"


def _say_beaten(view: Overview, decision: Decision) -> str:
    """Return that best sellers beat all of Trimtab's methods; nothing unless they do."""
    chosen, own = decision.chosen, find_records(view, view.engines[0], view.own_methods)
    if decision.action != INSTEAD or chosen is None or chosen.method not in SELLERS:
        return ""
    if not own or not all(beats(chosen, record) for record in own):
        return ""
    kinds = [view.kind_of(record.method) for record in own]
    names = dict.fromkeys("the reranker" if kind == RERANKER else "the bias" for kind in kinds)
    return f"{capitalize(view.names[chosen.method].in_text)} beat {join_words(list(names))}"


def _write_action(view: Overview, decision: Decision) -> str:
    if decision.action == UNKNOWN or decision.chosen is None:
        return "Nothing to judge"
    if decision.action == DO_NOT:
        return "Do not switch it on"
    method = decision.chosen.method
    if method in SELLERS:
        return f"Show {view.names[method].in_text} instead"
    name = _IN_TITLE.get(method, view.names[method].in_text)
    return f"Switch on {name}{' instead' if decision.action == INSTEAD else ''}"


def give_reasons(view: Overview, decision: Decision) -> list[str]:
    """Return why, on the first engine; then what to do on the others, and what is missing."""
    if decision.chosen is None:
        return ["Only the engine alone was judged, or it never hit: there is no lift to show."]
    reason = _describe_choice(view, decision)
    found = [f"{reason} {_describe_other(view, decision)}".strip(), _describe_engines(view)]
    if decision.action == INSTEAD:
        found.append(_HOW_TO.get(view.kind_of(decision.chosen.method), ""))
    if view.few:
        found.append(
            f"{counted(len(view.dates), 'date')} cannot show how much lifts vary from week to "
            f"week: judge at least {ENOUGH_DATES} before you rely on this."
        )
    return [sentence for sentence in found if sentence]


def _describe_choice(view: Overview, decision: Decision) -> str:
    record = decision.chosen
    assert record is not None
    name, metric = view.names[record.method].in_text, view.name_metric(view.metric)
    where = f"on {view.engines[0]}"
    if decision.action == DO_NOT:
        return (
            f"No method is a sure gain {where}. The best one, {name}, changed {metric} by "
            f"{percent(record.mean)}{_over(record)}{_span(record)}{_why_not(record)}."
        )
    size = f"{percent(record.mean).lstrip('+')}{_over(record)}{_span(record)}"
    if record.method in SELLERS:
        where = f"instead of {view.engines[0]}"
    start = f"{capitalize(name)} {where} raised {metric} by {size}"
    return f"{start}. {_describe_dates(record)}" if record.n_dates > 1 else f"{start}."


def _over(record: Record) -> str:
    if record.n_dates == 1:
        return f" on {day(record.worst_date)}"
    return f" on average over {counted(record.n_dates, 'date')}"


def _span(record: Record) -> str:
    ends = interval(record.low, record.high)
    return f" (95 % interval {ends})" if ends else ""


def _describe_dates(record: Record) -> str:
    below = "none is" if record.n_below == 0 else f"{record.n_below} of them are"
    below = "1 of them is" if record.n_below == 1 else below
    return f"The worst date is {percent(record.worst)} ({day(record.worst_date)}); {below} below 0."


def _why_not(record: Record) -> str:
    """Return what keeps a method from being a gain."""
    reasons = []
    if not record.is_sure:
        reasons.append(_describe_interval(record))
    if record.loses_often:
        reasons.append(f"{record.n_below} of {counted(record.n_dates, 'date')} below 0")
    return f": {join_words(reasons)}" if reasons else ""


def _describe_interval(record: Record) -> str:
    if not interval(record.low, record.high):
        return "nothing says how sure that is"
    return f"the interval {'is below' if record.high < 0 else 'includes'} 0"


def _describe_other(view: Overview, decision: Decision) -> str:
    """Return how the best of the other kind did."""
    other, chosen = decision.other, decision.chosen
    if other is None or chosen is None:
        return ""
    name = view.names[other.method].in_text
    if decision.action == INSTEAD:
        why = _why_not(other) if not other.is_gain else ""
        return f"The best of Trimtab's methods, {name}, changed it by {percent(other.mean)}{why}."
    start = f"The best rival, {name}, changed it by {percent(other.mean)}"
    if other.mean <= chosen.mean:
        return f"{start}."
    return f"{start}{_why_not(other) if not other.is_gain else ', which is not surely more'}."


def _describe_engines(view: Overview) -> str:
    """Return the decisions on the other engines; those like the first one together."""
    first, *others = (engine_action(view, engine) for engine in view.engines)
    found = dict(zip(view.engines[1:], others, strict=True))
    alike = [engine for engine, action in found.items() if action == first]
    texts = [f"The same holds on {join_words(alike)}."] if alike else []
    texts += [f"On {engine}: {action[:1].lower()}{action[1:]}." for engine, action in found.items()
              if action != first]  # fmt: skip
    return " ".join(texts)


def is_sure_gain(record: Record) -> str:
    """Return a word for a table: whether a method may be switched on, or why not."""
    if record.is_gain:
        return "yes"
    return "no: too many dates below 0" if record.is_sure else "no"


def mood_of(decision: Decision) -> str:
    """Return the class of the title in page.css."""
    return {SWITCH_ON: "gain", INSTEAD: "mixed", DO_NOT: "loss"}.get(decision.action, "")


def engine_action(view: Overview, engine: str) -> str:
    """Return what to do on an engine, in a few words."""
    return _write_action(view, decide_engine(view, engine))
