"""What tokens cost, in US dollars: by the bundled price list of genai-prices, or by the user's
own prices.

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
    """Prices of one model. own: US dollars per million tokens of `PARTS`, or None to look the
    model up."""

    provider: str
    model: str
    own: dict[str, float] | None = None

    @classmethod
    def of(cls, settings: Settings) -> Prices:
        """The prices of the model that the settings name. Raises SettingsError for unknown
        parts."""
        return cls.named(settings.backend, settings.model_name, settings.prices, "--prices")

    @classmethod
    def named(
        cls, provider: str, model: str, own: Mapping[str, float] | None, given: str
    ) -> Prices:
        """given: what the user calls his own prices, for errors. Raises SettingsError for
        unknown parts."""
        for part in own or ():
            if part not in PARTS:
                raise SettingsError(
                    f"Unknown part '{part}' in {given}. {did_you_mean(part, PARTS)}"
                )
        if own and ("input" not in own or "output" not in own):
            raise SettingsError(
                f"{given[:1].upper()}{given[1:]} needs input=USD and output=USD per million "
                f"tokens, and may "
                f"have cached_input=USD."
            )
        return cls(provider, model, dict(own) if own else None)

    @property
    def free(self) -> bool:
        """Whether asking costs nothing unless own prices say so: the model runs here."""
        return backend_or_default(self.provider).free

    def usd(self, prompt_tokens: int, cached_tokens: int, answer_tokens: int) -> float | None:
        """Dollars for one call; None when no price is known. No more tokens are cached than
        were sent."""
        cached_tokens = min(cached_tokens, prompt_tokens)
        if self.own:
            fresh = prompt_tokens - cached_tokens
            cached = self.own.get("cached_input", self.own["input"])
            paid = (
                fresh * self.own["input"]
                + cached_tokens * cached
                + answer_tokens * self.own["output"]
            )
            return paid / 1e6
        if self.free:
            return 0.0
        return _listed(self.provider, self.model, prompt_tokens, cached_tokens, answer_tokens)


def summed(amounts: Iterable[float | None], *, of_known: bool = False) -> float | None:
    """The sum of tokens, dollars or seconds. None where any is unknown; of_known: only where
    all are.

    >>> summed([1, None]), summed([1, None], of_known=True), summed([]), summed([], of_known=True)
    (None, 1, 0, None)
    """
    rows = list(amounts)
    known = [amount for amount in rows if amount is not None]
    return sum(known) if (known if of_known else len(known) == len(rows)) else None


def price_source(settings: Settings) -> str:
    """Where prices come from, with their date or version, for estimates."""
    if settings.prices:
        return "your own (--prices)"
    from importlib.metadata import version

    return f"genai-prices {version('genai-prices')}"


@lru_cache(1024)  # the budget and the record ask for the same
def _listed(provider: str, model: str, prompt: int, cached: int, answer: int) -> float | None:
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


@lru_cache(64)  # the list does not keep which models it lacks, and is searched whole each time
def _is_listed(provider: str, model: str) -> bool:
    from genai_prices import Usage, calc_price

    try:
        calc_price(Usage(input_tokens=1), model_ref=model, provider_id=provider)
    except LookupError:
        return False
    except (ValueError, ArithmeticError):
        return True  # of this usage it is not known
    return True
