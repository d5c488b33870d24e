"""What is set for a sandbox, as a provider's own settings check it (tools 3.3)."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from canvas.errors import ToolError


class SandboxSettings(BaseModel):
    """Settings of one provider. Secrets show neither in its repr nor in what it says about a value it refuses."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class InvalidSandboxSettings(ToolError):
    """A provider refuses its settings. The message has the fields' names and never their values."""

    code = "sandbox_refused"


S = TypeVar("S", bound=SandboxSettings)


def read_settings(kind: type[S], provider: str, text: str, **given: Any) -> S:
    """The settings that a JSON object describes, `given` where it says nothing. Raises Refused."""
    try:
        told = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidSandboxSettings(
            f"The sandbox provider {provider} refuses its settings: they are no JSON."
        ) from error
    if not isinstance(told, dict):
        raise InvalidSandboxSettings(f"The sandbox provider {provider} refuses its settings: they are no JSON object.")
    try:
        return kind.model_validate(given | told)
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'all'}: {each['msg']}" for each in error.errors())
        raise InvalidSandboxSettings(f"The sandbox provider {provider} refuses its settings: {reasons}.") from error
