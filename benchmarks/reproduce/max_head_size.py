"""max serve: a Llama whose head size is not hidden size / heads answers wrong.

    python max_head_size.py gauge padded

Needs modular (26.6.0 and 26.7.0 have it) and folders of Llama models. `needlemap gauge -o gauge`
writes a small one with 4 heads of 64 in a hidden size of 128, `needlemap gauge --shape padded -o
padded` the same weights with 8 heads of 64 in 512. Both answer 271828182845 in transformers.
"""

import json
import os
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, Popen
from urllib.request import Request, urlopen

PROMPT = (
    "The tide for Oslo is 314159265358. The tide for Turin is 271828182845.\n\n"
    "Question: What is the tide for Turin?\nAnswer:"
)
PORT = 18_741
BODY = {"model": "tried", "prompt": PROMPT, "max_tokens": 16, "temperature": 0}

for model in sys.argv[1:]:
    command = [str(Path(sys.executable).parent / "max"), "serve", "--model", model]
    command += ["--devices", "cpu", "--max-length", "4096", "--quantization-encoding", "float32"]
    command += ["--host", "127.0.0.1", "--port", str(PORT), "--served-model-name", "tried"]
    server = Popen(command, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    request = Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(BODY).encode())
    request.add_header("content-type", "application/json")
    for _ in range(1_000):  # it compiles the model first, which takes minutes
        try:
            with urlopen(request, timeout=300) as reply:
                print(model, repr(json.load(reply)["choices"][0]["text"]))
                break
        except OSError:
            time.sleep(1)
    os.killpg(server.pid, 9)  # its workers too
    server.wait()
