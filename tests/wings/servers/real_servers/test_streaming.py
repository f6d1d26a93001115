"""Streams of real servers add up to what the same servers answer in one piece, token for token."""

from __future__ import annotations

import pytest

GRID = ("--lengths", "96,128,256,700", "--depths", "0,50,100", "--concurrency", "1")
_OF_THE_RUN = ("run", "latency_s", "first_token_s", "finished_at", "usage", "cached_tokens")


def both(asking, served, *flags):
    """Records of the same prompts, in one piece and streamed."""
    flags = (*GRID, "--tokenizer", asking.checkpoint, *flags)
    _, plain = asking.run(served, *flags, out="plain")
    _, streamed = asking.run(served, *flags, "--stream", out="streamed")
    return plain, streamed


def alike(records):
    """What must not depend on how an answer was sent. llama.cpp's chat streams no token without
    a text, as the one that ends an answer."""
    rows = [{k: v for k, v in row.items() if k not in _OF_THE_RUN} for row in records]
    for row in rows:
        kept = row["logprobs"] or {"tokens": []}
        last = bool(kept["tokens"]) and not kept["tokens"][-1]
        columns = {name: column for name, column in kept.items() if isinstance(column, list)}
        row["logprobs"] = {name: column[: len(column) - last] for name, column in columns.items()}
    return sorted(rows, key=lambda row: row["key"])


def assert_timed(records):
    assert records
    for record in records:
        assert 0 < record["first_token_s"] <= record["latency_s"]


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("more", [(), ("--logprobs",)], ids=["text", "logprobs"])
def test_llama_cpp_streams_what_it_answers_in_one_piece(llama, asking, api, more):
    template = ("--template", "text.yaml", "--model-options", "api=completions")
    flags = (*(template if api == "completions" else ()), "--request", "cache_prompt=false", *more)
    plain, streamed = both(asking, llama(1, 2048, "--cache-ram", "0"), *flags)
    assert alike(plain) == alike(streamed)
    assert_timed(streamed)
    assert all(record["prompt_tokens"] for record in streamed), "the usage report at the end"
    assert all(record["logprobs"] for record in streamed) is bool(more)


def test_transformers_serve_streams_what_it_answers_in_one_piece(transformers_serve, asking):
    plain, streamed = both(asking, transformers_serve)
    assert [row["answer"] for row in alike(plain)] == [row["answer"] for row in alike(streamed)]
    assert [row["score"] for row in alike(plain)] == [row["score"] for row in alike(streamed)]
    assert [row["finish"] for row in alike(plain)] == [row["finish"] for row in alike(streamed)]
    assert_timed(streamed)


def test_the_prompt_that_is_too_long_is_refused_in_the_same_words(llama, asking):
    served = llama(1, 512)
    flags = ("--lengths", "128,700", "--depths", "50", "--tokenizer", asking.checkpoint)
    ended, records = asking.run(served, *flags, "--stream", code=2)
    assert "Use --lengths up to 128." in ended.stderr
    assert [record["failure"] for record in records] == [None, "prompt too long"]


def test_the_gauge_is_found_right_by_its_streams(gauge_server, needlemap):
    flags = ("--model", "openai/gauge", "--base-url", gauge_server.base_url)
    needlemap(
        *("check", *flags, "--max-length", "512", "--probe", "length", "--probe", "ways"),
        *("--stream", "--few", "--quiet", "-o", "c"),
        code=None,
    )
    # A prompt that continues a conversation holds two numbers for a name that both parts hide.
    folders = [name for name in families(needlemap) if not name.startswith("conversation-")]
    asked = [row for name in folders for row in needlemap.records(f"c/{name}")]
    timed = [row for row in asked if row.get("first_token_s")]
    assert len(timed) > 10
    assert {row["score"] for row in timed} == {1.0}


def families(needlemap):
    return sorted({file.parent.name for file in (needlemap.folder / "c").rglob("records-*.jsonl")})
