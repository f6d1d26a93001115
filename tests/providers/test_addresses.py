"""Where requests go: base URLs with a query, deployments, and the names that other tools use."""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.http.client import check_address
from needlemap.http.compatible import PROVIDERS, flags_of
from needlemap.settings import Settings
from needlemap.trials.resolve import model_traits


@pytest.fixture
def asked():
    """A server that keeps each request's path and headers, and answers it."""
    seen: list[tuple[str, dict[str, str], bytes]] = []
    body = b'{"choices": [{"message": {"content": "51328"}, "finish_reason": "stop"}]}'

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.append((self.path, headers, self.rfile.read(size)))
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def run(typed: Any, url: str, *flags: str) -> None:
    model = ("--model", "openai/m", "--base-url", url, "--tokenizer", "cl100k_base")
    key = ("--model-options", "key_env=AZURE_OPENAI_API_KEY")
    grid = ("--lengths", "400", "--depths", "50", "--no-canary", "--quiet")
    environment = {"AZURE_OPENAI_API_KEY": "abcdefgh12345"}
    typed("run", *model, *key, *grid, *flags, "-o", "r", environment=environment)


@pytest.mark.parametrize(
    "path", ["/openai/deployments/d?api-version=2024-10-21", "/openai/v1/?api-version=preview"]
)
def test_the_query_of_an_address_stays_behind_the_path(typed: Any, asked: Any, path: str) -> None:
    root, seen = asked
    run(typed, root + path)
    ((sent, headers, _),) = seen
    base, _, query = path.partition("?")
    assert sent == f"{base.rstrip('/')}/chat/completions?{query}"
    assert headers["api-key"] == "abcdefgh12345"
    assert "authorization" not in headers


def test_a_plain_address_gets_the_key_as_ever(typed: Any, asked: Any) -> None:
    root, seen = asked
    run(typed, f"{root}/openai/v1")
    ((sent, headers, _),) = seen
    assert sent == "/openai/v1/chat/completions"
    assert headers["authorization"] == "Bearer abcdefgh12345"
    assert "api-key" not in headers


def test_the_responses_api_is_asked_in_its_own_form(needlemap: Any, wire: Any) -> None:
    reply = '{"status": "completed", "output": [{"type": "message", "content": '
    reply += '[{"type": "output_text", "text": "The locker code for Turin is 51328."}]}]}'
    wire.schedule(f"raw:{reply}", cycle=True)
    grid = ("--lengths", "200", "--depths", "50", "--no-canary")
    needlemap.run(wire, *grid, "--model-options", "api=responses")
    (request,) = wire.log()
    assert request["path"] == "/v1/responses"
    assert request["body"]["input"][-1]["role"] == "user"
    assert {"max_output_tokens", "store"} <= set(request["fields"])
    assert not {"messages", "max_tokens", "stop"} & set(request["fields"])


def test_the_address_of_one_request_is_refused_with_its_base_and_query() -> None:
    url = "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21"
    with pytest.raises(SettingsError) as refused:
        check_address(url)
    base = "'https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21'"
    assert str(refused.value).endswith(f"Type: --base-url {base}")


def test_every_prefix_is_one_providers_and_names_its_address() -> None:
    prefixes = [prefix for each in PROVIDERS for prefix in each.prefixes]
    assert len(prefixes) == len(set(prefixes))
    for prefix in ("bedrock", "vertex_ai", "dashscope", "together", "fireworks", "xai", "lmstudio"):
        assert "--base-url http" in (flags_of(prefix, "m") or "")


def test_a_token_without_a_documented_variable_is_left_to_the_user() -> None:
    flags = flags_of("vertex_ai", "google/gemini-2.5-pro") or ""
    assert flags.endswith("--model-options key_env=VARIABLE")


@pytest.mark.parametrize(
    ("model", "ours"),
    [
        ("turbomind/./x", "lmdeploy/./x"),
        ("TurboMindModel/internlm/internlm2-chat-20b", "lmdeploy/internlm/internlm2-chat-20b"),
        ("transformers/Qwen/Qwen3-0.6B", "hf/Qwen/Qwen3-0.6B"),
    ],
)
def test_a_back_end_by_another_tools_name_is_told_its_own(model: str, ours: str) -> None:
    settings = Settings(model=model)
    with pytest.raises(SettingsError, match=f"here. Type: --model {re.escape(ours)}$"):
        model_traits(settings)
