"""Tool: one definition that serves as a node of a canvas and as an Agent's tool (docs/tools.md).

    WIKIPEDIA = Tool("Wikipedia", "wikipedia_search", WikipediaParams, description=..., arguments={...}, call=search)

A tool's function gets the node's parameters and the arguments of one call, and raises an exception on failure. Retries,
redaction of secrets and the wording of failures are handled here for all tools.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, model_validator

from canvas.errors import ExecutorError, ToolError
from components.base import Effect, Params
from components.context import NodeContext
from components.text.templates.templates import json_text
from components.tools.framework import redaction
from components.tools.framework.rate_limited import with_rate_limit
from providers.models.limits.pausable_timeout import PausableTimeout
from providers.rate_limits import VendorRateLimit

MAX_RETRY_DELAY = 60.0  # seconds between two tries
MAX_RETRY_AFTER = 30.0  # seconds; longer Retry-After delays are cut to this

_TYPES: Mapping[str, Any] = {
    "string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict
}  # fmt: skip
_NESTED_TOO_DEEPLY = "The answer is nested too deeply to be read."


class ToolParams(Params):
    """Parameters of a tool. `secrets` names the fields whose values are redacted everywhere."""

    model_config = ConfigDict(hide_input_in_errors=True)

    fields_with_null: ClassVar[tuple[str, ...]] = ()
    """Fields in which null is a value; in all others null gives the field's default."""

    function_name: Any = ""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, stored: Any) -> Any:
        if not isinstance(stored, Mapping):
            return stored
        defaulted = cls.model_fields.keys() - set(cls.fields_with_null)
        return {name: value for name, value in stored.items() if value is not None or name not in defaulted}

    @property
    def extra_arguments(self) -> tuple[str, ...]:
        """Names that a call may pass beyond the arguments in the tool's schema."""
        return ()

    @property
    def rate_limit_key(self) -> str:
        """The API key by which the vendor counts requests; "" for none."""
        return ""

    @property
    def can_find_sources(self) -> bool:
        """Whether a tool that `brings_sources` can find sources with these parameters."""
        return True

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, redaction.REDACTED if name in self.secrets and value else value


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of the function that a model calls.

    `default` is used where the canvas stores no value and, for an optional argument, where the model passes none. If
    the tool's Params have a field of the same name, the field's default is used for the canvas.
    """

    type: str  # JSON schema: string, integer, number, boolean, array, object
    description: str
    required: bool = False
    default: Any = None
    enum: tuple[Any, ...] = ()
    items: str | None = None  # type of an array's items

    @property
    def is_free_text(self) -> bool:
        return self.type == "string" and not self.enum

    def is_omitted(self, value: Any) -> bool:
        """Whether a value counts as not passed: null, or a blank text where the argument is not free text."""
        return value is None or (not self.is_free_text and isinstance(value, str) and not value.strip())

    def is_valid(self, value: Any) -> bool:
        """Whether a value has the argument's type and, if there is an enum, is one of its values."""
        is_of_type = isinstance(value, _TYPES[self.type]) and (self.type == "boolean" or not isinstance(value, bool))
        return is_of_type and (not self.enum or value in self.enum)


@dataclass(frozen=True, slots=True)
class TextWithReferences:
    """An argument with unresolved references: the text as written, and the values of the references by expression."""

    text: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool's function returns.

    `outputs` are the node's. `answer` goes to the model; None means the output `content`, or else all outputs.
    """

    outputs: Mapping[str, Any]
    answer: Any = None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A finished call. `answer` goes to the model, also after a failure; `error` is the failure's text."""

    outputs: Mapping[str, Any]
    answer: Any
    error: str | None = None
    code: str = ToolError.code


