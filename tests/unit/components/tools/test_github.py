"""GitHub, with recorded replies of its search."""

from typing import Any

import pytest

from components.tools.github import GITHUB
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import error_of, json_reply, outputs_of, refusing, reply, unreachable, vendor

WIDGET = {
    "name": "widget",
    "html_url": "https://github.com/acme/widget",
    "description": "A widget kit",
    "watchers": 42,
}
BLANK = {"name": "blank", "html_url": "https://github.com/acme/blank", "description": None, "watchers": 7}


def test_repositories_become_citations_and_json():
    outputs = outputs_of(GITHUB, {"query": "widget"}, vendor(json_reply({"items": [WIDGET, BLANK]})))

    assert outputs["json"] == [WIDGET, BLANK]
    assert outputs["formalized_content"] == (
        "\nID: 336\n├── Title: widget\n├── URL: https://github.com/acme/widget\n└── Content:\nA widget kit\n stars:42\n"
        "\nID: 345\n├── Title: blank\n├── URL: https://github.com/acme/blank\n└── Content:\n stars:7"
    )


def test_request_sorts_by_stars_and_limits_the_page_size():
    http = vendor(json_reply({"items": []}))

    outputs_of(GITHUB, {"query": "a b&c", "top_n": 500, "access_token": "ghp_0123"}, http)

    call = http.calls[0]
    assert call.params == {"q": "a b&c", "sort": "stars", "order": "desc", "per_page": 100}
    assert call.headers == {
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
        "Authorization": "Bearer ghp_0123",
    }


def test_empty_result_is_not_an_error():
    assert outputs_of(GITHUB, {"query": "w"}, vendor(json_reply({"items": []}))) == {
        "formalized_content": "",
        "json": [],
    }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (json_reply({"message": "API rate limit exceeded"}, 403), "API rate limit exceeded"),
        (json_reply({}), "GitHub search returned no items."),
        (reply("<html>", 502), "HTTP 502: <html>"),
        (reply("<html>"), "The answer is not valid JSON: <html>"),
    ],
)
def test_error_has_the_vendors_text(answer: Any, error: str):
    assert error_of(GITHUB, {"query": "w"}, vendor(answer)) == error


@pytest.mark.parametrize(
    "headers",
    [
        {"retry_after": "0"},
        {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "1"},
        {"x_ratelimit_remaining": "0", "retry_after": "0"},
    ],
)
def test_rate_limit_is_retried(headers: dict[str, str]):
    http = vendor(json_reply({"message": "API rate limit exceeded"}, 403, **headers), json_reply({"items": [WIDGET]}))

    outputs = outputs_of(GITHUB, {"query": "w", "max_retries": 1, "delay_after_error": 30}, http)

    assert outputs["json"] == [WIDGET]
    assert len(http.calls) == 2


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (403, {}),
        (403, {"x_ratelimit_remaining": "7", "x_ratelimit_reset": "1"}),
        (401, {"retry_after": "0"}),
        (422, {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "1"}),
    ],
)
def test_other_forbidden_status_is_not_retried(status: int, headers: dict[str, str]):
    http = vendor(json_reply({"message": "Forbidden"}, status, **headers), json_reply({"items": [WIDGET]}))

    assert error_of(GITHUB, {"query": "w", "max_retries": 3, "delay_after_error": 0}, http) == "Forbidden"
    assert len(http.calls) == 1


@pytest.mark.parametrize("headers", [{"x_ratelimit_reset": f"{2**40}"}, {"x_ratelimit_reset": "soon"}, {}])
def test_rate_limit_beyond_the_time_limit_is_not_waited_for(headers: dict[str, str]):
    spent = json_reply({"message": "API rate limit exceeded"}, 403, x_ratelimit_remaining="0", **headers)
    http = vendor(spent, json_reply({"items": [WIDGET]}))

    error = error_of(GITHUB, {"query": "w", "max_retries": 3}, http, limits={"GitHub": 12.0})

    assert error == "API rate limit exceeded"
    assert len(http.calls) == 1


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(GITHUB, {"query": "w"}, FakeHttp(refusing))
    assert "12 s" in error_of(GITHUB, {"query": "w"}, FakeHttp(unreachable))


def test_empty_query_sends_no_request():
    assert outputs_of(GITHUB, {"query": ""}, FakeHttp(no_network)) == {"formalized_content": ""}
