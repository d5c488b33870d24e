"""Who we are to AWS, and the frames it streams in: what `botocore` knows, without its way of sending.

An account may name keys (`bedrock_ak`, `bedrock_sk`, `aws_session_token`), a role to take on (`aws_role_arn`), both, or
neither: then whoever this machine is asks (`auth_mode` says the same, and is not needed). A key that is no JSON is an
API key of Bedrock's own, and nothing is signed.
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
from providers.errors import Code, ProviderError
from providers.models.types.chat import ModelSpec
from providers.models.wires.event_stream import json_of
from providers.models.wires.json_post import post_json
from providers.models.wires.openai_sdk import Limits

if TYPE_CHECKING:
    import httpx2

REGION = "us-east-1"
_SESSION_NAME = "easel"
_ROLE_SECONDS = 3600
_EARLY = 300.0  # seconds before its end that a role is taken on anew
_MOST_ROLES = 256  # that a process keeps in mind


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """What requests are signed with."""

    access: str
    secret: str = field(repr=False)
    token: str | None = field(repr=False, default=None)


_roles: OrderedDict[tuple[str, AwsCredentials], tuple[AwsCredentials, float]] = OrderedDict()
"""Keys of roles that were taken on, by role and by who took it on; and until when, on the monotonic clock."""


class AwsSigner:
    """One account's way to sign requests."""

    def __init__(self, spec: ModelSpec, limits: Limits) -> None:
        self._spec = spec
        self._limits = limits
        _botocore(spec)

    async def signed(self, url: str, body: bytes, *, service: str, kind: str = "application/json") -> dict[str, str]:
        """The headers of a POST, with who asks. Raises CallFailed."""
        headers = {"content-type": kind}
        if self._spec.api_key:
            return {**headers, "authorization": f"Bearer {self._spec.api_key}"}
        return _signature(url, body, headers, await self._keys(), service, region_of(self._spec.extra))

    async def _keys(self) -> AwsCredentials:
        own = _keys_in(self._spec) or await asyncio.to_thread(_keys_of_machine)
        role = str(self._spec.extra.get("aws_role_arn") or "")
        if not role:
            return own
        keys, until = _roles.get((role, own), (own, 0.0))
        if time.monotonic() >= until:
            keys = await self._taken_on(role, own)
            _roles[role, own] = keys, time.monotonic() + _ROLE_SECONDS - _EARLY
            while len(_roles) > _MOST_ROLES:
                _roles.popitem(last=False)
        return keys

    async def _taken_on(self, role: str, own: AwsCredentials) -> AwsCredentials:
        """The keys of a role, for an hour."""
        region = region_of(self._spec.extra)
        url = str(self._spec.extra.get("sts_url") or f"https://sts.{region}.amazonaws.com/")
        asked = {
            "Action": "AssumeRole",
            "Version": "2011-06-15",
            "RoleArn": role,
            "RoleSessionName": _SESSION_NAME,
            "DurationSeconds": str(_ROLE_SECONDS),
        }
        body = urlencode(asked).encode()
        headers = _signature(url, body, {"content-type": "application/x-www-form-urlencoded"}, own, "sts", region)
        async with post_json(self._spec, url, headers, body, self._limits) as response:
            return _keys_of_role(await response.aread())


def region_of(extra: Mapping[str, Any]) -> str:
    """Where an account's models are."""
    return str(extra.get("bedrock_region") or extra.get("region") or REGION)


async def frames_of(response: "httpx2.Response") -> AsyncGenerator[tuple[Mapping[str, Any], Any], None]:
    """The frames of a stream: their headers, and their JSON. Raises CallFailed for what is none, or is damaged."""
    from botocore.eventstream import EventStreamBuffer, ParserError

    buffer = EventStreamBuffer()
    try:
        async for part in response.aiter_bytes():
            buffer.add_data(part)
            for frame in buffer:
                yield frame.headers, json_of(frame.payload) if frame.payload else {}
    except ParserError as problem:
        raise ProviderError(Code.SERVER_ERROR, "The provider sent a reply that is no stream of events.") from problem


def _botocore(spec: ModelSpec) -> None:
    if find_spec("botocore") is None:
        raise ModelError(
            f"Models of {spec.factory} need the package botocore. Install easel[bedrock] (model {spec.name}).",
            kind="MODEL_ERROR",
            provider=spec.factory,
            model=spec.name,
        )


def _keys_in(spec: ModelSpec) -> AwsCredentials | None:
    access, secret = spec.extra.get("bedrock_ak"), spec.extra.get("bedrock_sk")
    if not access or not secret:
        return None
    return AwsCredentials(str(access), str(secret), spec.extra.get("aws_session_token"))


def _keys_of_machine() -> AwsCredentials:
    """From the environment, the files or the metadata service of this machine. May read those, and renews what ends."""
    frozen = credentials_of_machine().get_frozen_credentials()
    return AwsCredentials(str(frozen.access_key), str(frozen.secret_key), frozen.token)


@cache
def credentials_of_machine() -> Any:
    """Who this machine is, as AWS' own tools find it; once per process. Raises CallFailed."""
    from botocore.session import Session

    found = Session().get_credentials()
    if found is None:
        raise ProviderError(Code.AUTH_ERROR, "The account names no AWS keys, and this machine has none of its own.")
    return found


def _signature(
    url: str, body: bytes, headers: Mapping[str, str], keys: AwsCredentials, service: str, region: str
) -> dict[str, str]:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("POST", url, data=body, headers=dict(headers))
    SigV4Auth(Credentials(keys.access, keys.secret, keys.token), service, region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def _keys_of_role(content: bytes) -> AwsCredentials:
    """From a small document of AWS' own, in which these three names stand once."""
    text = content.decode(errors="replace")
    access, secret, token = (
        found[1].strip() if (found := re.search(rf"<{name}>([^<]+)</{name}>", text)) else ""
        for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")
    )
    if not access or not secret or not token:
        raise ProviderError(Code.AUTH_ERROR, "AWS' answer about a role holds no keys.")
    return AwsCredentials(access, secret, token)
