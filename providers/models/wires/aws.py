"""AWS credentials, signatures and stream frames, from `botocore` but without its HTTP client.

An account may set keys (`bedrock_ak`, `bedrock_sk`, `aws_session_token`), a role to assume (`aws_role_arn`), both, or
neither; without keys the credentials of this machine are used (`auth_mode` is not needed). An API key that is not JSON
is a Bedrock API key, and requests are not signed.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from canvas.errors import ModelError
from providers.errors import ErrorCode, ProviderError
from providers.models.types.chat import ModelSpec
from providers.models.wires.event_stream import parse_json
from providers.models.wires.json_post import post_json
from providers.models.wires.openai_sdk import RequestLimits

if TYPE_CHECKING:
    import httpx2

REGION = "us-east-1"
_SESSION_NAME = "easel"
_ROLE_SECONDS = 3600
_RENEW_BEFORE = 300.0  # seconds before their expiry that the credentials of a role are renewed
_MAX_ROLES = 256  # roles that a process caches


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """The credentials that requests are signed with."""

    access: str
    secret: str = field(repr=False)
    token: str | None = field(repr=False, default=None)


_roles: OrderedDict[tuple[str, AwsCredentials], tuple[AwsCredentials, float]] = OrderedDict()
"""Credentials of assumed roles, by role and own credentials, with their expiry on the monotonic clock."""


class AwsSigner:
    """Signs the requests of one account."""

    def __init__(self, spec: ModelSpec, limits: RequestLimits) -> None:
        self._spec = spec
        self._limits = limits
        _require_botocore(spec)

    async def sign(self, url: str, body: bytes, *, service: str, kind: str = "application/json") -> dict[str, str]:
        """Return the headers of a POST, including its signature. Raises ProviderError."""
        headers = {"content-type": kind}
        if self._spec.api_key:
            return {**headers, "authorization": f"Bearer {self._spec.api_key}"}
        return _sign_request(url, body, headers, await self._credentials(), service, region_of(self._spec.extra))

    async def _credentials(self) -> AwsCredentials:
        own = _account_credentials(self._spec) or await asyncio.to_thread(_machine_credentials)
        role = str(self._spec.extra.get("aws_role_arn") or "")
        if not role:
            return own
        keys, until = _roles.get((role, own), (own, 0.0))
        if time.monotonic() >= until:
            keys = await self._assume_role(role, own)
            _roles[role, own] = keys, time.monotonic() + _ROLE_SECONDS - _RENEW_BEFORE
            while len(_roles) > _MAX_ROLES:
                _roles.popitem(last=False)
        return keys

    async def _assume_role(self, role: str, own: AwsCredentials) -> AwsCredentials:
        """Assume a role and return its credentials, which are valid for an hour."""
        region = region_of(self._spec.extra)
        url = str(self._spec.extra.get("sts_url") or f"https://sts.{region}.amazonaws.com/")
        form = {
            "Action": "AssumeRole",
            "Version": "2011-06-15",
            "RoleArn": role,
            "RoleSessionName": _SESSION_NAME,
            "DurationSeconds": str(_ROLE_SECONDS),
        }
        body = urlencode(form).encode()
        headers = _sign_request(url, body, {"content-type": "application/x-www-form-urlencoded"}, own, "sts", region)
        async with post_json(self._spec, url, headers, body, self._limits) as response:
            return _role_credentials(await response.aread())


def region_of(extra: Mapping[str, Any]) -> str:
    """Return the AWS region of an account."""
    return str(extra.get("bedrock_region") or extra.get("region") or REGION)


async def frames_of(response: "httpx2.Response") -> AsyncGenerator[tuple[Mapping[str, Any], Any], None]:
    """Yield the frames of a stream as (headers, JSON). Raises ProviderError for invalid or damaged frames."""
    from botocore.eventstream import EventStreamBuffer, ParserError

    buffer = EventStreamBuffer()
    try:
        async for part in response.aiter_bytes():
            buffer.add_data(part)
            for frame in buffer:
                yield frame.headers, parse_json(frame.payload) if frame.payload else {}
    except ParserError as problem:
        raise ProviderError(
            ErrorCode.SERVER_ERROR, "The provider sent a reply that is not an event stream."
        ) from problem


def _require_botocore(spec: ModelSpec) -> None:
    if find_spec("botocore") is None:
        raise ModelError(
            f"Models of {spec.factory} need the package botocore. Install easel[bedrock] (model {spec.name}).",
            kind="MODEL_ERROR",
            provider=spec.factory,
            model=spec.name,
        )


def _account_credentials(spec: ModelSpec) -> AwsCredentials | None:
    access, secret = spec.extra.get("bedrock_ak"), spec.extra.get("bedrock_sk")
    if not access or not secret:
        return None
    return AwsCredentials(str(access), str(secret), spec.extra.get("aws_session_token"))


def _machine_credentials() -> AwsCredentials:
    """Return the credentials of this machine's environment, files or metadata service; may do I/O to renew them."""
    frozen = find_machine_credentials().get_frozen_credentials()
    return AwsCredentials(str(frozen.access_key), str(frozen.secret_key), frozen.token)


@cache
def find_machine_credentials() -> Any:
    """Return the botocore credentials of this machine, found once per process. Raises ProviderError."""
    from botocore.session import Session

    credentials = Session().get_credentials()
    if credentials is None:
        raise ProviderError(
            ErrorCode.AUTH_ERROR,
            "The account has no AWS keys, and this machine has no AWS credentials. Set either of them.",
        )
    return credentials


def _sign_request(
    url: str, body: bytes, headers: Mapping[str, str], keys: AwsCredentials, service: str, region: str
) -> dict[str, str]:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("POST", url, data=body, headers=dict(headers))
    SigV4Auth(Credentials(keys.access, keys.secret, keys.token), service, region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def _role_credentials(content: bytes) -> AwsCredentials:
    """Read the credentials from the XML answer of AssumeRole, which contains each of these three names once."""
    text = content.decode(errors="replace")
    access, secret, token = (
        found[1].strip() if (found := re.search(rf"<{name}>([^<]+)</{name}>", text)) else ""
        for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")
    )
    if not access or not secret or not token:
        raise ProviderError(ErrorCode.AUTH_ERROR, "The AWS answer to AssumeRole contains no credentials.")
    return AwsCredentials(access, secret, token)
