"""One reader of files under a coverage-guided fuzzer: any exception but our own ends it, the input
kept.

    python benchmarks/sides/fuzz_reader.py records CORPUS [libFuzzer's options]

CORPUS is a folder that keeps the inputs which reach new code.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["needlemap", "yaml", "json", "csv"]):
    from needlemap.errors import NeedlemapError
    from needlemap.grid import make_grid
    from needlemap.interop.imported import ImportOptions, imported
    from needlemap.interop.sources import read
    from needlemap.prompts.templates import load_template
    from needlemap.records.loaded import load_run
    from needlemap.reports.renderers.heat import plain_summary
    from needlemap.settings.reading import configure

ABOUT = (
    b'{"schema":2,"settings":{"model":"a/b","task":"single","mode":"exact"},"tokenizer":{"name":"t",'
    b'"fingerprint":"f"},"scorer":{"name":"substring","options":{}},"haystacks":[],"cells":[[1000,0.5,[0]]]}'
)
RECORD = (
    b'{"schema":2,"key":"k","task":"single","model":"a/b","length_tokens":1000,"depth":0.5,"repeat":0,"seed":0,'
    b'"score":1.0,"needles":[{"meant":0.5,"realised":0.5,"byte":7}],"scorer":{"name":"substring"}}\n'
)
SEEDS = {
    "settings": (
        b"preset: demo\nlengths: 1k:8k:3\ndepths: [0]\ndraw: {city: [Oslo]}\nneedle: '{city}'\n"
    ),
    "template": b"messages:\n- {role: user, text: '{haystack} {question}'}\n",
    "records": RECORD,
    "run": ABOUT,
    "json": b'[{"context_length":1000,"depth_percent":50,"score":7,"model":"m","version":2}]',
    "jsonl": b'{"schema_version":2,"context_length":1000,"target_depth_percent":50,"score":{"value":1}}\n',  # noqa: E501
    "csv": b"dataset,version,metric,mode,m\nLength1000Depth50_en,abc,score,gen,87.5\n",
    "txt": (
        b"csv format\n^^^\ndataset,version,metric,mode,m\nLength1000Depth50,a,score,gen,8\n$$$\n"
    ),
}


def settings(place: Path, data: bytes) -> None:
    """A settings file, and the grid that it asks for."""
    file = _file(place / "any.yaml", data)
    settled = configure(str(file), {})
    make_grid(settled.lengths, settled.depths)


def template(place: Path, data: bytes) -> None:
    """A template file."""
    load_template(str(_file(place / "any.yaml", data)))


def records(place: Path, data: bytes) -> None:
    """A run's records."""
    _file(place / "run.json", ABOUT)
    _file(place / "records-1.jsonl", data)
    _map(place)


def run(place: Path, data: bytes) -> None:
    """A run's run.json."""
    _file(place / "run.json", data)
    _file(place / "records-1.jsonl", RECORD)
    _map(place)


def other(suffix: str) -> Callable[[Path, bytes], None]:
    """Another tool's file of that kind."""

    def import_it(place: Path, data: bytes) -> None:
        imported(read([_file(place / f"any.{suffix}", data)]).sources, ImportOptions())

    return import_it


def _map(place: Path) -> None:
    loaded = load_run(place)
    plain_summary(loaded.map)


def _file(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


READERS = {
    "settings": settings,
    "template": template,
    "records": records,
    "run": run,
    **{suffix: other(suffix) for suffix in ("json", "jsonl", "csv", "txt")},
}


def main() -> None:
    """Fuzz one reader."""
    name, corpus, *options = sys.argv[1:]
    folder, place, reader = Path(corpus), Path(tempfile.mkdtemp()), READERS[name]
    folder.mkdir(parents=True, exist_ok=True)
    _file(folder / "seed", SEEDS[name])
    atheris.Setup([sys.argv[0], corpus, *options], lambda data: once(reader, place, data))
    atheris.Fuzz()


def once(reader: Callable[[Path, bytes], None], place: Path, data: bytes) -> None:
    """Read it. What is wrong with it is said by an error of ours."""
    with suppress(NeedlemapError):
        reader(place, data)


if __name__ == "__main__":
    main()
