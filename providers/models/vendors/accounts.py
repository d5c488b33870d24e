"""A tenant's accounts with model vendors, and the reader of the accounts file."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import ConfigDict, Field, ValidationError, field_validator

from canvas.errors import ModelError
from providers.rate_limits import RateLimits

KINDS = ("chat", "embedding", "asr", "vision", "rerank", "tts", "ocr")  # as bits: 1, 2, 4, ... in this order
_LEGACY_KINDS = {"speech2text": "asr", "image2text": "vision"}
_REFERENCE = re.compile(r"\$\{env:([A-Za-z_]\w*)\}")


class AccountModel(RateLimits):
    """A model that an account enables. Fields that are None come from the vendor table.

    A model with rate limits of its own does not share the limits of its account.
    """

    model_config = ConfigDict(frozen=True)

    kinds: frozenset[str] = frozenset({"chat"})
    context_tokens: int | None = Field(default=None, gt=0)
    is_tools: bool | None = None
    status: str = "active"  # active, inactive, unsupported
    id: str = ""  # id of the stored row; a canvas may name the model by it

    @field_validator("kinds", mode="before")
    @classmethod
    def _parse_kinds(cls, kinds: Any) -> Any:
        return kinds_of(kinds) if isinstance(kinds, int | str | list) else kinds


@dataclass(frozen=True, slots=True)
class VendorAccount:
    """A tenant's access to one vendor. Without `models` every chat model of the vendor is enabled."""

    factory: str
    instance: str = "default"
    base_url: str | None = None
    api_key: str = field(repr=False, default="")
    models: Mapping[str, AccountModel] = field(default_factory=dict[str, AccountModel])
    status: str = "active"
    extra: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])
    rate_limits: RateLimits = field(default_factory=RateLimits)  # shared by all its models
    owner: str = ""  # the tenant that owns the account; "": all tenants


def accounts_from_toml(path: Path, environment: Mapping[str, str] | None = None) -> list[VendorAccount]:
    """Read accounts from a file of `[[account]]` blocks, each with models as `[account.models."name"]`.

    `${env:NAME}` in any text is replaced by an environment variable, so that the file need not contain keys.
    Raises ModelError.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ModelError(f"The model accounts in {path} cannot be read: {problem}") from problem
    blocks = document.get("account", [])
    if not isinstance(blocks, list):
        raise ModelError(f"The model accounts in {path} must be written as [[account]] blocks.")
    filled = _fill_references(blocks, os.environ if environment is None else environment, path)
    return [_account(block, number, path) for number, block in enumerate(filled, 1)]


def kinds_of(value: int | str | Sequence[str]) -> frozenset[str]:
    """Return model kinds from stored bits, one name, or several names; legacy names are accepted."""
    if isinstance(value, int):
        return frozenset(kind for bit, kind in enumerate(KINDS) if value >> bit & 1)
    names = [value] if isinstance(value, str) else value
    return frozenset(_LEGACY_KINDS.get(name, name) for name in names)


def split_api_key(api_key: str) -> tuple[str, dict[str, Any]]:
    """Return the API key and further fields, from a stored key that may be a JSON object with both."""
    if not api_key.lstrip().startswith("{"):
        return api_key.strip(), {}
    try:
        payload = orjson.loads(api_key)
    except orjson.JSONDecodeError:
        return api_key.strip(), {}
    return str(payload.pop("api_key", "")), payload


class _AccountBlock(RateLimits):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    factory: str = Field(min_length=1)
    instance: str = "default"
    base_url: str | None = None
    api_key: str = ""
    models: dict[str, AccountModel] = Field(default={})
    status: str = "active"
    extra: dict[str, Any] = Field(default={})


def _account(block: Any, number: int, path: Path) -> VendorAccount:
    try:
        read = _AccountBlock.model_validate(block)
    except ValidationError as problem:
        first = problem.errors(include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ModelError(f"Account {number} in {path}, field {where}: {first['msg']}") from None
    rates = RateLimits.from_fields(read.limits_by_name)
    return VendorAccount(
        read.factory, read.instance, read.base_url, read.api_key, read.models, read.status, read.extra, rates
    )


def _fill_references(value: Any, environment: Mapping[str, str], path: Path) -> Any:
    match value:
        case str():
            return _REFERENCE.sub(lambda found: _variable(found.group(1), environment, path), value)
        case list():
            return [_fill_references(item, environment, path) for item in value]
        case dict():
            return {name: _fill_references(item, environment, path) for name, item in value.items()}
        case _:
            return value


def _variable(name: str, environment: Mapping[str, str], path: Path) -> str:
    if name not in environment:
        raise ModelError(f"{path} refers to the environment variable {name}, which is not set. Set it.")
    return environment[name]
