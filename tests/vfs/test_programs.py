"""Programs that lean hard on their file system work on every kind of directory."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.vfs.memory import MemoryProvider

pytestmark = pytest.mark.walls

HAS_FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK)


class Hooks:
    """Looks at everything that is opened and written."""

    def before_open(self, path: str, flags: int) -> None: ...
    def after_write(self, path: str, count: int) -> None: ...
    def before_rename(self, old: str, new: str) -> None: ...
    def after_stat(self, path: str) -> None: ...


@pytest.fixture(
    params=["memory", "overlay", "hooked memory", "hooked overlay", "hooked host directory", "own provider"]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A sandbox with the directory /w of some kind."""
    kind = request.param
    if not HAS_FUSE and kind not in ("memory", "overlay"):
        pytest.skip("/dev/fuse cannot be opened here")
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    for name in ("project", "base"):
        (tmp_path / name).mkdir()
    base = {"type": "real_fs", "host_path": str(tmp_path / "base")}
    mount: object = {"type": "overlay", "lower": base}
    if kind.endswith("memory"):
        mount = {"type": "memory"}
    elif kind == "hooked host directory":
        mount = base
    elif kind == "own provider":
        mount = MemoryProvider()
    config = {
        "filesystem": {"root": str(tmp_path / "project"), "allow_read": [sys.prefix]},
        "environment": {"set": {"GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/tmp"}},
        "vfs": {"mounts": {"/w": mount}},
    }
    with Sandbox(config, hooks=Hooks() if kind.startswith("hooked") else None) as sandbox:
        yield sandbox


def out(sandbox: Sandbox, script: str) -> str:
    result = sandbox.exec(f"set -e; cd /w; {script}", timeout=120)
    assert result.exit_code == 0, result.stdout + result.stderr
    return result.stdout


def test_git_clones_checks_out_and_commits(place: Sandbox) -> None:
    script = """
        git init -q -b main one; cd one; git config user.email a@b; git config user.name n
        for i in $(seq 30); do mkdir -p d$i; echo $i > d$i/f; done; ln -s d1/f link; echo x > run; chmod +x run
        git add -A; git commit -q -m first; git checkout -q -b other; git rm -q -r d3; git mv d4 d44; echo y >> run
        git commit -q -a -m second; git checkout -q main; test -f d3/f; git merge -q other; git gc -q
        cd ..; git clone -q one two; cd two; git fsck --strict; git status --short; git log --oneline | wc -l
        git stash list; git worktree add -q ../three HEAD; ls ../three | wc -l
    """
    assert out(place, script).split() == ["2", "31"]


def test_sqlite_keeps_its_promises(place: Sandbox) -> None:
    script = """
        for mode in delete wal; do
            sqlite3 $mode.db "pragma journal_mode=$mode; create table t(x); begin; insert into t
                with recursive c(n) as (select 1 union all select n+1 from c limit 20000) select n from c; commit;
                delete from t where x % 2; vacuum; pragma integrity_check; select count(*) from t;"
        done
    """
    assert out(place, script).split() == ["delete", "ok", "10000", "wal", "ok", "10000"]


def test_pip_installs_a_local_package(place: Sandbox) -> None:
    script = f"""
        mkdir -p pkg/src/hello tmp
        printf '[build-system]\\nrequires = ["hatchling"]\\nbuild-backend = "hatchling.build"\\n' > pkg/pyproject.toml
        printf '[project]\\nname = "hello"\\nversion = "1"\\n' >> pkg/pyproject.toml
        echo 'def hi(): print("hi")' > pkg/src/hello/__init__.py
        export TMPDIR=/w/tmp
        {sys.prefix}/bin/python -m pip install -q --no-index --no-deps --no-build-isolation --no-cache-dir \
            --disable-pip-version-check --root-user-action=ignore --target site ./pkg
        PYTHONPATH=site /usr/bin/python3 -c 'import hello; hello.hi()'; ls tmp
    """
    assert out(place, script) == "hi\n"


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_installs_a_local_package(place: Sandbox) -> None:
    script = """
        mkdir -p lib app; echo '{"name":"lib","version":"1.0.0"}' > lib/package.json
        echo 'module.exports = "hi"' > lib/index.js; echo '{"name":"app","version":"1.0.0"}' > app/package.json
        cd app; export npm_config_update_notifier=false
        npm install --silent --offline --no-audit --no-fund --install-links --cache /w/cache ../lib
        node -e 'console.log(require("lib"))'
    """
    assert out(place, script) == "hi\n"


def test_tar_and_make_and_cc_style_work(place: Sandbox) -> None:
    script = r"""
        mkdir src; for i in $(seq 50); do echo $i > src/$i; done; tar cf a.tar src; mkdir x; tar xf a.tar -C x
        diff -r src x/src; find x -type f | wc -l; cp -a src copy; diff -r src copy
        touch -d '2001-01-01' old; test src -nt old; sort -R src/* | sort -n | tail -1
        echo one > f; exec 3<>f; echo two >&3; cat f; mv f g; echo three >&3; cat g
        sed -i s/two/TWO/ g; cat g
    """
    assert out(place, script).split() == ["50", "50", "two", "two", "three", "TWO", "three"]
