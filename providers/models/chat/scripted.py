"""The built-in model `scripted`, which answers from a list of rules, for tests, conformance cases and recorded runs.

A request is answered by the first rule whose conditions all hold and whose `times` is not used up.

    {"model", "system", "user", "last", "last_role", "any", "times",           conditions, all of them optional
     "reply", "reasoning", "tool_calls", "error", "error_after", "delay_ms"}   the answer

Conditions on texts are matchers: a text (is contained), a list (all match), `{"regex"}` (searched, the dot matches
line breaks), `{"equals"}`, `{"not": matcher}`. `system` tests all system messages, `user` the last user message, `last`
the last message of any role, `any` all contents, joined by line breaks.
"""

import asyncio
import copy
import json
import re
import threading
import tomllib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from canvas.errors import ModelError
from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.text.context_window import text_of
from providers.models.types.chat import (
    CallsDelta,
    ChatRequest,
    ContentDelta,
    Delta,
    ModelSpec,
    ReasoningDelta,
    ToolCall,
)

_FIRST_DELTA_LENGTH, _DELTA_LENGTH = 8, 5  # characters
_CONTEXT_TOKENS = 131072


def _check_matcher(matcher: Any) -> Any:
    is_match(matcher, "")
    return matcher


Matcher = Annotated[Any, AfterValidator(_check_matcher)]


