"""A model of one's own is the reference of a server: the same weights here and there, asked the
same."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")

pytestmark = pytest.mark.timeout(600)
GRID = ("--lengths", "96,160,256", "--depths", "0,50,100", "--repeats", "2")
CHAT = ("--framing-tokens", 8)  # what its chat template adds, as a run of the server says
TEXT = ("--model-options", "api=completions")


@pytest.fixture(params=["chat", "completions"])
def as_asked(request):
    """Flags for the server, for the model here, and both."""
    both = ("--template", f"{'chat' if request.param == 'chat' else 'plain'}.yaml")
    if request.param == "chat":
        return CHAT, (), both
    return TEXT, ("--model-options", "base=true"), both


def check(asking, needlemap, served, as_asked):
    there, here, both = as_asked
    (needlemap.folder / "plain.yaml").write_text('text: "{haystack}\\n\\n{question}\\nAnswer:"\n')
    _, theirs = asking.run(
        served, *GRID, *both, *there, "--tokenizer", asking.checkpoint, out="there"
    )
    ours = asking.here(*GRID, *both, *here, "--model-options", "dtype=float32", out="here")
    assert len(ours) == len(theirs) == 17  # two depths of the shortest come to one prompt
    for name in ("sha256", "ids_sha256", "haystack_tokens", "positions", "pad"):
        assert by_place(ours, name) == by_place(theirs, name)
    assert None not in by_place(ours, "ids_sha256").values()
    assert [record["prompt_tokens"] for record in place_order(ours)] == [
        record["prompt_tokens"] for record in place_order(theirs)
    ], "the server counts as many tokens as it is said to see"
    assert [r["answer"] for r in place_order(ours)] == [r["answer"] for r in place_order(theirs)]
    prompts = len(set(by_place(ours, "sha256").values()))
    assert f"\n{prompts} pairs" in needlemap("compare", "here", "there").stdout


def test_llama_server_and_transformers_are_asked_the_same_and_pair(
    llama, asking, needlemap, as_asked
):
    check(asking, needlemap, llama(), as_asked)


def test_prompts_that_a_server_was_asked_otherwise_are_asked_as_they_are(llama, asking, needlemap):
    """Without the template's tokens the server's prompts are longer than those of the same lengths
    here."""
    grid = ("--lengths", "160", "--depths", "0,100")
    _, theirs = asking.run(llama(), *grid, "--tokenizer", asking.checkpoint, out="there")
    model = (
        "--model",
        f"hf/{asking.checkpoint}",
        "--model-options",
        "dtype=float32",
        "--no-canary",
    )
    needlemap("run", "--prompts-of", "there", *model, "-o", "here")
    ours = needlemap.records("here")
    assert by_place(ours, "sha256") == by_place(theirs, "sha256")
    for name in ("prompt_tokens", "answer", "score"):
        assert [row[name] for row in place_order(ours)] == [
            row[name] for row in place_order(theirs)
        ]


def test_vllm_and_transformers_are_asked_the_same_and_pair(vllm, asking, needlemap, as_asked):
    check(asking, needlemap, vllm, as_asked)


def place_order(records):
    return sorted(
        records, key=lambda record: (record["repeat"], record["length_tokens"], record["depth"])
    )


def by_place(records, name):
    return {
        (record["repeat"], record["length_tokens"], record["depth"]): record["prompt"][name]
        for record in records
    }
