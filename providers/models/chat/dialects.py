"""Over which wire a model is asked: the vendor's own, or another one that the account names as `dialect`.

`openai` is what most speak. Whoever's base URL ends in `/openai` offers that wire there, whatever else it speaks.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, assert_never
from urllib.parse import urlsplit, urlunsplit

from canvas.errors import ModelError
from providers.models.chat.retrying_model import ModelTransport
from providers.models.types.chat import ModelSpec
from providers.models.vendors.vendors import UNLISTED, Vendor, vendors
from providers.models.wires.anthropic import AnthropicWire
from providers.models.wires.aws import region_of
from providers.models.wires.bedrock import BedrockWire
from providers.models.wires.gemini import GeminiWire
from providers.models.wires.openai import OpenAIWire
from providers.models.wires.openai_sdk import HeaderObserver, Limits


class Dialect(StrEnum):
    """The wires we speak."""

    OPENAI = "openai"
    AZURE = "azure"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    BEDROCK = "bedrock"


_VERSIONS = {Dialect.OPENAI: "v1", Dialect.ANTHROPIC: "v1", Dialect.GEMINI: "v1beta"}
"""What is appended to a base URL that names no version, where the wire has one in its paths."""


def dialect_of(factory: str, vendor: Vendor, extra: Mapping[str, Any], base_url: str | None) -> Dialect:
    """The wire for an account. Raises ModelError for one that nobody knows."""
    own = extra.get("dialect")
    if (
        own is None
        and vendor.dialect != Dialect.OPENAI
        and urlsplit(base_url or "").path.rstrip("/").endswith("/openai")
    ):
        return Dialect.OPENAI
    try:
        return Dialect(own or vendor.dialect)
    except ValueError as problem:
        known = ", ".join(Dialect)
        raise ModelError(
            f'The account of provider {factory} names the dialect "{own}". There is: {known}.', kind="MODEL_ERROR"
        ) from problem


def base_of(dialect: Dialect, base_url: str) -> str:
    """A configured base URL as requests need it."""
    version = _VERSIONS.get(dialect)
    return with_version(base_url, version) if version else base_url.strip().rstrip("/")


def usual_base(dialect: Dialect, vendor: Vendor, spec_extra: Mapping[str, Any]) -> str | None:
    """Where a vendor answers whose account does not say; None if only the account could."""
    if dialect is Dialect.BEDROCK:
        return f"https://bedrock-runtime.{region_of(spec_extra)}.amazonaws.com"
    if dialect is Dialect.OPENAI and vendor.openai_url:
        return vendor.openai_url
    return vendor.base_url


def spoken_by(spec: ModelSpec) -> Dialect:
    """The wire of a resolved model."""
    return dialect_of(spec.factory, vendors().get(spec.factory, UNLISTED), spec.extra, spec.base_url)


def wire_to(spec: ModelSpec, limits: Limits, *, hears: HeaderObserver | None = None) -> ModelTransport:
    """The wire to a resolved model. Raises ModelError where a package for it is missing.

    `hears` is told what is said beside an answer, where the vendor says there what is left of a limit.
    """
    vendor = vendors().get(spec.factory, UNLISTED)
    dialect = spoken_by(spec)
    match dialect:
        case Dialect.OPENAI | Dialect.AZURE:
            return OpenAIWire(spec, vendor.manners, limits, is_azure=dialect is Dialect.AZURE, hears=hears)
        case Dialect.ANTHROPIC:
            return AnthropicWire(spec, vendor.manners, limits, vendor.answer_of(spec.name), hears=hears)
        case Dialect.GEMINI:
            return GeminiWire(spec, vendor.manners, limits, hears=hears)
        case Dialect.BEDROCK:
            return BedrockWire(spec, vendor.manners, limits, hears=hears)
        case _:
            assert_never(dialect)


def with_version(base_url: str, version: str = "v1") -> str:
    """A configured base URL; the version is appended unless some path segment is one already."""
    parts = urlsplit(base_url.strip())
    path = parts.path.rstrip("/")
    if not any(re.match(r"v\d", segment) for segment in path.split("/")):
        path += f"/{version}"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
