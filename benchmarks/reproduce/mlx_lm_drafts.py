"""mlx_lm.server with a draft model: a prompt-cache hit gives another answer.

    python mlx_lm_drafts.py MODEL [DRAFT]

Needs mlx-lm (0.31.1 to 0.32.2 have it) and any model folder; a small random one will do. Greedy
decoding with drafts must give the tokens of greedy decoding without. It does from an empty cache;
the second line is asked of a server that holds the prompt already.
"""

import json
import socket
import subprocess
import sys
import time
from urllib.request import Request, urlopen

PROMPT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 3


def ask(port: int) -> str:
    body = {"prompt": PROMPT, "max_tokens": 16, "temperature": 0}
    headers = {"content-type": "application/json"}
    url = f"http://127.0.0.1:{port}/v1/completions"
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=300) as reply:
        return json.load(reply)["choices"][0]["text"]


model, draft = sys.argv[1], sys.argv[-1]
for options in ([], ["--draft-model", draft]):
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port = line.getsockname()[1]
    command = [sys.executable, "-m", "mlx_lm.server", "--model", model, "--port", str(port)]
    server = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
    time.sleep(40)
    print("drafts:" if options else "plain: ", repr(ask(port)), "again:", repr(ask(port)))
    server.kill()
