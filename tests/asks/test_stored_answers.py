""" "Always" changes the user's own config file: completely or not at all, and by no more than what was asked."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from sandbox.asks import stored_answers
from sandbox.asks.question import FileSubject, HostSubject
from sandbox.errors import SandboxError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def hosts(home: Path) -> list[str]:
    found: list[str] = yaml.safe_load((home / "config.yaml").read_text())["network"]["allowed_hosts"]
    return found


def test_a_new_file_is_made(home: Path) -> None:
    stored_answers.keep(HostSubject("a.test", 443))
    assert hosts(home) == ["a.test:443"]
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o600


def test_what_is_there_stays_with_its_comments(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("# mine\nnetwork:\n  allowed_hosts: [b.test]  # kept\nlimits: {memory: 1g}\n")
    stored_answers.keep(HostSubject("a.test", 8443))
    stored_answers.keep(HostSubject("a.test", 8443))
    assert hosts(home) == ["b.test", "a.test:8443"]
    text = (home / "config.yaml").read_text()
    assert "# mine" in text and "# kept" in text and "memory: 1g" in text


def test_the_entry_allows_the_host_and_port_and_nothing_else(home: Path) -> None:
    from sandbox.config.model import Network
    from sandbox.policy.network import NetworkPolicy

    stored_answers.keep(HostSubject("a.test", 443))
    policy = NetworkPolicy(Network.read({"allowed_hosts": hosts(home), "allow_git": False}))
    assert policy.connect("a.test", 443)
    for host, port in (("a.test", 80), ("a.test", 22), ("b.a.test", 443), ("test", 443), ("10.0.0.1", 443)):
        assert not policy.connect(host, port)


def test_a_file_that_cannot_be_edited_stays_as_it_is(home: Path) -> None:
    home.mkdir()
    for text in ("- not a mapping\n", "network: {allowed_hosts: [\n", "sandbox: {network: {allow_git: true}}\n"):
        (home / "config.yaml").write_text(text)
        with pytest.raises(SandboxError):
            stored_answers.keep(HostSubject("a.test", 443))
        assert (home / "config.yaml").read_text() == text
        assert sorted(one.name for one in home.iterdir()) == ["asks", "config.yaml"]


def test_a_link_to_the_file_is_followed_not_replaced(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "dotfiles.yaml").write_text("network: {allowed_hosts: [b.test]}\n")
    (home / "config.yaml").symlink_to(tmp_path / "dotfiles.yaml")
    stored_answers.keep(HostSubject("a.test", 443))
    assert (home / "config.yaml").is_symlink() and hosts(home) == ["b.test", "a.test:443"]


def test_answers_at_the_same_time_are_all_kept(home: Path) -> None:
    threads = [threading.Thread(target=stored_answers.keep, args=(HostSubject(f"{n}.test", 443),)) for n in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(hosts(home)) == sorted(f"{n}.test:443" for n in range(16))


def test_a_file_of_the_project_is_never_kept(home: Path) -> None:
    with pytest.raises(SandboxError, match="only a host"):
        stored_answers.keep(FileSubject("/p/.env", "read"))


def test_numbers_are_one_row_for_all_sandboxes_and_survive(home: Path) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(stored_answers.next_number())) for _ in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(found) == list(range(1, 21))
    (home / "asks").write_text("nonsense")
    assert stored_answers.next_number() == 1


def test_somebody_watches_while_they_do(home: Path) -> None:
    import os

    assert not stored_answers.watched()
    held, other = stored_answers.watching(), stored_answers.watching()
    assert stored_answers.watched()
    os.close(held)
    assert stored_answers.watched()
    os.close(other)
    assert not stored_answers.watched()


def test_a_damaged_counter_counts_again(home: Path) -> None:
    home.mkdir()
    (home / stored_answers.COUNTER).write_text("damaged by somebody\n")
    assert [stored_answers.next_number() for _ in range(3)] == [1, 2, 3]


def test_checking_whether_somebody_watches_does_not_count_as_watching(home: Path) -> None:
    os.close(stored_answers.watching())
    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(lambda _: stored_answers.watched(), range(1000)))
