"""Every runtime inside believes the gate, out of the box; none of them is told to look away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.network.tls.ca import Authority
from sandbox.network.tls.trust import key_store, trusted
from tests.network.furnished import Furnished

Make = Callable[..., Furnished]

pytestmark = pytest.mark.walls
DENO = shutil.which("deno") or shutil.which("deno", path=f"{sys.prefix}/bin")

needs = {
    name: pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed here")
    for name in ("curl", "git", "node", "npm", "go", "java", "wget", "keytool")
}


def looked_into(place: Furnished) -> None:
    """The gate saw the request itself, not only a connection."""
    event = place.heard.wait(lambda one: one["method"] in ("GET", "HEAD"))
    assert event["status_code"] < 500, event
    assert str(event["url"]).startswith("https://api.test:")


@needs["curl"]
@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_curl_trusts_the_gate(furnished: Make, version: str) -> None:
    place = furnished()
    done = place.run("curl", "-sS", version, place.url())
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["method"] == "GET"
    looked_into(place)


@needs["curl"]
def test_programs_that_know_no_variable_trust_it_by_the_systems_bundle(furnished: Make) -> None:
    place = furnished()
    done = place.run("env", "-i", "PATH=/usr/bin:/bin", "curl", "-sS", place.url())
    assert (done.exit_code, done.stderr) == (0, "")


def python(place: Furnished, code: str) -> None:
    done = place.run(sys.executable, "-c", code, place.url())
    assert (done.exit_code, done.stderr, done.stdout) == (0, "", "200\n")
    looked_into(place)


def test_python_trusts_the_gate(furnished: Make) -> None:
    python(furnished(), "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)")


def test_python_trusts_it_as_strictly_as_3_13_does(furnished: Make) -> None:
    code = """
