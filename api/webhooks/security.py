"""Check whether a webhook call is admitted: size, address, rate and credentials, in this order.

Every refusal is an InvalidRequest with RAGFlow's message. A security block that is present and empty admits no call.
Secrets are compared in constant time.
"""

import base64
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Protocol

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm

from api.requests.request_bodies import declared_size
from api.requests.token_bucket import BucketsUnavailable
from canvas.errors import InvalidRequest
from canvas.ids import CanvasId

log = structlog.get_logger()

MAX_BODY_BYTES = 10 * 1024 * 1024  # bytes of a body
WINDOWS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}  # seconds
ALGORITHMS = frozenset(f"{family}{bits}" for family in ("HS", "RS", "ES") for bits in (256, 384, 512))
RESERVED = ("exp", "sub", "aud", "iss", "nbf", "iat")

REQUIRED = "Webhook security is required. Set allow_anonymous to true to permit unauthenticated webhooks."

_SIZE = re.compile(r"(\d{1,12})(kb|mb)", re.ASCII)
_UNITS = {"kb": 1024, "mb": 1024 * 1024}
_MAX_QUOTED_CHARS = 100  # characters of a setting or an address that a message repeats


class RateBuckets(Protocol):
    """Counts calls for the rate limit."""

    def take(self, agent_id: CanvasId, capacity: int, seconds: int) -> bool:
        """Count a call; return whether it is within the limit. Raises BucketsUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class WebhookCall:
    """A call before its body is read. Header names are in lower case.

    `is_owner`: the agent's owner tests the webhook. The owner's API token is then in `Authorization`, so credentials
    that belong there are not checked.
    """

    agent_id: CanvasId
    address: str
    headers: Mapping[str, str] = field(repr=False)
    is_owner: bool


def admit(security: Any, call: WebhookCall, buckets: RateBuckets) -> int:
    """Admit a call and return the size limit of its body in bytes. Raises InvalidRequest if it is not admitted."""
    if not isinstance(security, Mapping) or not security:
        raise InvalidRequest(REQUIRED)
    most_bytes = _most_bytes(security.get("max_body_size"))
    check_size(declared_size(call.headers) or 0, most_bytes)
    _check_address(security.get("ip_whitelist"), call.address)
    _check_rate(security.get("rate_limit"), call.agent_id, buckets)
    _check_credentials(security, call)
    return most_bytes


def check_size(size: int, most_bytes: int) -> None:
    """Raise InvalidRequest for a body that is too large."""
    if size > most_bytes:
        raise too_large(size, most_bytes)


def too_large(size: int, most_bytes: int) -> InvalidRequest:
    """Return the refusal of a body that is too large."""
    return InvalidRequest(f"Request body too large: {size} > {most_bytes}")


def texts(value: Any) -> list[str]:
    """Return the texts of a list, or a single text as a list; [] for any other value."""
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []


# -- size, address, rate ----------------------------------------------------------------------------------------------


def _most_bytes(setting: Any) -> int:
    if setting is None or setting == "":
        return MAX_BODY_BYTES
    written = _SIZE.fullmatch(setting.strip().lower()) if isinstance(setting, str) else None
    if written is None:
        raise InvalidRequest("Invalid max_body_size format")
    most_bytes = int(written[1]) * _UNITS[written[2]]
    if most_bytes > MAX_BODY_BYTES:
        raise InvalidRequest("max_body_size exceeds maximum allowed size (10MB)")
    return most_bytes


def _check_address(allowed: Any, address: str) -> None:
    if not allowed:
        return
    found = _address(address)
    if found is None or not any(_lies_in(found, entry) for entry in texts(allowed)):
        raise InvalidRequest(f"IP {address[:_MAX_QUOTED_CHARS]} is not allowed by whitelist")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, with IPv4-mapped IPv6 addresses as IPv4; None if the text is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _lies_in(address: IPv4Address | IPv6Address, entry: str) -> bool:
    try:
        return address in ip_network(entry.strip(), strict=False)
    except ValueError:
        return False  # an invalid entry admits no address


def _check_rate(limits: Any, agent_id: CanvasId, buckets: RateBuckets) -> None:
    if not limits:
        return
    if not isinstance(limits, Mapping):
        raise InvalidRequest("rate_limit.limit must be > 0")
    per = limits.get("per") or "minute"
    capacity = _parse_whole(limits.get("limit", 60))
    if capacity is None or capacity <= 0:
        raise InvalidRequest("rate_limit.limit must be > 0")
    if not isinstance(per, str) or per not in WINDOWS:
        raise InvalidRequest(f"Invalid rate_limit.per: {str(per)[:_MAX_QUOTED_CHARS]}")
    try:
        is_within = buckets.take(agent_id, capacity, WINDOWS[per])
    except BucketsUnavailable as error:
        log.warning("rate_limit_not_checked", agent_id=agent_id.hex, error=str(error.__cause__))
        raise InvalidRequest("Rate limit error: calls cannot be counted now, so none is admitted. Try again.") from None
    if not is_within:
        raise InvalidRequest("Rate limit error: Too many requests (rate limit exceeded)")


def _parse_whole(value: Any) -> int | None:
    """Return a number, which may be a text, without its fraction; None for any other value."""
    if isinstance(value, bool):
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


# -- credentials ------------------------------------------------------------------------------------------------------


def _check_credentials(security: Mapping[str, Any], call: WebhookCall) -> None:
    match security.get("auth_type") or "none":
        case "none":
            if not _is_true(security.get("allow_anonymous")):
                raise InvalidRequest(REQUIRED)
        case "token":
            _check_token(_block(security, "token"), call)
        case "basic":
            _check_basic(_block(security, "basic_auth"), call)
        case "jwt":
            _check_jwt(_block(security, "jwt"), call)
        case other:
            raise InvalidRequest(f"Unsupported auth_type: {str(other)[:_MAX_QUOTED_CHARS]}")


def credential_headers(security: Any) -> set[str]:
    """Return the headers, in lower case, that carry the credentials of this block."""
    token = _block(security, "token").get("token_header") if isinstance(security, Mapping) else None
    named = {token.strip().lower()} if isinstance(token, str) else set[str]()
    return {"authorization", "proxy-authorization", "cookie"} | named


def _is_true(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("1", "true", "yes", "on")
    return isinstance(value, bool | int | float) and bool(value)


def _block(security: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = security.get(name)
    return block if isinstance(block, Mapping) else {}


def _check_token(block: Mapping[str, Any], call: WebhookCall) -> None:
    header, expected = block.get("token_header"), block.get("token_value")
    refused = InvalidRequest("Invalid token authentication")
    if not isinstance(header, str) or not header.strip() or not isinstance(expected, str) or not expected:
        raise refused
    name = header.strip().lower()
    if call.is_owner and name == "authorization":
        return
    if not _is_same(_header_bytes(call.headers.get(name, "")), expected):
        raise refused


def _check_basic(block: Mapping[str, Any], call: WebhookCall) -> None:
    username, password = block.get("username"), block.get("password")
    refused = InvalidRequest("Invalid Basic Auth credentials")
    if not isinstance(username, str) or not username or not isinstance(password, str) or not password:
        raise refused
    if call.is_owner:
        return
    scheme, _, written = call.headers.get("authorization", "").partition(" ")
    try:
        name, colon, secret = base64.b64decode(written.strip(), validate=True).partition(b":")
    except ValueError:
        raise refused from None
    is_right = [_is_same(name, username), _is_same(secret, password)]  # both are always compared
    if scheme.lower() != "basic" or not colon or not all(is_right):
        raise refused


def _check_jwt(block: Mapping[str, Any], call: WebhookCall) -> None:
    secret = block.get("secret")
    if not isinstance(secret, str) or not secret.strip():
        raise InvalidRequest("JWT secret not configured")
    algorithm = str(block.get("algorithm") or "HS256").strip().upper()
    claims = None if call.is_owner else _claims(block, secret, algorithm, _bearer(call.headers))
    required = [claim.strip() for claim in texts(block.get("required_claims")) if claim.strip()]
    for claim in required:
        if claim in RESERVED:
            raise InvalidRequest(f"Reserved JWT claim cannot be required: {claim}")
    for claim in required:
        if claims is not None and claim not in claims:
            raise InvalidRequest(f"Missing JWT claim: {claim[:_MAX_QUOTED_CHARS]}")


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() != "bearer":
        raise InvalidRequest("Missing Bearer token")
    if not token.strip():
        raise InvalidRequest("Empty Bearer token")
    return token.strip()


def _claims(block: Mapping[str, Any], secret: str, algorithm: str, token: str) -> Mapping[str, Any]:
    if algorithm not in ALGORITHMS:
        raise InvalidRequest(f"Invalid JWT: the algorithm {algorithm[:_MAX_QUOTED_CHARS]} is not supported")
    audience, issuer = _expected_values(block, "audience"), _expected_values(block, "issuer")
    try:
        return jwt.decode(
            token,
            secret,
            algorithms=[algorithm],
            audience=audience,
            issuer=issuer,
            options={"verify_aud": bool(audience), "verify_iss": bool(issuer)},
        )
    except jwt.PyJWTError as error:
        raise InvalidRequest(f"Invalid JWT: {error}") from None
    except (ValueError, TypeError, RecursionError, UnsupportedAlgorithm):  # raised for malformed parts of a token
        raise InvalidRequest("Invalid JWT: it cannot be read with this key") from None


def _expected_values(block: Mapping[str, Any], name: str) -> list[str] | None:
    """Return the allowed values of a claim; None if the setting is missing. Raises InvalidRequest if it is not text."""
    setting = block.get(name)
    if not setting:
        return None
    if not (expected := texts(setting)):
        raise InvalidRequest(f"Invalid JWT: the setting {name} is not a text")
    return expected


def _header_bytes(header: str) -> bytes:
    """Return a header's value as the bytes that were sent."""
    return header.encode("latin-1", "backslashreplace")


def _is_same(actual: bytes, expected: str) -> bool:
    return hmac.compare_digest(actual, expected.encode())
