"""Headers of MCP servers are templates; a header that stays empty is dropped (T17)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.mcp.headers import fill_headers, secrets_of

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters=" $"), max_size=12)


@pytest.mark.parametrize(
    ("value", "variables", "sent"),
    [
        ("Bearer ${token}", {"token": "abc"}, "Bearer abc"),
        ("Bearer $token", {"token": "abc"}, "Bearer abc"),
        ("Bearer ${token}", {}, None),
        ("Bearer ${token}", {"token": "  "}, None),
        ("bearer", {}, None),
        ("Bearer", {}, None),
        ("Bearer abe", {}, "Bearer abe"),
        ("$token", {}, None),
        ("", {}, None),
        ("costs $usd or $5", {}, "costs $usd or $5"),
        ("Basic ${user}", {"user": "eDp5"}, "Basic eDp5"),
        ("rare", {}, "rare"),
    ],
)
def test_a_header_is_filled_from_variables_or_left_out(value: str, variables: dict[str, str], sent: str | None):
    filled = fill_headers({"Authorization": value}, variables, {})

    assert filled.headers.get("Authorization") == sent
    assert filled.dropped == (() if sent is not None else ("Authorization",))


def test_header_names_are_templates_too():
    assert fill_headers({"X-${kind}": "1", "$none": ""}, {"kind": "Key"}, {}).headers == {"X-Key": "1"}


def test_headers_of_the_caller_override_in_any_case_and_are_filled_from_their_own_values():
    custom = {"x-who": "caller of $plan", "plan": "gold"}

    filled = fill_headers({"X-Who": "server", "X-Other": "stays"}, {"plan": "tin"}, custom)

    assert filled.headers == {"X-Other": "stays", "x-who": "caller of gold", "plan": "gold"}


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.dictionaries(NAMES, VALUES, max_size=3))
def test_no_header_is_sent_twice_or_empty(templates: dict[str, str], custom: dict[str, str]):
    filled = fill_headers(templates, {}, custom).headers

    assert len({name.lower() for name in filled}) == len(filled)
    assert all(value.strip() and value.lower() != "bearer" for value in filled.values())


def test_secrets_are_listed_longest_first_without_harmless_headers():
    headers = {"Authorization": "Bearer abcdef", "Accept": "application/json", "X-Mode": "on"}

    assert secrets_of(headers, {"token": "abcdef"}) == ("Bearer abcdef", "abcdef")
