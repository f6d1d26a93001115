"""The API that most servers speak, OpenAI's: the names by which it is typed and configured.

What its requests and answers look like stands in `models/openai.py`.
"""

BACKEND = "openai"
ADDRESS, KEY, HEADERS = "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"

LOCAL = "http://127.0.0.1"
# Servers and providers of that API by the names that other tools give them: address, variable of
# the key.
ADDRESSES: dict[str, tuple[str, str | None]] = {
    "azure": ("https://RESOURCE.openai.azure.com/openai/v1", "AZURE_OPENAI_API_KEY"),
    "cohere": ("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "litellm": (f"{LOCAL}:4000/v1", None),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "ollama": (f"{LOCAL}:11434/v1", None),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "sglang": (f"{LOCAL}:30000/v1", None),
    "vllm": (f"{LOCAL}:8000/v1", None),
}


def flags_of(provider: str, name: str) -> str | None:
    """The flags that ask another tool's PROVIDER/NAME here; None for an unknown provider.

    >>> flags_of("ollama", "qwen3")
    '--model openai/qwen3 --base-url http://127.0.0.1:11434/v1'
    """
    if provider not in ADDRESSES:
        return None
    address, variable = ADDRESSES[provider]
    key = f" --model-options key_env={variable}" if variable else ""
    return f"--model {served(name)} --base-url {address}{key}"


def served(name: str = "NAME") -> str:
    """A served model as `--model` takes it.

    >>> served("qwen3")
    'openai/qwen3'
    """
    return f"{BACKEND}/{name}"
