"""Who may call a webhook: size, address, rate and credentials, in this order."""

import base64
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from api.requests.token_bucket import BucketsUnavailable
from api.webhooks.security import MAX_BODY_BYTES, REQUIRED, WebhookCall, admit, credential_headers
from canvas.errors import InvalidRequest

AGENT = UUID(int=7)
SECRET = "a secret of at least sixty-four characters, which is what SHA-512 wants"
OPEN = {"auth_type": "none", "allow_anonymous": True}


@dataclass
class Buckets:
    """Return the configured answer and record the calls."""

    answer: bool | Exception = True
    calls: list[tuple[UUID, int, int]] = field(default_factory=list[tuple[UUID, int, int]])

    def take(self, agent_id: UUID, capacity: int, seconds: int) -> bool:
        self.calls.append((agent_id, capacity, seconds))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def admit_call(
    security: Any,
    headers: Mapping[str, str] | None = None,
    *,
    address: str = "203.0.113.9",
    buckets: Buckets | None = None,
    is_owner: bool = False,
) -> int:
    return admit(security, WebhookCall(AGENT, address, headers or {}, is_owner), buckets or Buckets())


def refusal(security: Any, headers: Mapping[str, str] | None = None, **call: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        admit_call(security, headers, **call)
    return caught.value.message


def bearer(claims: Mapping[str, Any], key: Any = SECRET, algorithm: str = "HS256") -> dict[str, str]:
    return {"authorization": f"Bearer {jwt.encode(dict(claims), key, algorithm)}"}


def basic(name: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


# -- the block, size, address, rate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("security", [None, {}, [], "", "none", {"auth_type": "none"}, {"max_body_size": "1mb"}])
def test_webhook_without_security_block_refuses_calls(security: Any) -> None:
    assert refusal(security) == REQUIRED


@pytest.mark.parametrize("allowed", [True, 1, 2.5, "1", "true", "Yes", " on "])
def test_anonymous_calls_are_admitted_if_the_author_allows_them(allowed: Any) -> None:
    assert admit_call({"auth_type": "none", "allow_anonymous": allowed}) == MAX_BODY_BYTES


@pytest.mark.parametrize("allowed", [False, 0, "", "0", "false", "no", "perhaps", None, [1], {"a": 1}])
def test_anonymous_callers_are_refused_unless_the_author_allows_them(allowed: Any) -> None:
    assert refusal({"auth_type": "none", "allow_anonymous": allowed}) == REQUIRED


@pytest.mark.parametrize(
    ("setting", "expected"),
    [(None, MAX_BODY_BYTES), ("", MAX_BODY_BYTES), ("10MB", MAX_BODY_BYTES), ("2kb", 2048), (" 1mb ", 1048576)],
)
def test_sizes_are_counted_in_units_of_1024(setting: Any, expected: int) -> None:
    assert admit_call({**OPEN, "max_body_size": setting}) == expected


@pytest.mark.parametrize("setting", ["10", "1gb", "mb", "-1kb", "1.5mb", "1 mb", "٣kb", 5, ["1mb"]])
def test_invalid_size_is_refused_by_name(setting: Any) -> None:
    assert refusal({**OPEN, "max_body_size": setting}) == "Invalid max_body_size format"


def test_size_limit_above_ten_megabytes_is_refused() -> None:
    refused = refusal({**OPEN, "max_body_size": "11mb"})

    assert refused == "max_body_size exceeds maximum allowed size (10MB)"


def test_body_declared_too_large_is_refused_unread() -> None:
    security = {**OPEN, "max_body_size": "1kb"}

    assert refusal(security, {"content-length": "1025"}) == "Request body too large: 1025 > 1024"
    assert refusal(security, {"content-length": "9" * 5000}) == f"Request body too large: {'9' * 15} > 1024"
    assert admit_call(security, {"content-length": "1024"}) == 1024


@pytest.mark.parametrize(
    ("allowed", "address"),
    [
        ([], "203.0.113.9"),
        (["203.0.113.9"], "203.0.113.9"),
        (["10.0.0.0/8", "203.0.113.0/24"], "203.0.113.9"),
        (["nonsense", "203.0.113.9/24"], "203.0.113.9"),
        (["203.0.113.9"], "::ffff:203.0.113.9"),
        (["2001:db8::/32"], "2001:db8::1"),
        ("203.0.113.9", "203.0.113.9"),
    ],
)
def test_addresses_of_the_whitelist_are_admitted(allowed: Any, address: str) -> None:
    assert admit_call({**OPEN, "ip_whitelist": allowed}, address=address)


@pytest.mark.parametrize("allowed", [["203.0.113.8"], ["10.0.0.0/8"], ["nonsense"], [""], {"a": 1}, [1, None]])
def test_addresses_outside_of_the_whitelist_are_refused(allowed: Any) -> None:
    assert refusal({**OPEN, "ip_whitelist": allowed}) == "IP 203.0.113.9 is not allowed by whitelist"


def test_caller_without_address_is_refused_by_a_whitelist() -> None:
    assert refusal({**OPEN, "ip_whitelist": ["0.0.0.0/0"]}, address="") == "IP  is not allowed by whitelist"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"limit": 5, "per": "second"}, (5, 1)),
        ({"per": "hour"}, (60, 3600)),
        ({"limit": "7"}, (7, 60)),
        ({"limit": 2.9, "per": "day"}, (2, 86400)),
    ],
)
def test_a_call_takes_one_token_of_the_agents_bucket(limits: Any, expected: tuple[int, int]) -> None:
    buckets = Buckets()

    admit_call({**OPEN, "rate_limit": limits}, buckets=buckets)

    assert buckets.calls == [(AGENT, *expected)]


