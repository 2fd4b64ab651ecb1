"""Rules on single requests, and the spellings of a path that must not slip past them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ConfigError
from sandbox.policy.http import HttpRules

API = "api.example.com"


def allowed(method: str, target: str, *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> bool:
    return HttpRules(allow, deny).denial(method, API, 443, target) is None


@pytest.mark.parametrize(
    ("rule", "method", "target", "expected"),
    [
        ("GET api.example.com/repos/**", "GET", "/repos/a/b", True),
        ("GET api.example.com/repos/**", "GET", "/repos", True),
        ("GET api.example.com/repos/**", "GET", "/repos/a?x=1", True),
        ("GET api.example.com/repos/**", "POST", "/repos/a", False),
        ("GET api.example.com/repos/**", "GET", "/reposx", False),
        ("GET api.example.com/repos/*", "GET", "/repos/a", True),
        ("GET api.example.com/repos/*", "GET", "/repos/a/b", False),
        ("GET api.example.com/repos/*/issues", "GET", "/repos/group%2Fproject/issues", False),
        ("GET,HEAD api.example.com/x", "HEAD", "/x", True),
        ("* api.example.com/x", "DELETE", "/x", True),
        ("GET api.example.com", "GET", "/anything/at/all", True),
        ("GET *.example.com/**", "GET", "/x", True),
        ("GET api.example.com/a/**/z", "GET", "/a/b/c/z", True),
        ("GET api.example.com/a/**/z", "GET", "/a/z", True),
        ("GET api.example.com/v?/x", "GET", "/v1/x", True),
        ("GET api.example.com/x*y", "GET", "/xaby", True),
        ("OPTIONS api.example.com/**", "OPTIONS", "*", True),
        ("GET api.example.com/repos/**", "GET", "/repos/%61", True),
    ],
)
def test_a_host_with_allowing_rules_answers_only_those(rule: str, method: str, target: str, expected: bool) -> None:
    assert allowed(method, target, allow=(rule,)) is expected


@pytest.mark.parametrize(
    "target",
    [
        "/admin",
        "/admin/",
        "/admin/x",
        "/%61dmin/x",
        "/admin%2Fx",
        "//admin/x",
        "/x/../admin",
        "/x/%2e%2e/admin",
        "/./admin",
        "/admin;x=1/../admin",
        "/%2561dmin",
        "/\\admin",
        "/adm%00in",
        "/x%2F..%2Fadmin",
        "/..;/admin",
        "/admin;x=1/y",
        "/admin;/",
        "/admin%3bx",
        "/ADMIN/x",
        "/%41dmin",
        "/x/%u002e%u002e/admin",
        "/%u0061dmin",
        "/x/%c0%ae%c0%ae/admin",
        "/x/%E0%80%AE%E0%80%AE/admin",
        "/adm%in",
    ],
)
def test_no_spelling_of_a_denied_path_gets_through(target: str) -> None:
    assert not allowed("GET", target, deny=("* api.example.com/admin/**",))


@pytest.mark.parametrize("target", ["/admin", "/admin/", "/admin//", "/admin%2F", "/admin;/", "/admin/;x"])
def test_a_final_slash_does_not_get_past_a_denied_path(target: str) -> None:
    assert not allowed("GET", target, deny=("* api.example.com/admin",))
    assert allowed("GET", "/admin/x", deny=("* api.example.com/admin",))


def test_an_allowing_rule_minds_case_and_knows_names_in_other_scripts() -> None:
    assert allowed("GET", "/caf%C3%A9/100%25", allow=("GET api.example.com/café/**",))
    assert not allowed("GET", "/Docs/x", allow=("GET api.example.com/docs/**",))


def test_deny_beats_allow_and_names_its_rule() -> None:
    rules = HttpRules(["* api.example.com/**"], ["DELETE *.example.com/**"])
    denial = rules.denial("delete", API, 443, "/x?token=sekrit")
    assert denial is not None
    assert denial[0] == "network.http.deny: DELETE *.example.com/**"
    assert "sekrit" not in denial[1]


def test_rules_say_nothing_about_other_hosts() -> None:
    rules = HttpRules(["GET api.example.com/x"], ["* *.example.com:8443/**"])
    assert rules.denial("POST", "other.org", 443, "/../x") is None
    assert rules.about(API) and rules.about("www.example.com") and not rules.about("example.com")


@pytest.mark.parametrize(
    "rule", ["GET", "api.example.com/x", "GET api.example.com/x y", "G=T host/x", "GET host/a**", "GET ho st"]
)
def test_a_wrong_rule_is_a_config_error_with_its_place(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"network\.http\.deny\[0\]"):
        HttpRules([], [rule])


@given(st.text(max_size=200), st.text(max_size=10))
def test_any_target_gets_an_answer(target: str, method: str) -> None:
    HttpRules(["GET api.example.com/a/**/b/*/c*d"], ["POST api.example.com/**/x/**"]).denial(method, API, 443, target)


def test_a_hostile_path_costs_little() -> None:
    rules = HttpRules(["GET api.example.com/**/a/**/b/**/c/**/d/*a*a*a*a*b"], [])
    assert rules.denial("GET", API, 443, "/" + "a/" * 4000 + "a" * 4000) is not None
