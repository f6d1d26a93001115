"""What tokens cost: by the user's own prices, by the bundled list, or unknown, which is never 0."""

from __future__ import annotations

import pytest

from needlemap.errors import SettingsError
from needlemap.settings.prices import Prices
from needlemap.settings.reading import configure


def prices(model: str = "openai/gpt-4o", **own: float) -> Prices:
    return Prices.of(configure(None, {"model": model, "prices": own}))


def test_own_prices_are_dollars_per_million():
    own = prices("openai/mine", input=2, cached_input=0.5, output=10)
    assert own.usd(1_000_000, 400_000, 100_000) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 10)


def test_cached_input_costs_as_any_input_where_it_has_no_price():
    assert prices("openai/mine", input=2, output=10).usd(1000, 900, 0) == pytest.approx(0.002)


def test_the_bundled_list_knows_a_models_price_and_that_a_cache_is_cheaper():
    fresh, cached = (prices().usd(100_000, held, 100) for held in (0, 90_000))
    assert fresh == pytest.approx(100_000 * 2.5e-6 + 100 * 1e-5)
    assert 0 < cached < fresh
    assert prices("anthropic/claude-sonnet-4-5").usd(1000, 0, 10) > 0


@pytest.mark.parametrize("model", ["openai/no-such-model", "nowhere/gpt-4o-like"])
def test_an_unknown_price_is_none(model):
    assert prices(model).usd(1000, 0, 10) is None


@pytest.mark.parametrize("model", ["baseline/bm25", "python/mine:answer", "hf/model"])
def test_what_runs_here_is_free_unless_it_has_a_price(model):
    assert prices(model).free
    assert prices(model).usd(1000, 0, 10) == 0
    assert prices(model, input=1, output=1).usd(1_000_000, 0, 0) == 1


def test_no_tokens_cost_nothing():
    assert prices().usd(0, 0, 0) == 0


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"inptu": 1}, r"Unknown part 'inptu' in --prices. Did you mean 'input'\?"),
        ({"input": 1}, "--prices needs input=USD and output=USD per million tokens"),
        ({"cached_input": 1, "output": 2}, "--prices needs input=USD"),
    ],
)
def test_prices_that_say_too_little_are_refused(own, words):
    with pytest.raises(SettingsError, match=words):
        prices(**own)
