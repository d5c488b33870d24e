"""Reads and validates the settings of a sandbox provider."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from canvas.errors import ToolError


class SandboxSettings(BaseModel):
    """Base class for the settings of a provider. Neither the repr nor validation errors contain secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class InvalidSandboxSettings(ToolError):
    """The settings of a provider are invalid. The message contains the names of the fields and never their values."""

    code = "sandbox_refused"


S = TypeVar("S", bound=SandboxSettings)


def read_settings(kind: type[S], provider: str, text: str, **defaults: Any) -> S:
    """Return the settings in a JSON object, completed by `defaults`. Raises InvalidSandboxSettings."""
    try:
        values = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidSandboxSettings(
            f"The sandbox provider {provider} refuses its settings: they are not valid JSON."
        ) from error
    if not isinstance(values, dict):
        raise InvalidSandboxSettings(
            f"The sandbox provider {provider} refuses its settings: they are not a JSON object."
        )
    try:
        return kind.model_validate(defaults | values)
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'all'}: {each['msg']}" for each in error.errors())
        raise InvalidSandboxSettings(f"The sandbox provider {provider} refuses its settings: {reasons}.") from error
