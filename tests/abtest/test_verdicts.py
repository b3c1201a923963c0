"""Verdicts compared with figures worked out by hand, statsmodels, SciPy and tea-tasting."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
import tea_tasting
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportions_ztest
from statsmodels.stats.weightstats import ttost_ind

from made_emails import BOTH, SMALL, USER_CLICKS, USER_OPENS, USER_ORDERS
from trimtab.abtest import Settings, analyse, analyse_counts
from trimtab.abtest.buckets import Experiment
from trimtab.abtest.cuped import Observed, adjust
from trimtab.abtest.readings import Estimate, equivalence, fieller, holm, ratio, welch
from trimtab.errors import DataError, SettingError

CONTROL = {"emails": 400_000, "opens": 60_000, "clicks": 9_000, "orders": 12}
TREATMENT = {"emails": 400_000, "opens": 60_120, "clicks": 9_320, "orders": 21}


def people(n, seed, lift=0.0):
    """Varied users, the second half with a lift."""
    random = np.random.default_rng(seed)
    treated = np.arange(n) >= n // 2
    opens = 1 + random.poisson(0.8, n)
    before = random.poisson(2.0 * random.gamma(2.0, 1.0, n))
    clicks = random.binomial(opens, np.clip(0.1 + 0.02 * before + lift * treated, 0, 1))
    orders = random.poisson(0.05 * opens)
    return pa.table(
        {
            "bucket": np.where(treated, "treatment", "control"), "user_id": np.arange(n),
            "opens": opens, "clicks": clicks, "orders": orders,
            "revenue": orders * random.lognormal(3, 1, n), "pre_clicks": before,
            "pre_opens": before + random.poisson(3, n) + 1,
        }
    )  # fmt: skip


def reading(finding, method):
    return next(r for r in finding.readings if r.method.startswith(method))


# By hand -----------------------------------------------------------------------------------------


def test_eight_users_each():
    found = analyse(SMALL)
    clicks, orders = found.of("clicks", "opens"), found.of("orders", "opens")
    assert clicks.control.rate == pytest.approx(0.2666666667, abs=5e-11)
    assert clicks.treatment.rate == pytest.approx(0.5333333333, abs=5e-11)
    assert clicks.main.error == pytest.approx(0.1124365390, abs=5e-11)
    assert clicks.main.p == pytest.approx(0.0326149132, abs=5e-11)
    assert reading(orders, "exact").p == 1.0
    assert (orders.control.numerator, orders.treatment.numerator) == (1, 2)
    assert (clicks.verdict, orders.verdict) == ("significant", "too few")


def test_totals():
    found = analyse_counts(CONTROL, TREATMENT)
    clicks, orders = found.of("clicks", "opens"), found.of("orders", "opens")
    assert clicks.main.difference / clicks.main.error == pytest.approx(2.4212750133, abs=5e-11)
    assert clicks.p == pytest.approx(0.0154661716, abs=5e-11)
    assert orders.p == pytest.approx(0.1627625830, abs=5e-11)
    assert (clicks.verdict, orders.verdict) == ("significant", "inconclusive")
    # 12 and 21 orders: 33 in all; a difference of 9 needs (2.80 * sqrt(33) / 9)² as many.
    assert orders.needed == pytest.approx(800_000 * (2.8016 / 1.5614) ** 2, rel=1e-3)
    assert found.guardrail.verdict == "inconclusive"
    assert found.sample_ratio.p == 1.0


def test_the_old_name_of_emails_is_refused():
    """Without a column emails each row counts as one, so mails must not just be left unread."""
    old = SMALL.append_column("mails", pa.array([2] * 16))
    with pytest.raises(DataError, match="'mails' of table is not read; rename it to 'emails'"):
        analyse(old)
    with pytest.raises(DataError, match=r"mails=5: must be one of emails"):
        analyse_counts({"mails": 5, "clicks": 1}, {"emails": 5, "clicks": 1})


def test_rows_of_one_user_belong_together():
    named = SMALL.append_column("user_id", pa.array(range(16)))
    doubled = pa.concat_tables([named, named])
    found = analyse(doubled).of("clicks", "opens")
    assert found.main.error == pytest.approx(0.1124365390, abs=5e-11)  # not smaller
    assert analyse(doubled).unit == "user"


def test_data_from_before_may_be_on_one_row_or_several():
    """pre_ columns belong to the user: rows repeat them."""
    once = people(300, 9)
    later = once.slice(0, 100)
    both = pa.concat_tables([once, later])
    place = both.column_names.index("pre_clicks")
    on_one_row = pa.array([*once["pre_clicks"].to_pylist(), *[None] * 100])
    once_only = both.set_column(place, "pre_clicks", on_one_row)
    found = [analyse(table).of("clicks", "opens").main for table in (both, once_only)]
    assert found[0].method == "CUPED"
    assert found[0].p == pytest.approx(found[1].p, rel=1e-12)


def test_dates_without_both_buckets_are_noted():
    dates = ["a"] * 8 + ["b"] * 4 + ["c"] * 4
    found = analyse(SMALL.append_column("date", pa.array(dates)))
    assert [own.method for own in found.of("clicks", "opens").readings] == ["Welch"]
    (note,) = found.notes
    assert "No date has both buckets" in note
    assert {finding.verdict for finding in found.findings} == {None}
    some = analyse(SMALL.append_column("date", pa.array([*["a", "b"] * 7, "c", "c"])))
    (note,) = some.notes
    assert "12.5% of emails" in note


def test_planned_tests_use_the_interval_for_every_look():
    early, late = (
        analyse_counts(CONTROL, TREATMENT, Settings(planned=n)) for n in (900_000, 800_000)
    )
    for found in (early, late):
        clicks, orders = found.of("clicks", "opens"), found.of("orders", "opens")
        assert clicks.verdict == "inconclusive"  # also at the planned end: it is not the only look
        assert clicks.sequence[0] < 0 < clicks.main.relative_low
        assert clicks.sequence[1] > clicks.main.relative_high
        assert orders.sequence[0] < orders.main.relative_low
        assert orders.sequence[1] > orders.main.relative_high
    # A larger difference is significant at every look.
    strong = analyse_counts(CONTROL, {**TREATMENT, "clicks": 9_700}, Settings(planned=900_000))
    assert strong.of("clicks", "opens").sequence[0] > 0
    assert strong.of("clicks", "opens").verdict == "significant"
    same = {n: Settings(planned=n, margin=0.035) for n in (900_000, 800_000)}
    verdicts = [
        analyse_counts(CONTROL, CONTROL, s).of("clicks", "opens").verdict for s in same.values()
    ]
    assert verdicts == ["inconclusive", "inconclusive"]
    wide = Settings(planned=800_000, margin=0.05)
    assert analyse_counts(CONTROL, CONTROL, wide).of("clicks", "opens").verdict == "equivalent"


def test_a_planned_test_with_a_rate_below_0_is_judged_by_the_difference():
    """Relative intervals do not exist there; those for every look decide all the same."""
    noise = np.repeat(np.random.default_rng(1).normal(-5.0, 1.0, 100), 2)
    for shift, verdict in ((2.0, "significant"), (0.32, "inconclusive")):
        money = noise + shift * np.tile([0, 1], 100)
        table = pa.table({"bucket": ["control", "treatment"] * 100, "revenue": money})
        assert analyse(table).of("revenue", "emails").p < 0.05
        assert analyse(table, Settings(planned=200)).findings[0].verdict == verdict


def test_metrics_without_events_are_not_tested():
    totals = ({"emails": 10_000, "opens": 5_000, "clicks": n} for n in (1_000, 1_090))
    first, second = totals
    alone = analyse_counts(first, second).of("clicks", "opens")
    with_none = analyse_counts({**first, "orders": 0}, {**second, "orders": 0})
    assert with_none.of("clicks", "opens").p_adjusted == alone.p_adjusted  # orders do not count
    assert with_none.of("orders", "opens").verdict is None


def test_readings_with_more_power_do_not_count_as_disagreement():
    table = people(4_000, 11, lift=0.02)
    clicks = analyse(table).of("clicks", "opens")
    assert [own.method for own in clicks.alike()] == ["Welch"]
    assert clicks.agree(0.05)


def test_margins_by_hand():
    wide, narrow = (analyse_counts(CONTROL, CONTROL, Settings(margin=m)) for m in (0.05, 0.001))
    assert wide.of("clicks", "opens").verdict == "equivalent"
    assert narrow.of("clicks", "opens").verdict == "inconclusive"
    assert narrow.of("clicks", "opens").needed_for_margin > 8e8
    # A significant difference is called significant even within the margin.
    both = analyse_counts(CONTROL, TREATMENT, Settings(margin=0.10)).of("clicks", "opens")
    assert both.verdict == "significant"
    assert both.equivalence < 0.05


def test_sample_ratio():
    half = analyse_counts({**CONTROL, "emails": 410_000}, TREATMENT)
    assert half.sample_ratio.alarm
    assert half.sample_ratio.p == pytest.approx(stats.chisquare([410_000, 400_000]).pvalue)
    assert {finding.verdict for finding in half.findings} == {"blocked"}
    assert {row["verdict"] for row in half.to_dict()["findings"]} == {"blocked"}
    share = 400 / 810
    assert not analyse_counts(
        {**CONTROL, "emails": 410_000}, TREATMENT, Settings(share=share)
    ).sample_ratio.alarm


def test_dates_by_hand():
    """Two dates, rates equal on each; only the share of the treatment differs."""
    rows = []
    for date, n_control, n_treated, clicks in (("mon", 40, 10, 0.5), ("tue", 10, 40, 0.1)):
        for bucket, n in (("control", n_control), ("treatment", n_treated)):
            rows += [(bucket, date, 1, int(i < clicks * n)) for i in range(n)]
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("bucket", "date", "opens", "clicks"), columns, strict=True)))
    found = analyse(table)
    clicks = found.of("clicks", "opens")
    assert clicks.control.rate == pytest.approx(0.42)  # 21 of 50
    assert clicks.treatment.rate == pytest.approx(0.18)  # 9 of 50
    assert clicks.main.method == "by date"  # because shares differ from date to date
    assert clicks.main.difference == pytest.approx(0.0)
    # Each date has half of all opens: variance ¼·(p·q·n/(n-1)/n) summed over dates and buckets.
    parts = [(0.5, 40), (0.1, 10), (0.5, 10), (0.1, 40)]
    variance = sum(0.25 * p * (1 - p) / (n - 1) for p, n in parts)
    assert clicks.main.error == pytest.approx(math.sqrt(variance))
    assert reading(clicks, "Welch").p < 0.05  # what misleads
    assert [dated.date for dated in found.dates] == ["mon", "tue"]
    assert [dated.reading.difference for dated in found.dates] == [pytest.approx(0.0)] * 2
    assert "changes from date to date" in found.notes[0]


def test_users_on_several_dates_are_not_independent():
    """The same users on both dates with the same outcomes: as if each were there once."""
    once = people(400, 1)
    dated = [once.append_column("date", pa.array([day] * 400)) for day in ("a", "b")]
    both = analyse(pa.concat_tables(dated)).of("clicks", "opens")
    alone = analyse(once.drop(["pre_clicks", "pre_opens"])).of("clicks", "opens")
    by_date = reading(both, "by date")
    assert by_date.error == pytest.approx(reading(alone, "Welch").error, rel=1e-9)
    assert by_date.difference == pytest.approx(reading(alone, "Welch").difference, rel=1e-9)


def test_capped_revenue_by_hand():
    money = [0.0, 1.0, 2.0, 3.0] * 5 + [0.0, 1.0, 2.0, 3.0] * 4 + [0.0, 1.0, 2.0, 1000.0]
    table = pa.table(
        {"bucket": ["control"] * 20 + ["treatment"] * 20, "opens": [1] * 40, "revenue": money}
    )
    found = analyse(table, Settings(quantile=0.9)).of("revenue", "opens")
    assert found.main.difference == pytest.approx(997 / 20)
    capped = reading(found, "capped")
    assert capped.difference == pytest.approx(0.0)
    assert capped.method == "capped at 3.00"
    again = analyse(table, Settings(quantile=0.9)).of("revenue", "opens")
    assert again == found  # the bootstrap too


# Oracles -----------------------------------------------------------------------------------------


def test_ratios_agree_with_tea_tasting():
    table = people(600, 2, lift=0.03)
    metrics = {
        "ctr": tea_tasting.RatioOfMeans("clicks", "opens", use_t=True, equal_var=False),
        "revenue": tea_tasting.Mean("revenue", use_t=True, equal_var=False),
        "cuped": tea_tasting.RatioOfMeans(
            "clicks", "opens", "pre_clicks", "pre_opens", use_t=True, equal_var=False
        ),
    }
    codes = pa.array((np.array(table["bucket"]) == "treatment").astype(np.int64))
    theirs = tea_tasting.Experiment(metrics, variant="variant").analyze(
        table.append_column("variant", codes)
    )
    ours = analyse(table)
    pairs = {
        "ctr": reading(ours.of("clicks", "opens"), "Welch"),
        "revenue": reading(ours.of("revenue", "emails"), "Welch"),
    }
    for name, own in pairs.items():
        assert own.difference == pytest.approx(theirs[name].effect_size, rel=1e-9)
        assert own.p == pytest.approx(theirs[name].pvalue, rel=1e-9)
        assert own.low == pytest.approx(theirs[name].effect_size_ci_lower, rel=1e-9)
        assert own.high == pytest.approx(theirs[name].effect_size_ci_upper, rel=1e-9)
    own = ours.of("clicks", "opens").main
    assert own.method == "CUPED"
    assert own.difference == pytest.approx(theirs["cuped"].effect_size, rel=0.02)
    assert own.p == pytest.approx(theirs["cuped"].pvalue, rel=0.1)


def test_means_agree_with_scipy_and_equivalence_with_statsmodels():
    random = np.random.default_rng(3)
    first, second = random.normal(10, 2, 80), random.normal(10.1, 3, 120)
    means = ratio(first, np.ones(80)), ratio(second, np.ones(120))
    own = welch(*means, 0.05, "")
    assert own.p == pytest.approx(stats.ttest_ind(second, first, equal_var=False).pvalue)
    # With a known rate of 10 in control, a margin of 5 % is 0.5.
    known = Estimate(10.0, 0.0, math.inf)
    shifted = Estimate(float(second.mean()), float(second.var(ddof=1)) / 120, 120)
    p = equivalence(known, shifted, 0.05)
    lower = stats.ttest_1samp(second, 9.5, alternative="greater").pvalue
    upper = stats.ttest_1samp(second, 10.5, alternative="less").pvalue
    assert p == pytest.approx(max(lower, upper))
    theirs = ttost_ind(second, first, -0.5, 0.5, usevar="unequal")[0]
    assert equivalence(*means, 0.5 / first.mean()) == pytest.approx(theirs, rel=0.15)


def test_shares_agree_with_statsmodels():
    found = analyse_counts(CONTROL, TREATMENT).of("clicks", "opens")
    z, p = proportions_ztest([9_320, 9_000], [60_120, 60_000])
    assert found.main.difference / found.main.error == pytest.approx(z)
    assert found.p == pytest.approx(p)


def test_ends_of_fieller_are_on_the_edge_of_the_test():
    for seed in range(5):
        random = np.random.default_rng(seed)
        first, second = ratio(random.random(30), np.ones(30)), ratio(random.random(20), np.ones(20))
        _, low, high = fieller(first, second, 2.0)
        for end in (low, high):
            distance = second.rate - (1 + end) * first.rate
            error = math.sqrt(second.variance + (1 + end) ** 2 * first.variance)
            assert abs(distance) == pytest.approx(2.0 * error)
        own = welch(first, second, 0.05, "")
        assert (own.relative_low > 0 or own.relative_high < 0) == (own.p < 0.05)


def test_holm_agrees_with_statsmodels():
    random = np.random.default_rng(5)
    for n in (1, 2, 5, 9):
        ps = list(random.random(n) ** 3)
        assert holm(ps) == pytest.approx(multipletests(ps, method="holm")[1])
    assert holm([0.01, math.nan, 0.04]) == pytest.approx([0.02, math.nan, 0.04], nan_ok=True)


def test_bootstrap_agrees_with_welch():
    found = analyse(people(4_000, 6)).of("revenue", "opens")
    drawn, plain = reading(found, "bootstrap"), reading(found, "Welch")
    assert drawn.error == pytest.approx(plain.error, rel=0.06)
    assert drawn.low == pytest.approx(plain.low, abs=0.4 * plain.error)
    assert drawn.p == pytest.approx(plain.p, abs=0.05)


def test_cuped_reduces_the_variance():
    random = np.random.default_rng(7)
    before = random.normal(0, 1, 40_000)
    now = 5 + 0.8 * before + 0.6 * random.normal(0, 1, 40_000)
    ones = np.ones(20_000)
    halves = [(now[:20_000], before[:20_000]), (now[20_000:], before[20_000:])]
    adjusted = adjust(*(Observed(y, ones, x, ones) for y, x in halves))
    plain = [ratio(y, ones) for y, _ in halves]
    ratio_of = sum(e.variance for e in adjusted) / sum(e.variance for e in plain)
    expected = 1 - np.corrcoef(before, now)[0, 1] ** 2
    assert ratio_of == pytest.approx(expected, rel=0.05)
    unknown = [Observed(y, ones, np.full(20_000, np.nan), ones) for y, _ in halves]
    assert adjust(*unknown) == tuple(plain)


# Refusals, settings and JSON ---------------------------------------------------------------


def replaced(**columns):
    table = SMALL
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values))
    return table


REFUSED = {
    "label": (replaced(bucket=["A"] * 8 + ["B"] * 8), "'bucket' .*'A'.*'control'"),
    "one bucket": (replaced(bucket=["control"] * 16), "'bucket' .*'treatment'"),
    "no bucket": (SMALL.drop(["bucket"]), "'bucket' in table"),
    "negative": (
        replaced(clicks=[-1, *USER_CLICKS[1:]]),
        "'clicks' of table has -1: ",
    ),
    "fraction": (
        replaced(opens=[0.5, *USER_OPENS[1:]]),
        "'opens' of table has 0.5: ",
    ),
    "missing": (
        replaced(orders=[None, *USER_ORDERS[1:]]),
        "'orders' .* 1 of 16 rows",
    ),
    "text": (replaced(clicks=list("abcdefghijklmnop")), "clicks"),
    "nested": (replaced(bucket=[["control"]] * 16), "'bucket' of table holds list"),
    "nothing": (SMALL.select(["bucket"]), "opens, clicks, orders, revenue; found bucket"),
    "both": (
        SMALL.append_column("user_id", pa.array([1] * 16)),
        "1 of 1 users",
    ),
    "nan": (
        SMALL.append_column("revenue", pa.array([math.nan] * 16)),
        "'revenue' of table has nan: .*1e\\+15",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_tables_are_refused(name):
    table, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        analyse(table)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"opens": 500_000}, "opens=500000 .*emails=400000"),
        ({"clicks": 70_000}, "clicks=70000 .*opens=60000"),
        ({"orders": -1}, "orders=-1: "),
        ({"emails": 0}, "emails: .*emails=400000"),
        ({"sales": 3}, "sales=3: .*emails, opens, clicks, orders, revenue"),
        ({"clicks": 1e300}, "clicks=1e\\+300: .*1e\\+15"),
        ({"revenue": math.nan}, "revenue=nan: "),
        ({"revenue": 5}, "revenue .*one bucket"),
    ],
)
def test_bad_totals_are_refused(changed, message):
    with pytest.raises(DataError, match=message):
        analyse_counts({**CONTROL, **changed}, TREATMENT)


@pytest.mark.parametrize(
    "setting", [{"alpha": 0}, {"alpha": 1e-10}, {"margin": 1.5}, {"power": 1}, {"planned": 0}]
)
def test_bad_settings_are_refused(setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        Settings(**setting)


def test_buckets_by_salt_agree_with_the_lists():
    test = Experiment("emails", 0.5)
    users = pa.array(range(2_000))
    table = pa.table({"user_id": users, "opens": [1] * 2_000, "clicks": [0, 1] * 1_000})
    labelled = table.append_column("bucket", test.assign(users))
    by_salt, by_column = analyse(table, experiment=test), analyse(labelled)
    assert by_salt.findings == by_column.findings
    with pytest.raises(DataError, match=r"of 2000 rows .*salt='other'"):
        analyse(labelled, experiment=Experiment("other"))
    with pytest.raises(DataError, match=r"salt='emails' and share=0\.5"):
        analyse(table.slice(0, 1), experiment=test)
    with pytest.raises(DataError, match=r"emails.*opens, clicks or orders"):
        analyse_counts({"emails": 5}, {"emails": 5})


def test_a_tiny_alpha_does_not_ask_for_millions_of_draws():
    found = analyse(people(400, 12), Settings(alpha=1e-6)).of("revenue", "opens")
    assert not [own for own in found.readings if own.method.startswith("bootstrap")]
    assert found.verdict == "inconclusive"
    small, large = (people(n, 12).select(["bucket", "opens", "revenue"]) for n in (200, 60_000))
    settings = Settings(alpha=1e-3)
    methods = [
        [r.method for r in analyse(t, settings).findings[0].readings] for t in (small, large)
    ]
    assert "bootstrap of 20,000" in methods[0]
    assert not [name for name in methods[1] if name.startswith("bootstrap")]  # half a minute


@pytest.mark.parametrize(
    ("buckets", "labels"),
    [
        ([False, True], ("False", "True")),
        ([True, False], ("true", "false")),
        ([1, 2], ("01", "02")),
    ],
)
def test_labels_that_a_csv_file_turns_into_other_types(buckets, labels):
    table = replaced(bucket=[buckets[0]] * 8 + [buckets[1]] * 8)
    assert analyse(table, labels=labels).findings == analyse(SMALL).findings


def test_dates_with_the_day_first_are_in_order():
    written = SMALL.append_column("date", pa.array(["30.10.2026", "2.11.2026"] * 8))
    assert [look.date for look in analyse(written).looks][::2] == ["2026-10-30", "2026-11-02"]
    for wrong in ("10/11/2026", "31.2.2026"):
        table = SMALL.append_column("date", pa.array([wrong] * 16))
        with pytest.raises(DataError, match=r"'date' .*write 2026-10-30"):
            analyse(table)


def test_custom_labels():
    renamed = replaced(bucket=["A"] * 8 + ["B"] * 8)
    assert analyse(renamed, labels=("A", "B")).findings == analyse(SMALL).findings


def test_nothing_happened():
    table = pa.table({"bucket": BOTH, "opens": [1] * 16, "clicks": [0] * 16, "orders": [0] * 16})
    found = analyse(table)
    assert [finding.verdict for finding in found.findings] == [None] * 5
    empty = dict.fromkeys(("opens", "clicks", "orders", "revenue"), 0)
    totals = analyse_counts({"emails": 10, **empty}, {"emails": 10, **empty})
    assert {finding.verdict for finding in totals.findings} == {None}
    json.dumps(totals.to_dict(), allow_nan=False)


def test_as_json():
    table = people(300, 8).append_column("date", pa.array(["a", "b", "c"] * 100))
    found = analyse(table, Settings(margin=0.1, planned=1_000)).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["findings"][0]["metric"]["title"] == "Clicks per open"
    assert len(found["looks"]) == len(found["dates"]) == 9
