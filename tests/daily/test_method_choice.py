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

from shops import AS_OF, TONIGHT, run_in_process
from trimtab.daily.method_choice import ForecastOf, choose_method
from trimtab.learn.held_out import lift_of, share_of
from trimtab.store import Store

W = 0.02 * 1.6448536269514722  # half a 90 % interval of this standard error
pytestmark = pytest.mark.xdist_group("shop")


def forecasts(**lifts: float | None) -> dict[str, ForecastOf]:
    """Forecasts with a standard error of 0.02."""
    return {
        name: ForecastOf(None, None, None) if lift is None else ForecastOf(lift, lift - W, lift + W)
        for name, lift in lifts.items()
    }


def by_share(**shares: float) -> dict[str, ForecastOf]:
    """The same of shares of what is attained."""
    return {name: ForecastOf(*map(lift_of, (s, s - W, s + W))) for name, s in shares.items()}


def test_a_method_is_changed_only_for_a_clear_gain():
    for (bias, reranker), served, chosen, why in (
        ((0.05, 0.04), None, "bias", "its forecast, +5.0%, is the highest"),
        ((0.05, 0.06), None, "reranker", "is the highest"),
        ((0.05, 0.06), "reranker", "reranker", "is the highest"),
        ((0.05, 0.06), "bias", "bias", "by less than its standard error"),
        ((0.05, 0.08), "bias", "reranker", "by more than its standard error"),
        ((None, 0.01), "bias", "reranker", "bias, used so far, gains nothing"),
        ((0.01, -0.01), "reranker", "bias", "reranker, used so far, gains nothing"),
        ((None, -0.1), "reranker", "nothing", "no method gains on held-out windows"),
    ):
        choice = choose_method(forecasts(bias=bias, reranker=reranker), served)
        assert choice.method == chosen
        assert why in choice.why
    choice = choose_method(forecasts(bias=0.05), "reranker")
    assert choice.method == "bias"
    assert "reranker, used so far, gains nothing" in choice.why


def test_the_forecast_of_the_chosen_allows_for_having_chosen():
    """The larger of two draws with the same mean is 0.564 standard errors above it.

    As shares of what is attained: of lifts near +1000 % too, nothing below 0 may be left.
    """
    level = choose_method(forecasts(bias=0.5, reranker=0.5), None)
    error = level.forecasts["bias"].error
    assert error == pytest.approx(0.02 / 1.5**2, rel=0.01)
    assert level.allowance == pytest.approx(error * 0.5641896, rel=1e-6)
    ahead = choose_method(forecasts(bias=0.5, reranker=0.53), None)
    assert 0 < ahead.allowance < level.allowance
    assert choose_method(forecasts(bias=0.5, reranker=0.9), None).allowance < 1e-9
    # "Change nothing" was an alternative, too.
    alone = choose_method(by_share(bias=0.02), None)
    assert alone.allowance == pytest.approx(0.02 * 0.2419707, rel=1e-6)
    random = np.random.default_rng(0)
    draws = random.normal(0.5, 0.02, (4_000, 2))
    told = [choose_method(by_share(bias=one, reranker=other), None) for one, other in draws]
    means = [max(own.forecasts[n].share for n in own.forecasts) - own.allowance for own in told]
    assert np.max(draws, axis=1).mean() > 0.51
    assert np.mean(means) == pytest.approx(0.5, abs=0.004)


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
    own = told["forecasts"][told["used"]]  # what it forecasts is lower
    assert told["allowance"] > 0
    found = [version.forecast[name] for name in ("forecast", "forecast_low", "forecast_high")]
    shares = [share_of(own[name]) - told["allowance"] for name in ("lift", "low", "high")]
    expected = [lift_of(share) for share in shares]
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("method", ["default", "reranker"])  # "bias" by its name in a backtest
def test_auto_knows_the_method_served_and_leaves_out_what_must_not_be_shown(shop, method):
    served = shop.job(method=method, accept=("guard",))
    served.run(AS_OF - timedelta(1))
    allowed = pa.table({"item_id": sorted(set(shop.of(TONIGHT)["item_id"].to_pylist()))[:40]})
    pq.write_table(allowed, shop.folder / "allowed.parquet")
    limits = {"allowed": shop.folder / "allowed.parquet", "accept": ("different-lists",)}
    version = shop.job(method="auto", **limits).run(AS_OF).version
    told = version.manifest["method"]
    found = {name: ForecastOf(**own) for name, own in told["forecasts"].items()}
    expected = choose_method(found, served.method)
    assert (told["used"], told["why"]) == (expected.method, expected.why)
    assert pc.all(pc.is_in(version.lists()["item_id"], allowed["item_id"].combine_chunks()))


def test_a_strength_is_published_with_its_forecast_and_told_by_diff(shop):
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
    whole = shop.job(method="reranker").run(AS_OF)
    done = shop.job(method="reranker", strength=0.3).run(AS_OF)
    assert done.reranker.summary.strength == 0.3
    assert done.version.reranker().learned == whole.reranker.with_strength(0.3).learned
    halved, changed = (
        run_in_process("diff", number, number + 1, "--store", shop.store).stdout.splitlines()
        for number in (1, 2)
    )
    assert halved[-1] == "strength 1 in version 1, 0.5 in version 2"
    assert "method bias in version 2, reranker in version 3" in changed