class ScriptedToolCall(BaseModel):
    """A tool call of a scripted answer. Arguments that are not a text are sent as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    arguments: Any = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the arguments as text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


class ScriptRule(BaseModel):
    """A rule of a script: its conditions and its answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    system: Matcher = None
    user: Matcher = None
    last: Matcher = None
    last_role: str | None = None
    any: Matcher = None
    times: int | None = Field(default=None, ge=0)
    reply: str = ""
    reasoning: str = ""
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    error: str | None = None
    error_after: str | None = None
    delay_ms: float = Field(default=0, ge=0)

    def matches(self, model: str, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether all conditions hold, except `times`, which the script counts."""
        last = messages[-1] if messages else {}
        return (
            self.model in (None, model)
            and self.last_role in (None, last.get("role"))
            and (self.last is None or is_match(self.last, text_of(last.get("content"))))
            and (self.user is None or is_match(self.user, _last_user_text(messages)))
            and (self.system is None or is_match(self.system, _join_contents(messages, "system")))
            and (self.any is None or is_match(self.any, _join_contents(messages)))
        )


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request that a script received. `rule` is the index of the rule that answered it, None if no rule did."""

    model: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[str, ...]
    params: Mapping[str, Any]
    rule: int | None


class Script:
    """A list of rules, with use counts and the recorded requests. Models, threads and event loops may share it."""

    def __init__(self, rules: Sequence[Mapping[str, Any] | ScriptRule]) -> None:
        self.rules = tuple(_validate_rule(number, rule) for number, rule in enumerate(rules))
        self._lock = threading.Lock()
        self._used = [0] * len(self.rules)
        self._requests: list[RecordedRequest] = []

    @property
    def requests(self) -> tuple[RecordedRequest, ...]:
        """Return all requests so far, in order."""
        with self._lock:
            return tuple(self._requests)

    def answer(self, model: str, request: ChatRequest) -> tuple[ScriptRule | None, int]:
        """Record a request, and return the rule that answers it (or None) and the number of the request."""
        messages = tuple(copy.deepcopy(dict(message)) for message in request.messages)
        tools = tuple(str(tool["function"]["name"]) for tool in request.tools)
        with self._lock:
            index = next(
                (i for i in range(len(self.rules)) if self._is_available(i) and self.rules[i].matches(model, messages)),
                None,
            )
            if index is not None:
                self._used[index] += 1
            self._requests.append(RecordedRequest(model, messages, tools, dict(request.params), index))
            return (None if index is None else self.rules[index]), len(self._requests)

    def _is_available(self, index: int) -> bool:
        times = self.rules[index].times
        return times is None or self._used[index] < times


class ScriptedWire:
    """Answers requests to the model called `model` from a script."""

    def __init__(self, script: Script, model: str) -> None:
        self._script = script
        self._model = model

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        rule, number = self._script.answer(self._model, request)
        if rule is None:
            raise ProviderError(
                ErrorCode.MODEL_ERROR, f'No rule of the script answers this request to "{self._model}".'
            )
        if rule.delay_ms:
            await asyncio.sleep(rule.delay_ms / 1000)
        if rule.error is not None:
            raise provider_error(rule.error)
        for part in _split_text(rule.reasoning):
            yield ReasoningDelta(part)
        for part in _split_text(rule.reply):
            yield ContentDelta(part)
        if rule.error_after is not None:
            raise provider_error(rule.error_after)
        if rule.tool_calls:
            calls = enumerate(rule.tool_calls)
            yield CallsDelta(tuple(ToolCall(f"call_{number}_{i}", call.name, call.text) for i, call in calls))


def scripted_spec(llm_id: str, extra: Mapping[str, Any] | None = None) -> ModelSpec:
    """Return the spec of a scripted model called `llm_id`, for chat, vision and tools, with a large context.

    `extra` may contain the path of the file with the rules as `rules`.
    """
    return ModelSpec(
        id=llm_id,
        name=llm_id,
        factory="Easel",
        base_url=None,
        kinds=frozenset({"chat", "vision"}),
        context_tokens=_CONTEXT_TOKENS,
        is_tools=True,
        is_builtin=True,
        extra=extra or {},
    )


def load_script(path: Path) -> Script:
    """Read a script from a JSON or TOML file: a list of rules, or an object with the list as `rules` or `llm`.

    Until the file changes, all callers in a process get the same script, so that `times` counts over all of them.
    """
    try:
        return _load_script_version(path.resolve(), path.stat().st_mtime_ns)
    except (OSError, ValueError) as problem:
        raise ModelError(f"The rules of the scripted model cannot be read from {path}: {problem}") from problem


def is_match(matcher: Any, text: str) -> bool:
    """Return whether a matcher accepts a text. Raises ValueError if the matcher is not valid."""
    match matcher:
        case None:
            return True
        case str():
            return matcher in text
        case list():
            verdicts = [is_match(one, text) for one in matcher]  # all are evaluated, so that an invalid one is found
            return all(verdicts)
        case {"regex": str(pattern), **others} if not others:
            try:
                return re.search(pattern, text, re.DOTALL) is not None
            except re.error as problem:
                raise ValueError(f"{pattern!r} is not a valid regular expression: {problem}") from problem
        case {"equals": str(whole), **others} if not others:
            return text == whole
        case {"not": unwanted, **others} if not others:
            return not is_match(unwanted, text)
        case _:
            raise ValueError(
                f'{matcher!r} is not a valid matcher; use a text, a list, {{"regex"}}, {{"equals"}} or {{"not"}}'
            )


@cache
def _load_script_version(path: Path, changed_at: int) -> Script:
    content = path.read_bytes()
    document: Any = tomllib.loads(content.decode()) if path.suffix == ".toml" else orjson.loads(content)
    rules = document.get("rules", document.get("llm")) if isinstance(document, dict) else document
    if not isinstance(rules, list):
        raise ValueError("the file has no list of rules")
    return Script(rules)


def _validate_rule(number: int, rule: Mapping[str, Any] | ScriptRule) -> ScriptRule:
    try:
        return rule if isinstance(rule, ScriptRule) else ScriptRule.model_validate(rule)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ModelError(f"Rule {number} of the script, field {where or 'rule'}: {first['msg']}") from problem


def _split_text(text: str) -> Iterator[str]:
    if text:
        yield text[:_FIRST_DELTA_LENGTH]
    for start in range(_FIRST_DELTA_LENGTH, len(text), _DELTA_LENGTH):
        yield text[start : start + _DELTA_LENGTH]


def _last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    return next((text_of(m.get("content")) for m in reversed(messages) if m.get("role") == "user"), "")


def _join_contents(messages: Sequence[Mapping[str, Any]], role: str | None = None) -> str:
    return "\n".join(text_of(m.get("content")) for m in messages if role in (None, m.get("role")))
