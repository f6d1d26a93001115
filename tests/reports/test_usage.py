"""What is said at a run's end about what the server counted."""

from __future__ import annotations

from needlemap.records.record import PromptRecord, Record
from needlemap.reports.run_notes import cache_lines, usage_lines


def record(asked=1000, counted=None, cached=None, shared=None, answered=True):
    return Record(
        key="k",
        task="single",
        model="openai/m",
        length_tokens=asked + 20,
        depth=0.5,
        repeat=0,
        seed=0,
        prompt=PromptRecord(sha256="0", tokens=asked, haystack_tokens=asked),
        prompt_tokens=counted,
        cached_tokens=cached,
        shared_tokens=shared,
        latency_s=0.1 if answered else None,
    )


def said(*records, remote=True, framing_tokens=0):
    return usage_lines(records, remote=remote, framing_tokens=framing_tokens)


def test_cached_tokens_stand_beside_the_promise():
    rows = [record(1000, 1000, None, 0), record(1000, 1010, 900, 950), record(1000, 1000, 700, 600)]
    assert said(*rows) == ["cached: 1,600 of 3,010 prompt tokens; planned 1,550"]


def test_modes_that_share_nothing_promise_nothing():
    assert said(record(1000, 1000, 0), record(1000, 1000, 5)) == [
        "cached: 5 of 2,000 prompt tokens"
    ]


def test_an_answer_that_was_scored_anew_was_counted_once():
    rows = [record(1000, 1000, 5), record(1000, 1000, 5).model_copy(update={"rescored": True})]
    assert said(*rows) == ["cached: 5 of 1,000 prompt tokens"]


def test_a_server_that_counts_less_has_no_template_that_adds_some():
    (warning,) = said(record(700, 677, 0), record(1400, 1377, 0))[1:]
    assert warning.endswith("It counts as many fewer of each: use --framing-tokens -23.")


def test_one_prompt_tells_no_template_from_another_tokenizer():
    (alone,) = said(record(700, 760, 0))[1:]
    assert "ask a second length" in alone
    assert "(--framing-tokens 60) or its tokenizer is another one" in alone


def test_the_servers_own_tokens_leave_only_its_chat_template():
    """The tokenizer of the server itself was called another one."""
    (warning,) = usage_lines([record(108, 116, 0)], remote=True, own=True)[1:]
    assert warning.endswith("Its chat template adds as many to each: use --framing-tokens 8.")


def test_what_was_refused_promises_nothing():
    rows = [record(1000, 1000, 0, 0), record(9000, shared=8000, answered=False)]
    assert said(*rows) == ["cached: 0 of 1,000 prompt tokens"]
    assert said(record(answered=False)) == []


def test_a_server_that_does_not_report_cached_tokens_is_not_believed_to_have_any():
    rows = [record(1000, 1000, None, 0), record(1000, 1000, None, 900)]
    assert said(*rows) == ["cached: not reported by the server (planned: 900)"]
    assert cache_lines(rows) == []


def test_a_server_that_reports_no_usage_is_said_to():
    assert said(record(), record(shared=900)) == [
        "the server reports no usage: it is unknown how many tokens it counted, and whether the "
        "planned 900 "
        "came from its cache"
    ]
    assert said(record()) == [
        "the server reports no usage: it is unknown how many tokens it counted"
    ]


def test_nothing_is_said_of_models_in_this_process_that_count_nothing():
    assert said(record(), record(shared=900), remote=False) == []


def test_up_to_two_percent_off_is_not_worth_a_word():
    assert said(record(1000, 1020, 0)) == ["cached: 0 of 1,020 prompt tokens"]


def test_the_same_surplus_at_every_length_is_the_chat_template():
    rows = [record(100, 108, 0), record(200, 209, 0), record(2000, 2008, 0)]
    assert said(*rows)[1] == (
        "warning: the server counted 108 tokens where 100 were asked; 2 of 3 prompts are off by "
        "more than "
        "2%. Its chat template adds as many to each: use --framing-tokens 8."
    )


def test_framing_tokens_are_part_of_what_was_asked():
    rows = [record(92, 100, 0), record(1992, 2000, 0)]
    assert len(said(*rows, framing_tokens=8)) == 1
    assert said(*rows, framing_tokens=30)[1].endswith("use --framing-tokens 8.")


def test_a_surplus_that_grows_is_another_tokenizer():
    rows = [record(100, 171, 0), record(1000, 1690, 0)]
    assert "counted 171 tokens where 100 were asked; 2 of 2" in said(*rows)[1]
    assert (
        "Its tokenizer is another one: use --tokenizer with a path to its tokenizer.json"
        in said(*rows)[1]
    )
    assert "Its tokenizer is another one" in said(record(500, 843, 0))[1]


def test_a_count_that_stops_growing_is_a_prompt_cut_off():
    rows = [record(1000, 1010, 0), record(4000, 4010, 0), record(9000, 4096, 0)]
    assert "counted 4,096 tokens where 9,000 were asked; 1 of 3" in said(*rows)[1]
    assert "It seems to cut long prompts off" in said(*rows)[1]


def test_claude_has_no_tokenizer_to_be_named():
    rows = [
        row.model_copy(update={"model": "anthropic/c"})
        for row in (record(100, 171), record(1000, 1690))
    ]
    (warning,) = said(*rows)
    assert "--tokenizer" not in warning
    assert warning.endswith("one you chose: each record keeps the server's own count.")
