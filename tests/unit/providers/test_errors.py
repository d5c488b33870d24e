from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import ErrorCode, classify, is_tools_refusal, provider_error, redact, retry_after

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("insufficient balance", ErrorCode.QUOTA_EXCEEDED),
        ("账户欠费", ErrorCode.QUOTA_EXCEEDED),
        ("Too many requests, slow down", ErrorCode.RATE_LIMIT_EXCEEDED),
        ("no such apikey", ErrorCode.AUTH_ERROR),
        ("invalid request: bad", ErrorCode.INVALID_REQUEST),
        ("service unavailable", ErrorCode.SERVER_ERROR),
        ("it timed out", ErrorCode.TIMEOUT),
        ("network unreachable", ErrorCode.CONNECTION_ERROR),
        ("blocked for safety", ErrorCode.CONTENT_FILTERED),
        ("the thing does not exist", ErrorCode.MODEL_ERROR),
        ("boom", ErrorCode.GENERIC_ERROR),
    ],
)
def test_failure_without_a_status_is_classified_by_its_message(message: str, code: ErrorCode):
    assert classify(message) is code


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (500, "missing key", ErrorCode.SERVER_ERROR),
        (529, "overloaded", ErrorCode.SERVER_ERROR),
        (401, "quota of guesses used up", ErrorCode.AUTH_ERROR),
        (402, "pay", ErrorCode.QUOTA_EXCEEDED),
        (404, "unknown url", ErrorCode.MODEL_ERROR),
        (408, "", ErrorCode.TIMEOUT),
        (409, "", ErrorCode.SERVER_ERROR),
        (422, "rate limit must be a number", ErrorCode.INVALID_REQUEST),
        (429, "You exceeded your current quota", ErrorCode.RATE_LIMIT_EXCEEDED),
    ],
)
def test_status_takes_precedence_over_the_message(status: int, message: str, code: ErrorCode):
    assert classify(message, status) is code


@pytest.mark.parametrize("message", ["500 missing key", "Error code: 503 - invalid", "HTTP/1.1 502 bad gateway key"])
def test_status_at_the_start_of_a_message_is_used(message: str):
    assert classify(message) is ErrorCode.SERVER_ERROR


def test_number_inside_a_sentence_is_not_a_status():
    assert classify("room for 512 tokens only, invalid request") is ErrorCode.INVALID_REQUEST


def test_specific_provider_code_takes_precedence_over_the_status():
    assert classify("slow down", 429, ["insufficient_quota", None]) is ErrorCode.QUOTA_EXCEEDED
    assert classify("no", 400, ["content_filter"]) is ErrorCode.CONTENT_FILTERED


def test_generic_provider_type_is_used_only_without_a_status():
    assert classify("no such key", 401, ["invalid_api_key", "invalid_request_error"]) is ErrorCode.AUTH_ERROR
    assert classify("key servers are busy", None, [None, "overloaded_error"]) is ErrorCode.SERVER_ERROR


def test_number_as_the_provider_code_is_used_as_a_status():
    assert classify("key", None, [502]) is ErrorCode.SERVER_ERROR
    assert classify("key", None, ["429"]) is ErrorCode.RATE_LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("code", "is_retryable"),
    [
        (ErrorCode.RATE_LIMIT_EXCEEDED, True),
        (ErrorCode.SERVER_ERROR, True),
        (ErrorCode.TIMEOUT, True),
        (ErrorCode.CONNECTION_ERROR, True),
        (ErrorCode.QUOTA_EXCEEDED, False),
        (ErrorCode.AUTH_ERROR, False),
        (ErrorCode.INVALID_REQUEST, False),
        (ErrorCode.CONTENT_FILTERED, False),
        (ErrorCode.GENERIC_ERROR, False),
    ],
)
def test_only_temporary_failures_are_retryable(code: ErrorCode, is_retryable: bool):
    message = {ErrorCode.RATE_LIMIT_EXCEEDED: "429", ErrorCode.QUOTA_EXCEEDED: "quota"}.get(code, "")
    failed = provider_error(message)
    failed.code = code

    assert failed.is_retryable is is_retryable


def test_html_page_of_a_proxy_is_truncated():
    failed = provider_error("<html>\n" + "x" * 10_000, status=502)

    assert len(failed.detail) == 2000


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:20 GMT"}, 20.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_parsed_in_every_header_form(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers, NOON) == seconds


@given(st.text(), st.text(alphabet="abcdef0123456789", min_size=8), st.text())
def test_key_is_redacted_from_every_message(before: str, key: str, after: str):
    assert key not in redact(f"{before}{key}{after}", key)


def test_key_that_is_an_ordinary_word_is_redacted_only_as_a_whole_word():
    assert redact("none of the keys is none", "none") == "*** of the keys is ***"
    assert redact("nonesuch", "none") == "nonesuch"


@pytest.mark.parametrize(
    "words",
    [
        "registry.ollama.ai/library/gemma:2b does not support tools",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "tools param requires --jinja flag",
        "No endpoints found that support tool use.",
        "Function calling is not enabled for this model",
        "'tools' is not supported with this model.",
    ],
)
def test_refusal_of_tools_is_recognised_from_common_server_messages(words: str):
    assert is_tools_refusal(words)


@pytest.mark.parametrize(
    "words",
    [
        "Invalid schema for function 'search': array schema missing items.",
        "tools[0].function.name does not match the pattern",
        "tools.0.custom.input_schema: Field required",
        "The model is overloaded",
        "n" * 100_000 + "not support",
    ],
)
def test_other_errors_about_tools_are_not_a_refusal_of_tools(words: str):
    assert not is_tools_refusal(words)
