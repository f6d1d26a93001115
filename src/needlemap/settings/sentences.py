"""A file of the user's own sentences, one a line: distractors.

The sentences themselves become the setting, so that run.json holds them and no later start reads
the file again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from needlemap.errors import NeedlemapError, SettingsError, os_error_words
from needlemap.files import read_regular
from needlemap.settings import MOST_SENTENCES, Settings, marked

FROM_FILES = frozenset(marked("sentences"))
_MOST_BYTES = 1 << 20


def with_sentences(given: dict[str, Any]) -> dict[str, Any]:
    """Settings with the sentences of the files that they name. Raises SettingsError."""
    named = {name: given[name] for name in FROM_FILES if _is_file(name, given.get(name))}
    return given | {name: read_sentences(name, path) for name, path in named.items()}


def _is_file(name: str, value: Any) -> bool:
    """Whether a setting's value names a file: a text, but no number where it takes numbers."""
    if not isinstance(value, str | Path):
        return False
    numbered = int in get_args(Settings.model_fields[name].annotation)
    return not (numbered and str(value).strip().lstrip("+-").isdecimal())


def read_sentences(name: str, path: str | Path) -> list[str]:
    """The lines of a file that hold anything, without white space at their ends. Raises
    SettingsError for a file that cannot be read, is none, or holds nothing."""
    flag, file = f"--{name.replace('_', '-')}", Path(path).expanduser()
    if not str(path).strip():
        raise SettingsError(f"{flag} names no file. Give a text file with one sentence a line.")
    try:
        text = read_regular(file, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise SettingsError(
            f"{flag}: there is no file '{path}'. Give a text file with one sentence a line."
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{flag}: '{path}' is no UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise SettingsError(f"{flag}: {os_error_words(error)}") from None
    except NeedlemapError as error:
        raise SettingsError(f"{flag}: {error}") from None
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise SettingsError(f"{flag}: '{path}' holds no sentence. Write one a line.")
    if len(found) > MOST_SENTENCES:
        raise SettingsError(
            f"{flag}: '{path}' holds {len(found):,} sentences, and at most {MOST_SENTENCES:,} "
            f"are read."
        )
    return found
