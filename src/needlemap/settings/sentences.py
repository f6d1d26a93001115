"""Read the file of the setting `distractors`: sentences of the user's own, one a line.

The sentences themselves become the setting, so that run.json holds them and no later start reads
the file again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError, os_error_words
from needlemap.files import read_regular
from needlemap.settings import MOST_SENTENCES, is_count

_FLAG = "--distractors"
_MOST_BYTES = 1 << 20


def with_sentences(given: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the sentences of a file in place of the file's name.

    Raises SettingsError if the file cannot be used, as `_read_sentences` does.
    """
    distractors = given.get("distractors")
    if not isinstance(distractors, str | Path) or is_count(str(distractors)):
        return given
    return given | {"distractors": _read_sentences(distractors)}


def _read_sentences(path: str | Path) -> list[str]:
    """Return the lines of a file that are not empty, without white space at their ends.

    Raises SettingsError if the file cannot be read, has no such line, or has too many of them.
    """
    file = Path(path).expanduser()
    if not str(path).strip():
        raise SettingsError(f"{_FLAG} names no file. Give a text file with one sentence a line.")

    try:
        text = read_regular(file, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise SettingsError(
            f"{_FLAG}: there is no file '{path}'. Give a text file with one sentence a line."
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{_FLAG}: '{path}' is no UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise SettingsError(f"{_FLAG}: {os_error_words(error)}") from None
    except NeedlemapError as error:
        raise SettingsError(f"{_FLAG}: {error}") from None

    sentences = [line.strip() for line in text.splitlines() if line.strip()]
    if not sentences:
        raise SettingsError(f"{_FLAG}: '{path}' holds no sentence. Write one a line.")
    if len(sentences) > MOST_SENTENCES:
        raise SettingsError(
            f"{_FLAG}: '{path}' holds {len(sentences):,} sentences, and at most {MOST_SENTENCES:,} "
            f"are read."
        )
    return sentences