import ssl, sys, urllib.request
context = ssl.create_default_context()
context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
print(urllib.request.urlopen(sys.argv[1], context=context).status)
"""
    python(furnished(), code)


@pytest.mark.parametrize("module", ["requests", "httpx"])
def test_requests_and_httpx_trust_the_gate(furnished: Make, module: str) -> None:
    pytest.importorskip(module)
    python(furnished(), f"import sys, {module}; print({module}.get(sys.argv[1]).status_code)")


def test_pip_trusts_the_gate(furnished: Make) -> None:
    place = furnished()
    page = b'<!DOCTYPE html><a href="thing-1.0-py3-none-any.whl">thing-1.0-py3-none-any.whl</a>'
    place.origins["api.test"].answer = lambda *_: (200, [("Content-Type", "text/html")], page)
    place.run(sys.executable, "-m", "pip", "download", "--no-deps", "-i", place.url(path="/simple"), "thing")
    looked_into(place)
    assert place.origins["api.test"].seen[0]["target"] == "/simple/thing/"


@needs["git"]
def test_git_trusts_the_gate(furnished: Make) -> None:
    place = furnished()
    refs = b"".join((b"001e# service=git-upload-pack\n", b"0000", b"0000"))
    place.origins["api.test"].answer = lambda *_: (
        200,
        [("Content-Type", "application/x-git-upload-pack-advertisement")],
        refs,
    )
    done = place.run("git", "ls-remote", place.url(path="/repo.git"))
    assert done.exit_code == 0, done.stderr
    looked_into(place)


@needs["node"]
def test_node_trusts_the_gate(furnished: Make) -> None:
    place = furnished()
    code = "require('https').get(process.argv[1], r => { console.log(r.statusCode); r.resume() })"
    done = place.run("node", "-e", code, place.url())
    assert (done.exit_code, done.stdout) == (0, "200\n"), done.stderr
    looked_into(place)


@needs["npm"]
def test_npm_trusts_the_gate(furnished: Make) -> None:
    place = furnished()
    package = {"name": "thing", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": {"version": "1.2.3"}}}
    place.origins["api.test"].answer = lambda *_: (
        200,
        [("Content-Type", "application/json")],
        json.dumps(package).encode(),
    )
    done = place.run("npm", "view", "--registry", place.url(), "thing", "version")
    assert done.stdout.strip() == "1.2.3", done.stderr
    looked_into(place)


GO = """package main
import ("fmt"; "net/http"; "os")
func main() {
    answer, problem := http.Get(os.Args[1])
    if problem != nil { fmt.Println(problem); os.Exit(1) }
    fmt.Println(answer.StatusCode)
}
"""


@needs["go"]
@pytest.mark.parametrize("variables", [True, False])
def test_go_trusts_the_gate(furnished: Make, tmp_path: Path, variables: bool) -> None:
    place = furnished()
    (tmp_path / "project" / "main.go").write_text(GO)
    subprocess.run(["go", "build", "-o", "ask", "main.go"], cwd=tmp_path / "project", check=True, timeout=300)
    done = place.run(*([] if variables else ["env", "-i"]), "./ask", place.url())
    assert (done.exit_code, done.stdout) == (0, "200\n"), done.stdout
    looked_into(place)


JAVA = """
import java.net.*; import java.net.http.*;
public class Ask {
    public static void main(String[] args) throws Exception {
        var answer = HttpClient.newHttpClient().send(
            HttpRequest.newBuilder(URI.create(args[0])).build(), HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode());
    }
}
"""


@needs["java"]
def test_java_trusts_the_gate(furnished: Make, tmp_path: Path) -> None:
    place = furnished()
    (tmp_path / "project" / "Ask.java").write_text(JAVA)
    done = place.run("java", "-XX:TieredStopAtLevel=1", "Ask.java", place.url())
    assert (done.exit_code, done.stdout) == (0, "200\n"), done.stderr
    looked_into(place)


@needs["wget"]
def test_wget_trusts_the_gate(furnished: Make) -> None:
    place = furnished()
    done = place.run("wget", "-q", "-O", "-", place.url())
    assert done.exit_code == 0
    looked_into(place)


@pytest.mark.skipif(DENO is None, reason="deno is not installed here")
def test_deno_trusts_the_gate(furnished: Make) -> None:
    place = furnished()
    code = "console.log((await fetch(Deno.args[0])).status)"
    (Path.cwd() / "ask.ts").write_text(code)
    done = place.run(str(DENO), "run", "--allow-net", "ask.ts", place.url())
    assert done.stdout == "200\n", done.stderr
    looked_into(place)


def test_aws_tools_trust_the_gate(furnished: Make) -> None:
    pytest.importorskip("botocore")
    place = furnished()
    answer = b"<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>"
    place.origins["api.test"].answer = lambda *_: (200, [("Content-Type", "application/xml")], answer)
    code = """
import sys
from botocore.session import Session
session = Session()
session.set_credentials("id", "key")
client = session.create_client("s3", endpoint_url=sys.argv[1], region_name="here")
print(client.list_buckets()["ResponseMetadata"]["HTTPStatusCode"])
"""
    python(place, code)


def test_a_tenant_with_its_own_list_is_not_fooled_and_the_refusal_is_reported(furnished: Make) -> None:
    place = furnished()
    place.sandbox.write_file("own.pem", Authority("somebody else's").pem)
    done = place.run("curl", "-sS", "--cacert", "own.pem", "--capath", "/none", place.url())
    assert done.exit_code != 0
    assert place.origins["api.test"].seen == []
    assert "trust the sandbox's certificate authority" in str(place.heard.wait(lambda one: bool(one["blocked"])))


# The parts


def test_nothing_of_the_system_is_needed() -> None:
    result = trusted(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", read=lambda path: None)
    assert result.covered == []
    assert "JAVA_TOOL_OPTIONS" in result.environment
    assert {path for path, _, _ in result.files} >= set(result.environment.values()) - {
        result.environment["JAVA_TOOL_OPTIONS"]
    }


@needs["keytool"]
def test_java_reads_the_key_store(tmp_path: Path) -> None:
    from sandbox.network.tls.ca import Authority

    der = __import__("ssl").PEM_cert_to_DER_cert(Authority("x").pem.decode())
    (tmp_path / "store").write_bytes(key_store([der, der]))
    listed = subprocess.run(
        ["keytool", "-list", "-keystore", tmp_path / "store", "-storepass", "changeit"],
        capture_output=True,
        check=False,
    )
    assert b"1 entry" in listed.stdout
    assert b"trustedCertEntry" in listed.stdout
