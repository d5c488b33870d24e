"""Requests to vendors, and the errors made of their replies."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import HttpFailed, ToolError
from components.tools.framework import http as tool_http
from providers.interfaces import HttpCall, HttpResponse
from tests.unit.components.tools.vendors import context, json_reply, reply, vendor

CALL = HttpCall("GET", "https://query1.vendor.test/v1/find", params={"q": "a b&c"})


def send(base_urls: dict[str, str] | None = None, call: HttpCall = CALL, **known: Any) -> HttpCall:
    http = vendor(json_reply({}))
    asyncio.run(tool_http.fetch(context(http, base_urls=base_urls or {}, **known), "Finder", call))
    return http.calls[0]


def fetch_error(answer: HttpResponse) -> HttpFailed:
    with pytest.raises(HttpFailed) as failed:
        asyncio.run(tool_http.fetch(context(vendor(answer)), "Finder", CALL))
    return failed.value


def test_request_goes_to_the_tools_address_and_follows_redirects():
    call = send()

    assert (call.url, call.trusted, call.redirects, call.params) == (CALL.url, False, 5, CALL.params)


@pytest.mark.parametrize(
    ("base_urls", "url"),
    [
        ({"FINDER": "http://10.0.0.1:8080/"}, "http://10.0.0.1:8080/v1/find"),
        ({"FINDER_QUERY1_VENDOR_TEST": "http://mirror/a", "FINDER": "http://x"}, "http://mirror/a/v1/find"),
    ],
)
def test_base_url_of_the_deployment_is_used_and_trusted(base_urls: dict[str, str], url: str):
    call = send(base_urls)

    assert (call.url, call.trusted) == (url, True)


def test_request_timeout_is_limited_by_the_time_limit_of_the_tool():
    assert send(limits={"Finder": 3.0}).timeout == 3.0
    assert send().timeout == 15.0


def test_error_shows_the_status_and_the_beginning_of_the_body():
    failed = fetch_error(reply("x" * 300, 403))

    assert failed.message == f"HTTP 403: {'x' * 200}"
    assert failed.details["status"] == 403


@pytest.mark.parametrize(
    ("status", "is_retryable"),
    [
        *((status, False) for status in (302, 400, 401, 403, 404, 422, 456)),
        *((status, True) for status in (408, 429, 500, 503)),
    ],
)
def test_only_rate_limits_and_server_errors_are_retryable(status: int, is_retryable: bool):
    assert fetch_error(reply("no", status)).retryable is is_retryable


@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("soon", None), ("", None)])
def test_retry_after_in_seconds_is_parsed(value: str, seconds: float | None):
    assert fetch_error(reply("busy", 429, retry_after=value)).details["retry_after"] == seconds


def test_retry_after_as_a_date_is_parsed():
    due = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)

    assert 15 < fetch_error(reply("busy", 503, retry_after=due)).details["retry_after"] <= 20


def test_a_body_is_read_in_the_charset_it_declares_else_as_utf_8():
    latin = reply("é".encode("latin-1"), content_type="text/html; charset=ISO-8859-1")

    assert tool_http.decode_text(latin) == "é"
    assert tool_http.decode_text(reply("é")) == "é"
    assert tool_http.decode_text(reply("é", content_type="text/html; charset=klingon")) == "é"


@pytest.mark.parametrize("notation", ["punycode", "idna", "hex", "unicode_escape"])
def test_unknown_charset_is_ignored(notation: str):
    """Some of these codecs would take an hour for a large reply."""
    page = "é" + "-a9" * 1_000_000

    assert tool_http.decode_text(reply(page, content_type=f"text/html; charset={notation}")) == page


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("declared", ["", "application/json", "application/json; charset=ISO-8859-1"])
def test_unicode_json_is_decoded_despite_another_declared_charset(encoding: str, declared: str):
    answer = reply('{"title": "é"}'.encode(encoding), content_type=declared)

    assert tool_http.parse_object(answer) == {"title": "é"}


def test_json_that_is_not_unicode_is_decoded_as_declared():
    answer = reply('{"title": "é"}'.encode("gbk"), content_type="application/json; charset=gbk")

    assert tool_http.parse_object(answer) == {"title": "é"}


def test_list_in_an_error_reply_is_not_a_result():
    with pytest.raises(HttpFailed, match="broken"):
        tool_http.list_in_reply(
            json_reply({"items": [], "message": "broken"}, 500), "items", error_key="message", default_error="-"
        )


@pytest.mark.parametrize("body", ["<html>", "", "[" * 100_000, '"text"', "[1]", "null"])
def test_reply_that_is_not_a_json_object_is_a_final_error(body: str):
    with pytest.raises(ToolError) as failed:
        tool_http.parse_object(reply(body))

    assert not failed.value.retryable


def test_numbers_that_json_does_not_have_are_null():
    assert tool_http.parse_object(reply('\ufeff{"a": NaN, "b": [Infinity]}')) == {"a": None, "b": [None]}


def test_member_that_is_not_a_list_is_an_error_and_null_is_empty():
    assert (tool_http.require_list(None, "results"), tool_http.require_list([1], "results")) == ([], [1])
    with pytest.raises(ToolError, match="results"):
        tool_http.require_list({}, "results")


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([200, 403, 500]), st.text(max_size=12))
def test_any_body_is_parsed_or_a_tool_error(body: bytes, status: int, content_type: str):
    answer = reply(body, status, content_type=content_type)

    try:
        found = tool_http.list_in_reply(answer, "items", error_key="message", default_error="nothing")
    except ToolError:
        return
    assert isinstance(found, list)
