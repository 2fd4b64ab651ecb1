"""An AI agent's code in a sandbox: a few hosts, a key that it uses and never sees, and all it does is told."""

import os

from sandbox import Sandbox

AGENT_CODE = """
import json, os
key = os.environ["OPENAI_API_KEY"]
with open("/workspace/output.json", "w") as file:
    json.dump({"status": "ok", "key_is_a_placeholder": not key.startswith("sk-")}, file)
print("agent finished")
"""


class Hooks:
    def on_request(self, request):
        print(f"[HTTP] {request.method} {request.url}")
        return request

    def after_write(self, path, size):
        print(f"[FS] Wrote {size} bytes to {path}")


config = {
    "image": "standard",
    "resources": {"cpus": 2, "memory_mb": 2048, "timeout_seconds": 300},
    "network": {
        "allowed_hosts": ["api.openai.com", "api.anthropic.com", "packages.example.org", "files.example.org"],
        "secrets": {"OPENAI_API_KEY": {"value": os.environ["OPENAI_API_KEY"], "hosts": ["api.openai.com"]}},
    },
    "vfs": {"mounts": {"/workspace": {"type": "memory"}}},
    "env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}"},  # a placeholder inside; the gate puts the key in
}

with Sandbox(config, hooks=Hooks()) as sb:
    sb.write_file("/workspace/agent.py", AGENT_CODE)
    result = sb.exec("cd /workspace && python3 agent.py")
    print("Exit code:", result.exit_code)
    print("Output:", result.stdout)
    print("Result:", sb.read_file("/workspace/output.json").decode())
