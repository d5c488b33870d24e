"""Addresses that callbacks may have, and callbacks in messages."""

import pytest

from canvas.errors import InvalidRequest
from providers.address_policy import Guard
from scheduler.callbacks.options import check_url
from scheduler.lifecycle.start_options import check_options

INTERNAL = Guard.parse(allowed="hooks.internal,10.1.0.0/16")


@pytest.mark.parametrize(
    ("url", "guard"),
    [
        ("https://example.com/hook?key=1", Guard()),
        ("https://example.com:8443", Guard()),
        ("https://93.184.216.34/", Guard()),
        ("http://hooks.internal/x", INTERNAL),
        ("http://10.1.2.3:8080/x", INTERNAL),
        ("http://127.0.0.1:9/x", Guard(allow_any=True)),
    ],
)
def test_address_that_is_allowed_is_returned(url: str, guard: Guard) -> None:
    assert check_url(url, guard) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com", "http://10.2.0.1", "https://10.2.0.1", "https://127.0.0.1", "https://0x7f.1",
        "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://169.254.169.254/latest", "https://localhost",
        "https://a.localhost", "https://metadata.google.internal", "https://example.com:22/", "https://",
        "https:///x", "ftp://example.com", "//example.com", "https://exa mple.com", "https://example.com/#x",
        "https://u@example.com", "https://u:p@example.com", "https://example.com:99999", "https://[::1", "javascript:1",
        "https://example.com/\n", "https://example.com/" + "x" * 2000, "https://exämple.com",
    ],
)  # fmt: skip
def test_address_that_is_not_allowed_is_refused_and_the_field_is_named(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_url(url, INTERNAL, "callbacks[0].url")

    assert caught.value.details["field"] == "callbacks[0].url"
    assert "`callbacks[0].url`" in caught.value.message


def test_message_with_a_callback_with_a_secret_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidRequest, match=r"`callbacks\[1\]\.secret` cannot be sent in a message") as caught:
        check_options(
            {"callbacks": [{"url": "https://example.com"}, {"url": "https://example.com", "secret": "whsec_"}]}
        )

    assert "whsec_" not in caught.value.message


def test_message_with_callbacks_without_secrets_is_accepted() -> None:
    check_options({"callbacks": [{"url": "https://example.com"}, {"id": "0" * 32, "events": ["run.failed"]}]})
