"""The section that says how to read the page: exact definitions of what it shows."""

from __future__ import annotations

from trimtab.report.backtest.figures import Overview
from trimtab.report.blocks import Section, Terms
from trimtab.report.words import count, counted, metric_name


def guide_section(view: Overview) -> Section:
    """What each number means."""
    text = (
        "A bias is one number an item, added to the engine's score for it. It is learned on the "
        "days before a date, with lists made before those days, and judged on the days after, "
        "which no method has seen."
    )
    terms = [*_metrics(view), *_lifts(view), *_tables(view)]
    return Section("guide", "How to read this", text, [Terms(terms)])


def _metrics(view: Overview) -> list[tuple[str, str]]:
    k = view.cutoff if view.cutoff is not None else "k"
    meanings = {
        "acc": f"Hits among the first {k} places, divided by {k}.",
        "map": (
            f"Precision at the rank of each hit among the first {k}, summed, and divided by "
            f"min({k}, R), where R is how many items the user bought in the test."
        ),
        "ndcg": (
            f"1/log2(1 + rank) of each hit among the first {k}, summed, and divided by the same "
            f"sum if the first min({k}, R) places were all hits."
        ),
    }
    terms = [(metric_name(m, k), meanings[m]) for m in view.metrics if m in meanings]
    users = (
        "Metrics are means over users who bought something in the test; a user without a list "
        "counts as 0. Equal scores are ordered by item id."
    )
    return [*terms, ("Mean over users", users)]


def _lifts(view: Overview) -> list[tuple[str, str]]:
    lift = (
        "Value divided by that of the engine alone, less 1; a dash where the engine alone scores "
        "0. A bias is learned for the metric it is judged by, unless the page says otherwise."
    )
    interval = (
        "From a paired bootstrap over users: the same sample of users judges both lists. It says "
        "how much depends on which users came, not on which dates were picked."
    )
    return [("Lift", lift), ("95 % interval", interval), ("Window and test", _split(view))]


def _tables(view: Overview) -> list[tuple[str, str]]:
    """Definitions of what only some pages show."""
    terms = {
        "coverage": (
            "Coverage",
            "How many of the n best sellers of the test are among the n items recommended most.",
        ),
        "divergence": (
            "KL divergence",
            "KL(bought ‖ recommended) in nats over all items seen in either; counts of zero are "
            "taken as 0.01. 0 where both are alike.",
        ),
        "fits": (
            "Bias at work",
            "A bias that changed something on the window it was learned on. The default gives most "
            "items some bias; few of them move a hit.",
        ),
        "biases": (
            "Sales",
            "Buyers a week: in the week before the window, in the window, and in the test.",
        ),
    }
    return [term for name, term in terms.items() if view.results.table(name).num_rows]


def _split(view: Overview) -> str:
    recent, test = view.about.get("recent_days"), view.about.get("test_days")
    learned = f"the {counted(recent, 'day')}" if isinstance(recent, int) else "the days"
    judged = f"the {counted(test, 'day')}" if isinstance(test, int) else "the days"
    text = f"Biases are learned on {learned} before a date and judged on {judged} from it on"
    zone = f", in the time zone {view.about['tz']}" if view.about.get("tz") else ""
    listed = view.about.get("n_listed")
    lists = f" Engines list {count(listed)} items a user." if isinstance(listed, int) else ""
    return f"{text}{zone}.{lists}"
