"""Files, by every surface and on every engine."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox import FileInfo, SandboxClosed


def test_what_is_written_is_read_and_seen_by_commands(sb: Any) -> None:
    sb.write_file("a.bin", b"\x00\xff")
    assert sb.read_file("a.bin") == b"\x00\xff"
    sb.write_text(Path("b.txt"), "grün\n")
    assert sb.read_text("b.txt") == sb.exec(["cat", "b.txt"]).stdout == "grün\n"
    sb.write_file("run", "#!/bin/sh\necho ran", mode=0o755)
    assert sb.exec(["./run"]).stdout == "ran\n"


def test_a_large_file_goes_both_ways_unchanged(sb: Any) -> None:
    content = os.urandom(2**20) * 9 + b"end"
    sb.write_file("large", content)
    assert sb.read_file("large") == content
    with pytest.raises(OSError, match="larger than 1000 bytes") as caught:
        sb.read_file("large", max_bytes=1000)
    assert caught.value.errno == errno.EFBIG
    sb.write_file("large", b"")
    assert sb.read_file("large") == b""


def test_a_file_is_described(sb: Any) -> None:
    sb.exec("printf 12345 > f; chmod 640 f; touch -d @1700000000.5 f; mkdir d; ln -s f l; mkfifo p")
    info = sb.stat("f")
    assert isinstance(info, FileInfo)
    assert (info.name, info.kind, info.size, info.mode, info.is_dir) == ("f", "file", 5, 0o640, False)
    assert (info.mtime, info.mtime_ns) == (1700000000.5, 1700000000500000000)
    assert (info["size"], info["is_dir"]) == (5, False)
    assert dict(info)["kind"] == "file"
    assert sb.stat("l").kind == "file"
    found = {one.name: one for one in sb.list_files()}
    assert {name: one.kind for name, one in found.items() if not name.startswith(".")} == {
        "f": "file", "d": "directory", "l": "symlink", "p": "other",
    }  # fmt: skip
    assert found["f"] == info and found["d"]["is_dir"]


def test_directories_links_and_names_are_changed(sb: Any) -> None:
    sb.mkdir("a/b/c", mode=0o700)
    assert sb.stat("a/b/c").mode == 0o700
    with pytest.raises(FileExistsError):
        sb.mkdir("a/b", parents=False)
    sb.write_text("a/f", "x")
    sb.rename("a/f", "a/g")
    sb.symlink("g", "a/l")
    assert (sb.read_link("a/l"), sb.read_text("a/l")) == ("g", "x")
    with pytest.raises(OSError, match="Invalid argument"):
        sb.read_link("a/g")
    assert sb.exists("a/g") and not sb.exists("a/f") and not sb.exists("a/g/below")
    sb.remove("a/g")
    assert not sb.exists("a/l")
    with pytest.raises(OSError, match="not empty"):
        sb.remove("a")
    sb.remove("a", recursive=True)
    assert not sb.exists("a")


def test_a_name_that_is_not_utf8_is_spelt_as_everywhere_in_python(sb: Any) -> None:
    sb.exec(r"touch $(printf 'a\377b'); ln -s $(printf 't\377') link")
    assert os.fsdecode(b"a\xffb") in {one.name for one in sb.list_files()}
    assert sb.read_link("link") == os.fsdecode(b"t\xff")


def test_errors_are_pythons_own(sb: Any) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        sb.read_file("nothing")
    assert str(caught.value.filename).endswith("nothing")
    sb.mkdir("d")
    with pytest.raises(IsADirectoryError):
        sb.read_file("d")
    with pytest.raises(IsADirectoryError):
        sb.write_file("d", b"")
    with pytest.raises(NotADirectoryError):
        sb.list_files(sb.exec("touch f") and "f")
    sb.write_file("bin", b"\xff")
    with pytest.raises(UnicodeDecodeError):
        sb.read_text("bin")


def test_files_of_a_sandbox_that_is_closed_are_no_longer_reached(sb: Any) -> None:
    sb.close()
    for use in (lambda: sb.read_file("x"), lambda: sb.exec("true"), lambda: sb.list_files(), sb.stats):
        with pytest.raises(SandboxClosed):
            use()


def tree(root: Path) -> None:
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "run").write_text("#!/bin/sh\n")
    (root / "sub" / "run").chmod(0o750)
    (root / "sub" / "deep" / "large").write_bytes(b"x" * 3_000_001)
    (root / "empty").mkdir()
    (root / "link").symlink_to("sub/run")
    (root / "out").symlink_to("/etc/passwd")


def shape(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.stat().st_mode & 0o777, path.read_bytes() if path.is_file() else None
    return found


def test_a_directory_goes_in_and_out_with_links_as_links_and_modes(sb: Any, tmp_path: Path) -> None:
    tree(tmp_path / "given")
    os.mkfifo(tmp_path / "given" / "pipe")
    assert sb.upload(tmp_path / "given", "inside/there") == ["pipe"]
    assert sb.exec("readlink inside/there/out").stdout == "/etc/passwd\n"
    assert sb.stat("inside/there/sub/run").mode == 0o750
    assert sb.download("inside/there", tmp_path / "back") == []
    (tmp_path / "given" / "pipe").unlink()
    assert shape(tmp_path / "back") == shape(tmp_path / "given")


def test_permissions_are_changed(sb: Any) -> None:
    sb.write_file("f", b"x")
    sb.symlink("f", "link")
    sb.chmod("link", 0o604)
    assert sb.stat("f").mode == 0o604
    sb.mkdir("d")
    sb.chmod("d", 0o500)
    assert sb.stat("d").mode == 0o500
    with pytest.raises(FileNotFoundError):
        sb.chmod("nothing", 0o600)


def test_an_upload_keeps_modes_that_a_umask_would_change_and_runs_nothing_inside(sb: Any, tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "open").mkdir(parents=True)
    (given / "open" / "f").write_bytes(b"x" * 3_000_000)
    (given / "open" / "f").chmod(0o444)
    (given / "g").write_text("g")
    (given / "g").chmod(0o666)
    (given / "open").chmod(0o577)
    given.chmod(0o775)
    events: list[dict[str, Any]] = []
    sb.on_event(events.append)
    sb.upload(given, "copy")
    modes = {name: sb.stat(f"copy/{name}").mode for name in (".", "open", "open/f", "g")}
    assert modes == {".": 0o775, "open": 0o577, "open/f": 0o444, "g": 0o666}
    assert [one for one in events if one["type"].startswith("exec")] == []
    sb.chmod("copy/open", 0o700)


def test_a_single_file_goes_in_and_out(sb: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one")
    (tmp_path / "f").chmod(0o600)
    sb.upload(tmp_path / "f", "g")
    assert (sb.read_text("g"), sb.stat("g").mode) == ("one", 0o600)
    sb.download("g", tmp_path / "h")
    assert (tmp_path / "h").read_text() == "one"
    with pytest.raises(FileNotFoundError):
        sb.download("nothing", tmp_path / "i")
    with pytest.raises(FileNotFoundError):
        sb.upload(tmp_path / "nothing", "i")
    assert not (tmp_path / "i").exists()


def test_a_second_copy_replaces_files_and_keeps_the_rest(sb: Any, tmp_path: Path) -> None:
    tree(tmp_path / "given")
    sb.upload(tmp_path / "given", "copy")
    sb.exec("echo mine > copy/own; rm copy/link; echo old > copy/link; chmod 777 copy/sub/run")
    sb.upload(tmp_path / "given", "copy")
    assert sb.read_link("copy/link") == "sub/run"
    assert (sb.stat("copy/sub/run").mode, sb.read_text("copy/own")) == (0o750, "mine\n")


def test_nothing_is_ever_written_through_a_link_in_the_target(sb: Any, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "f").write_text("untouched")
    target = tmp_path / "target"
    target.mkdir()
    (target / "f").symlink_to(victim / "f")
    sb.exec("mkdir -p all/d; echo new > all/f; echo new > all/d/f")
    sb.download("all", target)
    assert not (target / "f").is_symlink() and (target / "f").read_text() == "new\n"
    (target / "d" / "f").unlink()
    (target / "d").rmdir()
    (target / "d").symlink_to(victim)
    with pytest.raises(OSError, match="d"):
        sb.download("all", target)
    assert (victim / "f").read_text() == "untouched" and os.listdir(victim) == ["f"]


def test_a_download_ends_at_its_limit_however_much_there_is_inside(sb: Any, tmp_path: Path) -> None:
    sb.exec("mkdir -p much; head -c 3000000 /dev/zero > much/f; mkdir -p many; cd many; touch $(seq 300)")
    for number, place in enumerate(("much", "much/f", "many")):
        with pytest.raises(OSError, match="more to download") as told:
            sb.download(place, tmp_path / f"out{number}", max_bytes=1_000_000)
        assert told.value.errno == errno.EFBIG
    assert sb.download("much", tmp_path / "whole", max_bytes=4_000_000) == []
    assert (tmp_path / "whole" / "f").stat().st_size == 3_000_000


def test_a_link_on_the_host_is_not_followed_into_the_sandbox(sb: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("key")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "dir").symlink_to(tmp_path / "secret")
    sb.upload(tmp_path / "given", "inside")
    assert [one.kind for one in sb.list_files("inside")] == ["symlink"]
