"""The file operations that models call most, by every surface and on every engine."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox import CommandError, GrepMatch, InvalidArgument, PatchedFile


def test_an_edit_replaces_exactly_one_place_and_keeps_permissions(sb: Any) -> None:
    sb.write_file("run.sh", "#!/bin/sh\necho a\necho b\n", mode=0o755)
    assert sb.edit("run.sh", "echo a", "echo c") == 1
    assert sb.exec(["./run.sh"]).stdout == "c\nb\n"
    with pytest.raises(InvalidArgument, match="2 times"):
        sb.edit("run.sh", "echo", "printf")
    with pytest.raises(InvalidArgument, match="does not contain"):
        sb.edit("run.sh", "nothing", "x")
    assert sb.edit("run.sh", "echo", "printf", replace_all=True) == 2


def test_an_edit_finds_lines_in_a_file_of_windows_and_keeps_its_line_ends(sb: Any) -> None:
    sb.write_file("dos.txt", "one\r\ntwo\r\nthree\r\n")
    assert sb.edit("dos.txt", "one\ntwo\n", "1\n2\n2.5\n") == 1
    assert sb.read_file("dos.txt") == b"1\r\n2\r\n2.5\r\nthree\r\n"


def test_an_edit_that_would_make_a_file_too_large_is_refused_before_it_takes_the_memory(sb: Any) -> None:
    sb.write_file("many", "a" * 2_000_000)
    with pytest.raises(OSError, match="would be larger"):
        sb.edit("many", "a", "b" * 100_000, replace_all=True)
    assert sb.stat("many").size == 2_000_000


UNIFIED = """\
diff --git a/old.txt b/old.txt
--- a/old.txt
+++ b/old.txt
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
diff --git a/dir/new.txt b/dir/new.txt
new file mode 100755
--- /dev/null
+++ b/dir/new.txt
@@ -0,0 +1,2 @@
+first
+second
diff --git a/gone.txt b/gone.txt
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-bye
"""
CODEX = """\
*** Begin Patch
*** Update File: old.txt
@@
 one
