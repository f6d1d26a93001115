"""What the options of `needlemap check` make of a verdict: by the command, against real servers.

The servers read prompts and find the sentence that answers. The forgetful one finds nothing in half
of its longest prompts, the same ones each time; the blind one in none of them.
"""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from needlemap.servers.check import asking, haystack
from needlemap.servers.check.haystack import Amount

SHORTEST, MIDDLE, LONGEST = 175, 265, 400
# a check of a quarter of the prompts: still enough for each probe to pass
SMALL = Amount((12, 12, 24), (2, 2, 4), (2, 2, 2), 4, 12, (4, 4, 4))
OWN = ("--vocabulary", "cl100k_base")  # servers that count as the lengths do
FORGETFUL = ("--forgets", "0.4", "--forgets-from", "220")  # words, of about 270 tokens
BLIND = ("--forgets", "1", "--forgets-from", "220")
TO = ("--max-length", str(LONGEST))
FEW = (
    *TO,
    *("--probe", "length", "--probe", "cache", "--probe", "mates"),
    *("--require", "length,cache,mates"),
)
Check = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(haystack, "MANY", SMALL)
        patch.setattr(asking, "randbits", lambda _: 7)  # the same prompts each time
        yield


@pytest.fixture(scope="module")
def servers(wires_for: Any) -> dict[str, str]:
    kinds = {"sound": (), "forgetful": FORGETFUL, "blind": BLIND}
    return {name: wires_for(*OWN, *options).base_url for name, options in kinds.items()}


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory, command_in: Any, servers: Any) -> Check:
    """`check(server, folder, flags)`: what was printed. A folder that is whole is judged anew, and
    nothing is asked."""
    command = command_in(tmp_path_factory.mktemp("options"))

    def asked(server: str, folder: str, *flags: str, code: int) -> Any:
        url = servers.get(server, server)
        model = ("--model", "openai/wire", "--base-url", url, "--tokenizer", "cl100k_base")
        typed = ("check", *model, "--max-answer-tokens", "24", "--quiet", "-o", folder)
        return command(*typed, *flags, code=code)

    asked.folder = command.folder  # type: ignore[attr-defined]
    return asked


def last_line(shown: Any) -> str:
    return str(shown.stdout.splitlines()[-1])


def test_a_size_that_is_required_passes_where_only_longer_prompts_are_lost(check):
    line = last_line(check("forgetful", "lost", *FEW, code=5))
    assert line.startswith("SUSPECT check: ")
    flags = (*FEW[:-1], f"{MIDDLE},length,cache,mates")
    line = last_line(check("forgetful", "lost", *flags, code=0))
    assert line.startswith(
        f"PASS check: length, cache, mates pass at {SHORTEST}, {MIDDLE}, "
        f"found {SHORTEST} 24 of 24, {MIDDLE} 18 of 18, {LONGEST} "
    )
    assert f"; not required, and open: {LONGEST}" in line


def test_junit_has_no_error_of_what_is_open_and_not_required(check):
    """CI was red at exit code 0."""
    file = check.folder / "lost.xml"
    flags = (*FEW[:-1], f"{MIDDLE},length,cache,mates", "--junit", str(file))
    check("forgetful", "lost", *flags, code=0)
    suite = xml.parse(file).getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert {case.get("name") for case in suite} == {"check", "mates"}
    check("forgetful", "lost", *FEW, "--junit", str(file), code=5)
    suite = xml.parse(file).getroot()[0]
    assert {case.get("name") for case in suite} == {"check", "length", "cache", "mates"}


def test_probes_that_are_required_pass_without_those_that_were_not_asked(check):
    flags = (*TO, "--probe", "cache", "--probe", "mates")
    line = last_line(check("sound", "c", *flags, code=4))
    assert "not asked: probes: length, pattern, same; add --require cache,mates." in line
    line = last_line(check("sound", "c", *flags, "--require", "cache,mates", code=0))
    assert line.startswith("PASS check: cache, mates pass at ")
    missing = check("sound", "c", *flags, "--require", "cache,same", code=4)
    assert "not asked: probes: same; add --probe same." in last_line(missing)
    file = check.folder / "probes.xml"
    check("sound", "c", *flags, "--require", "cache,mates", "--junit", str(file), code=0)
    cases = {case.get("name"): list(case) for case in xml.parse(file).getroot().iter("testcase")}
    assert all(part.tag == "system-out" for name in ("cache", "mates") for part in cases[name])
    check("sound", "c", *flags, "--on-undecided", "pass", code=0)


def test_a_loss_is_never_passed_as_too_little_data(check):
    check("forgetful", "lost", *FEW, "--on-undecided", "pass", code=5)


