"""Keys stay where they were put, and what strangers wrote does nothing on a terminal or outside the
run."""

from __future__ import annotations

import ast
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from needlemap.cluster import Processes
from needlemap.errors import SettingsError
from needlemap.files import folder_name
from needlemap.http import check_address
from needlemap.records.loaded import load_run
from needlemap.reports.renderers.heat import terminal_map
from needlemap.secrets import refuse_keys
from needlemap.text import printable

KEY = "planted-key-1234567890"
GRID = ("--lengths", "200,300", "--depths", "0,50,100")
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m=cmd|' /C calc'!A0\u202e"


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{KEY}@127.0.0.1:9/v1",
        f"http://127.0.0.1:9/v1?api_key={KEY}",
        f"http://127.0.0.1:9/v1?code={KEY}Aa",
        f"http://127.0.0.1:9/v1?x=1#tok={KEY}Aa",
        f"http://127.0.0.1:9/v1?code={'0123456789abcdef' * 2}",
    ],
)
def test_a_key_in_an_address_is_refused_and_not_said_back(url):
    told = "holds a key, which run.json would keep. Take it out, and type: export OPENAI_API_KEY"
    with pytest.raises(SettingsError, match=told) as refused:
        check_address(url)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("tokenizer", [("--tokenizer", "cl100k_base"), ()])
def test_a_key_in_an_address_of_the_environment_is_written_nowhere(needlemap, tokenizer):
    """One that is typed: reliability/test_secrets.py."""
    needlemap.environment["OPENAI_BASE_URL"] = f"http://127.0.0.1:9/v1?code={KEY}Aa"
    ended = needlemap("run", "--model", "openai/m", *tokenizer, "-o", "r", code=2)
    assert KEY not in ended.stdout + ended.stderr
    assert KEY.encode() not in everything(needlemap.folder)


@pytest.mark.parametrize(
    "request_",
    [
        {"api_key": KEY},
        {"metadata": {"inner": [{"Authorization": KEY}]}},
        {"user": f"sk-{KEY}"},
        {"metadata": {"token": KEY}},
        {"session": KEY},
    ],
)
def test_a_key_in_a_request_is_refused_and_not_said_back(request_):
    with pytest.raises(SettingsError, match="Setting 'request' holds a key") as refused:
        refuse_keys({"request": request_}, "A_KEY")
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "https://x.openai.azure.com/openai?api-version=2024-10-01-preview",
        "http://h/v1?deployment=gpt-4o-mini-2024-07-18&n=1",
        "http://h/models/Qwen2.5-72B-Instruct-GPTQ-Int4-0123456789/v1",
    ],
)
def test_a_version_or_a_name_in_an_address_is_no_key(address):
    check_address(address)


def test_only_what_is_no_word_is_a_key_under_a_name_that_may_be_one():
    request = {"stop_token": "</s>", "session": "evaluation", "token": "end-of-text-marker"}
    refuse_keys({"request": request}, "A_KEY")


def test_control_sequences_of_a_server_a_run_file_or_an_import_reach_no_terminal(needlemap, wire):
    wire.schedule(f"say:{HOSTILE}", "400", cycle=True)
    ended = needlemap.run(wire, *GRID, "--no-canary", code=3)
    about = needlemap.folder / "r" / "run.json"
    kept = json.loads(about.read_text("utf-8"))
    kept["settings"] |= {"model": HOSTILE, "task": HOSTILE}
    kept["scorer"]["name"] = kept["tokenizer"]["name"] = HOSTILE
    about.write_text(json.dumps(kept), encoding="utf-8")
    shown: list[Any] = [ended, needlemap("report", "r")]
    shown.append(needlemap("replay", "r", "--length", "200", "--depth", "0", code=None))
    for each in shown:
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(each.stdout + each.stderr)


def test_an_answer_that_is_a_formula_is_text_in_a_table(needlemap, wire):
    wire.schedule("say:=HYPERLINK(1)", "say:+1+1", "say:@SUM(1)", "say:-2+3", cycle=True)
    needlemap.run(wire, *GRID, "--no-canary")
    needlemap("report", "r", "-o", "t.csv", "--format", "trials")
    table = (needlemap.folder / "t.csv").read_text("utf-8")
    assert "'=HYPERLINK(1)" in table
    assert ",=HYPERLINK" not in table
    assert all(f",{sign}" not in table for sign in "=+@")


