"""A screen of the sandbox's own: seen, clicked and typed on from outside, against a real X server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.desktop import keyboard
from sandbox.errors import Denied, InvalidArgument, SandboxError
from tests.desktop.desks import colour, editor, pixels, until

pytestmark = pytest.mark.walls

TEXT = "Hello, Wörld! 你好 ñ € 😀 Привет ~|\\\"'"


def test_typed_text_of_any_script_is_read_back_from_the_file_that_an_editor_saved(sandbox: Sandbox) -> None:
    editor(sandbox, "/tmp/note")
    sandbox.desktop.type(TEXT + "\n")
    sandbox.desktop.keypress("ctrl+d")
    until(lambda: not sandbox.desktop.windows())
    assert sandbox.read_text("/tmp/note") == TEXT + "\n"


def test_more_different_characters_than_the_keyboard_has_keys_are_typed_in_order(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyboard, "_CAUGHT_UP", 5.0)  # what a program has handled cannot be seen from outside
    text = "".join(chr(0x4E00 + at) for at in range(100))
    editor(sandbox, "/tmp/note")
    sandbox.desktop.type(text + "\n")
    sandbox.desktop.keypress("ctrl+d")
    until(lambda: not sandbox.desktop.windows())
    assert sandbox.read_text("/tmp/note") == text + "\n"


def test_what_is_typed_after_a_click_goes_to_the_window_that_was_clicked(sandbox: Sandbox) -> None:
    desktop = sandbox.desktop
    desktop.start()
    places = {"left": 100, "right": 600}
    for name, x in places.items():
        argv = ["xterm", "-T", name, "-geometry", f"50x20+{x - 100}+0", "-e", f"cat > /tmp/{name}"]
        sandbox.spawn(argv, keep=name)
    until(lambda: all(sandbox.exists(f"/tmp/{name}") for name in places) and len(desktop.windows()) == 2)
    for _ in range(5):
        for x in places.values():
            desktop.click(x, 100)
            desktop.keypress("a")
    for x in places.values():
        desktop.click(x, 100)
        desktop.type("\n")
        desktop.keypress("ctrl+d")
    until(lambda: not desktop.windows())
    assert [sandbox.read_text(f"/tmp/{name}") for name in places] == ["aaaaa\n", "aaaaa\n"]


def test_a_screenshot_is_a_png_of_the_configured_size_or_of_the_part_asked_for(sandbox: Sandbox) -> None:
    desktop = sandbox.desktop
    assert desktop.size() == (800, 600)
    assert pixels(desktop.screenshot())[:2] == (800, 600)
    assert pixels(desktop.screenshot((10, 20, 30, 40)))[:2] == (30, 40)
    with pytest.raises(InvalidArgument):
        desktop.screenshot((790, 0, 30, 40))


def test_a_click_changes_the_picture_at_that_point(sandbox: Sandbox) -> None:
    desktop = sandbox.desktop
    desktop.start()
    # A window that turns from red to green where it is clicked: X's own drawing, by a program of a few lines.
    sandbox.spawn(["xterm", "-bg", "red", "-geometry", "120x40+0+0", "-e", CLICKED], keep="painter")
    until(lambda: colour(desktop.screenshot(), 400, 300) == (255, 0, 0))

    def clicked() -> bool:
        desktop.click(400, 300)  # again, if the terminal had not yet been told to report clicks
        return colour(desktop.screenshot(), 400, 300) == (0, 255, 0)

    until(clicked)


# The terminal reports a click (mode 1000); the answer is a new background colour (OSC 11).
CLICKED = (
    r"stty raw -echo; printf '\033[?1000h'; dd bs=1 count=6 of=/dev/null 2>/dev/null; printf '\033]11;#00ff00\007'; cat"
)


def test_windows_have_a_title_and_the_name_of_their_program(sandbox: Sandbox) -> None:
    editor(sandbox, "/tmp/note")
    (window,) = sandbox.desktop.windows()
    assert (window.title, window.app) == ("/tmp/note", "XTerm")


def test_the_pointer_is_where_it_was_moved(sandbox: Sandbox) -> None:
    sandbox.desktop.move(12, 34)
    assert sandbox.desktop.pointer() == (12, 34)
    with pytest.raises(InvalidArgument, match="not on the screen"):
        sandbox.desktop.move(800, 0)


def test_actions_of_anthropics_and_openais_tools_are_done_as_they_come(sandbox: Sandbox) -> None:
    act = sandbox.desktop.act
    editor(sandbox, "/tmp/note")
    act({"action": "left_click", "coordinate": [400, 300]})
    act({"action": "type", "text": "one\n"})
    act({"type": "click", "button": "left", "x": 400, "y": 300})
    act({"type": "type", "text": "two\n"})
    act({"type": "scroll", "x": 400, "y": 300, "scroll_x": 0, "scroll_y": -200})
    act({"action": "scroll", "coordinate": [400, 300], "scroll_direction": "down", "scroll_amount": 2})
    act({"action": "mouse_move", "coordinate": [401, 301]})
    assert act({"action": "cursor_position"}) == (401, 301)
    assert isinstance(picture := act({"name": "computer", "input": {"action": "screenshot"}}), bytes)
    assert pixels(picture)[:2] == (800, 600)
    act({"type": "keypress", "keys": ["CTRL", "D"]})
    until(lambda: not sandbox.desktop.windows())
    assert sandbox.read_text("/tmp/note") == "one\ntwo\n"
    for wrong in ({"action": "format_disk"}, {"action": "left_click", "coordinate": "here"}, {"type": "click"}, {}):
        with pytest.raises(InvalidArgument):
            act(wrong)


def test_commands_started_later_find_the_screen_by_themselves(sandbox: Sandbox) -> None:
    assert "DISPLAY" not in sandbox.exec("env").stdout
    environment = sandbox.desktop.start()
    assert f"DISPLAY={environment['DISPLAY']}\n" in sandbox.exec("env").stdout


def test_nothing_of_the_screen_listens_on_tcp_and_another_cookie_is_refused(sandbox: Sandbox) -> None:
    before = sandbox.exec("cat /proc/net/tcp /proc/net/tcp6").stdout
    sandbox.desktop.start()
    assert sandbox.exec("cat /proc/net/tcp /proc/net/tcp6").stdout.count("\n") == before.count("\n")
    assert sandbox.exec("xterm -e true", env={"XAUTHORITY": "/dev/null"}, timeout=20).exit_code != 0


def test_two_sandboxes_see_nothing_of_each_others_screens(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other_project = tmp_path_factory.mktemp("other")
    with Sandbox({"filesystem": {"root": str(other_project)}, "desktop": {"size": "800x600"}}) as other:
        empty = other.desktop.screenshot()
        editor(sandbox, "/tmp/note")
        assert other.desktop.windows() == []
        assert other.desktop.screenshot() == empty
        stolen = sandbox.read_file("/tmp/.desktop/cookie")
        other.write_file("/tmp/stolen", stolen)
        assert other.exec("xterm -e true", env={"XAUTHORITY": "/tmp/stolen"}, timeout=20).exit_code != 0


def test_a_screen_that_was_killed_is_started_again_with_an_event(sandbox: Sandbox) -> None:
    heard: list[object] = []
    sandbox.on_event(lambda event: heard.append(event["desktop"]["state"]) if event["type"] == "desktop" else None)  # type: ignore[index]
    sandbox.desktop.start()
    sandbox.exec("for p in /proc/[0-9]*; do case $(readlink $p/exe) in */X*) kill -9 ${p#/proc/};; esac; done")
    with pytest.raises(SandboxError, match="starts it again"):
        until(lambda: not sandbox.desktop.screenshot())
    assert pixels(sandbox.desktop.screenshot())[:2] == (800, 600)
    assert heard == ["started", "ended", "started"]


def test_a_configuration_without_a_desktop_has_none(sandbox: Sandbox) -> None:
    sandbox.config.desktop.enabled = False
    with pytest.raises(Denied, match="desktop.enabled"):
        sandbox.desktop.screenshot()


def test_a_desktop_that_is_started_with_the_sandbox_is_there_for_its_first_command(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}, "desktop": {"start": True}}) as sandbox:
        assert "DISPLAY=" in sandbox.exec("env").stdout


@pytest.mark.desktop
def test_the_picture_of_the_documentation_is_made(sandbox: Sandbox) -> None:
    """`make pictures` keeps it."""
    editor(sandbox, "note.txt")
    before = sandbox.desktop.screenshot((0, 22, 400, 14))
    sandbox.desktop.type("An agent typed this, and all of it is inside: Hello, Wörld\n")
    until(lambda: sandbox.read_text("note.txt") and sandbox.desktop.screenshot((0, 22, 400, 14)) != before)
    if place := os.environ.get("SANDBOX_SCREENSHOTS"):
        Path(place, "desktop.png").write_bytes(sandbox.desktop.screenshot())
