"""What nobody typed is neither asked, nor imported, nor sent a key."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from needlemap import api
from needlemap.errors import NeedlemapError

GRID = ("--lengths", "500", "--depths", "50")
CODE = (
    "from pathlib import Path\nPath('ran').write_text('x')\n\n\n"
    "def f(*asked):\n    return '1'\n\n\ndef g(answer, reference):\n    return 1.0\n"
)


@pytest.fixture
def overheard(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """A stranger's server: its address, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(f"{self.path} {self.headers.get('authorization')}")
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    monkeypatch.setenv("OPENAI_API_KEY", "planted-key-0123456789")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


FILES = {
    "a model": {"s.yaml": "model: python/evil:f\n"},
    "a scorer": {"s.yaml": "model: baseline/bm25\nscorer: python/evil:g\n"},
    "a judge": {
        "s.yaml": "model: baseline/bm25\nscorer: judge\nscorer_options: {model: python/evil:f}\n"
    },
    "a file's file": {"s.yaml": "preset: t.yaml\n", "t.yaml": "model: python/evil:f\n"},
    "one of several models": {"s.yaml": "model: [baseline/bm25, python/evil:f]\n"},
    "one of several models, with settings": {
        "s.yaml": "model: [baseline/bm25, {model: 'python/evil:f'}]\n"
    },
    "an alias": {"s.yaml": "label: &a python/evil:f\nmodel: *a\n"},
}
SUITES = {
    "a suite": {
        "s.yaml": "families: {one: {preset: passkey}}\nsettings: {model: 'python/evil:f'}\n"
    },
    "a family": {
        "s.yaml": "families: {one: {preset: t.yaml}}\nsettings: {model: baseline/bm25}\n",
        "t.yaml": "scorer: python/evil:g\n",
    },
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in {**files, "evil.py": CODE}.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize("command", ["run", "plan", "prompts"])
@pytest.mark.parametrize("files", [*FILES.values(), *SUITES.values()], ids=[*FILES, *SUITES])
def test_code_that_stands_in_a_file_only_does_not_run(typed, files, command):
    """`plan`, which says that it asks nothing, imported it."""
    write(typed.folder, files)
    named = "suite:s.yaml" if "families" in files["s.yaml"] else "s.yaml"
    code = 0 if command == "plan" else 2
    ended = typed(command, named, *GRID[: 0 if "suite" in named else 4], code=code)
    assert not (typed.folder / "ran").exists()
    assert (command == "plan") or ("is code, which stands in" in ended.stderr)


def test_code_runs_that_is_typed_too_or_trusted(typed):
    write(typed.folder, FILES["a model"])
    typed("run", "s.yaml", *GRID, "--model", "python/evil:f", "--no-canary", "-o", "a")
    assert (typed.folder / "ran").exists()
    (typed.folder / "ran").unlink()
    typed("run", "s.yaml", *GRID, "--trust-run", "--no-canary", "-o", "b")
    assert (typed.folder / "ran").exists()


def test_a_models_own_code_wants_to_be_typed(typed):
    write(typed.folder, {"s.yaml": "model: hf/nowhere\ntrust_remote_code: true\n"})
    ended = typed("run", "s.yaml", *GRID, code=2)
    assert "type it too (--trust-remote-code)" in ended.stderr


def test_plan_asks_no_address_of_a_file(typed, overheard):
    """It sent $OPENAI_API_KEY to it."""
    url, asked = overheard
    for tokenizer in ("server", "auto", f"server:{url}"):
        text = f"model: openai/of-nobody\nbase_url: {url}/v1\ntokenizer: '{tokenizer}'\n"
        (typed.folder / "s.yaml").write_text(text)
        typed("plan", "s.yaml", *GRID, code=0 if tokenizer == "auto" else 2)
        assert asked == []
    for tokenizer in ("server", "auto", f"server:{url}"):
        lender = {"run": "x", "model": "openai/x", "base_url": f"{url}/v1", "tokenizer": tokenizer}
        text = f"model: openai/of-nobody\nprompts_of: {json.dumps(lender)}\n"
        (typed.folder / "s.yaml").write_text(text)
        typed("plan", "s.yaml", *GRID, code=0 if tokenizer == "auto" else 2)
        assert asked == []
    (typed.folder / "s.yaml").write_text(f"model: openai/of-nobody\nbase_url: {url}/v1\n")
    typed("plan", "s.yaml", *GRID, "--tokenizer", f"server:{url}", code=2)
    assert asked


def golden(folder: Path, url: str, **settings: Any) -> None:
    """A golden as a stranger would write it."""
    file = folder / "r" / "run.json"
    about = json.loads(file.read_bytes())
    about["settings"] |= json.loads(json.dumps(settings).replace("URL", url))
    about.pop("signature", None)
    file.write_text(json.dumps(about))


JUDGE = {"model": "openai/j", "judge_options": {"base_url": "URL/v1"}}
LENDER = {"run": "x", "model": "openai/x", "base_url": "URL/v1", "tokenizer": "server"}
GOLDENS: dict[str, dict[str, Any]] = {
    "tokenizer": {"tokenizer": "server:URL"},
    "its own server": {"tokenizer": "server", "base_url": "URL/v1", "model": "openai/m"},
    "a vocabulary of nobody": {"tokenizer": "auto", "base_url": "URL/v1", "model": "openai/m"},
    "a judge": {"scorer": "judge", "scorer_options": JUDGE},
    "a judge in code": {"scorer": "judge", "scorer_options": {"model": "python/evil:f"}},
    "code": {"scorer": "python/evil:g"},
    "a lender": {"prompts_of": LENDER},
    "a hub's data": {"haystack": "hub", "haystack_path": "evil/data"},
    "a hub's vocabulary": {"tokenizer": "evil/model"},
}


@pytest.mark.parametrize("settings", GOLDENS.values(), ids=GOLDENS)
def test_what_a_golden_names_is_not_asked(typed, overheard, settings, monkeypatch):
    """A golden in a pull request is a file that nobody reads; pytest sent the key to its address
    with every prompt."""
    url, asked = overheard
    typed("run", "bm25", *GRID, "-o", "r")
    write(typed.folder, {})
    golden(typed.folder, url, **settings)
    monkeypatch.chdir(typed.folder)
    with pytest.raises(NeedlemapError, match="data: nothing that it names is"):
        api.run(prompts_of="r", model="baseline/bm25", out="out", trust_run="prompts", quiet=True)
    assert asked == []
    assert not (typed.folder / "ran").exists()


def test_a_goldens_folder_is_not_taken_for_the_value_that_it_names(typed, monkeypatch):
    """A golden in a folder 'hub' was heard with haystack 'hub', as if the user had typed it."""
    typed("run", "bm25", *GRID, "-o", "r")
    golden(typed.folder, "", haystack="hub", haystack_path="evil/data")
    (typed.folder / "r").rename(typed.folder / "hub")
    monkeypatch.chdir(typed.folder)
    with pytest.raises(NeedlemapError, match="names haystack 'hub'"):
        api.run(prompts_of="hub", model="baseline/bm25", out="out", trust_run="prompts", quiet=True)


def test_a_golden_that_names_nobody_is_asked(typed, overheard, monkeypatch):
    typed("run", "bm25", *GRID, "-o", "r")
    golden(typed.folder, "", base_url="http://127.0.0.1:9/v1", tokenizer="cl100k_base")
    monkeypatch.chdir(typed.folder)
    run = api.run(prompts_of="r", model="baseline/bm25", out="out", trust_run="prompts", quiet=True)
    assert run.records()
    assert overheard[1] == []


def test_a_folder_that_goes_on_is_not_trusted_with_its_prompts(typed, monkeypatch):
    typed("run", "bm25", *GRID, "-o", "r")
    golden(typed.folder, "", label="x")
    monkeypatch.chdir(typed.folder)
    with pytest.raises(NeedlemapError, match="was not begun by you"):
        api.run("bm25", out="r", lengths="500", depths="50", trust_run="prompts")


def test_a_value_typed_for_one_setting_vouches_for_no_other(typed, monkeypatch):
    """A label, or any text that is the same, let code run."""
    write(typed.folder, FILES["a scorer"])
    ended = typed("run", "s.yaml", *GRID, "--label", "python/evil:g", "--no-canary", code=2)
    assert "is code, which stands in" in ended.stderr
    ended = typed("run", "s.yaml", *GRID, "--needle", "python/evil:g", "--no-canary", code=2)
    assert "is code, which stands in" in ended.stderr
    typed("run", "bm25", *GRID, "-o", "r")
    golden(typed.folder, "", haystack="hub", haystack_path="evil/data")
    monkeypatch.chdir(typed.folder)
    flags = {"model": "baseline/bm25", "trust_run": "prompts", "quiet": True}
    own = {"scorer": "recall", "scorer_options": {"words": ["hub"]}}
    with pytest.raises(NeedlemapError, match="names haystack 'hub'"):
        api.run(prompts_of="r", out="out", **flags, **own)


def elsewhere(typed: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this machine with a text, which a repository has a link to."""
    folder = tmp_path_factory.mktemp("private")
    (folder / "secret.txt").write_text("Nobody else may read this sentence. " * 400)
    (typed.folder / "texts").mkdir()
    (typed.folder / "texts" / "own.txt").write_text("Everybody may read this sentence. " * 400)
    return folder


FILES_ELSEWHERE: dict[str, dict[str, Any]] = {
    "a folder": {"haystack": "folder", "haystack_path": "ELSEWHERE"},
    "a file": {"haystack": "txt", "haystack_path": "ELSEWHERE/secret.txt"},
    "up and down": {"haystack": "folder", "haystack_path": "texts/../../UP"},
    "a link": {"haystack": "folder", "haystack_path": "linked"},
    "a link in a folder": {"haystack": "folder", "haystack_path": "texts"},
    "a template": {"template": "ELSEWHERE/secret.txt"},
    "a tokenizer": {"tokenizer": "ELSEWHERE"},
}


@pytest.mark.parametrize("settings", FILES_ELSEWHERE.values(), ids=FILES_ELSEWHERE)
def test_a_golden_reads_no_file_outside_of_the_current_folder(
    typed, tmp_path_factory, settings, monkeypatch
):
    """Any text of this machine went into prompts, records and to the model."""
    folder = elsewhere(typed, tmp_path_factory)
    typed("run", "bm25", *GRID, "-o", "r")
    (typed.folder / "linked").symlink_to(folder)
    if settings.get("haystack_path") == "texts":
        (typed.folder / "texts" / "t.txt").symlink_to(folder / "secret.txt")
    up = os.path.relpath(folder, typed.folder.parent)
    text = json.dumps(settings).replace("ELSEWHERE", str(folder)).replace("UP", up)
    golden(typed.folder, "", **json.loads(text))
    monkeypatch.chdir(typed.folder)
    with pytest.raises(NeedlemapError, match="outside of the current folder"):
        api.run(prompts_of="r", model="baseline/bm25", out="out", trust_run="prompts", quiet=True)


def test_a_golden_reads_the_texts_of_its_repository(typed, tmp_path_factory, monkeypatch):
    elsewhere(typed, tmp_path_factory)
    own = "--haystack", "folder", "--haystack-path", "texts"
    typed("run", "bm25", *own, *GRID, "--haystack-repeat", "-o", "r")
    golden(typed.folder, "", label="x")
    monkeypatch.chdir(typed.folder)
    run = api.run(prompts_of="r", model="baseline/bm25", out="out", trust_run="prompts", quiet=True)
    assert run.records()


@pytest.mark.parametrize(
    "typed_too",
    [
        ("--model", "openai/of-nobody", "--model-options", "key_env=OTHER_API_KEY"),
        ("--model", "openai/of-nobody", "--model-options", "key_env=NO_API_KEY"),
        ("--model", "anthropic/of-nobody"),
    ],
    ids=["another key", "no key", "another provider"],
)
def test_a_server_gets_the_key_of_its_model_and_of_no_other_provider(typed, overheard, typed_too):
    """It was asked for its models and its tokens with $OPENAI_API_KEY and $OPENAI_CUSTOM_HEADERS,
    whatever the model."""
    url, asked = overheard
    keys = {
        "OPENAI_API_KEY": "planted-key-0123456789",
        "OPENAI_CUSTOM_HEADERS": "" if "openai" in typed_too[1] else "authorization: planted-x",
        "OTHER_API_KEY": "other-key-0123456789",
        "NO_API_KEY": "none",
        "ANTHROPIC_API_KEY": "claude-key-0123456789",
    }
    named = *typed_too, "--base-url", f"{url}/v1"
    for command in ("run", "prompts"):
        for tokenizer in ("auto", "server"):
            environment = {**os.environ, **keys}
            last = "--tokenizer", tokenizer, "--no-save" if command == "run" else "--quiet"
            typed(command, *named, *GRID, *last, code=None, environment=environment)
    assert any("/tokenize" in each for each in asked)
    assert any("/models" in each for each in asked)
    assert [each for each in asked if "planted" in each or "Bearer none" in each] == []
