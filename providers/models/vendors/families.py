"""Adapts generation parameters to a model family: which ones are sent, and under which names.

Canvases use one set of parameters for all models, but providers refuse parameters that a model family does not support.
`families.toml` lists for each family which parameters to drop or set, and how to turn thinking on and off. An account
may define `families` of its own, and drop or set parameters for all its models with `drop_params` and `set_params`.
Parameters of a canvas that are not in `_ALLOWED` are never sent.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, assert_never

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator

from canvas.errors import ModelError

_SAMPLING = frozenset({"temperature", "top_p", "seed", "n", "logit_bias"})
_PENALTIES = frozenset({"presence_penalty", "frequency_penalty"})
_PROBABILITIES = frozenset({"logprobs", "top_logprobs"})
_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "stop"})
_FORMAT_PARAMS = frozenset({"response_format", "tool_choice", "reasoning_effort", "user"})
_ALLOWED = _SAMPLING | _PENALTIES | _PROBABILITIES | _LIMITS | _FORMAT_PARAMS
_VERY_LARGE_BILLIONS = 200  # billion parameters


class ThinkingSwitch(StrEnum):
    """How a model's thinking is turned on and off."""

    NONE = "none"  # not supported: the author's choice is dropped
    FLAG = "flag"  # enable_thinking: true | false
    TEMPLATE = "template"  # the flag inside chat_template_kwargs, for servers that render the prompt themselves
    TYPE = "type"  # thinking: {type: enabled | disabled}


class ModelFamily(BaseModel):
    """A block of families.toml: models whose names match a pattern. The comment at its top explains the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern: str = ""
    drop: frozenset[str] = frozenset()
    set: Mapping[str, Any] = {}
    switch: ThinkingSwitch = ThinkingSwitch.NONE
    thinks_by_default: bool | None = None
    always_thinks: str = ""

    @field_validator("pattern", "always_thinks")
    @classmethod
    def _is_expression(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as problem:
            raise ValueError(f"{value!r} is not a valid regular expression: {problem}") from problem
        return value

    def matches(self, model: str) -> bool:
        """Return whether the model belongs to this family."""
        return re.match(self.pattern, _plain_name(model)) is not None


_FAMILY_LIST = TypeAdapter(list[ModelFamily])


@dataclass(frozen=True, slots=True)
class ParameterRules:
    """The rules of a vendor's endpoint, which apply to all its models."""

    limit_field: str = "max_completion_tokens"  # the parameter that limits the length of an answer
    # supported ways to turn thinking on and off; others may be refused
    switches: frozenset[ThinkingSwitch] = frozenset()


@dataclass(frozen=True, slots=True)
class WireParams:
    """Generation parameters as they are sent: `body` has fields of OpenAI's API, `extra` fields of the vendor."""

    body: dict[str, Any]
    extra: dict[str, Any]


def wire_params(model: str, params: Mapping[str, Any], rules: ParameterRules, account: Mapping[str, Any]) -> WireParams:
    """Return the parameters of a request to `model`, renamed, dropped and set as its family and vendor require.

    `account` may contain `drop_params` (a list) and `set_params` (a table), which are applied last.
    """
    family = _family(model, account)
    body = {name: value for name, value in params.items() if name in _ALLOWED and value is not None}
    limit = body.pop("max_tokens", None) or body.pop("max_completion_tokens", None)
    if limit:
        body[rules.limit_field] = limit
    body = {name: value for name, value in body.items() if name not in family.drop} | dict(family.set)
    dropped = account.get("drop_params") or ()
    body = {name: value for name, value in body.items() if name not in dropped}
    own = account.get("set_params") or {}
    thinking = _thinking(model, family, params.get("thinking"), rules)
    return WireParams(
        body | {name: value for name, value in own.items() if name in _ALLOWED},
        thinking | {name: value for name, value in own.items() if name not in _ALLOWED},
    )


@cache
def families() -> tuple[ModelFamily, ...]:
    """Return the families of families.toml, read once per process."""
    table = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))
    return tuple(ModelFamily.model_validate(block) for block in table["family"])


def own_families(account: Mapping[str, Any]) -> tuple[ModelFamily, ...]:
    """Return the families that an account defines in `families`. Raises ModelError if they are not valid."""
    blocks = account.get("families")
    if not blocks:
        return ()
    try:
        return tuple(_FAMILY_LIST.validate_python(blocks))
    except ValidationError as problem:
        first = problem.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        message = f"The account's families cannot be used, {where or 'families'}: {first['msg']}"
        raise ModelError(message, kind="MODEL_ERROR") from problem


def _family(model: str, account: Mapping[str, Any]) -> ModelFamily:
    own = next((family for family in own_families(account) if family.matches(model)), None)
    return own or _builtin_family(model)


@lru_cache(maxsize=256)
def _builtin_family(model: str) -> ModelFamily:
    return next((family for family in families() if family.matches(model)), ModelFamily())


def _thinking(model: str, family: ModelFamily, chosen: Any, manners: ParameterRules) -> dict[str, Any]:
    on = {"enabled": True, "disabled": False}.get(str(chosen).lower(), family.thinks_by_default)
    if family.always_thinks and (re.search(family.always_thinks, _plain_name(model)) or _is_very_large(model)):
        on = True
    switch = family.switch
    if switch is ThinkingSwitch.FLAG and ThinkingSwitch.FLAG not in manners.switches:
        switch = ThinkingSwitch.TEMPLATE
    if on is None or switch not in manners.switches:
        return {}
    match switch:
        case ThinkingSwitch.FLAG:
            return {"enable_thinking": on}
        case ThinkingSwitch.TEMPLATE:
            return {"chat_template_kwargs": {"enable_thinking": on}}
        case ThinkingSwitch.TYPE:
            return {"thinking": {"type": "enabled" if on else "disabled"}}
        case ThinkingSwitch.NONE:
            return {}
        case _:
            assert_never(switch)


def _plain_name(model: str) -> str:
    return model.lower().rpartition("/")[2]


def _is_very_large(model: str) -> bool:
    sizes = re.findall(r"(?<![a-z\d])(\d+)b(?![a-z\d])", _plain_name(model))
    return any(int(size) >= _VERY_LARGE_BILLIONS for size in sizes)
