"""The API that most servers speak, OpenAI's: the names by which it is typed and configured, and who
speaks it where.

What its requests and answers look like stands in `models/openai.py`.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

BACKEND = "openai"
ADDRESS, KEY, HEADERS = "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"

LOCAL = "http://127.0.0.1"


class Provider(NamedTuple):
    """A server or provider of that API.

    Attributes:
        prefixes: Names that other tools give it.
        address: Its address, with words in capitals that a user fills in.
        key: The variable that holds its key; None if it needs none; `VARIABLE`, which a user fills
            in, if its documentation names none.
        tried: Whether needlemap was run against it; else its documentation is all that is known.
    """

    prefixes: tuple[str, ...]
    address: str
    key: str | None = None
    tried: bool = False


PROVIDERS = (
    Provider(("vllm", "hosted_vllm"), f"{LOCAL}:8000/v1", tried=True),
    Provider(("sglang",), f"{LOCAL}:30000/v1"),
    Provider(("llamacpp", "llama.cpp", "llama_cpp"), f"{LOCAL}:8080/v1", tried=True),
    Provider(("ollama", "ollama_chat"), f"{LOCAL}:11434/v1"),
    Provider(("lmstudio", "lm_studio"), f"{LOCAL}:1234/v1"),
    Provider(("litellm", "litellm_proxy"), f"{LOCAL}:4000/v1"),
    Provider(("tgi", "huggingface_tgi"), f"{LOCAL}:8080/v1"),
    Provider(("mlx", "mlx_lm"), f"{LOCAL}:8080/v1"),
    Provider(("xinference",), f"{LOCAL}:9997/v1"),
    Provider(("azure",), "https://RESOURCE.openai.azure.com/openai/v1", "AZURE_OPENAI_API_KEY"),
    Provider(
        ("azure_ai", "azure_deployment"),
        "'https://RESOURCE.openai.azure.com/openai/deployments/NAME?api-version=VERSION'",
        "AZURE_OPENAI_API_KEY",
    ),
    Provider(
        ("bedrock",),
        "https://bedrock-runtime.REGION.amazonaws.com/openai/v1",
        "AWS_BEARER_TOKEN_BEDROCK",
    ),
    Provider(
        ("gemini", "google"),
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
    ),
    Provider(
        ("vertex_ai", "vertex"),
        "https://aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION/endpoints/openapi",
        # Google documents an access token that lasts an hour, and no variable for it.
        "VARIABLE",
    ),
    Provider(("cohere",), "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    Provider(("deepseek",), "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    Provider(
        ("dashscope", "qwen"),
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    Provider(
        ("fireworks", "fireworks_ai"), "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"
    ),
    Provider(("groq",), "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    Provider(("huggingface",), "https://router.huggingface.co/v1", "HF_TOKEN"),
    Provider(("minimax",), "https://api.minimax.io/v1", "MINIMAX_API_KEY"),
    Provider(("mistral", "mistralai"), "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    Provider(("moonshot", "kimi"), "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    Provider(("nvidia", "nvidia_nim"), "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    Provider(("openrouter",), "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    Provider(("cerebras",), "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    Provider(("sambanova",), "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    Provider(("siliconflow",), "https://api.siliconflow.com/v1", "SILICONFLOW_API_KEY"),
    Provider(("deepinfra",), "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    Provider(("together", "together_ai"), "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    Provider(("xai", "grok"), "https://api.x.ai/v1", "XAI_API_KEY"),
    Provider(("zai", "zhipu", "zhipuai"), "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
)


def flags_of(prefix: str, name: str) -> str | None:
    """Return the flags that name a model of another tool, PREFIX/NAME, in needlemap.

    If the prefix is not the name of a known provider, the result is None.

    >>> flags_of("ollama", "qwen3")
    '--model openai/qwen3 --base-url http://127.0.0.1:11434/v1'
    """
    for provider in PROVIDERS:
        if prefix.casefold() in provider.prefixes:
            key = f" --model-options key_env={provider.key}" if provider.key else ""
            return f"--model {served_model(name)} --base-url {provider.address}{key}"
    return None


def served_model(name: str = "NAME") -> str:
    """Return the value of `--model` for a model that a server of this API lists.

    name: the model's name as the server spells it, or a word that stands for it in a message.

    >>> served_model("qwen3")
    'openai/qwen3'
    """
    return f"{BACKEND}/{name}"


def join_address(base_url: str, path: str) -> str:
    """Return the address of a request: the base URL with the path in front of its query.

    >>> join_address("https://host/deployments/d?api-version=1", "/chat/completions")
    'https://host/deployments/d/chat/completions?api-version=1'
    """
    base, question_mark, query = base_url.partition("?")
    if question_mark:
        base = base.rstrip("/")
    return f"{base}{path}{question_mark}{query}"


def is_deployment(base_url: str) -> bool:
    """Return True if an address is that of a single model, as Azure's are.

    The key of such an address is sent in a header of its own, and /v1 is never added to it.
    """
    parts = urlsplit(base_url)
    return "/deployments/" in parts.path or "api-version=" in parts.query