-two
+TWO
*** Add File: dir/new.txt
+first
+second
*** Delete File: gone.txt
*** End Patch
"""


@pytest.mark.parametrize("patch", [UNIFIED, CODEX], ids=["unified", "codex"])
def test_a_patch_updates_adds_and_deletes(sb: Any, patch: str) -> None:
    sb.write_text("old.txt", "zero\none\ntwo\nthree\n")  # a line further down than the patch says
    sb.write_text("gone.txt", "bye\n")
    done = sb.apply_patch(patch)
    assert done == [
        PatchedFile("old.txt", "updated", None),
        PatchedFile("dir/new.txt", "added", None),
        PatchedFile("gone.txt", "deleted", None),
    ]
    assert sb.read_text("old.txt") == "zero\none\nTWO\nthree\n"
    assert sb.read_text("dir/new.txt") == "first\nsecond\n"
    assert not sb.exists("gone.txt")


def test_a_patch_that_does_not_fit_changes_nothing(sb: Any) -> None:
    sb.write_text("old.txt", "one\ntwo\nthree\n")
    with pytest.raises(FileNotFoundError):
        sb.apply_patch(UNIFIED)
    sb.write_text("gone.txt", "bye\n")
    sb.write_text("old.txt", "other\n")
    with pytest.raises(InvalidArgument, match="old.txt has no such lines"):
        sb.apply_patch(UNIFIED)
    assert sb.exists("gone.txt") and not sb.exists("dir/new.txt")
    for outside in ("../x", "/etc/x"):
        with pytest.raises(InvalidArgument, match="not a path below"):
            sb.apply_patch(f"*** Begin Patch\n*** Add File: {outside}\n+x\n*** End Patch")


def test_a_file_can_move_with_a_patch(sb: Any) -> None:
    sb.write_text("a.txt", "one\n")
    sb.apply_patch("*** Begin Patch\n*** Update File: a.txt\n*** Move to: d/b.txt\n@@\n-one\n+two\n*** End Patch")
    assert sb.read_text("d/b.txt") == "two\n" and not sb.exists("a.txt")


def test_names_are_found_by_pattern(sb: Any) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.txt", ".git/e.py"):
        sb.mkdir(name.rpartition("/")[0] or ".")
        sb.write_text(name, "x")
    assert sb.glob("*.py") == ["a.py"]
    assert sb.glob("**/*.py") == ["a.py", "src/b.py", "src/deep/c.py"]
    assert sb.glob("**/*.py", limit=2) == ["a.py", "src/b.py"]
    assert sb.glob("*.txt", "src") == ["src/d.txt"]
    with pytest.raises(InvalidArgument):
        sb.glob("../*")


def test_a_tree_is_drawn_and_bounded(sb: Any) -> None:
    sb.mkdir("a/b/c/d")
    sb.write_text("a/f\n", "x")
    assert sb.tree(depth=2).splitlines()[1:] == ["  a/", "    b/", "    f\\n"]
    assert sb.tree(limit=2).endswith("…\n")


def test_lines_are_found_by_content(sb: Any) -> None:
    sb.mkdir("src")
    sb.write_text("src/a.py", "import os\nprint('TODO: one')\n")
    sb.write_text("src/b.txt", "todo: two\n")
    assert sb.grep("TODO|FIXME") == [GrepMatch("src/a.py", 2, "print('TODO: one')")]
    assert {one.path for one in sb.grep("todo", ignore_case=True)} == {"src/a.py", "src/b.txt"}
    assert [one.path for one in sb.grep("todo", glob="*.txt", ignore_case=True)] == ["src/b.txt"]
    assert sb.grep("nothing at all") == []
    assert len(sb.grep("o", limit=1)) == 1
    with pytest.raises(InvalidArgument):
        sb.grep("(")


def test_lines_are_found_in_a_file_too_and_a_path_that_is_wrong_is_told(sb: Any) -> None:
    sb.mkdir("src")
    sb.write_text("src/a.py", "one\ntwo\n")
    sb.exec("mkfifo pipe")
    assert sb.grep("two", "src/a.py") == [GrepMatch("src/a.py", 2, "two")]
    assert sb.grep("three", "src/a.py") == [] == sb.grep("two", "pipe")
    with pytest.raises(FileNotFoundError):
        sb.grep("two", "src/b.py")


def test_an_expression_that_needs_all_memory_is_refused(sb: Any) -> None:
    sb.write_text("a", "a\n")
    with pytest.raises((InvalidArgument, CommandError)):
        sb.grep("a{32000}{32000}")


def test_a_patch_whose_place_cannot_be_found_in_reasonable_time_is_refused(sb: Any) -> None:
    sb.write_text("q", "a\n" * 50_000)
    patch = "*** Begin Patch\n*** Update File: q\n@@\n" + " a\n" * 3000 + "-b\n+c\n*** End Patch\n"
    with pytest.raises(InvalidArgument, match="too much alike"):
        sb.apply_patch(patch)


def test_a_patch_with_two_sections_for_one_file_is_refused(sb: Any) -> None:
    sb.write_text("a", "one\ntwo\n")
    sections = "*** Update File: a\n@@\n-one\n+ONE\n*** Update File: ./a\n@@\n-two\n+TWO\n"
    with pytest.raises(InvalidArgument, match="twice"):
        sb.apply_patch(f"*** Begin Patch\n{sections}*** End Patch\n")
    assert sb.read_text("a") == "one\ntwo\n"


def test_what_git_says_without_hunks_is_done(sb: Any) -> None:
    sb.write_text("an old name", "one\n")
    sb.write_text("empty", "")
    sb.write_text("run me", "x\n")
    sb.apply_patch(
        "diff --git a/an old name b/a new name\nsimilarity index 100%\nrename from an old name\nrename to a new name\n"
        "diff --git a/new one b/new one\nnew file mode 100644\nindex 0000000..e69de29\n"
        "diff --git a/empty b/empty\ndeleted file mode 100644\nindex e69de29..0000000\n"
        "diff --git a/run me b/run me\nold mode 100644\nnew mode 100755\n"
    )
    assert (sb.read_text("a new name"), sb.read_text("new one")) == ("one\n", "")
    assert not sb.exists("an old name")
    assert not sb.exists("empty")
    assert sb.stat("run me").mode & 0o777 == 0o755


def test_a_patch_that_copies_or_deletes_more_than_it_shows_changes_nothing(sb: Any) -> None:
    sb.write_text("a", "one\ntwo\n")
    copy = "diff --git a/a b/b\ncopy from a\ncopy to b\n--- a/a\n+++ b/b\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n"
    deleted = "diff --git a/a b/a\ndeleted file mode 100644\n"
    for patch in (copy, deleted):
        with pytest.raises(InvalidArgument):
            sb.apply_patch(patch)
    assert sb.read_text("a") == "one\ntwo\n"
    assert not sb.exists("b")


def test_many_hunks_are_no_way_to_more_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox.patches import apply
    from sandbox.patches.patch import FilePatch, Hunk

    monkeypatch.setattr(apply, "EFFORT_MOST", 1000)
    hunks = (Hunk(("a",) * 5 + ("b",), ("c",)),) * 3
    text = ("a\n" * 90 + "b\n") * 3
    assert apply._changed(text, FilePatch("update", "q", hunks[:1]), apply.Effort())
    with pytest.raises(InvalidArgument, match="too much alike"):
        apply._changed(text, FilePatch("update", "q", hunks), apply.Effort())


@pytest.mark.parametrize(
    "said",
    [
        "new file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n",
        "index 1111111..2222222 120000\n--- a/link\n+++ b/link\n@@ -1 +1 @@\n-old\n+/etc/passwd\n",
        "deleted file mode 120000\n--- a/link\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n",
        "old mode 100644\nnew mode 120000\n",
        "new file mode 160000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+Subproject commit 1\n",
    ],
)
def test_a_patch_of_a_link_or_a_submodule_is_refused_and_writes_no_file(sb: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match="a link or a submodule"):
        sb.apply_patch(f"diff --git a/link b/link\n{said}")
    assert not sb.exists("link")


def test_a_patch_with_gits_own_index_line_applies(sb: Any) -> None:
    sb.write_text("f", "old\n")
    sb.apply_patch("diff --git a/f b/f\nindex 1111111..2222222 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n")
    assert sb.read_text("f") == "new\n"
