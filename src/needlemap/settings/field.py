"""What a setting is made of: its group, its role in a trial's key, its marks, and numbers with units.

The settings themselves are in `settings.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field
from pydantic.config import JsonDict

from needlemap.errors import SettingsError
from needlemap.settings.units import duration_s, tokens

Role = Literal["asked", "built", "scored", "grid", "free"]
Mark = Literal["subject", "sampled", "shared", "opened", "older"]


@dataclass(frozen=True, slots=True)
class Group:
    """The settings that `--help` shows under one name."""

    name: str

    def _field(
        self, role: Role, default: Any, text: str, *marks: Mark, read: str | None = None, **limits: Any
    ) -> Any:
        """A setting: its default, one line of help, and all that is known of it.

        role, in a trial's key. 'asked': its value is in it. 'built': what it comes to is, texts, places and
        the tokenizer's own. 'scored': so, and `needlemap score` changes it. 'grid' and 'free': it is not, and
        may differ when a run is resumed; the grid says which cells there are.
        marks. 'subject': who is asked, which changes no prompt. 'sampled': read where an answer is generated.
        'shared': the same for all families of a suite. 'opened': may make this machine open or run something.
        'older': a way of the older tools, which `--help` leaves to docs/coming-from.md.
        read: the rule in `unread.py` that says where it is read; None: always.
        """
        known = {"role": role, "group": self.name, "read": read, "marks": list(marks)}
        return Field(default, description=text, json_schema_extra=cast(JsonDict, known), **limits)

    asked = partialmethod(_field, "asked")
    built = partialmethod(_field, "built")
    scored = partialmethod(_field, "scored")
    grid = partialmethod(_field, "grid")
    free = partialmethod(_field, "free")


def _read(read: Callable[[object], float], value: Any) -> Any:
    """A text as the number that it stands for. Raises ValueError, as pydantic wants it."""
    try:
        return read(value) if isinstance(value, str) else value
    except SettingsError as error:
        raise ValueError(str(error)) from None


Tokens = Annotated[int, BeforeValidator(lambda value: _read(tokens, value))]  # 2000000, '100k', '2M'
Seconds = Annotated[float, BeforeValidator(lambda value: _read(duration_s, value))]  # 90, '90s', '1h30m'
