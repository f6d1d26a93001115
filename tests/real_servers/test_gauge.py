"""The gauge on a real llama-server, from the file that needlemap writes: the same tokens, and every
needle found."""

from __future__ import annotations

import random
from collections.abc import Iterator

import httpx
import pytest
import tokenizers

from needlemap.models.gauge import DATA

STRINGS = 10_000
PIECES = (
    *(
        "The locker code for Oslo is",
        " 123456789012",
        ".",
        "?",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
    ),
    *(
        "上海",
        "储物柜密码是",
        "多少？",
        "é",
        "e\u0301",
        "ß",
        "Ⅷ",
        "½",
        "٣",
        "१२",
        "²",
        "🙂",
        "👩‍👩‍👧",
    ),
    *("<|im_start|>", "<|im_end|>", "<s>", "</s>", "<pad>", "<|im_", "assistant", "Answer:"),
    *(
        "don't",
        "I'LL",
        "'re",
        "x=1;",
        "{}",
        "\u00a0",
        "\u3000",
        "\u200b",
        "naïve",
        "Ελλάς",
        "ไทย",
        "0x1F",
    ),
)


def strings() -> Iterator[str]:
    draw = random.Random(27)
    for _ in range(STRINGS):
        yield "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 8)))


def test_llama_cpp_splits_texts_as_the_gauges_own_tokenizer_does(gauge_server):
    own = tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json"))
    other = []
    with httpx.Client() as client:
        for text in strings():
            asked = {"content": text, "parse_special": True, "add_special": False}
            ids = client.post(f"{gauge_server.root}/tokenize", json=asked).json()["tokens"]
            if ids != own.encode(text, add_special_tokens=False).ids:
                other.append(text)
    assert other == []


@pytest.mark.parametrize("template", ["chat-en", "text-en"])
def test_every_needle_is_found(gauge_server, template, needlemap):
    address = ("--model", "openai/gauge", "--base-url", gauge_server.base_url)
    grid = ("--lengths", "128,1024,4k", "--depths", "0,50,100", "--repeats", 1)
    fact = ("--needle", "The locker code for {city} is {number}.", "--keywords", "{number}")
    asked = ("--question", "What is the locker code for {city}?", "--draw", "city=Oslo,Lima,Cairo")
    more = ("--draw", "number=100000000000:999999999999", "--template", template)
    sizes = ("--tokenizer", "server", "--max-answer-tokens", 20)
    needlemap("run", *address, *grid, *fact, *asked, *more, *sizes, "-o", "run")
    records = needlemap.records("run")
    assert {record["length_tokens"] for record in records} == {128, 1024, 4000}
    assert [record["score"] for record in records if record["score"] != 1] == []