def test_names_from_settings_do_not_leave_the_folder(needlemap, wire):
    flags = [flag for flag in needlemap.asking(wire)[2:] if flag not in ("-o", "r")]
    model = ("--model", "openai/../../../../etc/x")
    needlemap("run", *flags, *GRID, *model, "--save-contexts")
    assert [entry.name for entry in needlemap.folder.iterdir()] == ["runs"]
    (run,) = (needlemap.folder / "runs").iterdir()
    assert run.name.startswith("openai-..-..")
    assert {file.parent for file in run.rglob("*") if file.is_file()} == {run, run / "contexts"}


def test_yaml_makes_no_objects(needlemap):
    (needlemap.folder / "evil.yaml").write_text(
        "model: !!python/object/apply:os.system ['touch owned']\n"
    )
    ended = needlemap("run", "evil.yaml", code=2)
    assert "is not readable YAML" in ended.stderr
    assert not (needlemap.folder / "owned").exists()


def test_letters_of_all_scripts_stay_and_what_moves_a_cursor_goes():
    assert printable("针 né \U0001f600\u3000x\n\ty") == "针 né \U0001f600\u3000x\n\ty"
    assert printable(HOSTILE) == "]0;owned[2J31m=cmd|' /C calc'!A0"
    assert printable("a\r\nb\x00", line=True) == "a b"


def test_there_is_one_way_to_the_terminal():
    """An import's summary printed a model's name as it was: titles were set, screens cleared."""
    source = Path(__file__).parent.parent / "src" / "needlemap"
    # The gate is copied into other projects, so it imports nothing of ours; it cleans by itself.
    ways = {source / "text" / "printing.py", source / "servers" / "gate" / "gate_file.py"}
    for file in source.rglob("*.py"):
        calls = [
            node
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Call)
        ]
        printing = [call for call in calls if ast.unparse(call.func) in _PRINTERS]
        assert not printing or file in ways, (file, printing[0].lineno)


_PRINTERS = ("print", "sys.stdout.write", "sys.stderr.write", "typer.echo", "click.echo")
SEEN = "Needle \x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2028\x00\r="


def test_no_command_shows_what_moves_a_cursor_whatever_a_folder_holds(typed):
    """Every text of a run's folder, and the folder's own name, in every command that reads one."""
    where = "r\x1b[2J\u202e"
    typed("run", "bm25", "--lengths", "500,800", "--depths", "0,50", "-o", where)
    folder = typed.folder / where
    about = json.loads((folder / "run.json").read_text("utf-8"))
    about["settings"] |= {
        "model": f"baseline/{SEEN}",
        "task": f"single{SEEN}",
        "label": SEEN,
        "mode": SEEN,
    }
    about |= {"stopped": SEEN, "title": SEEN, "needlemap": SEEN, "identity": ""}
    about["scorer"]["name"] = about["tokenizer"]["name"] = SEEN
    (folder / "run.json").write_text(json.dumps(about))
    for file in folder.glob("records-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        texts = {
            "run": "",
            "model": f"baseline/{SEEN}",
            "task": f"single{SEEN}",
            "answer": SEEN,
            "finish": SEEN,
        }
        rows = [
            {**row, **texts, "question": SEEN, "answered_by": SEEN, "finish": SEEN} for row in rows
        ]
        rows[0] |= {"score": None, "failure": SEEN, "error": SEEN}
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "closed-book.jsonl").write_text(json.dumps(rows[1]) + "\n")
    (folder / "records-\x1b[2J.jsonl").symlink_to("/dev/null")
    said = "\x1b[2J\u202e"
    for command in (
        ("report", where), ("report", where, "--rules", "auc"), ("report", where, "-o", "x.csv"),
        ("report", where, "-o", "x.html"), ("report", where, "-o", f"{where}.png", "--title", SEEN),
        ("compare", where, where), ("compare", where, where, "--json"),
        ("replay", where, "--length", "500", "--depth", "0"),
        ("replay", where, "--length", "500", "--depth", "0", "--trust-run", "--ask"),
        ("score", where, "--scorer", "keyword"), ("score", where, "--scorer", "keyword", "--trust-run"),  # noqa: E501
        ("run", "bm25", "-o", where), ("run", "bm25", "-o", where, "--trust-run"),
        ("run", said), ("run", "--model", said), ("run", "--task", said), ("list", said), ("plan", said),  # noqa: E501
        ("import", where, "-o", "i"), ("report", said), ("prompts", "--haystack-path", said),
    ):  # fmt: skip
        ended = typed(*command, code=None)
        assert (ended.stdout + ended.stderr).strip() or "html" in command[-1], command
        json_only = ended.stdout if "--json" not in command else ""
        shown = json_only + ended.stderr
        assert printable(shown) == shown, (command, shown)


