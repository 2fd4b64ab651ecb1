"""A command of one's own with the policy baked in: python my_sandbox.py run python script.py"""

import os
import sys

from sandbox.cli import run_with_config

CONFIG = {
    "image": "standard",
    "network": {
        "allowed_hosts": ["api.openai.com"],
        "secrets": {"OPENAI_API_KEY": {"value": os.environ.get("OPENAI_API_KEY", ""), "hosts": ["api.openai.com"]}},
    },
    "vfs": {"mounts": {"/workspace": {"type": "memory"}}},
}

if __name__ == "__main__":
    sys.exit(run_with_config(CONFIG, sys.argv[1:]))
