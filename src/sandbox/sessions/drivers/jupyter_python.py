"""Runs inside the sandbox, after fitting.py: a real Jupyter kernel, behind the same JSON lines as `plain_python.py`."""

import json
import os
import signal
import sys
import tempfile

from jupyter_client.manager import KernelManager

answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)


run = None


def send(**message):
    answers.write(json.dumps(dict(message, run=run)) + "\n")
    answers.flush()


def forward(message):
    """Hands on what the kernel says. True when the code has ended."""
    kind, content = message["header"]["msg_type"], message["content"]
    if kind == "stream":
        for text in pieces(content["text"]):
            send(stream=content["name"], text=text)
    elif kind in ("execute_result", "display_data"):
        send(**fitting(content["data"]), result=kind == "execute_result")
    elif kind == "error":
        text = "\n".join(content["traceback"])[:TRACE_MOST]
        send(error={"name": content["ename"], "value": cut(content["evalue"], ERROR_MOST), "traceback": text})
    return kind == "status" and content["execution_state"] == "idle"


# Unix sockets in a directory of our own: no port, and nothing that another tenant could connect to by number.
directory = tempfile.mkdtemp()
kernel = KernelManager(transport="ipc", ip=os.path.join(directory, "kernel"))
kernel.start_kernel(extra_arguments=["--HistoryManager.enabled=False"])
client = kernel.blocking_client()
client.start_channels()
client.wait_for_ready(timeout=60)
signal.signal(signal.SIGINT, lambda *_: kernel.interrupt_kernel())
send(ready="jupyter")
for line in requests:  # noqa: F821  (see plain_python.py)
    given = json.loads(line)
    run = given["run"]
    asked = client.execute(given["code"], allow_stdin=False)
    ended = False
    while not ended:
        if not kernel.is_alive():
            send(error={"name": "KernelDied", "value": "the kernel ended", "traceback": "the kernel ended"})
            send(done=True)
            sys.exit(1)
        try:
            message = client.get_iopub_msg(timeout=1)
        except Exception:  # queue.Empty
            continue
        ended = message["parent_header"].get("msg_id") == asked and forward(message)
    send(done=True)
