"""The API that most servers speak, OpenAI's: the names by which it is typed and configured.

What its requests and answers look like stands in `models/openai.py`.
"""

BACKEND = "openai"
ADDRESS, KEY, HEADERS = "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"


def served(name: str = "NAME") -> str:
    """A served model as `--model` takes it.

    >>> served("qwen3")
    'openai/qwen3'
    """
    return f"{BACKEND}/{name}"