def test_what_was_not_asked_beyond_a_required_size_is_told(check, wires_for):
    """A server that lists more tokens than it takes."""
    url = wires_for(*OWN, "--lists", str(LONGEST), "--max-context", "250").base_url
    flags = (*FEW[2:-1], f"{MIDDLE},length,cache,mates")
    line = last_line(check(url, "takes", *flags, code=0))
    assert f"{LONGEST} no prompt answered" in line
    assert line.startswith(f"PASS check: length, cache, mates pass at {SHORTEST}, {MIDDLE}, ")
    assert f"; not asked: {LONGEST}: " in line
    window = ("--probe", "window", "--require", f"{MIDDLE},length,cache,mates,window")
    shown = check(url, "takes", *flags[:-2], *window, code=1).stdout
    assert "are refused: less than promised" in " ".join(shown.split())


def test_a_size_that_is_accepted_by_name_is_told_wherever_the_verdict_is(check):
    typed = (*FEW[:-1], "length,mates", "--accept", f"length@{LONGEST}")
    words = f"accepted: length@{LONGEST}"
    assert words in last_line(check("forgetful", "lost", *typed, code=0))
    found = json.loads(check("forgetful", "lost", *typed, "--json", code=0).stdout)
    assert (found["exit_code"], found["accepted"]) == (0, [f"length@{LONGEST}"])
    assert words in found["result"]["line"]
    assert [each["accepted"] for each in found["probes"] if each["accepted"]] == [[LONGEST]]
    file = check.folder / "check.xml"
    check("forgetful", "lost", *typed, "--junit", str(file), code=0)
    assert words in file.read_text()
    assert not list(xml.parse(file).getroot().iter("failure"))


def test_a_server_is_judged_beside_the_same_weights_elsewhere(check, servers):
    probes = ("--probe", "length", "--probe", "reference", "--require", "length,reference")
    flags = (*TO, *probes, "--reference", servers["sound"])
    shown = check("sound", "right", *flags, code=0).stdout
    assert "not seen without --reference" not in shown
    assert "margins were not compared, so a coarse cache is not seen" in " ".join(shown.split())
    found = json.loads(check("blind", "wrong", *flags, "--json", code=1).stdout)
    for each in found["probes"]:
        assert [row["state"] for row in each["sizes"]] == ["PASS", "PASS", "FAIL"]
        assert each["worst"]["length_tokens"] > MIDDLE


def test_a_reference_that_finds_too_little_passes_nothing(check, servers):
    flags = (*TO, "--probe", "reference", "--require", "reference", "--json")
    typed = (*flags, "--reference", servers["blind"])
    found = json.loads(check("sound", "weak", *typed, code=4).stdout)
    (reference,) = found["probes"]
    assert [row["state"] for row in reference["sizes"]] == ["PASS", "PASS", "NOT ENOUGH DATA"]
    assert "the reference finds too little" in reference["said"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--max-context", str(LONGEST)), 0, "0 of 8 missed at the end of the context"),
        (("--lists", str(LONGEST)), 1, "a prompt longer than the context is answered"),
        (
            ("--lists", str(LONGEST), "--max-context", "370"),
            1,
            "are refused: less than promised",
        ),
    ],
    ids=["as told", "answers beyond", "ends before"],
)
def test_a_context_is_asked_to_its_end_and_beyond(check, wires_for, options, code, said):
    url = wires_for(*OWN, *options).base_url
    flags = ("--probe", "length", "--probe", "window", "--require", "length,window", "--json")
    found = json.loads(check(url, f"window{'-'.join(options)}", *flags, code=code).stdout)
    assert found["sizes"][-1] == LONGEST, "the context that the server lists"
    (window,) = [each for each in found["probes"] if each["probe"] == "window"]
    assert said in window["said"]


@pytest.mark.parametrize(("models", "state"), [("wire", "FAIL"), ("wire,other", "not applicable")])
def test_a_context_at_props_of_a_router_may_be_another_model_s(check, wires_for, models, state):
    """This server answers prompts beyond what /props gives: a fault if it serves one model."""
    slots = ("--owner", "llamacpp", "--slots", "1", "--slot-tokens", str(LONGEST))
    url = wires_for(*OWN, *slots, "--models", models).base_url
    flags = (*TO, "--probe", "length", "--probe", "window", "--require", "length", "--json")
    folder = f"props-{models.replace(',', '-')}"
    found = json.loads(check(url, folder, *flags, code=1 if state == "FAIL" else 0).stdout)
    (window,) = [each for each in found["probes"] if each["probe"] == "window"]
    assert window["state"] == state


def test_the_same_losses_as_before_pass_for_the_change_only(check):
    check("forgetful", "lost", *FEW, code=5)
    shutil.copytree(check.folder / "lost", check.folder / "again")  # the same answers once more
    line = last_line(check("forgetful", "again", *FEW, "--baseline", "lost", code=0))
    assert "; for the change only, beside lost (2 rows stayed as before)" in line


@pytest.mark.long
@pytest.mark.parametrize(("server", "code"), [("sound", 0), ("blind", 1)])
def test_a_loss_that_was_not_there_before_is_no_pass(check, server, code):
    check("sound", "before", *FEW, code=0)
    shown = check(server, f"after-{server}", *FEW, "--baseline", "before", code=code)
    assert last_line(shown).startswith(f"{'FAIL' if code else 'PASS'} check: ")
    assert "; for the change only, beside before (" in last_line(shown)