@pytest.mark.parametrize("limits", [None, {}])
def test_calls_are_not_counted_without_a_rate_limit(limits: Any) -> None:
    buckets = Buckets(BucketsUnavailable())

    assert admit_call({**OPEN, "rate_limit": limits}, buckets=buckets)


@pytest.mark.parametrize("limit", [0, -1, "0", "many", None, True, [], float("nan"), float("inf")])
def test_rate_limit_that_is_not_positive_is_refused(limit: Any) -> None:
    assert refusal({**OPEN, "rate_limit": {"limit": limit}}) == "rate_limit.limit must be > 0"


@pytest.mark.parametrize("per", ["week", "Minute", 5, ["minute"]])
def test_unknown_rate_limit_window_is_refused_by_name(per: Any) -> None:
    assert refusal({**OPEN, "rate_limit": {"limit": 1, "per": per}}) == f"Invalid rate_limit.per: {per}"


def test_call_above_the_rate_limit_is_refused() -> None:
    refused = refusal({**OPEN, "rate_limit": {"limit": 1}}, buckets=Buckets(False))

    assert refused == "Rate limit error: Too many requests (rate limit exceeded)"


def test_calls_are_refused_while_they_cannot_be_counted() -> None:
    refused = refusal({**OPEN, "rate_limit": {"limit": 1}}, buckets=Buckets(BucketsUnavailable("10.0.0.5:6379")))

    assert refused.startswith("Rate limit error: ")
    assert "10.0.0.5" not in refused


def test_first_failed_check_is_reported() -> None:
    security: dict[str, Any] = {
        "max_body_size": "1kb",
        "ip_whitelist": ["10.0.0.1"],
        "rate_limit": {"limit": 1},
        "auth_type": "token",
    }
    buckets = Buckets(False)

    assert refusal(security, {"content-length": "2000"}, buckets=buckets).startswith("Request body too large")
    assert refusal(security, buckets=buckets).startswith("IP ")
    assert buckets.calls == []
    assert refusal(security, address="10.0.0.1", buckets=buckets).startswith("Rate limit error")
    assert refusal(security, address="10.0.0.1") == "Invalid token authentication"


# -- token, basic -----------------------------------------------------------------------------------------------------

TOKEN = {"auth_type": "token", "token": {"token_header": "X-Token", "token_value": "käse"}}


def test_token_is_compared_as_bytes() -> None:
    assert admit_call(TOKEN, {"x-token": "käse".encode().decode("latin-1")})
    for wrong in ({}, {"x-token": ""}, {"x-token": "kase"}, {"x-other": "käse"}):
        assert refusal(TOKEN, wrong) == "Invalid token authentication"


