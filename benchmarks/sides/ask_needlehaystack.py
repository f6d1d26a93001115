"""needlehaystack against a local server: a provider and an evaluator of one's own.

    python ask_needlehaystack.py http://127.0.0.1:8080 smollm2 '[500, 1000]' '[0, 50, 100]' 40

The package's provider knows OpenAI's names only, and its only evaluator is a GPT judge.
"""

import json
import sys
from urllib.request import Request, urlopen

from needlehaystack import LLMNeedleHaystackTester
from needlehaystack.evaluators import Evaluator
from needlehaystack.providers import ModelProvider

url, model, lengths, depths, answer_tokens = sys.argv[1:]
QUESTION = "What is the best thing to do in San Francisco?"


def post(path, **body):
    request = Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urlopen(request, timeout=3600))


class Local(ModelProvider):
    model_name = model

    async def evaluate_model(self, prompt):
        fields = {"model": model, "max_tokens": int(answer_tokens), "temperature": 0}
        reply = post("/v1/chat/completions", messages=prompt, **fields)
        return reply["choices"][0]["message"]["content"]

    def generate_prompt(self, context, retrieval_question):
        return [{"role": "user", "content": f"{context}\n\n{retrieval_question}"}]

    def encode_text_to_tokens(self, text):
        return post("/tokenize", content=text)["tokens"]

    def decode_tokens(self, tokens, context_length=None):
        return post("/detokenize", tokens=tokens[:context_length])["content"]

    def get_langchain_runnable(self, context):
        raise NotImplementedError


class Words(Evaluator):
    CRITERIA = None

    def evaluate_response(self, response):
        return 10 if all(word in response.lower() for word in ("dolores", "sandwich")) else 1


LLMNeedleHaystackTester(
    Local(),
    Words(),
    needle="\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a "
    "sunny day.\n",
    retrieval_question=QUESTION,
    context_lengths=json.loads(lengths),
    document_depth_percents=json.loads(depths),
).start_test()
