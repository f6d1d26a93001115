"""A data set on the Hugging Face hub, fetched once with a progress bar and read from the cache after that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from needlemap.errors import HaystackError
from needlemap.haystacks.base import Document
from needlemap.haystacks.jsonl import JsonLines


class Hub:
    """JSON Lines files of a hub data set, such as Skywork/ChineseDomainModelingEval.

    Raises HaystackError when it is neither in the cache nor to be had, with the steps to get it by hand.
    """

    endless = False

    def __init__(
        self, path: str, *, file_list: Sequence[str] = (), field: str = "text", revision: str | None = None
    ) -> None:
        self.name = f"hub/{path}"
        self._lines = JsonLines(str(_fetch(path, file_list, revision)), file_list=file_list, field=field)

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Each line's text."""
        return self._lines.documents(first)


def _fetch(repository: str, file_list: Sequence[str], revision: str | None) -> Path:
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise HaystackError(
            "The hub haystack needs huggingface_hub. Run: pip install 'needlemap[hub]'"
        ) from error
    patterns = list(file_list) or ["*.jsonl"]
    try:
        found = hub.snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=patterns, etag_timeout=10
        )
    except Exception as error:  # the library raises its own, requests', httpx's and OSError
        raise HaystackError(
            f"Could not get data set '{repository}' from the hub ({type(error).__name__}), nor is it in the "
            f"cache. By hand: open https://huggingface.co/datasets/{repository}/tree/main in a browser, put "
            f"{', '.join(patterns)} into a folder, and give --haystack jsonl --haystack-path FOLDER."
        ) from error
    return Path(found)