@pytest.mark.parametrize(
    "block",
    [
        None,
        {},
        {"token_header": "X-Token"},
        {"token_header": "X-Token", "token_value": ""},
        {"token_value": "x"},
        {"token_header": " ", "token_value": "x"},
        {"token_header": "X-Token", "token_value": None},
        [],
    ],
)
def test_empty_configured_token_admits_no_call(block: Any) -> None:
    for headers in ({}, {"x-token": ""}, {"x-token": "None"}, {"": "x"}):
        assert refusal({"auth_type": "token", "token": block}, headers) == "Invalid token authentication"


BASIC = {"auth_type": "basic", "basic_auth": {"username": "ann", "password": "a:b"}}


def test_basic_credentials_are_name_and_password() -> None:
    assert admit_call(BASIC, basic("ann", "a:b"))
    written = basic("ann", "a:b")["authorization"].removeprefix("Basic ")
    for wrong in (
        {},
        basic("ann", "a"),
        basic("bob", "a:b"),
        basic("", ""),
        {"authorization": "Basic"},
        {"authorization": "Basic ???"},
        {"authorization": f"Bearer {written}"},
        {"authorization": "Basic " + base64.b64encode(b"ann").decode()},
        {"authorization": "Basic \xe9"},
    ):
        assert refusal(BASIC, wrong) == "Invalid Basic Auth credentials"


@pytest.mark.parametrize("block", [None, {}, {"username": "", "password": ""}, {"username": "ann"}, {"password": "x"}])
def test_empty_configured_basic_credentials_admit_no_call(block: Any) -> None:
    for headers in ({}, basic("", ""), basic("ann", ""), basic("", "x")):
        assert refusal({"auth_type": "basic", "basic_auth": block}, headers) == "Invalid Basic Auth credentials"


@pytest.mark.parametrize("auth_type", ["hmac", "Token", "oauth", 5, ["none"]])
def test_unknown_auth_type_admits_no_call(auth_type: Any) -> None:
    security = {"auth_type": auth_type, "allow_anonymous": True, "hmac": {"header": "X", "secret": "s"}}

    assert refusal(security) == f"Unsupported auth_type: {auth_type}"


# -- jwt --------------------------------------------------------------------------------------------------------------


def jwt_security(**block: Any) -> dict[str, Any]:
    return {"auth_type": "jwt", "jwt": {"secret": SECRET, **block}}


def test_valid_jwt_is_admitted() -> None:
    later = int(time.time()) + 60

    assert admit_call(jwt_security(), bearer({"exp": later}))
    assert admit_call(jwt_security(algorithm="hs512"), bearer({}, algorithm="HS512"))
    assert admit_call(jwt_security(), bearer({"aud": "anybody", "iss": "anybody"}))
    assert admit_call(
        jwt_security(audience="us", issuer="them", required_claims=["role"]),
        bearer({"aud": ["us", "you"], "iss": "them", "role": None}),
    )


def test_asymmetric_jwt_is_verified_with_the_configured_public_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    security = jwt_security(secret=public, algorithm="ES256")

    assert admit_call(security, bearer({"a": 1}, key, "ES256"))
    other = ec.generate_private_key(ec.SECP256R1())
    assert refusal(security, bearer({"a": 1}, other, "ES256")).startswith("Invalid JWT: ")
    assert refusal(security, bearer({"a": 1}, "x" * 32)).startswith("Invalid JWT: ")  # signed with a shared secret


@pytest.mark.parametrize(
    ("block", "headers", "expected"),
    [
        ({"secret": ""}, bearer({}), "JWT secret not configured"),
        ({"secret": None}, {}, "JWT secret not configured"),
        ({}, {}, "Missing Bearer token"),
        ({}, basic("a", "b"), "Missing Bearer token"),
        ({}, {"authorization": "Bearer"}, "Empty Bearer token"),
        ({}, {"authorization": "Bearer  "}, "Empty Bearer token"),
        ({}, {"authorization": "Bearer x"}, "Invalid JWT: Not enough segments"),
        ({}, bearer({"exp": 1}), "Invalid JWT: Signature has expired"),
        ({}, bearer({}, "x" * 40), "Invalid JWT: Signature verification failed"),
        ({"required_claims": ["role"]}, bearer({"rolle": 1}), "Missing JWT claim: role"),
        ({"required_claims": "role"}, bearer({}), "Missing JWT claim: role"),
        *(
            ({"required_claims": ["role", name]}, bearer({}), f"Reserved JWT claim cannot be required: {name}")
            for name in ("exp", "sub", "aud", "iss", "nbf", "iat")
        ),
        ({"algorithm": "none"}, bearer({}), "Invalid JWT: the algorithm NONE is not supported"),
        ({"algorithm": "PS256"}, bearer({}), "Invalid JWT: the algorithm PS256 is not supported"),
        ({"audience": 5}, bearer({}), "Invalid JWT: the setting audience is not a text"),
    ],
)
def test_refused_jwt_names_the_reason(block: Any, headers: Any, expected: str) -> None:
    assert refusal(jwt_security(**block), headers) == expected


