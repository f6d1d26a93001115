"""The JSON Schemas of a run folder's files, docs/schema/record.json and run.json, made from the
code.

python tools/json_schema.py        rewrites them; tests/test_schema.py compares, and validates runs
by them
"""

import json
from pathlib import Path
from typing import Any

from needlemap.records import RunFile
from needlemap.records.record import Record
from needlemap.settings import DEFAULTS, KNOWN, Settings, help_texts
from needlemap.version import SCHEMA

FOLDER = Path(__file__).parent.parent / "docs" / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def record_schema() -> dict[str, Any]:
    """Of one line of records-*.jsonl. Required is what every version wrote."""
    schema = Record.model_json_schema(by_alias=True, mode="serialization")
    least = Record.model_json_schema(by_alias=True, mode="validation")
    schema["required"] = least["required"]
    for name, part in schema.get("$defs", {}).items():
        part["required"] = least["$defs"][name].get("required", [])
    return _finished(schema, "record", "One line of records-*.jsonl")


def run_schema() -> dict[str, Any]:
    """Of run.json; settings of other versions and of plug-ins are allowed."""
    schema = RunFile.model_json_schema(by_alias=True)
    settings = Settings.model_json_schema()
    properties = {name: _plain(name, part) for name, part in settings["properties"].items()}
    schema["properties"]["settings"] |= {"properties": properties, "additionalProperties": True}
    schema["$defs"] |= settings.get("$defs", {})
    return _finished(schema, "run", "run.json of a run folder")


def _plain(name: str, part: dict[str, Any]) -> dict[str, Any]:
    """A setting's schema, with its role in a trial's key and its marks."""
    plain = {key: value for key, value in part.items() if key != "title"}
    plain |= {"default": DEFAULTS[name], "description": help_texts()[name]}
    return dict(
        sorted({**plain, "role": KNOWN[name].role, "marks": list(KNOWN[name].marks)}.items())
    )


def _finished(schema: dict[str, Any], name: str, title: str) -> dict[str, Any]:
    frame = {"$schema": DIALECT, "$id": f"needlemap/{name}-{SCHEMA}.json", "title": title}
    return frame | {key: value for key, value in schema.items() if key not in frame}


SCHEMAS = {"record.json": record_schema, "run.json": run_schema}


def text_of(schema: dict[str, Any]) -> str:
    """As it is written."""
    return json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=False) + "\n"


def main() -> None:
    """Rewrite both."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in SCHEMAS.items():
        (FOLDER / name).write_text(text_of(make()), encoding="utf-8")


if __name__ == "__main__":
    main()