P = TypeVar("P", bound=ToolParams)
CallTool = Callable[[P, Mapping[str, Any], NodeContext], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class Tool(Generic[P]):
    """The definition of a tool.

    If a required argument is empty, the tool is not called and the outputs are `empty_outputs`; None calls it all the
    same. Details of an error that the tool raises: `answer` replaces the text for the model (by default the error with
    the tool's label, or without it if `errors_are_bare`); `outputs` become the node's outputs; `result` makes the error
    a success after the last try, with `result` as the main output. Results of a tool that `brings_sources` are added to
    the run's references.
    """

    name: str
    function: str
    params: type[P]
    description: str
    arguments: Mapping[str, Argument]
    call: CallTool[P]
    effect: Effect  # what repeating a call means
    empty_outputs: Mapping[str, Any] | None = field(default_factory=lambda: {"formalized_content": ""})
    main_output: str = "formalized_content"
    error_label: str = ""  # "Tavily": failures read "Tavily error: ..."; "" means the class name
    errors_are_bare: bool = False
    brings_sources: bool = False
    owns_retries: bool = False
    retries: int | None = None  # overrides the node's own number
    max_attempts: int | None = None  # the most that the vendor accepts, whatever the node says
    rate_limit: VendorRateLimit | None = None  # the vendor's limit for all workers together
    outputs: tuple[str, ...] = ("formalized_content", "json")  # all that a call may return
    # arguments that a canvas passes as TextWithReferences
    unresolved_arguments: Callable[[P], Collection[str]] = lambda params: ()
    adapt_for_models: Callable[[P], P] = lambda params: params  # adapts the author's parameters to calls by a model
    schema_arguments: Callable[[P], Mapping[str, Argument]] | None = None  # replaces `arguments` in the schema

    def schema(self, params: P, exposed_name: str) -> dict[str, Any]:
        """Return the function definition that is offered to a model."""
        arguments = self.arguments if self.schema_arguments is None else self.schema_arguments(params)
        properties = {
            name: _argument_schema(argument, self.stored_value(params, name, argument))
            for name, argument in arguments.items()
        }
        return {
            "type": "function",
            "function": {
                "name": exposed_name,
                "description": str(params.description or self.description),
                "parameters": {"type": "object", "properties": properties, "required": self._required_names()},
            },
        }

    @staticmethod
    def stored_value(params: ToolParams, name: str, argument: Argument) -> Any:
        """Return the value that the author stored for an argument, else its default."""
        extra: Mapping[str, Any] = params.model_extra or {}
        return getattr(params, name) if name in type(params).model_fields else extra.get(name, argument.default)

    async def run(self, params: P, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolRun:
        """Call the tool, with retries as the node allows. Failures of the tool are returned and not raised."""
        if self.empty_outputs is not None and any(_is_empty(arguments.get(name)) for name in self._required_names()):
            return ToolRun(dict(self.empty_outputs), self.empty_outputs.get(self.main_output, ""))
        arguments = self._with_defaults(arguments)
        hidden = redaction.secrets_in(params, params.secrets, ctx.services.vendor_keys.values())
        redacting = redaction.redact_citations(ctx, hidden)
        if self.rate_limit is not None:
            redacting = with_rate_limit(redacting, self.rate_limit.for_key(params.rate_limit_key))
        attempts = self._max_attempts(params)
        clock = asyncio.get_running_loop()
        ends_at = clock.time() + ctx.time_limit(self.name)
        async with PausableTimeout(None) as time:
            for attempt in range(1, attempts + 1):
                try:
                    result = await self.call(params, arguments, redacting)
                    return ToolRun(
                        redaction.redact(result.outputs, hidden), redaction.redact(_model_answer(result), hidden)
                    )
                except Exception as error:  # noqa: BLE001 (a tool may raise anything; the model or the node handles it)
                    wait = retry_delay(error, params)
                    is_late = clock.time() + wait >= ends_at + time.paused_seconds
                    if attempt == attempts or not is_retryable(error) or is_late:
                        return self._failure(error, hidden)
                    await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    def _max_attempts(self, params: P) -> int:
        if self.owns_retries:
            return 1
        tries = 1 + (max_retries_of(params) if self.retries is None else self.retries)
        return tries if self.max_attempts is None else min(tries, self.max_attempts)

    def _required_names(self) -> list[str]:
        return [name for name, argument in self.arguments.items() if argument.required]

    def _with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with defaults for the optional ones that were not passed."""
        defaults = {name: argument.default for name, argument in self.arguments.items() if not argument.required}
        passed = {
            name: value
            for name, value in arguments.items()
            if value is not None and not (name in defaults and self.arguments[name].is_omitted(value))
        }
        return defaults | passed

    def _failure(self, error: Exception, hidden: tuple[str, ...]) -> ToolRun:
        message = _NESTED_TOO_DEEPLY if isinstance(error, RecursionError) else str(error) or type(error).__name__
        text = redaction.redact(message, hidden)
        label = f"{self.error_label or self.name} error: "
        labelled = text if self.errors_are_bare or text.startswith(label) else label + text
        if not isinstance(error, ExecutorError):
            return ToolRun({}, labelled, text)
        result = error.details.get("result")
        if isinstance(result, str):
            return ToolRun({self.main_output: redaction.redact(result, hidden)}, redaction.redact(result, hidden))
        outputs = redaction.redact(error.details.get("outputs") or {}, hidden)
        return ToolRun(outputs, redaction.redact(error.details.get("answer"), hidden) or labelled, text, error.code)


def is_retryable(error: BaseException) -> bool:
    """Whether another try may succeed: not after a refusal, a wrong configuration or unreadable data."""
    return bool(getattr(error, "retryable", False))


def max_retries_of(params: ToolParams) -> int:
    """Return the number of retries that a node allows (`max_retries`), 0 for a value that is not a number."""
    try:
        return max(0, int(params.max_retries or 0))
    except (TypeError, ValueError, OverflowError):
        return 0


def retry_delay(error: Exception, params: ToolParams) -> float:
    """Return the seconds before a retry: the server's Retry-After, up to 30 s, else the node's own delay."""
    retry_after = getattr(error, "details", {}).get("retry_after")
    if isinstance(retry_after, int | float):
        return min(max(0.0, float(retry_after)), MAX_RETRY_AFTER)
    try:
        return min(max(0.0, float(params.delay_after_error)), MAX_RETRY_DELAY)
    except (TypeError, ValueError):
        return 2.0


def _model_answer(result: ToolResult) -> Any:
    """Return what the model gets: the answer, else the output `content`, else all outputs but internal ones."""
    if result.answer is not None:
        return result.answer
    content = result.outputs.get("content")
    return content or {name: value for name, value in result.outputs.items() if not name.startswith("_")}


def _argument_schema(argument: Argument, stored: Any) -> dict[str, Any]:
    """Return the JSON schema of an argument.

    The default of an optional argument is the value that the author stored. Free text of the author (an address, a
    subject) also applies as the default, but is not shown to the model.
    """
    described: dict[str, Any] = {"type": argument.type, "description": argument.description}
    if argument.enum:
        described["enum"] = list(argument.enum)
    if argument.items:
        described["items"] = {"type": argument.items}
    is_shown = not argument.required and not argument.is_free_text and argument.is_valid(stored)
    default = stored if is_shown else argument.default
    if default is not None and "{" not in json_text(default):
        described["default"] = default
    return described


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value == []