@pytest.mark.parametrize(
    "block",
    [
        {"audience": "us"},
        {"issuer": "us"},
        {"algorithm": "HS384"},
        {"algorithm": "RS256"},
        {"algorithm": "ES256", "secret": "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----"},
    ],
)
def test_jwt_with_another_audience_or_issuer_is_refused(block: Any) -> None:
    refused = refusal(jwt_security(**block), bearer({"aud": "you", "iss": "you"}))

    assert refused.startswith("Invalid JWT: ")
    assert SECRET not in refused


def test_malformed_jwt_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 30_000).decode()

    assert refusal(jwt_security(), {"authorization": f"Bearer {deep}.x.x"}).startswith("Invalid JWT: ")


# -- tests by the owner, and arbitrary input --------------------------------------------------------------------------


def test_owner_test_skips_credentials_in_the_authorization_header() -> None:
    own = {"authorization": "Bearer easel_owner"}

    assert admit_call(BASIC, own, is_owner=True)
    assert admit_call(jwt_security(required_claims=["role"]), own, is_owner=True)
    authorization = {"token_header": "Authorization", "token_value": "x"}
    assert admit_call({"auth_type": "token", "token": authorization}, own, is_owner=True)


def test_owner_test_reports_a_block_that_admits_no_call() -> None:
    own = {"authorization": "Bearer easel_owner"}

    assert refusal(None, own, is_owner=True) == REQUIRED
    assert refusal(TOKEN, own, is_owner=True) == "Invalid token authentication"
    assert refusal(jwt_security(secret=""), own, is_owner=True) == "JWT secret not configured"
    assert refusal({"auth_type": "basic"}, own, is_owner=True) == "Invalid Basic Auth credentials"


def test_headers_that_carry_credentials_are_known() -> None:
    assert credential_headers(TOKEN) == {"authorization", "proxy-authorization", "cookie", "x-token"}
    assert credential_headers(None) == {"authorization", "proxy-authorization", "cookie"}


def test_no_secret_shows_in_a_repr() -> None:
    assert "easel_owner" not in repr(WebhookCall(AGENT, "", {"authorization": "easel_owner"}, is_owner=True))


LATIN = st.text(st.characters(max_codepoint=255, exclude_characters="\x00\r\n"), max_size=20)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(("none", "token", "basic", "jwt"))
BLOCK = st.dictionaries(
    st.sampled_from(
        [
            "token_header",
            "token_value",
            "username",
            "password",
            "secret",
            "algorithm",
            "audience",
            "issuer",
            "required_claims",
            "limit",
            "per",
        ]
    ),
    JSON | st.sampled_from(["HS256", "ES256", "x", "authorization", SECRET]),
)


@settings(max_examples=30, deadline=None)
@given(
    security=st.fixed_dictionaries(
        {},
        optional={
            "max_body_size": JSON,
            "ip_whitelist": JSON,
            "rate_limit": JSON | BLOCK,
            "auth_type": NAMES | JSON,
            "allow_anonymous": JSON,
            "token": JSON | BLOCK,
            "basic_auth": JSON | BLOCK,
            "jwt": JSON | BLOCK,
        },
    ),
    headers=st.dictionaries(st.sampled_from(("authorization", "content-length", "x")), LATIN),
)
def test_any_configuration_and_call_is_admitted_or_refused(security: Any, headers: dict[str, str]) -> None:
    with suppress(InvalidRequest):  # any other exception fails the test
        most_bytes = admit_call(security, headers)
        assert 0 <= most_bytes <= MAX_BODY_BYTES
        assert security.get("allow_anonymous") or security.get("auth_type") in ("token", "basic", "jwt")
