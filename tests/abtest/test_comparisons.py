"""Several treatments against one control."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

from made_verdicts import OWN, make_users
from trimtab.abtest import Settings, analyse, analyse_users, compare
from trimtab.errors import DataError, SettingError
from trimtab.report.verdict import comparison_words as words

NAMES = ("old", "A", "B")
TABLE = make_users(n=450).drop(["date"])
FAST = Settings(draws=0)


def only(table, *names):
    return table.filter(pc.is_in(table["bucket"], pa.array(names)))


@pytest.fixture(scope="module")
def found():
    return compare(TABLE, FAST, labels=NAMES, **OWN)


def test_each_treatment_is_a_test_of_two_buckets_at_half_the_level(found):
    for name in NAMES[1:]:
        settings = Settings(alpha=0.025, draws=0)
        alone = analyse_users(only(TABLE, "old", name), settings, labels=("old", name), **OWN)
        own = found.verdicts[name]
        for finding, expected in zip(own.findings, alone.findings, strict=True):
            assert finding.readings == expected.readings
            assert finding.verdict == expected.verdict
            assert finding.p_adjusted == pytest.approx(min(1.0, 2 * expected.p_adjusted))
            if expected.needed is not None:
                assert finding.needed == pytest.approx(1.5 * expected.needed, abs=1)
        assert own.level == 0.025
    assert found.verdicts["A"].of("clicks", "impressions").verdict == "significant"


def test_dates_are_those_of_the_two_buckets():
    table = pa.table({"bucket": [*NAMES[:2] * 20, *NAMES * 20], "clicks": [0, 1] * 50})
    dated = table.append_column("date", pa.array(["2026-11-02"] * 40 + ["2026-11-03"] * 60))
    verdicts = compare(dated, FAST, labels=NAMES).verdicts
    alone = analyse(only(dated, "old", "A"), Settings(alpha=0.025), labels=NAMES[:2])
    assert verdicts["A"].looks == alone.looks
    assert verdicts["A"].dates == alone.dates
    assert [own.date for own in verdicts["B"].dates] == ["2026-11-02", "2026-11-03"]


def test_verdicts_and_intervals_agree(found):
    for finding in found.verdicts["A"].findings:
        if finding.verdict == "significant":
            assert finding.main.low > 0 or finding.main.high < 0
        assert (finding.p < 0.025) == (finding.main.low > 0 or finding.main.high < 0)


def test_one_treatment_is_the_same_as_two_buckets():
    table = only(TABLE, "old", "A")
    (own,) = compare(table, FAST, labels=("old", "A"), **OWN).verdicts.values()
    assert replace(own, treatment="") == analyse_users(table, FAST, labels=("old", "A"), **OWN)


def test_a_test_by_email_with_several_treatments():
    random = np.random.default_rng(1)
    table = pa.table(
        {
            "bucket": list(NAMES) * 100, "opens": 1 + random.poisson(0.8, 300),
            "clicks": random.poisson(0.3, 300),
        }
    )  # fmt: skip
    found = compare(table, labels=NAMES)
    alone = analyse(only(table, "old", "B"), Settings(alpha=0.025), labels=("old", "B"))
    assert [own.main for own in found.verdicts["B"].findings] == [
        own.main for own in alone.findings
    ]
    assert found.verdicts["B"].base == "email"


def test_plans_are_for_all_buckets():
    own = {"counts": ["clicks/impressions"]}
    settings = Settings(planned=600)
    found = compare(TABLE, settings, labels=NAMES, shares=(0.5, 0.25, 0.25), **own)
    part = Settings(planned=450, alpha=0.025)  # three quarters of all users
    alone = analyse_users(only(TABLE, "old", "A"), part, labels=("old", "A"), **own)
    sequences = [[own.sequence for own in v.findings] for v in (found.verdicts["A"], alone)]
    assert sequences[0] == sequences[1]


def test_the_sizes_of_all_buckets_are_checked(found):
    expected = stats.chisquare([150, 150, 150], [225, 112.5, 112.5]).pvalue
    shares = (0.5, 0.25, 0.25)
    wrong = compare(TABLE, FAST, labels=NAMES, shares=shares, counts=["orders/user"])
    assert wrong.p == pytest.approx(expected)
    assert wrong.alarm
    verdicts = {own.verdict for found in wrong.verdicts.values() for own in found.findings}
    assert verdicts == {"blocked"}
    assert words.overall(wrong) == "The split into buckets went wrong"
    assert words.lines(wrong) == []
    assert not found.alarm


def test_what_is_said(found):
    assert words.overall(found) == "Better than control: A"
    assert words.mood(found) == "gain"
    assert words.lines(found) == ["A: better in clicks per impression.", "B: not clear yet."]
    assert "97.5\N{NO-BREAK SPACE}%" in words.adjustment(found)
    assert "multiplied by 2" in words.adjustment(found)
    assert "150, 150 and 150 users" in words.sample_ratio(found)
    clicks = {"counts": ["clicks/impressions"]}
    renamed = make_users(("A", "old", "B")).drop(["date"])
    worse = compare(renamed, labels=NAMES, **clicks)
    assert words.overall(worse) == "All treatments are worse than control"
    assert words.mood(worse) == "loss"
    same = compare(only(TABLE, "old", "B"), labels=("old", "B"), **clicks)
    assert words.overall(same) == "No treatment is clearly better than control"
    assert words.adjustment(same) == ""


def test_as_json(found):
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert list(plain["treatments"]) == ["A", "B"]
    assert plain["sample_ratio"]["buckets"][0] == {"name": "old", "n": 150, "share": 1 / 3}


def test_no_treatment_is_found_too_often():
    """Three treatments without an effect, opened emails clicked or not, tested by Welch."""
    random = np.random.default_rng(8)
    runs, n = 60, 400
    wrong = one = 0
    for _ in range(runs):
        clicks = random.random(n) < 0.3
        table = pa.table({"bucket": ["c", "x", "y", "z"] * (n // 4), "clicks": clicks.astype(int)})
        found = compare(table, labels=("c", "x", "y", "z"))
        findings = [own for v in found.verdicts.values() for own in v.findings]
        wrong += any(own.verdict == "significant" for own in findings)
        one += any(own.p < 0.05 for own in findings)
    assert wrong / runs <= 0.08
    assert one > wrong  # what three tests at the full level find


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["old"]}, r"labels=\['old'\]: .*at least one treatment"),
        ({"labels": "abc"}, "labels='abc': "),
        ({"labels": ["old", "A", "A"]}, "each once"),
        ({"labels": NAMES, "shares": (0.5, 0.5)}, "shares=0.5,0.5: must be 3 shares"),
        ({"labels": NAMES, "shares": (0.5, 0.5, 0.5)}, "add up to 1.* 0.5,0.25,0.25"),
        ({"labels": NAMES, "shares": (0.5, 0.5, 0)}, "shares=0: "),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(SettingError, match=message):
        compare(TABLE, counts=["clicks/user"], **options)


def test_bad_buckets_are_refused():
    with pytest.raises(DataError, match="has 'B': must be 'old', 'A' or 'C'"):
        compare(TABLE, labels=("old", "A", "C"), counts=["clicks/user"])
    with pytest.raises(DataError, match="has no 'C'; add rows of all buckets"):
        compare(TABLE, labels=("old", "A", "B", "C"), counts=["clicks/user"])
    twice = TABLE.append_column("user_id", pa.array([1] * 450))
    with pytest.raises(DataError, match="1 of 1 users have rows in several buckets"):
        compare(twice, labels=NAMES, counts=["clicks/user"])
