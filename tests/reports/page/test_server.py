"""The live page's server: who is answered, with what."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from threading import Thread

import pytest

from needlemap.records.record import Record
from needlemap.reports.page import live as feed_module
from needlemap.reports.page import live as module
from needlemap.reports.page.live import PageFeed, PageServer
from needlemap.reports.run_notes import Tally

RECORD = Record(key="k", task="t", model="m", length_tokens=1, depth=0, repeat=0, seed=0, score=1)


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> PageFeed:
    """One scored trial of ten."""
    monkeypatch.setattr(feed_module, "AT_LEAST_S", 0.0)
    monkeypatch.setattr(feed_module, "TIMES_AS_LONG", 0)
    monkeypatch.setattr(module, "HOLD_S", 0.3)
    return PageFeed(
        lambda records, live: ({"n": len(records), "live": live}, []), Tally(10, 1), [RECORD]
    )


@pytest.fixture
def server(feed: PageFeed) -> Iterator[PageServer]:
    started = PageServer(feed, lambda version: f"<p>é {version.summary['n']}")
    yield started
    started.close()


def ask(
    server: PageServer, path: str, method: str = "GET", host: str | None = None
) -> HTTPResponse:
    """An answer, read to its end."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def test_its_address_is_this_machine_with_a_token_that_none_guesses(server, feed):
    other = PageServer(feed, str)
    assert server.url == f"http://127.0.0.1:{server.server_port}{server.root}"
    assert len(server.root) >= 22
    assert server.root != other.root
    other.close()


def test_it_listens_on_loopback_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(OSError, match=r"refused|unreachable"):
        socket.create_connection(("::1", server.server_port), timeout=2)


def test_the_page_is_the_version_of_now(server, feed):
    answer = ask(server, server.root)
    assert (answer.status, answer.body.decode()) == (200, "<p>é 1")
    feed.add(RECORD)
    assert ask(server, server.root).body.decode() == "<p>é 2"


@pytest.mark.parametrize("path", ["", "data", "elsewhere"])
def test_every_answer_tells_the_browser_to_keep_it_to_itself(server, path):
    headers = ask(server, server.root + path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["X-Frame-Options"] == "DENY"
    assert "Python" not in headers["Server"]
    assert "Access-Control-Allow-Origin" not in headers


def test_data_is_gzipped_json_and_204_when_nothing_is_new(server, feed):
    answer = ask(server, f"{server.root}data")
    assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip")
    found = json.loads(gzip.decompress(answer.body))
    assert (found["version"], found["summary"]["n"], found["trials"]) == (1, 1, [])

    start = time.monotonic()
    answer = ask(server, f"{server.root}data?since=1")
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (204, b"", None)
    assert time.monotonic() - start >= 0.3  # it waited for news

    feed.add(RECORD)
    assert (
        json.loads(gzip.decompress(ask(server, f"{server.root}data?since=1").body))["version"] == 2
    )


@pytest.mark.parametrize("since", ["", "-1", "x", "1e3", "%C2%B2", "9" * 5000])
def test_a_number_that_is_none_gets_all(server, since):
    assert ask(server, f"{server.root}data?since={since}").status == 200


@pytest.mark.parametrize("path", ["/", "/data", "/favicon.ico", "/x/", "/%00/", "//"])
def test_without_the_token_nothing_is_there(server, path):
    answer = ask(server, path)
    assert (answer.status, answer.body) == (404, b"Not Found\n")
    assert server.root not in str(answer.headers)


def test_a_part_of_the_token_or_more_than_a_known_name_is_nothing(server):
    for path in (
        server.root[:-2] + "/",
        server.root.rstrip("/"),
        f"{server.root}data/",
        f"{server.root}../",
    ):
        assert ask(server, path).status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost", "[::1]:{port}"]
)
def test_a_name_of_another_site_is_refused(server, host):
    answer = ask(server, server.root, host=host.format(port=server.server_port))
    assert answer.status == 403
    assert answer.body.decode() == f"Known as {server.hosts[0]} only: forward that very port.\n"


def test_localhost_is_this_machine(server):
    assert ask(server, server.root, host=f"localhost:{server.server_port}").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(server, method):
    answer = ask(server, server.root, method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_the_body(server):
    answer = ask(server, server.root, "HEAD")
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, b"", "7")


def test_what_breaks_while_a_page_is_made_is_said_on_the_page_alone(feed, capfd):
    server = PageServer(feed, lambda version: str(version.number / 0))
    answer = ask(server, server.root)
    assert (answer.status, answer.body) == (500, b"ZeroDivisionError: division by zero\n")
    server.close()
    assert capfd.readouterr() == ("", "")


def test_a_reader_that_goes_away_in_the_middle_is_no_news(server, capfd):
    with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.sendall(f"GET {server.root}data?since=1 HTTP/1.1\r\n".encode())
    assert ask(server, server.root).status == 200
    assert capfd.readouterr() == ("", "")


def test_many_readers_wait_at_once_and_all_hear_of_the_end(server, feed, monkeypatch, until):
    monkeypatch.setattr(module, "HOLD_S", 20.0)
    states: list[str] = []

    def wait() -> None:
        body = ask(server, f"{server.root}data?since=1").body
        states.append(json.loads(gzip.decompress(body))["summary"]["live"]["state"])

    readers = [Thread(target=wait) for _ in range(8)]
    for reader in readers:
        reader.start()
    time.sleep(0.2)
    feed.end()
    for reader in readers:
        reader.join(60)
    assert states == ["ended"] * 8
    until(
        lambda: feed.delivered
    )  # known only when the server's own threads are done with the last byte


def test_more_connections_than_any_browser_has_are_closed_and_those_after_them_are_served(server):
    """Five hundred held open were five hundred threads."""
    where = ("127.0.0.1", server.server_port)
    held = [socket.create_connection(where) for _ in range(module.MOST_READERS)]
    time.sleep(0.5)
    with socket.create_connection(where) as late:
        late.settimeout(5)
        assert late.recv(1) == b""
    for each in held:
        each.close()
    time.sleep(0.5)
    assert ask(server, server.root).status == 200
