"""A stranger's chat template gives a text or an error in words, within bounds, and escapes
nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from needlemap import rendering
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.models import MARK
from needlemap.models.chat import Chat
from needlemap.models.model_files import ModelFiles
from needlemap.rendering import Renderer, Unbounded

MESSAGES = [{"role": "user", "content": "Who?"}]
FAILING = {
    "{{ 1/0 }}": "ZeroDivisionError",
    "{{ 1 + 'a' }}": "TypeError",
    "{{ none.x.y }}": "no attribute|undefined",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "RecursionError|takes more",
    "{% include 'a' %}": "no loader|TypeError",
    "{% extends 'a' %}": "no loader|TypeError",
    "{% import '/etc/passwd' as a %}": "no loader|TypeError",
    "{{ strftime_now(5) }}": "TypeError",
    "{{ messages | tojson(cls=5) }}": "TypeError",
    "{{ messages | tojson(default=1, indent='x' * 3, cls=messages) }}": "TypeError",
    "{{ [].__class__ }}{{ [].__class__.__mro__ }}": "unsafe|undefined|access",
    "{{ '{x}'['format_map'](1) }}": "TypeError",
    "{{ messages.append(1) }}": "not safely|unsafe",
    "{{ raise_exception('Only tools') }}": "Only tools",
    "{{ raise_exception() }}": "TypeError",
    "{% if %}": "[Ee]xpected",
    "{{ '\\ud800' }}": "UnicodeEncodeError",
    "{{ " + "(" * 5000 + ")" * 5000 + " }}": ".",
    "{{ range(999999999) | list }}": "OverflowError|range",
}
MUCH = [
    "{{ 'a' * 10**10 }}",
    "{{ 'a' | center(10**10) }}",
    "{{ '%0999999999999d' % 5 }}",
    "{{ '%999999999d' % 5 }}",
    "{% set x = namespace(a='ab') %}{% for i in range(40) %}{% set x.a = x.a ~ x.a %}{% endfor "
    "%}{{ x.a }}",
    "{{ [[1] * 10**6] * 10**6 | string }}{{ ([1] * 10**8) | string }}",
]
ENDLESS = [
    "".join(f"{{% for {name} in range(9999) %}}" for name in "abc") + "{% endfor %}" * 3,
    "{{ ('a\n' * 10**6) | indent(100000) }}",
    "{{ 10 ** (10 ** 8) }}",
]
ESCAPES = [
    "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.environ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__code__ }}",
    "{{ ''.__class__.__base__ }}",
    "{{ messages|attr('__class__') }}",
    "{{ (messages|map(attribute='__class__')|list)[0].__mro__ }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ ('{0' ~ '.__class__}').format_map({'0': 1}) }}",
]


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    made = Renderer()
    yield made
    made.close()


def render(renderer: Renderer, template: str, **variables: Any) -> str:
    return renderer.render(template, {"messages": MESSAGES, **variables})


def test_a_template_is_rendered_with_its_variables(renderer: Renderer) -> None:
    made = render(renderer, "{{ messages[0].content }}{{ bos }}{{ strftime_now('%Y') }}", bos="é\n")
    assert made == "Who?é\n2024"
    assert render(renderer, "{{ {'a': 'é<'} | tojson }}") == '{"a": "é<"}'


def test_the_process_stays_and_a_text_takes_well_under_a_millisecond_or_ten(
    renderer: Renderer,
) -> None:
    render(renderer, "a")
    process = renderer._process
    start = time.perf_counter()
    for _ in range(50):
        render(renderer, "{{ messages[0].content }}")
    assert (time.perf_counter() - start) / 50 < 0.5
    assert renderer._process is process


@pytest.mark.parametrize("template", FAILING)
def test_whatever_a_template_raises_is_words(renderer: Renderer, template: str) -> None:
    """Only jinja2's own errors were; the others were tracebacks."""
    with pytest.raises(SettingsError, match=FAILING[template]):
        render(renderer, template)
    assert render(renderer, "on") == "on"


@pytest.mark.parametrize("template", MUCH)
def test_a_template_that_takes_much_memory_is_words(renderer: Renderer, template: str) -> None:
    """They took all that the machine had."""
    with pytest.raises(
        SettingsError, match=r"takes more than 5 s or 256 MB|OverflowError|ValueError"
    ):
        render(renderer, template)
    assert render(renderer, "on") == "on"


@pytest.mark.parametrize("template", ENDLESS)
def test_a_template_that_does_not_end_is_ended(
    renderer: Renderer, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "SECONDS", 1)
    start = time.monotonic()
    with pytest.raises(SettingsError, match=r"takes more than 1 s or 256 MB"):
        render(renderer, template)
    assert time.monotonic() - start < 100
    assert render(renderer, "on") == "on"


@pytest.mark.parametrize("template", ESCAPES)
def test_a_template_reaches_nothing_of_the_process(renderer: Renderer, template: str) -> None:
    try:
        made = render(renderer, template)
    except SettingsError:
        return
    assert not any(word in made for word in ("<class", "function", "uid=", "PATH", "module"))


def test_its_process_holds_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-templates")
    renderer = Renderer()
    render(renderer, "a")
    assert renderer._process is not None
    environment = Path(f"/proc/{renderer._process.pid}/environ")
    if not environment.exists():
        pytest.skip("no /proc")
    assert b"sk-not-for-templates" not in environment.read_bytes()
    renderer.close()


