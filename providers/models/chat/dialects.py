"""Selects the wire of a model: the vendor's own protocol, or another one that the account sets as `dialect`.

Most vendors use `openai`. A base URL that ends in `/openai` also selects that wire, for any vendor.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, assert_never
from urllib.parse import urlsplit, urlunsplit

from canvas.errors import ModelError
from providers.models.types.chat import ModelSpec, Wire
from providers.models.vendors.vendors import UNLISTED, Vendor, vendors
from providers.models.wires.anthropic import AnthropicWire
from providers.models.wires.aws import region_of
from providers.models.wires.bedrock import BedrockWire
from providers.models.wires.gemini import GeminiWire
from providers.models.wires.openai import OpenAIWire
from providers.models.wires.openai_sdk import HeaderObserver, RequestLimits


class Dialect(StrEnum):
    """The supported protocols."""

    OPENAI = "openai"
    AZURE = "azure"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    BEDROCK = "bedrock"


_VERSIONS = {Dialect.OPENAI: "v1", Dialect.ANTHROPIC: "v1", Dialect.GEMINI: "v1beta"}
"""The version that is appended to a base URL without one, for wires that have a version in their paths."""


def dialect_of(factory: str, vendor: Vendor, extra: Mapping[str, Any], base_url: str | None) -> Dialect:
    """Return the dialect of an account. Raises ModelError for an unknown one."""
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
            f'The dialect "{own}" in the account of provider {factory} is not known. Use one of: {known}.',
            kind="MODEL_ERROR",
        ) from problem


def normalize_base_url(dialect: Dialect, base_url: str) -> str:
    """Return a configured base URL in the form that requests need."""
    version = _VERSIONS.get(dialect)
    return with_version(base_url, version) if version else base_url.strip().rstrip("/")


def default_base_url(dialect: Dialect, vendor: Vendor, spec_extra: Mapping[str, Any]) -> str | None:
    """Return the base URL for an account that sets none; None if the account has to set one."""
    if dialect is Dialect.BEDROCK:
        return f"https://bedrock-runtime.{region_of(spec_extra)}.amazonaws.com"
    if dialect is Dialect.OPENAI and vendor.openai_url:
        return vendor.openai_url
    return vendor.base_url


def dialect_of_spec(spec: ModelSpec) -> Dialect:
    """Return the dialect of a resolved model."""
    return dialect_of(spec.factory, vendors().get(spec.factory, UNLISTED), spec.extra, spec.base_url)


def open_wire(spec: ModelSpec, limits: RequestLimits, *, observe_headers: HeaderObserver | None = None) -> Wire:
    """Return the wire of a resolved model. Raises ModelError if a package for it is missing.

    `observe_headers` is called with the headers of each response, in which vendors report what is left of a rate limit.
    """
    vendor = vendors().get(spec.factory, UNLISTED)
    dialect = dialect_of_spec(spec)
    match dialect:
        case Dialect.OPENAI | Dialect.AZURE:
            return OpenAIWire(
                spec, vendor.parameter_rules, limits, is_azure=dialect is Dialect.AZURE, observe_headers=observe_headers
            )
        case Dialect.ANTHROPIC:
            return AnthropicWire(
                spec, vendor.parameter_rules, limits, vendor.answer_of(spec.name), observe_headers=observe_headers
            )
        case Dialect.GEMINI:
            return GeminiWire(spec, vendor.parameter_rules, limits, observe_headers=observe_headers)
        case Dialect.BEDROCK:
            return BedrockWire(spec, vendor.parameter_rules, limits, observe_headers=observe_headers)
        case _:
            assert_never(dialect)


def with_version(base_url: str, version: str = "v1") -> str:
    """Return a base URL with the version appended, unless a segment of its path is a version already."""
    parts = urlsplit(base_url.strip())
    path = parts.path.rstrip("/")
    if not any(re.match(r"v\d", segment) for segment in path.split("/")):
        path += f"/{version}"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
