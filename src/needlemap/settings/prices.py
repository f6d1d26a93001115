"""Compute what tokens cost, in US dollars, by genai-prices' list or by the user's own prices.

A model without a known price costs None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from needlemap.errors import SettingsError, did_you_mean
from needlemap.models import backend_or_default

if TYPE_CHECKING:
    from needlemap.settings import Settings

PARTS = ("input", "cached_input", "output")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one model.

    Attributes:
        provider: The model's back end.
        model: The model's name.
        own: The user's prices in US dollars per million tokens of `PARTS`; None to look the model
            up.
    """

    provider: str
    model: str
    own: dict[str, float] | None = None

    @classmethod
    def of(cls, settings: Settings) -> Prices:
        """Return the prices of the model that the settings name.

        Raises SettingsError if the user's own prices have unknown or missing parts.
        """
        return cls.named(settings.backend, settings.model_name, settings.prices, "--prices")

    @classmethod
    def named(
        cls, provider: str, model: str, own: Mapping[str, float] | None, given: str
    ) -> Prices:
        """Return the prices of a model.

        Raises SettingsError if the user's own prices have unknown or missing parts.

        given: the words for the user's own prices in errors.
        """
        for part in own or ():
            if part not in PARTS:
                raise SettingsError(
                    f"Unknown part '{part}' in {given}. {did_you_mean(part, PARTS)}"
                )
        if own and ("input" not in own or "output" not in own):
            raise SettingsError(
                f"{given[:1].upper()}{given[1:]} needs input=USD and output=USD per million "
                f"tokens, and may have cached_input=USD."
            )
        return cls(provider, model, dict(own) if own else None)

    @property
    def free(self) -> bool:
        """Return True if requests cost nothing without own prices, because the model runs here."""
        return backend_or_default(self.provider).free

    def usd(self, prompt_tokens: int, cached_tokens: int, answer_tokens: int) -> float | None:
        """Return the dollars for one request, or None if no price is known."""
        # A server may report more cached tokens than were sent.
        cached_tokens = min(cached_tokens, prompt_tokens)
        if self.own:
            cached_price = self.own.get("cached_input", self.own["input"])
            per_million = (
                (prompt_tokens - cached_tokens) * self.own["input"]
                + cached_tokens * cached_price
                + answer_tokens * self.own["output"]
            )
            return per_million / 1e6
        if self.free:
            return 0.0
        return _listed_usd(self.provider, self.model, prompt_tokens, cached_tokens, answer_tokens)


def summed(amounts: Iterable[float | None], *, of_known: bool = False) -> float | None:
    """Return the sum of tokens, dollars or seconds, or None if any amount is unknown.

    of_known: whether to add up the known amounts, so that the result is None only if all are
    unknown.

    >>> summed([1, None]), summed([1, None], of_known=True), summed([]), summed([], of_known=True)
    (None, 1, 0, None)
    """
    rows = list(amounts)
    known = [amount for amount in rows if amount is not None]
    return sum(known) if (known if of_known else len(known) == len(rows)) else None


def price_source(settings: Settings) -> str:
    """Return where prices come from, with the version of a list, for estimates."""
    if settings.prices:
        return "your own (--prices)"
    from importlib.metadata import version

    return f"genai-prices {version('genai-prices')}"


# The budget and the record look up the same.
@lru_cache(1024)
def _listed_usd(provider: str, model: str, prompt: int, cached: int, answer: int) -> float | None:
    from genai_prices import Usage, calc_price

    provider = backend_or_default(provider).vendor or provider
    if not _is_listed(provider, model):
        return None
    usage = Usage(input_tokens=prompt, cache_read_tokens=cached, output_tokens=answer)
    try:
        price: Decimal = calc_price(usage, model_ref=model, provider_id=provider).total_price
    except (LookupError, ValueError, ArithmeticError):
        return None
    return float(price)


# The list does not keep which models it lacks, and is searched whole each time.
@lru_cache(64)
def _is_listed(provider: str, model: str) -> bool:
    from genai_prices import Usage, calc_price

    try:
        calc_price(Usage(input_tokens=1), model_ref=model, provider_id=provider)
    except LookupError:
        return False
    except (ValueError, ArithmeticError):
        # The model is listed, but has no price for this usage.
        return True
    return True
