"""llama.cpp's own server: one cache per slot, exact to the token, reported in usage."""

from __future__ import annotations

import json
from random import Random

import pytest

GRID = ("--lengths", "64,128,256,384,512,700", "--depths", "0:100:5", "--repeats", "2")
TRAINED = 256  # tokens within which the model was trained, and finds every needle


def tokenizer(asking):
    return ("--tokenizer", asking.checkpoint)


def test_chat_finds_every_needle_within_the_trained_length_and_counts_the_template(llama, asking):
    ended, records = asking.run(llama(), *GRID, *tokenizer(asking))
    assert len(records) == 55  # sixty cells, some of which come to the same prompt
    assert all(record["score"] == 1 for record in records if record["length_tokens"] <= TRAINED)
    assert any(record["score"] == 0 for record in records if record["length_tokens"] == 700)
    for record in records:
        assert record["prompt_tokens"] == record["prompt"]["tokens"] + 8, (
            "what the chat template adds"
        )
        assert record["completion_tokens"] > 5
        assert record["answered_by"] == "tiny"
        assert record["cached_tokens"] is not None
    assert "warning: the server counted 52 tokens where 44 were asked; " in ended.stderr
    assert "use --framing-tokens 8." in ended.stderr


def test_framing_tokens_make_the_length_that_the_server_counts_exact(llama, asking):
    ended, records = asking.run(llama(), *GRID, *tokenizer(asking), "--framing-tokens", 8)
    assert {record["prompt_tokens"] - record["length_tokens"] for record in records} == {-20}
    assert "warning" not in ended.stderr


def test_completions_with_the_servers_own_tokens_are_exact_to_the_token(llama, asking):
    """The chat's marks stand in the text: special tokens, which only the server counts as such."""
    flags = (
        "--template",
        "text.yaml",
        "--model-options",
        "api=completions",
        "--tokenizer",
        "server",
    )
    ended, records = asking.run(llama(), *GRID, *flags)
    assert all(record["score"] == 1 for record in records if record["length_tokens"] <= TRAINED)
    assert {record["prompt_tokens"] - record["length_tokens"] for record in records} == {-20}
    assert "warning" not in ended.stderr


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("mode", ["exact", "bins"])
def test_cached_tokens_are_within_2_percent_of_what_the_plan_promised(llama, asking, mode, slots):
    """With no other memory than its slots: one lane of the plan each, which keeps to it."""
    served = llama(slots, 2048, "--cache-ram", "0")
    flags = (*GRID, *tokenizer(asking), "--mode", mode, "--concurrency", slots)
    planned = json.loads(asking("plan", served, *flags, "--json").stdout)
    ended, records = asking.run(served, *flags)
    promise = sum(record["shared_tokens"] for record in records)
    cached = sum(record["cached_tokens"] for record in records)
    tokens = sum(record["prompt_tokens"] for record in records)
    print(f"{mode}, {slots} slots: {cached} cached, {promise} planned: {cached / promise:.3f}")
    assert promise == next(row["cached"] for row in planned["modes"] if row["mode"] == mode)
    assert promise > 0.4 * sum(record["prompt"]["tokens"] for record in records)
    assert cached >= 0.98 * promise
    assert f"cached: {cached:,} of {tokens:,} prompt tokens; planned {promise:,}\n" in ended.stderr


def test_a_cache_changes_no_answer(llama, asking):
    """The contract of the plan, on a server: the same prompts computed from nothing, one by one."""
    lengths = ("--lengths", "64,128,256,384", "--depths", "0:100:5", *tokenizer(asking))
    _, shared = asking.run(llama(), *lengths, "--concurrency", 1, out="shared")
    alone = (*lengths, "--mode", "single", "--request", "cache_prompt=false")
    _, single = asking.run(llama(1, 2048, "--cache-ram", "0"), *alone, out="alone")
    assert sum(record["cached_tokens"] for record in shared) > 1000
    assert sum(record["cached_tokens"] for record in single) == 0
    assert answers(shared) == answers(single)


def test_an_option_that_the_launcher_does_not_know_is_refused(llama):
    """Ignored, a mistyped option would be a server that is honest where a fault was wanted."""
    with pytest.raises(AssertionError, match="unrecognized arguments: --rope-freq 5"):
        llama(1, 512, "--rope-freq", "5")


def answers(records):
    return {record["prompt"]["sha256"]: record["answer"] for record in records}


def test_a_prompt_that_is_too_long_ends_the_run_with_advice_and_no_score(llama, asking):
    served = llama(1, 512)
    flags = ("--lengths", "128,256,700", "--depths", "0,50,100", *tokenizer(asking))
    ended, records = asking.run(served, *flags, code=2)
    assert "refused prompts of 700 tokens and more" in ended.stderr
    assert "Use --lengths up to 256." in ended.stderr
    long = [record for record in records if record["length_tokens"] == 700]
    assert {(record["failure"], record["score"]) for record in long} == {("prompt too long", None)}
    assert all(record["score"] == 1 for record in records if record["length_tokens"] <= TRAINED)


def test_the_servers_tokens_are_those_of_the_models_own_file(llama, asking, shared):
    from needlemap.tokenizers.huggingface import HuggingFace
    from needlemap.tokenizers.server import Server

    theirs, ours = Server(llama().base_url), HuggingFace(asking.checkpoint / "tokenizer.json")
    essay = min((shared / "data" / "PaulGrahamEssays").glob("*.txt")).read_bytes()
    for text in (b"", b"x", "Größe: 12.5 µm, 在上海。 🙂\n\n  e\u0301".encode(), essay):
        found, known = theirs.index(text), ours.index(text)
        assert found.ids.tolist() == known.ids.tolist()
        assert found.offsets.tolist() == known.offsets.tolist()
        assert found.data == known.data
        assert theirs.count(text) == len(known)
    assert theirs.additive
    random = Random(0)
    for _ in range(50):
        start = random.randrange(len(essay) - 300)
        piece = essay[start : start + random.randrange(300)].decode("utf-8", "ignore").encode()
        assert theirs.count(piece) == ours.count(piece)
    assert theirs.index(b"<|im_end|>").ids.tolist() == [4], (
        "a special token, as the server will read it"
    )


def test_without_a_known_vocabulary_the_server_is_asked_and_the_prompts_are_the_same(llama, asking):
    served = llama()
    lengths = ("--lengths", "128,300", "--depths", "0,50,100")
    by_file = asking("prompts", served, *lengths, *tokenizer(asking)).stdout
    by_server = asking("prompts", served, *lengths).stdout
    assert texts(by_server) == texts(by_file)


def texts(printed):
    return [json.loads(line)["messages"] for line in printed.splitlines()]
