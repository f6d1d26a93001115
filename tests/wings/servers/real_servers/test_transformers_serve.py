"""`transformers serve`: reports no cached tokens, refuses no length. A run claims nothing it cannot
know."""

from __future__ import annotations

import json


def flags(asking, *lengths):
    listed = ",".join(map(str, lengths))
    return ("--lengths", listed, "--depths", "0,50,100", "--tokenizer", asking.checkpoint)


def test_it_finds_every_needle_within_the_trained_length(transformers_serve, asking):
    ended, records = asking.run(transformers_serve, *flags(asking, 64, 128, 256), "--repeats", 2)
    assert len(records) == 17  # two depths of the shortest come to one prompt
    assert all(record["score"] == 1 for record in records)
    assert {record["prompt_tokens"] - record["prompt"]["tokens"] for record in records} == {8}
    assert "use --framing-tokens 8." in ended.stderr


def test_what_it_does_not_report_is_not_claimed(transformers_serve, asking, needlemap):
    ended, records = asking.run(transformers_serve, *flags(asking, 128, 256), "--framing-tokens", 8)
    assert {record["cached_tokens"] for record in records} == {None}
    promise = sum(record["shared_tokens"] for record in records)
    assert f"cached: not reported by the server (planned: {promise:,})\n" in ended.stderr
    assert "warning" not in ended.stderr
    reported = needlemap("report", "r")
    assert "cached" not in reported.stdout + reported.stderr


def test_a_prompt_beyond_the_models_positions_is_answered_and_scored_as_it_is(
    transformers_serve, asking, checkpoint
):
    """It answers rubbish instead of refusing: a wrong answer, not a missing one."""
    beyond = json.loads((checkpoint / "config.json").read_text())["max_position_embeddings"] + 200
    ended, records = asking.run(transformers_serve, *flags(asking, 128, beyond))
    long = [record for record in records if record["length_tokens"] == beyond]
    assert [record["score"] for record in long] == [0, 0, 0]
    assert all(record["prompt_tokens"] == beyond - 12 for record in long)
    assert "refused" not in ended.stderr


def test_two_independent_servers_give_the_same_answers(transformers_serve, llama, asking):
    grid = flags(asking, 64, 128, 256)
    _, one = asking.run(transformers_serve, *grid, out="one")
    _, other = asking.run(llama(), *grid, out="other")
    assert answers(one) == answers(other)


def answers(records):
    return {record["prompt"]["sha256"]: record["answer"] for record in records}