def test_a_map_on_a_terminal_shows_no_control_of_a_strangers(typed):
    typed("run", "bm25", "--lengths", "500", "--depths", "0,50", "-o", "r")
    map = load_run(typed.folder / "r").map
    odd = replace(
        map, model=printable(SEEN), cells=tuple(replace(c, failures={SEEN: 1}) for c in map.cells)
    )
    sink = io.StringIO()
    Console(file=sink, force_terminal=True, color_system=None, width=100).print(terminal_map(odd))
    assert printable(sink.getvalue()) == sink.getvalue()


def test_no_command_writes_through_a_link_in_a_runs_folder(typed):
    """run.tmp, closed-book.jsonl and contexts led to files of the user's, which were cut, or
    grew."""
    grid = ("--lengths", "500", "--depths", "50")
    typed("run", "bm25", *grid, "-o", "r")
    mine, folder = typed.folder / "mine", typed.folder / "r"
    (mine / "texts").mkdir(parents=True)
    victims = [mine / name for name in ("a", "b", "c", "d", "texts/len_600_depth_50_repeat_0.txt")]
    for victim in victims:
        victim.write_text("mine")
    links = {"run.tmp": "a", "replicas": "b", "closed-book.jsonl": "c", "report.html": "d"}
    links["contexts"] = "texts"
    for name, target in links.items():
        (folder / name).symlink_to(mine / target)
    more = ("run", "bm25", "--lengths", "600", "--depths", "50", "-o", "r")
    for command in (
        ("score", "r", "--scorer", "keyword"),
        ("report", "r", "-o", "r/report.html"),
        ("prompts", "bm25", *grid, "-o", "r/report.html"),
        (*more, "--scorer", "keyword", "--closed-book"),
        (*more, "--scorer", "keyword", "--save-contexts"),
        (*more, "--scorer", "keyword", "--first-repeat", "5", "--workers", "1"),
    ):
        ended = typed(*command, code=None)
        assert ended.returncode == 0 or "is a link, or no file" in ended.stderr, (command, ended)
    assert {victim.read_text() for victim in victims} == {"mine"}
    assert sorted(file.name for file in mine.rglob("*")) == sorted(
        ["texts", *(each.name for each in victims)]
    )


def test_no_command_writes_into_a_file_that_has_another_name_outside(typed):
    """A hard link looks like any file: what was written went into both."""
    grid = ("--lengths", "500", "--depths", "50")
    typed("run", "bm25", *grid, "-o", "r")
    victims = [typed.folder / name for name in ("a", "b")]
    for victim, name in zip(victims, ("closed-book.jsonl", "report.html"), strict=True):
        victim.write_text("mine")
        (typed.folder / "r" / name).hardlink_to(victim)
    for command in (
        ("run", "bm25", *grid, "-o", "r", "--closed-book"),
        ("report", "r", "-o", "r/report.html"),
    ):
        assert "is a link, or no file" in typed(*command, code=2).stderr
    assert {victim.read_text() for victim in victims} == {"mine"}


def test_replicas_take_no_module_from_the_folder_that_they_start_in(tmp_path):
    """A yaml.py that lay there was run by each."""
    assert "-P -m needlemap.cluster.replica" in Processes(tmp_path, 1).script(1, tmp_path / "file")


def test_what_is_left_out_of_a_folder_is_told(typed):
    typed("run", "bm25", "--lengths", "500", "--depths", "50", "-o", "r")
    (file,) = (typed.folder / "r").glob("records-*.jsonl")
    row = json.loads(file.read_text("utf-8").splitlines()[0])
    file.write_text(
        "".join(json.dumps({**row, "run": "another"}) + "\n" for _ in range(2)) + "x\n" * 3
    )
    for command in (("report", "r"), ("report", "r", "-o", "x.csv")):
        ended = typed(*command)
        shown = ended.stdout + ended.stderr
        assert "note: 3 lines unreadable, left out" in shown
        assert "note: 2 records of another run, left out" in shown
    typed("report", "r", "-o", "x.html")
    assert "2 records of another run, left out" in (typed.folder / "x.html").read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    ["..", ".", "", "...", "../../x", "a/../b", "/etc", "a\0b", "a\nb", "-x", "\ud800", "中" * 300],
)
def test_a_strangers_name_is_one_folder_inside_of_where_it_is_put(text, tmp_path):
    made = tmp_path / folder_name(text)
    made.mkdir()
    assert made.resolve().parent == tmp_path
    assert not made.name.startswith(("-", "."))


def test_long_names_that_differ_at_their_ends_stay_apart():
    """Checkpoints of one training do."""
    names = {folder_name(f"hf/{'run/' * 100}step-{step}") for step in range(3)}
    assert len(names) == 3
    assert all(len(name.encode()) <= 150 for name in names)
