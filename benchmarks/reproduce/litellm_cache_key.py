"""LiteLLM's reply cache: requests that differ in `chat_template_kwargs` share a cached reply.

Needs litellm. No server is asked: the keys of the cache are compared. A model that thinks with
`enable_thinking: true` answers from the reply that was kept without, and the reverse.
"""

from importlib.metadata import version

from litellm.caching.caching import Cache

REQUEST = {"model": "hosted_vllm/any", "messages": [{"role": "user", "content": "hello"}]}
FIELDS = {
    "temperature": (0, 1),
    "top_k": (1, 50),
    "min_p": (0.0, 0.5),
    "repetition_penalty": (1.0, 1.3),
    "chat_template_kwargs": ({"enable_thinking": True}, {"enable_thinking": False}),
}

cache = Cache(type="local")
print("litellm", version("litellm"))
for name, (left, right) in FIELDS.items():
    keys = {cache.get_cache_key(**REQUEST, **{name: value}) for value in (left, right)}
    print(f"{name}: {'shared reply' if len(keys) == 1 else 'replies apart'}")
