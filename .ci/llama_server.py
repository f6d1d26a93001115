#!/usr/bin/env python3
"""llama.cpp's HTTP server out of PyPI's `xllamacpp` wheel, with the options of `llama-server`.

    llama-server -m MODEL.gguf -c 8192 -np 4 --port 8080

Only the options of the table below are known; another one is an error and never ignored. The wheel
is built for any x86-64, so it computes more slowly than a build for this processor. The wheel is
looked for in the folder `site` beside this file, then where Python looks.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Set = Callable[[Any, Any], None]  # (parameters, value)


def _field(name: str) -> Set:
    """Set parameters.NAME; NAME may have dots."""
    *path, last = name.split(".")

    def put(parameters: Any, value: Any) -> None:
        for part in path:
            parameters = getattr(parameters, part)
        setattr(parameters, last, value)

    return put


def _member(name: str, kind: str, prefix: str) -> Set:
    """Set parameters.NAME to the member PREFIX + VALUE of an enumeration of xllamacpp."""

    def put(parameters: Any, value: str) -> None:
        import xllamacpp

        setattr(parameters, name, getattr(getattr(xllamacpp, kind), prefix + value.upper()))

    return put


def _rope_scale(parameters: Any, value: float) -> None:
    parameters.rope_freq_scale = 1 / value


def _alias(parameters: Any, value: str) -> None:
    # A text before xllamacpp 2026.4, a set since.
    parameters.model_alias = value if isinstance(parameters.model_alias, str) else {value}


def _host(parameters: Any, value: str) -> None:
    # One host before xllamacpp 2026.8, several since.
    if hasattr(parameters, "hostnames"):
        parameters.hostnames = [value]
    else:
        parameters.hostname = value


def _chat_template_file(parameters: Any, value: str) -> None:
    with open(value, encoding="utf-8") as file:
        parameters.chat_template = file.read()


# flags -> (type of the value, how it is set). bool: no value follows; two flags, the second is off.
VALUES: dict[tuple[str, ...], tuple[Any, Set]] = {
    ("-m", "--model"): (str, _field("model.path")),
    ("-a", "--alias"): (str, _alias),
    ("-c", "--ctx-size"): (int, _field("n_ctx")),
    ("-np", "--parallel"): (int, _field("n_parallel")),
    ("-n", "--predict", "--n-predict"): (int, _field("n_predict")),
    ("-b", "--batch-size"): (int, _field("n_batch")),
    ("-ub", "--ubatch-size"): (int, _field("n_ubatch")),
    ("-t", "--threads"): (int, _field("cpuparams.n_threads")),
    ("-tb", "--threads-batch"): (int, _field("cpuparams_batch.n_threads")),
    ("--threads-http",): (int, _field("n_threads_http")),
    ("--keep",): (int, _field("n_keep")),
    ("-cram", "--cache-ram"): (int, _field("cache_ram_mib")),
    ("--cache-reuse",): (int, _field("n_cache_reuse")),
    ("-sps", "--slot-prompt-similarity"): (float, _field("slot_prompt_similarity")),
    ("--slot-save-path",): (str, _field("slot_save_path")),
    ("-ctk", "--cache-type-k"): (str, _member("cache_type_k", "ggml_type", "GGML_TYPE_")),
    ("-ctv", "--cache-type-v"): (str, _member("cache_type_v", "ggml_type", "GGML_TYPE_")),
    ("-fa", "--flash-attn"): (
        str,
        lambda parameters, value: _member(
            "flash_attn_type", "llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_"
        )(parameters, {"on": "enabled", "off": "disabled"}.get(value, value)),
    ),
    ("--rope-scaling",): (
        str,
        _member("rope_scaling_type", "llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_"),
    ),
    ("--rope-scale",): (float, _rope_scale),
    ("--rope-freq-base",): (float, _field("rope_freq_base")),
    ("--rope-freq-scale",): (float, _field("rope_freq_scale")),
    ("--yarn-orig-ctx",): (int, _field("yarn_orig_ctx")),
    ("--yarn-ext-factor",): (float, _field("yarn_ext_factor")),
    ("--yarn-attn-factor",): (float, _field("yarn_attn_factor")),
    ("--yarn-beta-slow",): (float, _field("yarn_beta_slow")),
    ("--yarn-beta-fast",): (float, _field("yarn_beta_fast")),
    ("--chat-template",): (str, _field("chat_template")),
    ("--chat-template-file",): (str, _chat_template_file),
    ("--api-key",): (str, lambda parameters, value: _field("api_keys")(parameters, [value])),
    ("--host",): (str, _host),
    ("--port",): (int, _field("port")),
}
SWITCHES: dict[tuple[str, ...], str] = {
    ("--jinja", "--no-jinja"): "use_jinja",
    ("--context-shift", "--no-context-shift"): "ctx_shift",
    ("-kvu", "--kv-unified"): "kv_unified",
    ("--swa-full",): "swa_full",
    ("--cache-prompt", "--no-cache-prompt"): "cache_prompt",
    ("--cont-batching", "--no-cont-batching"): "cont_batching",
    ("--metrics",): "endpoint_metrics",
    ("--slots", "--no-slots"): "endpoint_slots",
    ("--props",): "endpoint_props",
    ("--warmup", "--no-warmup"): "warmup",
}


def options() -> argparse.ArgumentParser:
    """The command line; what is not given keeps llama.cpp's default."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="say which, and end")
    for flags, (kind, _) in VALUES.items():
        parser.add_argument(*flags, dest=flags[-1], type=kind, default=None)
    for flags, name in SWITCHES.items():
        for flag in flags:
            parser.add_argument(
                flag,
                dest=name,
                action="store_const",
                const=not flag.startswith("--no-"),
                default=None,
            )
    return parser


def main() -> None:
    """Serve until a signal ends the process."""
    sys.path.insert(0, str(Path(__file__).with_name("site")))
    given = vars(options().parse_args())
    import xllamacpp

    if given["version"]:
        print(f"llama.cpp of xllamacpp {xllamacpp.__version__}")
        return
    parameters = xllamacpp.CommonParams()
    parameters.port = 8080
    for flags, (_, put) in VALUES.items():
        if given[flags[-1]] is not None:
            put(parameters, given[flags[-1]])
    for name in SWITCHES.values():
        if given[name] is not None:
            setattr(parameters, name, given[name])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    server = xllamacpp.Server(parameters)
    print(f"listening on {server.listening_address}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
