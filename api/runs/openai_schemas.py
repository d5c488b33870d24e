"""A request of an OpenAI client: the fields of OpenAI's API, and those of a turn beside them.

An agent has its own models and prompts, so most parameters of a model have nothing to act upon. Those that clients send
by default, and that steer only how a model words its answer, are accepted without an effect (`IGNORED`). Those that
would change what the answer is are refused unless they have the value that holds anyway (`NEUTRAL`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from api.http.errors import UnsupportedParameter
from api.http.schemas import Flag, NoEffect, Turn

IGNORED = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "repeat_penalty", "seed", "max_tokens", "max_completion_tokens", "reasoning_effort", "reasoning", "verbosity",
    "parallel_tool_calls", "prediction", "service_tier", "store", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier", "options", "keep_alive", "think",
    "return_trace", "events", "running_hint_text", "agent_id", "openai-compatible",
)  # fmt: skip
"""Parameters without an effect. The last line is of RAGFlow's route, whose body may be one in OpenAI's words."""

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
"""Parameters that change the answer, each with the values that ask for nothing."""


class ChatMessage(BaseModel):
    """A message of an OpenAI request."""

    model_config = ConfigDict(extra="allow", frozen=True)

    role: str
    content: str | list[Any] | None = None

    @property
    def text(self) -> str:
        """The text, joined from the parts of a list."""
        if not isinstance(self.content, list):
            return self.content or ""
        parts = (part for part in self.content if isinstance(part, dict) and part.get("type", "text") == "text")
        return "".join(str(part.get("text") or "") for part in parts)


class StreamOptions(BaseModel):
    """What a stream is to carry beside the answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    include_usage: Flag = False


class ChatCompletion(Turn):
    """An OpenAI request (http-api 4.2). `model` is the agent where the path names none, and else without meaning."""

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
        """The session that goes on, wherever it is named."""
        named = self.metadata.get("id")
        return self.session_id or self.id or (named if isinstance(named, str) else None)

    def options(self) -> dict[str, Any]:
        """The options of a start (scheduler/lifecycle/start_options.py), those that were given. Raises
        InvalidRequest.
        """
        named = {"session_id": self.session, "user_id": self.user_id or self.user}
        return {**super().options(), **{name: value for name, value in named.items() if value}}


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raise UnsupportedParameter for a parameter that would change the answer, and does not here."""
    for name, values in NEUTRAL.items():
        value = body.get(name)
        if value is not None and not any(_equal(value, neutral) for neutral in values):
            raise UnsupportedParameter(
                f"`{name}` is not supported: an agent answers with its own models, tools and formats. "
                "Leave the parameter out.",
                field=name,
            )


def ignored_in(body: Mapping[str, Any]) -> list[str]:
    """The parameters of a request that have no effect."""
    return [name for name in IGNORED[:-2] if body.get(name) is not None]


def _equal(value: Any, other: Any) -> bool:
    """Whether two JSON values are the same; a number is no truth value."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