def test_a_process_that_was_killed_is_started_again(renderer: Renderer) -> None:
    render(renderer, "a")
    assert renderer._process is not None
    renderer._process.kill()
    renderer._process.wait()
    assert render(renderer, "on") == "on"


def test_many_threads_may_render(renderer: Renderer) -> None:
    before = threading.active_count()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: render(renderer, "{{ x }}", x=number), range(64)))
    assert made == [str(number) for number in range(64)]
    # Threads of other tests may still live: only what this one adds counts.
    assert threading.active_count() < before + 8


def test_nothing_is_started_before_a_template_is_rendered_and_nothing_stays() -> None:
    code = (
        "from needlemap.rendering import RENDERER as r; assert r._process is None;"
        "r.render('a', {}); print(r._process.pid)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(ended.stdout), 0)


def test_a_template_beyond_its_bounds_is_rendered_once(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """One that refuses a system message is tried again without."""
    asked = []

    def much(template: str, variables: dict[str, Any]) -> str:
        asked.append((template, variables))
        raise Unbounded("it takes more than 5 s or 256 MB.")

    monkeypatch.setattr(rendering.RENDERER, "render", much)
    with pytest.raises(SettingsError, match="base=true"):
        chat(folder).render([("system", "Be brief."), ("user", MARK)])
    assert len(asked) == 1


# --- the other files of a stranger's model folder


def chat(folder: Path) -> Chat:
    return Chat.of(ModelFiles(str(folder)), base=False, template_options={})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    return tmp_path


DEEP = "[" * 100_000
HOSTILE: dict[str, list[str | bytes]] = {
    "tokenizer_config.json": [
        "[]",
        "5",
        '"x"',
        "{",
        DEEP,
        '{"a":' * 50_000,
        b"\xff\xfe",
        f'{{"a": {"9" * 5000}}}',
        '{"chat_template": [1, {"name": 5}, {"template": "x"}]}',
        '{"chat_template": {"default": "x"}}',
        '{"bos_token": [1], "eos_token": {"content": {"a": 1}}, "x_token": 5}',
    ],
    "config.json": [
        "[]",
        DEEP,
        "null",
        '{"bos_token_id": -1, "eos_token_id": 1e400, "max_position_embeddings": "many"}',
        '{"bos_token_id": 99999999999999999999999, "max_position_embeddings": true, "text_config": [1]}',  # noqa: E501
        f'{{"max_position_embeddings": {"9" * 400}}}',
        '{"bos_token_id": true, "max_position_embeddings": -5}',
    ],
    "special_tokens_map.json": ["[]", DEEP, '{"bos_token": {}}'],
    "chat_template.json": ["[]", '{"chat_template": 5}'],
    "chat_template.jinja": [b"\xff", "{{ 'x' }}", "", "{{ messages[0].content }}\0plain:7\0"],
    "tokenizer.json": [
        "",
        "{",
        "[]",
        DEEP,
        b"\xff",
        "null",
        '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}}',
        '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
        '{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}',
        '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}',
        '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": 5}',  # noqa: E501
        '{"version": "1.0", "model": {"type": "Unigram", "vocab": [], "unk_id": 9}}',
        '{"version": "1.0", "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("},'
        ' "behavior": "Isolated", "invert": false},'
        ' "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}',
    ],
}


@pytest.mark.parametrize(
    ("file", "content"), [(file, content) for file, rows in HOSTILE.items() for content in rows]
)
def test_whatever_a_models_file_holds_is_a_value_or_words(
    folder: Path, file: str, content: str | bytes
) -> None:
    (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    try:
        made, files = chat(folder), ModelFiles(str(folder))
        assert files.positions is None
        head, tail = made.render([("user", f"Where {MARK} is it?")])
    except NeedlemapError as error:
        said = str(error)
    else:
        said = "as it is"
        assert head.data + tail.data == b"Where  is it?"
    assert 0 < len(said) < 800


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (
            "tokenizer.json",
            '{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}',
        ),
        ("chat_template.jinja", "{{ 1/0 }}"),
        ("chat_template.jinja", "{{ 'a' * 10**10 }}"),
        ("tokenizer_config.json", DEEP),
        ("config.json", "[]"),
        ("tokenizer.json", '{"version": "1.0"'),
        (
            "tokenizer.json",
            '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}',  # noqa: E501
        ),
    ],
)
@pytest.mark.parametrize("counted", [(), ("--tokenizer", "gpt-4")])
def test_a_plan_says_it_without_a_traceback(
    needlemap: Any, folder: Path, file: str, content: str, counted: tuple[str, ...]
) -> None:
    (folder / file).write_text(content)
    ended = needlemap("plan", "--model", f"hf/{folder}", "--lengths", "2000", *counted, code=2)
    assert ended.stderr.startswith("needlemap: ")
    assert len(ended.stderr) < 1500


@pytest.mark.parametrize("wrong", ["[]", DEEP, '{"hidden_size": 0}', '{"hidden_size": "9"}', "{"])
def test_a_shape_of_absurd_size_is_no_model(tmp_path: Path, wrong: str) -> None:
    from needlemap.plan.summary import Shape

    (tmp_path / "config.json").write_text(wrong)
    with pytest.raises(SettingsError, match="no model configuration"):
        Shape.of_config(tmp_path / "config.json")
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    for name in sizes:
        for odd in (0, -1, 10**30, [], {}, None, 1.5):
            (tmp_path / "config.json").write_text(json.dumps({**sizes, name: odd}))
            with pytest.raises(SettingsError, match="no model configuration"):
                Shape.of_config(tmp_path / "config.json")
