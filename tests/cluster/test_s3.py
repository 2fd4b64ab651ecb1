"""Checkpoints in an object store, by fsspec's own library for it, against a server of it on the loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from sandbox.cluster import Checkpoints


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The client of a bucket named `sandboxes`."""
    import boto3
    from moto.server import ThreadedMotoServer
    from s3fs import S3FileSystem

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()  # those of another test know another port
    client = boto3.client("s3")
    client.create_bucket(Bucket="sandboxes")
    try:
        yield client
    finally:
        server.stop()


def checkpoint(project: bytes) -> bytes:
    about = {"version": 1, "deleted": [], "project": len(project), "digest": sha256(project).hexdigest()}
    return json.dumps(about).encode() + b"\n" + project


def names(bucket: Any, prefix: str) -> list[str]:
    return sorted(one["Key"] for one in bucket.list_objects_v2(Bucket="sandboxes", Prefix=prefix).get("Contents", []))


def test_checkpoints_are_kept_found_and_removed_there(bucket: Any) -> None:
    policy = Checkpoints("s3://sandboxes/team/a", every=None)
    assert policy.last("sandbox-1") is None
    for number in range(1, 5):
        policy.put("sandbox-1", number, checkpoint(b"%d" % number * 2_000_000))
    policy.put("sandbox-2", 1, checkpoint(b"other"))
    assert policy.last("sandbox-1") == checkpoint(b"4" * 2_000_000)
    there = [f"team/a/sandbox-1/{number:012}" for number in (3, 4)]
    assert names(bucket, "team/") == [*there, "team/a/sandbox-2/000000000001"]
    policy.forget("sandbox-1")
    policy.forget("sandbox-1")
    assert names(bucket, "team/") == ["team/a/sandbox-2/000000000001"]


def test_a_damaged_one_does_not_count(bucket: Any) -> None:
    policy = Checkpoints("s3://sandboxes/b", every=None)
    policy.put("sandbox-1", 1, checkpoint(b"good"))
    bucket.put_object(Bucket="sandboxes", Key="b/sandbox-1/000000000002", Body=checkpoint(b"good")[:-1] + b"x")
    bucket.put_object(Bucket="sandboxes", Key="b/sandbox-1/.part-1234", Body=b"half")
    assert policy.last("sandbox-1") == checkpoint(b"good")


def test_a_sandbox_is_saved_to_it_and_restored_from_it(bucket: Any, tmp_path: Any, monkeypatch: Any) -> None:
    import sys

    from sandbox.client import Client
    from sandbox.cluster.checkpoints import Saving, pack, unpack

    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    command = [sys.executable, "-m", "sandbox.cli.main", "--rpc"]
    config = {"filesystem": {"overlay": True}}
    with Client(config, command=command) as before:
        saving = Saving(Checkpoints("s3://sandboxes/c", every=None), lambda: pack(before))
        before.exec("head -c 9000000 /dev/urandom > large; echo note > ~/note", check=True)
        digest = before.exec("sha256sum large", check=True).stdout
        saving.now()
    content = saving.last()
    assert content is not None
    with Client(config, command=command) as after:
        unpack(after, content)
        assert after.exec("sha256sum large; cat ~/note", check=True).stdout == f"{digest}note\n"
    saving.forget()
    assert names(bucket, "c/") == []
