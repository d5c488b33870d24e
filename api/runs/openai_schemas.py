"""Schemas of OpenAI requests: the fields of OpenAI's API, and those of a turn.

An agent has its own models and prompts, so most model parameters have no effect. Parameters that clients send by
default, and that only influence the wording of an answer, are accepted without an effect (`IGNORED`). Parameters that
would change the kind of answer are refused unless they have their neutral value (`NEUTRAL`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from api.http.errors import UnsupportedParameter
from api.http.schemas import Flag, NoEffect, TurnBody

IGNORED = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "repeat_penalty", "seed", "max_tokens", "max_completion_tokens", "reasoning_effort", "reasoning", "verbosity",
    "parallel_tool_calls", "prediction", "service_tier", "store", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier", "options", "keep_alive", "think",
    "return_trace", "events", "running_hint_text", "agent_id", "openai-compatible",
)  # fmt: skip
"""Parameters without an effect. The last line is for RAGFlow's route, whose body may have OpenAI's format."""

NEUTRAL: NoEffect = {
    "n": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "stop": ([], ""),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
}
"""Parameters that change the kind of answer, each with its neutral values."""


class ChatMessage(BaseModel):
    """A message of an OpenAI request."""

    model_config = ConfigDict(extra="allow", frozen=True)

    role: str
    content: str | list[Any] | None = None

    @property
    def text(self) -> str:
        """The text of the message; of a list, that of its parts, joined."""
        if not isinstance(self.content, list):
            return self.content or ""
        parts = (part for part in self.content if isinstance(part, dict) and part.get("type", "text") == "text")
        return "".join(str(part.get("text") or "") for part in parts)


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    include_usage: Flag = False


class ChatCompletionBody(TurnBody):
    """An OpenAI request. `model` is the agent if the path names none; otherwise it has no effect."""

    without_effect: ClassVar[NoEffect] = {**dict.fromkeys(IGNORED, ()), **NEUTRAL}

    messages: list[ChatMessage] = Field(default_factory=list[ChatMessage])
    model: str | None = None
    stream: Flag = False
    stream_options: StreamOptions = StreamOptions()
    user: str | None = Field(default=None, description="The same as `user_id`")
    id: str | None = Field(default=None, description="The same as `session_id`")
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any], description="`id` is the same as `session_id`")

    @property
    def session(self) -> str | None:
        """The session to continue, from any of the fields that can name it."""
        named = self.metadata.get("id")
        return self.session_id or self.id or (named if isinstance(named, str) else None)

    def options(self) -> dict[str, Any]:
        """Return the given options of a start (scheduler/lifecycle/start_options.py). Raises InvalidRequest."""
        named = {"session_id": self.session, "user_id": self.user_id or self.user}
        return {**super().options(), **{name: value for name, value in named.items() if value}}


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raise UnsupportedParameter for a parameter that would change the kind of answer."""
    for name, values in NEUTRAL.items():
        value = body.get(name)
        if value is not None and not any(_equal(value, neutral) for neutral in values):
            raise UnsupportedParameter(
                f"`{name}` is not supported: an agent answers with its own models, tools and formats. "
                "Leave the parameter out.",
                field=name,
            )


def find_ignored(body: Mapping[str, Any]) -> list[str]:
    """Return the parameters of a request that have no effect."""
    return [name for name in IGNORED[:-2] if body.get(name) is not None]


def _equal(value: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; 1 and true are not."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
