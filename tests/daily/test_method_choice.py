"""refresh --method: any method can be published; auto takes the best, and does not change lightly.

--strength publishes a share of what was learned.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import AS_OF, TONIGHT, run_in_process
from trimtab.daily.method_choice import ForecastOf, choose_method
from trimtab.errors import SettingError
from trimtab.store import Store

pytestmark = pytest.mark.xdist_group("shop")


def forecasts(**lifts: float | None) -> dict[str, ForecastOf]:
    """Forecasts with a standard error of 0.02."""
    width = 0.02 * 1.6448536269514722
    return {
        name: ForecastOf(None, None, None)
        if lift is None
        else ForecastOf(lift, lift - width, lift + width)
        for name, lift in lifts.items()
    }


@pytest.mark.parametrize(
    ("lifts", "served", "chosen", "why"),
    [
        ({"bias": 0.05, "reranker": 0.04}, None, "bias", "its forecast, +5.0%, is the highest"),
        ({"bias": 0.05, "reranker": 0.06}, None, "reranker", "is the highest"),
        ({"bias": 0.05, "reranker": 0.06}, "reranker", "reranker", "is the highest"),
        ({"bias": 0.05, "reranker": 0.06}, "bias", "bias", "by less than its standard error"),
        ({"bias": 0.05, "reranker": 0.08}, "bias", "reranker", "by more than its standard error"),
        ({"bias": None, "reranker": 0.01}, "bias", "reranker", "bias, used so far, gains nothing"),
        (
            {"bias": 0.01, "reranker": -0.01},
            "reranker",
            "bias",
            "reranker, used so far, gains nothing",
        ),
        ({"bias": 0.05}, "reranker", "bias", "reranker, used so far, gains nothing"),
        (
            {"bias": None, "reranker": -0.1},
            "reranker",
            "nothing",
            "no method gains on held-out windows",
        ),
    ],
)
def test_a_method_is_changed_only_for_a_clear_gain(lifts, served, chosen, why):
    choice = choose_method(forecasts(**lifts), served)
    assert choice.method == chosen
    assert why in choice.why


def test_the_forecast_of_the_chosen_allows_for_having_chosen():
    """The larger of two draws with the same mean is 0.564 standard errors above it."""
    level = choose_method(forecasts(bias=0.5, reranker=0.5), None)
    assert level.allowance == pytest.approx(0.02 * 0.5641896, rel=1e-6)
    ahead = choose_method(forecasts(bias=0.5, reranker=0.53), None)
    assert 0 < ahead.allowance < level.allowance
    assert choose_method(forecasts(bias=0.5, reranker=0.9), None).allowance < 1e-9
    # "Change nothing" was an alternative, too.
    assert choose_method(forecasts(bias=0.02), None).allowance == pytest.approx(
        0.02 * 0.2419707, rel=1e-6
    )
    random = np.random.default_rng(0)
    draws = random.normal(0.5, 0.02, (4_000, 2))
    told = [choose_method(forecasts(bias=a, reranker=b), None) for a, b in draws]
    means = [max(own.forecasts[n].lift for n in own.forecasts) - own.allowance for own in told]
    assert np.max(draws, axis=1).mean() > 0.51
    assert np.mean(means) == pytest.approx(0.5, abs=0.004)


def test_what_auto_forecasts_is_lower_than_what_the_method_forecasts(shop):
    version = shop.job(method="auto").run(AS_OF).version
    told = version.manifest["method"]
    own = told["forecasts"][told["used"]]
    assert told["allowance"] > 0
    found = [version.forecast[name] for name in ("forecast", "forecast_low", "forecast_high")]
    expected = [own[name] - told["allowance"] for name in ("lift", "low", "high")]
    assert found == pytest.approx(expected, abs=1e-12)


def test_auto_publishes_the_best_and_says_why(shop):
    result = run_in_process(*shop.arguments("--as-of", AS_OF, "--method", "auto"))
    assert result.returncode == 0
    version = Store(shop.store).current()
    told = version.manifest["method"]
    lifts = {name: own["lift"] for name, own in told["forecasts"].items() if own["lift"]}
    assert set(told["forecasts"]) >= {"bias"}
    assert told["asked"] == "auto"
    assert told["used"] == max(lifts, key=lifts.__getitem__)
    assert told["why"] in result.stdout
    assert version.lists().num_rows > 0
    assert f"method {told['used']}: " in result.stdout


@pytest.mark.parametrize("method", ["bias", "reranker"])
def test_auto_knows_the_method_served(shop, method):
    shop.job(method=method, accept=("guard",)).run(AS_OF - timedelta(1))
    told = shop.job(method="auto").run(AS_OF).version.manifest["method"]
    found = {name: ForecastOf(**own) for name, own in told["forecasts"].items()}
    expected = choose_method(found, method)
    assert (told["used"], told["why"]) == (expected.method, expected.why)


def test_names_of_a_backtest_are_understood(shop):
    assert shop.job(method="default").method == "bias"


def test_auto_leaves_out_what_must_not_be_shown(shop):
    lists = pq.read_table(shop.lists / f"{TONIGHT}.parquet")
    allowed = pa.table({"item_id": sorted(set(lists["item_id"].to_pylist()))[:40]})
    pq.write_table(allowed, shop.folder / "allowed.parquet")
    done = shop.job(
        method="auto", allowed=shop.folder / "allowed.parquet", accept=("different-lists",)
    ).run(AS_OF)
    assert pc.all(pc.is_in(done.version.lists()["item_id"], allowed["item_id"].combine_chunks()))


def test_a_strength_is_published_with_its_forecast(shop):
    whole = shop.job(finish_lists=True).run(AS_OF)
    arguments = shop.arguments("--as-of", AS_OF, "--strength", "0.5", "--finish-lists")
    result = run_in_process(*arguments)
    assert result.returncode == 0
    assert "strength 0.5 of what was learned" in result.stdout
    version = Store(shop.store).current()
    assert version.manifest["strength"] == 0.5
    assert np.array_equal(version.bias().bias, 0.5 * whole.bias.bias)
    expected = whole.bias.summary.forecast_by_strength["0.5"][0]
    assert version.forecast["forecast"] == expected
    assert run_in_process("history", "--store", shop.store).returncode == 0


def test_a_reranker_at_a_strength_is_published(shop):
    whole = shop.job(method="reranker").run(AS_OF)
    done = shop.job(method="reranker", strength=0.3).run(AS_OF)
    assert done.reranker.summary.strength == 0.3
    loaded = done.version.reranker()
    assert loaded.learned == whole.reranker.with_strength(0.3).learned
    assert isinstance(loaded, tt.Reranker)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "best"}, "method='best'"),
        ({"strength": 2}, "strength=2"),
        (
            {"method": "bias", "widen": "any"},
            "widen='any': needs method='reranker' or method='auto'",
        ),
        (
            {"method": "auto", "learner": tt.BiasLearner.paper()},
            "learner.method='ascent': a reranker takes only k, metric",
        ),
    ],
)
def test_settings_that_do_not_go_together(shop, settings, message):
    with pytest.raises(SettingError, match=message):
        shop.job(**settings)
