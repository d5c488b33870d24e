"""Rate limits of an account, and the limits that vendors report in headers."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from providers.models.chat.catalogue import resolve
from providers.models.vendors.accounts import AccountModel, VendorAccount, accounts_from_toml
from providers.rate_limits import RateLimits, VendorRateLimit, reset_delay

LIMITED = """
[[account]]
factory = "OpenAI"
api_key = "key"
requests_per_minute = 60
concurrency = 4
[account.models.large]
tokens_per_minute = 30000
[account.models.small]
"""


def test_limits_are_read_from_an_account_or_its_model(tmp_path: Path):
    (tmp_path / "models.toml").write_text(LIMITED)

    (account,) = accounts_from_toml(tmp_path / "models.toml")

    assert account.rate_limits == RateLimits(requests_per_minute=60, concurrency=4)
    assert account.models["large"].limits_by_name == {"tokens_per_minute": 30000}


def test_model_uses_its_own_limits_or_shares_those_of_its_account(tmp_path: Path):
    (tmp_path / "models.toml").write_text(LIMITED)
    accounts = accounts_from_toml(tmp_path / "models.toml")

    large, small = (resolve(f"{name}@OpenAI", accounts).rate_limit for name in ("large", "small"))

    assert large is not None
    assert small is not None
    assert (small.key, small.title, small.limits.limits_by_name) == (
        "all/OpenAI/default",
        "OpenAI (default)",
        {"requests_per_minute": 60, "concurrency": 4},
    )
    assert (large.key, large.limits.limits_by_name) == ("all/OpenAI/default/large", {"tokens_per_minute": 30000})


def test_accounts_of_two_tenants_have_separate_rate_limits():
    models, rates = {"m": AccountModel()}, RateLimits(concurrency=1)
    one, other = (
        VendorAccount("OpenAI", models=models, rate_limits=rates, owner=tenant) for tenant in ("one", "other")
    )

    keys = {
        spec.rate_limit.key for spec in (resolve("m@OpenAI", [one]), resolve("m@OpenAI", [other])) if spec.rate_limit
    }

    assert keys == {"one/OpenAI/default", "other/OpenAI/default"}


def test_account_without_limits_has_no_rate_limit():
    assert resolve("m@OpenAI", [VendorAccount("OpenAI", models={"m": AccountModel()})]).rate_limit is None


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_below_one_is_refused(limit: int):
    with pytest.raises(ValidationError):
        RateLimits(requests_per_minute=limit)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1s"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1.5"}, 1.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "soon"}, None),
        ({"x-ratelimit-remaining-requests": "0"}, None),
        ({"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2s"}, 2.0),
    ],
)
def test_exhausted_limit_in_headers_gives_the_seconds_until_reset(headers: dict[str, str], seconds: float | None):
    assert reset_delay(headers) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-01-27T12:00:30Z",
            },
            30.0,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-01-27T14:00:05+02:00",
            },
            5.0,
        ),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-01-27T11:59:00Z",
            },
            0.0,
        ),
        (
            {
                "anthropic-ratelimit-requests-remaining": "7",
                "anthropic-ratelimit-requests-reset": "2026-01-27T12:00:30Z",
            },
            None,
        ),
        ({"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "soon"}, None),
    ],
)
def test_reset_time_in_headers_is_converted_to_seconds(headers: dict[str, str], seconds: float | None):
    assert reset_delay(headers, datetime(2026, 1, 27, 12, tzinfo=UTC)) == seconds


def test_vendor_limit_without_a_key_is_shared_per_host():
    vendor_limit = VendorRateLimit(requests=1, seconds=3.0)

    assert vendor_limit.for_host("a.test") == vendor_limit.for_key("any key").for_host("a.test")
    assert vendor_limit.for_host("a.test").key != vendor_limit.for_host("b.test").key
    assert vendor_limit.for_host("a.test").key != VendorRateLimit(requests=3, seconds=1.0).for_host("a.test").key
    assert (vendor_limit.for_host("a.test").limits.requests_per_minute, vendor_limit.for_host("a.test").window) == (
        1,
        3.1,
    )


def test_vendor_limit_with_a_key_is_per_key_and_hides_the_key():
    vendor_limit = VendorRateLimit(requests=3, seconds=1.0, with_key=10)
    one, other = (
        vendor_limit.for_key("key-of-one").for_host("a.test"),
        vendor_limit.for_key("key-of-another").for_host("a.test"),
    )

    assert len({one.key, other.key, vendor_limit.for_key("").for_host("a.test").key}) == 3
    assert one.limits.requests_per_minute == 10
    assert vendor_limit.for_key("").for_host("a.test").limits.requests_per_minute == 3
    assert "key-of-one" not in f"{vendor_limit.for_key('key-of-one')} {one}"
