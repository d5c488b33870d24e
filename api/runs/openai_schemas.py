"""Schemas of OpenAI requests: the fields of OpenAI's API, and those of a turn.

An agent has its own models and prompts, so most model parameters have no effect. Parameters that clients send by
default, and that only influence the wording of an answer, are accepted without an effect (`IGNORED`). Parameters that
would change the kind of answer are refused unless they have their neutral value (`NEUTRAL`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from api.http.errors import UnsupportedParameter
from api.http.schemas import Flag, NoEffect, TurnBody
from canvas.errors import InvalidRequest

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


READ_ROLES = ("user", "assistant")  # of messages; an agent has its own prompts and tools


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


class OpenAITurnBody(TurnBody):
    """A turn of an OpenAI client. `model` is the agent if the path names none; otherwise it has no effect."""

    model: str | None = None
    stream: Flag = False
    user: str | None = Field(default=None, description="The same as `user_id`")
    metadata: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Up to 16 texts by name, stored with the run and given back"
    )

    @property
    def session(self) -> str | None:
        """The session to continue, from any of the fields that can name it."""
        return self.session_id

    def options(self) -> dict[str, Any]:
        """Return the given options of a start (scheduler/lifecycle/start_options.py). Raises InvalidRequest."""
        check_metadata(self.metadata)
        named = {"session_id": self.session, "user_id": self.user_id or self.user, "metadata": self.metadata}
        return {**super().options(), **{name: value for name, value in named.items() if value}}


class ChatCompletionBody(OpenAITurnBody):
    """A request for a chat completion."""

    without_effect: ClassVar[NoEffect] = {**dict.fromkeys(IGNORED, ()), **NEUTRAL}

    messages: list[ChatMessage] = Field(default_factory=list[ChatMessage])
    stream_options: StreamOptions = StreamOptions()
    id: str | None = Field(default=None, description="The same as `session_id`, as is `id` of `metadata`")

    @property
    def session(self) -> str | None:
        """The session to continue, from any of the fields that can name it."""
        named = self.metadata.get("id")
        return self.session_id or self.id or (named if isinstance(named, str) else None)


MAX_METADATA = 16  # pairs, as in OpenAI's API
MAX_METADATA_NAME = 64  # characters
MAX_METADATA_TEXT = 512


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for metadata beyond OpenAI's limits: 16 texts of 512 characters, names of 64."""
    if len(metadata) > MAX_METADATA:
        raise InvalidRequest(f"`metadata` may have {MAX_METADATA} members, and has {len(metadata)}.", field="metadata")
    for name, value in metadata.items():
        where = f"metadata.{name[:MAX_METADATA_NAME]}"
        if len(name) > MAX_METADATA_NAME:
            message = f"A name in `metadata` may have {MAX_METADATA_NAME} characters. `{where}…` has {len(name)}."
            raise InvalidRequest(message, field=where)
        if not isinstance(value, str) or len(value) > MAX_METADATA_TEXT:
            raise InvalidRequest(f"`{where}` must be a text of at most {MAX_METADATA_TEXT} characters.", field=where)


def refuse_unsupported(body: Mapping[str, Any], neutral_values: NoEffect = NEUTRAL) -> None:
    """Raise UnsupportedParameter for a parameter that would change the kind of answer."""
    for name, values in neutral_values.items():
        value = body.get(name)
        if value is not None and not any(_equal(value, neutral) for neutral in values):
            raise UnsupportedParameter(
                f"`{name}` is not supported: an agent answers with its own models, tools and formats. "
                "Leave the parameter out.",
                field=name,
            )


def find_ignored(body: Mapping[str, Any], ignored: Sequence[str] = IGNORED[:-2]) -> list[str]:
    """Return the parameters of a request that have no effect."""
    return [name for name in ignored if body.get(name) is not None]


def find_ignored_roles(messages: Iterable[ChatMessage], where: str) -> list[str]:
    """Return the roles of messages that are left out, once each: `messages.system`."""
    left_out = dict.fromkeys(message.role for message in messages if message.role not in READ_ROLES)
    return [f"{where}.{role[:32]}" for role in left_out if role.isidentifier()]


def _equal(value: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; 1 and true are not."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
