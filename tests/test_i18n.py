"""Three languages: nothing is left untranslated, and nothing is lost on the way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.errors import ConfigError, Denied, Message, SandboxError
from sandbox.i18n import Translator, catalogue, preferred_language, read_po
from tests.messages import TAKES, fields, messages, sites

TRANSLATED = ("zh-TW", "zh-CN")


@pytest.mark.parametrize("language", TRANSLATED)
def test_every_message_has_a_translation(language: str) -> None:
    known = catalogue(language)
    missing = {message: place for message, place in messages().items() if not known.get(message)}
    assert missing == {}, "add these to src/sandbox/locale/*.po"


@pytest.mark.parametrize("language", TRANSLATED)
def test_no_translation_is_of_a_message_that_is_gone(language: str) -> None:
    assert set(catalogue(language)) - set(messages()) == set()


@pytest.mark.parametrize("language", TRANSLATED)
def test_every_translation_has_the_values_of_its_message(language: str) -> None:
    for message, translated in catalogue(language).items():
        for sign in (r"(?<!\{)\{[^{}]*\}(?!\})", r"%\(\w+\)[sr]|%[sr]"):
            assert sorted(set(re.findall(sign, message))) == sorted(set(re.findall(sign, translated))), message


def test_every_message_can_be_translated_because_no_site_puts_its_text_together() -> None:
    composed = [f"{site.place}: {site.call}" for site in sites() if site.composed]
    assert composed == [], "write a template and its values: SandboxError('{name} is …', name=…)"


def test_every_template_gets_the_values_that_it_names() -> None:
    assert {site.call for site in sites()} >= set(TAKES)
    for site in sites():
        if site.values and site.call != "Finding":
            assert site.template is not None, f"{site.place}: values belong to a template written there"
            named = {re.split("[!:]", field)[0] for field in fields(site.template)}
            assert named == site.values, site.place


def test_the_two_chinese_catalogues_differ_in_more_than_their_name() -> None:
    taiwan, mainland = catalogue("zh-TW"), catalogue("zh-CN")
    assert set(taiwan) == set(mainland)
    assert sum(taiwan[message] != mainland[message] for message in taiwan) > len(taiwan) / 2


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "en_GB.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_TW.UTF-8"}, "zh-TW"),
        ({"LANG": "zh_HK.UTF-8"}, "zh-TW"),
        ({"LANG": "zh_CN.UTF-8"}, "zh-CN"),
        ({"LANG": "zh_SG"}, "zh-CN"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LANGUAGE": "zh_TW:en"}, "zh-TW"),
    ],
)
def test_the_environment_chooses_as_gettext_does(environment: dict[str, str], language: str) -> None:
    assert preferred_language(environment) == language


def chinese() -> Translator:
    translator = Translator()
    translator.use("zh-TW")
    return translator


def test_an_error_is_printed_in_the_users_language_with_its_place() -> None:
    text = chinese().text
    problem = ConfigError("is larger than {largest} bytes", largest=9, path="enabled", file="config.yaml", line=3)
    assert str(problem) == "config.yaml:3: enabled: is larger than 9 bytes"
    assert text(problem) == "config.yaml:3: enabled: 大於 9 位元組"
    denied = Denied("rule", "Matches blocked pattern: {pattern}", pattern=".env")
    assert text(denied) == "符合被阻擋的樣式：.env (rule: rule)"
    assert text("something nobody translated") == "something nobody translated"
    assert text(SandboxError("the record is closed")) == "紀錄已關閉"


def test_a_message_inside_a_message_is_translated_too() -> None:
    inner = Message("is larger than {largest} bytes", largest=9)
    assert chinese().text(Message("cannot be read: {reason}", reason=inner)) == "無法讀取：大於 9 位元組"


def test_a_value_is_never_taken_for_a_template() -> None:
    hostile = "{reason.__class__} {0} {"
    problem = ConfigError("cannot be read: {reason}", reason=hostile)
    assert str(problem) == f"cannot be read: {hostile}"
    assert chinese().text(problem) == f"無法讀取：{hostile}"
    assert chinese().text(SandboxError(hostile)) == hostile


def test_in_english_an_error_is_printed_as_it_was_raised() -> None:
    english = Translator()
    english.use("en")
    for problem in (ConfigError("cannot be read: {reason}", reason="x", path="a"), Denied("r", "why"), SandboxError()):
        assert english.text(problem) == str(problem)


def test_a_message_survives_being_copied_and_pickled() -> None:
    import copy
    import pickle

    message = Message("cannot be read: {reason}", reason="x")
    for again in (copy.copy(message), pickle.loads(pickle.dumps(message))):
        assert (again, again.template, again.values) == (message, message.template, message.values)
    problem = pickle.loads(pickle.dumps(Denied("rule", "why {x}", x=1)))
    assert (problem.rule, str(problem)) == ("rule", "why 1 (rule: rule)")


def test_continued_strings_and_escapes_are_read() -> None:
    assert read_po('msgid ""\nmsgstr ""\n"X: y\\n"\n\nmsgid "a"\n"b\\n"\nmsgstr "c"\n"d\\"e"\n') == {"ab\n": 'cd"e'}


def sandbox(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    cleaned = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "LC_"))}
    given = {**cleaned, "PYTHONIOENCODING": "utf-8", **environment}
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *words], cwd=cwd, env=given, capture_output=True, text=True, check=False
    )


def test_help_and_errors_follow_the_language(tmp_path: Path) -> None:
    assert "執行您不信任的程式碼" in sandbox("--help", cwd=tmp_path, LANG="zh_TW.UTF-8").stdout
    assert "运行您不信任的代码" in sandbox("--help", cwd=tmp_path, LANG="zh_CN.UTF-8").stdout
    assert "usage: sandbox COMMAND" in sandbox("--help", cwd=tmp_path, LANG="fr_FR.UTF-8").stdout
    wrong = sandbox("config", "set", "mode", "strong", cwd=tmp_path, LANG="zh_TW.UTF-8")
    assert "sandbox: mode: 必須是 off, light, standard, max 其中之一" in wrong.stderr
    helped = sandbox("audit", "--help", cwd=tmp_path, LANG="zh_TW.UTF-8").stdout
    assert "選項" in helped
    assert "只顯示被阻擋的" in helped
    assert "無法識別的引數" in sandbox("audit", "--nonsense", cwd=tmp_path, LANG="zh_TW.UTF-8").stderr


def test_the_config_chooses_the_language_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("ui:\n  language: zh-CN\n")
    shown = sandbox("why", "--path", ".env", cwd=tmp_path, LANG="C.UTF-8", SANDBOX_HOME=str(home)).stdout
    assert ".env: 阻止" in shown


def test_a_refused_host_is_explained_in_the_users_language(tmp_path: Path) -> None:
    shown = sandbox("why", "--host", "host.test", cwd=tmp_path, LANG="zh_CN.UTF-8").stdout
    assert "host.test:443 不被允许；如需允许，请将 'host.test' 加入 network.allowed_hosts" in shown


def test_english_loads_nothing(tmp_path: Path) -> None:
    code = "import sys; from sandbox.i18n import _; _('x'); print('json' in sys.modules, 'gettext' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env={"LANG": "C"}, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
