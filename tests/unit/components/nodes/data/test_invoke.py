"""Invoke sends one request, and the body of the response is its result."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from canvas.errors import AddressRefused, HttpFailed, NodeFailure, UnresolvedReference
from canvas.outcome import Finished
from components.nodes.data.invoke import InvokeParams, invoke, time_limit
from providers.interfaces import HttpCall, HttpResponse, Services
from tests.fakes import FakeContext, FakeHttp, run

GLOBALS = {
    "sys.query": "42", "env.s": "str", "env.t": "tok", "env.j": '{"a":1}', "env.o": {"a": 1}, "env.l": ["x", None, 2],
    "env.nn": None, "env.flag": True, "env.empty": "", "plain": "p", "env.nan": "NaN",
}  # fmt: skip


def replying(
    content: bytes | str = b"", content_type: str = "text/plain; charset=utf-8"
) -> Callable[[HttpCall], HttpResponse]:
    data = content.encode() if isinstance(content, str) else content
    return lambda call: HttpResponse(200, {"content-type": content_type}, data, call.url)


def context_and_http(
    answer: Callable[[HttpCall], HttpResponse] | None = None, **more: Any
) -> tuple[FakeContext, FakeHttp]:
    http = FakeHttp(answer or replying())
    values = {"LLM:0": {"content": "said"}, "begin": {"sku": "A1"}}
    return FakeContext(values=values, globals=dict(GLOBALS), services=Services(http), **more), http


def request_of(**params: Any) -> HttpCall:
    ctx, http = context_and_http()
    run(invoke, {"url": "http://x", **params}, ctx)
    return http.calls[0]


def result(answer: Callable[[HttpCall], HttpResponse], **params: Any) -> Any:
    ctx, _ = context_and_http(answer)
    outcome = run(invoke, {"url": "http://x", **params}, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs["result"]


def rows(**by_key: Any) -> list[dict[str, Any]]:
    """Arguments: a text that begins with `@` is a reference, anything else a value."""
    is_ref = {key: isinstance(value, str) and value.startswith("@") for key, value in by_key.items()}
    return [
        {"key": key, "ref": value[1:], "value": None} if is_ref[key] else {"key": key, "ref": "", "value": value}
        for key, value in by_key.items()
    ]


# -- request ----------------------------------------------------------------------------------------------------
def test_get_sends_its_arguments_in_the_query():
    variables = [*rows(q="@env.s", num="12", nn="@env.nn"), {"key": "n", "ref": "{env.nn}", "value": "def"}]

    call = request_of(variables=variables)

    assert call.method == "GET"
    assert call.params == [("q", "str"), ("num", "12"), ("nn", ""), ("n", "def")]
    assert (call.json, call.has_json, call.form, call.content) == (None, False, None, None)


@pytest.mark.parametrize(
    ("value", "pairs"),
    [
        ("@env.l", ["x", "2"]),
        ("@env.j", ["a"]),
        ("true", ["True"]),
        ("null", []),
        ("[[1, 2], {\"k\": 3}]", ["1", "2", "k"]),
        (1.5, ["1.5"]),
        ("{env.l}!", ["['x', None, 2]!"]),
        ("", [""]),
    ],
)  # fmt: skip
def test_lists_and_objects_are_spread_over_the_query_as_upstream_does(value: Any, pairs: list[str]):
    assert request_of(variables=rows(v=value)).params == [("v", text) for text in pairs]


def test_other_methods_send_json_with_texts_decoded():
    variables = rows(q="@sys.query", j="@env.j", o="@env.o", text="no json", flag="true", mixed="{env.flag}", no="")

    call = request_of(method="PUT", variables=variables)

    assert (call.method, call.has_json, call.params) == ("PUT", True, None)
    assert call.json == {
        "q": 42, "j": {"a": 1}, "o": {"a": 1}, "text": "no json", "flag": True, "mixed": "True", "no": "",
    }  # fmt: skip


def test_texts_are_sent_unchanged_in_a_form():
    call = request_of(method="post", datatype="FormData", variables=rows(j="@env.j", o="@env.o", b="x y&z", n=3))

    assert call.form == {"j": ['{"a":1}'], "o": ["a"], "b": ["x y&z"], "n": ["3"]}
    assert not call.has_json


@pytest.mark.parametrize("method", ["post", "PUT", "Patch", "delete"])
def test_without_arguments_an_empty_object_is_sent(method: str):
    call = request_of(method=method)

    assert (call.method, call.json, call.has_json) == (method.upper(), {}, True)


@pytest.mark.parametrize(
    ("body", "content", "kind"),
    [
        ('{"o": {env.o}, "s": "{env.s}"}', b'{"o": {"a": 1}, "s": "str"}', "application/json"),
        ("plain {sys.query}", b"plain 42", "text/plain; charset=utf-8"),
        ({"a": "{env.s}"}, b'{"a": "str"}', "application/json"),
        ("", b"", "text/plain; charset=utf-8"),
    ],
)
def test_body_of_the_author_is_sent_if_there_are_no_arguments(body: Any, content: bytes, kind: str):
    call = request_of(method="post", body=body)

    assert (call.content, call.headers["Content-Type"], call.has_json) == (content, kind, False)
    assert request_of(method="post", body=body, headers={"content-type": "a/b"}).headers["content-type"] == "a/b"
    assert request_of(method="post", body=body, variables=rows(a="1")).json == {"a": 1}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ex.com/{env.s}/x", "http://ex.com/str/x"),
        (" https://ex.com/?q={sys.query} ", "https://ex.com/?q=42"),
        ("HTTPS://ex.com", "HTTPS://ex.com"),
        ("ftp://ex.com", "ftp://ex.com"),
        ("ex.com:8080/x", "http://ex.com:8080/x"),
        ("{{ begin@sku }}/{env.l}/{env.nn}/{env.flag}", "http://A1/['x', None, 2]//True"),
        ("http://x/?q=a {sys.query} b", "http://x/?q=a 42 b"),
        ("{env.empty}", "http://"),
        ("x/{item}/{other}", "http://x/{item}/{other}"),
    ],
)
def test_references_in_the_url_are_resolved_and_a_missing_scheme_is_added(url: str, address: str):
    assert request_of(url=url).url == address


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ('{"Authorization":"Bearer {env.t}","N":5}', {"Authorization": "Bearer tok", "N": "5"}),
        ({"A": "{env.l} {env.nn}."}, {"A": "['x', None, 2] ."}),
        ({"B": True, "C": None, "D": {"k": 1}}, {"B": "true", "D": '{"k": 1}'}),
        ({"A": "{begin@sku}/{plain}/{{env.t}}"}, {"A": "A1/p/tok"}),
        ({"A": "{LLM:0@content} {unknown} {item} {}"}, {"A": "{LLM:0@content} {unknown} {item} {}"}),
        ("", {}),
        (" ", {}),
        (None, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_references_in_the_headers_are_resolved(headers: Any, expected: Mapping[str, str]):
    assert request_of(headers=headers).headers == expected


@pytest.mark.parametrize("headers", ["[1]", "no json", "5", [1], "{'a': 1}", '{"a": NaN', "[" * 100_000])
def test_headers_that_are_not_an_object_fail_the_node(headers: Any):
    with pytest.raises(NodeFailure, match=r"^Invoke headers must be a JSON object\.$"):
        request_of(headers=headers)


@pytest.mark.parametrize(
    ("proxy", "used"),
    [
        (None, None), ("", None), ("  ", None), ("http://", None), ("https:", None),
        ("http://p.example:3128", "http://p.example:3128"), ("p.example:3128", "http://p.example:3128"),
    ],
)  # fmt: skip
def test_proxy_without_a_host_is_ignored(proxy: Any, used: str | None):
    assert request_of(proxy=proxy).proxy == used


def test_request_has_the_timeout_of_the_node_and_follows_no_redirects():
    call = request_of(timeout=7)

    assert (call.timeout, call.redirects, call.trusted) == (7, 0, False)


@pytest.mark.parametrize("variables", [[{"ref": "env.s"}], [{"key": None}], ["a"], {"a": 1}, 5])
def test_an_argument_without_a_key_fails_the_node(variables: Any):
    with pytest.raises(NodeFailure, match="key"):
        request_of(variables=variables)


@pytest.mark.parametrize("value", ["NaN", "[1, -Infinity]", "1e999", "@env.nan"])
def test_argument_that_is_not_strict_json_fails_the_node_with_its_name(value: str):
    with pytest.raises(NodeFailure, match='"price" is not strict JSON'):
        request_of(variables=rows(price=value))

    assert request_of(method="post", datatype="formdata", variables=rows(price="NaN")).form == {"price": ["NaN"]}


def test_unknown_reference_fails_the_node():
    for params in ({"url": "http://{env.no}"}, {"variables": rows(a="@no@x")}, {"headers": {"A": "{env.no}"}}):
        with pytest.raises(UnresolvedReference):
            request_of(**params)


def test_values_of_references_are_shown_as_inputs():
    ctx, _ = context_and_http()

    run(invoke, {"url": "http://x/{env.s}", "variables": rows(a="@sys.query", b="@{begin@sku}", c="{env.t}")}, ctx)

    assert ctx.inputs == {"sys.query": 42, "begin@sku": "A1"}


# -- idempotency key --------------------------------------------------------------------------------------------
def key_of(ctx: FakeContext, **params: Any) -> str | None:
    http = FakeHttp(replying())
    ctx.services = Services(http)
    run(invoke, {"url": "http://x", "method": "post", **params}, ctx)
    return http.calls[0].headers.get("Idempotency-Key")


def test_idempotency_key_is_the_same_in_every_attempt_of_one_activation_only():
    first = key_of(FakeContext())

    assert first is not None
    assert len(first) == 64
    assert key_of(FakeContext()) == first
    assert key_of(FakeContext(activation_id="activation-2")) != first


def test_no_idempotency_key_is_added_to_a_get_or_to_the_authors_own():
    assert key_of(FakeContext(), method="get") is None
    assert key_of(FakeContext(), headers={"idempotency-key": "mine"}) is None
    assert invoke.effect == "keyed"


# -- response ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [200, 302, 404, 500])
def test_response_of_any_status_is_the_result(status: int):
    assert result(lambda call: HttpResponse(status, {}, b"body", call.url)) == "body"


@pytest.mark.parametrize(
    ("content", "content_type", "text"),
    [
        ("ä".encode("latin-1"), "text/plain; charset=ISO-8859-1", "ä"),
        ("ä".encode(), 'text/plain; charset="utf-8"', "ä"),
        ("ä".encode(), "text/plain", "ä"),
        ("ä".encode(), "application/json", "ä"),
        ("ä".encode("utf-16"), "text/plain", "ä"),
        (b"\xff\xfea", "text/plain; charset=utf-8", "\ufffd\ufffda"),
        ("ä".encode(), "text/plain; charset=no-such", "ä"),
        (b"2f2f", "text/plain; charset=hex", "2f2f"),
        (b"ab-", "text/plain; charset=punycode", "ab-"),
        ("é".encode("cp1252"), "", "é"),
        (b'<meta charset="koi8-r"><p>\xc1', "text/html", '<meta charset="koi8-r"><p>а'),
        (b"", "", ""),
    ],
)
def test_the_answer_is_read_in_the_charset_it_declares(content: bytes, content_type: str, text: str):
    assert result(replying(content, content_type)) == text


def test_clean_html_returns_the_text_of_a_page():
    page = "<html><head><style>p{}</style></head><body><h1>Head</h1><p>First <b>bold</b> text.</p></body></html>"

    assert result(replying(page, "text/html; charset=utf-8"), clean_html=True) == "# Head\nFirst bold text."
    assert result(replying(page, "text/html; charset=utf-8")) == page


# -- failures ---------------------------------------------------------------------------------------------------
def failing(times: int, error: Exception) -> Callable[[HttpCall], HttpResponse]:
    left = iter(range(times))

    def answer(call: HttpCall) -> HttpResponse:
        if next(left, None) is not None:
            raise error
        return replying("at last")(call)

    return answer


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return paused


def test_network_failure_is_retried_after_the_delay_of_the_node(pauses: list[float]):
    ctx, http = context_and_http(failing(2, HttpFailed("away", retryable=True)))

    outcome = run(invoke, {"url": "http://x", "max_retries": 2, "delay_after_error": 0.5}, ctx)

    assert isinstance(outcome, Finished)
    assert outcome.outputs == {"result": "at last", "status_code": 200}
    assert len(http.calls) == 3
    assert pauses == [0.5, 0.5]


def test_no_delay_follows_the_last_try(pauses: list[float]):
    ctx, http = context_and_http(failing(9, HttpFailed("away", retryable=True)))

    with pytest.raises(HttpFailed, match=r"^away$"):
        run(invoke, {"url": "http://x", "max_retries": "1"}, ctx)

    assert len(http.calls) == 2
    assert pauses == [2.0]


def test_final_error_is_not_retried(pauses: list[float]):
    ctx, http = context_and_http(failing(9, HttpFailed("too large")))

    with pytest.raises(HttpFailed, match="too large"):
        run(invoke, {"url": "http://x", "max_retries": 5}, ctx)

    assert len(http.calls) == 1
    assert pauses == []


def test_refused_address_is_reported_as_invalid_and_not_retried(pauses: list[float]):
    ctx, http = context_and_http(failing(9, AddressRefused("URL resolves to a non-public address (127.0.0.1), ...")))

    with pytest.raises(AddressRefused) as refused:
        run(invoke, {"url": "http://127.0.0.1/", "max_retries": 5}, ctx)

    assert refused.value.message.startswith("URL not valid: URL resolves to a non-public address (127.0.0.1)")
    assert "EASEL_SSRF_ALLOW" in refused.value.message
    assert "127.0.0.1" in refused.value.details["reason"]
    assert len(http.calls) == 1
    assert invoke.owns_errors


def test_invalid_address_is_reported_with_ragflows_text(pauses: list[float]):
    ctx, _ = context_and_http(failing(9, AddressRefused("Disallowed URL scheme: 'ftp'.", is_malformed=True)))

    with pytest.raises(AddressRefused, match=r"^URL not valid$"):
        run(invoke, {"url": "ftp://x/"}, ctx)


def answering(*statuses: int, **headers: str) -> Callable[[HttpCall], HttpResponse]:
    left = list(statuses)
    return lambda call: HttpResponse(left.pop(0) if len(left) > 1 else left[0], headers, b"", call.url)


def test_status_of_the_answer_is_an_output():
    ctx, _ = context_and_http(answering(404))

    assert run(invoke, {"url": "http://x"}, ctx).outputs == {"result": "", "status_code": 404}


def test_server_failure_is_retried_as_often_as_the_author_allows(pauses: list[float]):
    for statuses, retries, request_count, status in (
        ((503, 200), 2, 2, 200),
        ((500,), 2, 3, 500),
        ((502,), 0, 1, 502),
        ((404,), 5, 1, 404),
    ):
        ctx, http = context_and_http(answering(*statuses))

        outcome = run(invoke, {"url": "http://x", "max_retries": retries}, ctx)

        assert (outcome.outputs["status_code"], len(http.calls)) == (status, request_count)


def test_failure_of_a_server_that_ignores_keys_is_not_retried(pauses: list[float]):
    ctx, http = context_and_http(answering(503))

    outcome = run(invoke, {"url": "http://x", "method": "post", "max_retries": 3, "on_unknown": "fail"}, ctx)

    assert (outcome.outputs["status_code"], len(http.calls)) == (503, 1)


def test_unfollowed_redirect_is_a_warning_of_the_run_without_the_query_of_its_url():
    ctx, _ = context_and_http(answering(301, location="https://x.example/new?token=s3cret"))

    outcome = run(invoke, {"url": "http://x.example/old"}, ctx)

    ((code, message),) = ctx.warnings
    assert outcome.outputs == {"result": "", "status_code": 301}
    assert code == "redirect_not_followed"
    assert "HTTP 301 redirects to https://x.example/new, but Invoke does not follow redirects" in message
    assert "s3cret" not in message


# -- parameters -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"url": ""}, "End point URL does not support empty value."),
        ({"url": None}, "End point URL does not support empty value."),
        ({"method": "head"}, "Type of content from the crawler head is not supported, it should be in ['get', 'post'"),
        ({"method": None}, "Type of content from the crawler None is not supported"),
        ({"datatype": "xml"}, "Data post type xml is not supported, it should be in ['json', 'formdata']"),
        ({"clean_html": "no"}, "Clean HTML no not supported, should be bool type"),
        ({"timeout": 0}, "Timeout time 0 not supported, should be positive integer"),
        ({"timeout": "60"}, "Timeout time 60 not supported, should be positive integer"),
        ({"timeout": True}, "Timeout time True not supported, should be positive integer"),
    ],
)
def test_parameters_are_checked_when_the_canvas_is_loaded(params: dict[str, Any], text: str):
    with pytest.raises(ValidationError) as refused:
        InvokeParams.model_validate({"url": "http://x", **params})

    assert text in str(refused.value)


def test_missing_url_is_refused():
    with pytest.raises(ValidationError, match="End point URL"):
        InvokeParams.model_validate({})


@pytest.mark.parametrize(
    ("params", "seconds"),
    [
        ({}, 67.0),
        ({"timeout": 1, "delay_after_error": 0}, 6.0),
        ({"timeout": 20, "delay_after_error": 0.5, "max_retries": 2}, 66.5),
        ({"timeout": 10, "delay_after_error": "x", "max_retries": None}, 15.0),
        ({"timeout": 10**400, "delay_after_error": float("inf")}, 2 * 86_400 + 5.0),
        ({"timeout": 10, "delay_after_error": float("nan"), "max_retries": -3}, 15.0),
    ],
)
def test_time_limit_includes_all_tries_and_delays(params: dict[str, Any], seconds: float):
    assert time_limit(InvokeParams.model_validate({"url": "http://x", **params})) == seconds
    assert invoke.needed_seconds is time_limit


@settings(max_examples=40, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
        max_leaves=8,
    )
)
def test_any_value_can_be_sent_by_every_method_and_datatype(value: Any):
    ctx, http = context_and_http()
    ctx.globals["env.any"] = value

    for method, datatype in (("get", "json"), ("post", "json"), ("post", "formdata")):
        params = {"url": "http://x", "method": method, "datatype": datatype, "variables": rows(v="@env.any")}
        run(invoke, params, ctx)

    query, body, form = http.calls
    assert all(isinstance(text, str) for _, text in query.params or ())
    assert json.dumps(body.json, allow_nan=False)
    assert all(isinstance(text, str) for text in (form.form or {})["v"])
