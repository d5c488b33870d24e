"""Tool calls of one round: carried out in parallel, each of them once.

An error of a call becomes its result, so that the model can react. A finished call is recorded in the attempt's journal
before the Agent continues, so the next attempt of the activation reads its result instead of acting again. Results keep
the order of the calls, whichever finished first.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canvas.errors import BudgetExceeded, NodeFailure
from components.context import NodeContext, ToolCallPosition
from components.nodes.agent.tool_context import ToolContext
from components.nodes.agent.tool_set import AGENT, Function
from components.text.json_in_text import parse_repaired, to_storable_json
from components.text.templates.templates import json_text
from components.tools.framework.base import ToolRun
from components.tools.framework.time_limits import timeout_text
from providers.models.billing.metering import count_usage
from providers.models.limits.pausable_timeout import PausableTimeout
from providers.models.recording.model_calls import journal_place
from providers.models.types.chat import ToolCall, Usage

PARALLEL_CALLS = 8  # calls of one round that run at the same time
MAX_RESULT_BYTES = 64 * 1024  # of one result
_CUT = "\n[The result was too long and ends here.]"


class _InvalidCall(Exception):
    """Raised when a call cannot be carried out as the model wrote it. The message is its result."""


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A finished call. `result` is JSON, or the cut text of a result that is too long."""

    name: str
    arguments: Any
    result: Any

    @property
    def text(self) -> str:
        """The result as a message to the model: text unchanged, anything else as JSON."""
        return self.result if isinstance(self.result, str) else json_text(self.result)


@dataclass
class ToolCalls:
    """The calls of one Agent in one attempt. `ends_at` is the Agent's deadline, in the event loop's time."""

    ctx: NodeContext
    functions: Mapping[str, Function]
    ends_at: float
    concurrency: int = PARALLEL_CALLS
    finished: list[FinishedCall] = field(default_factory=list[FinishedCall])
    artifacts: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    @property
    def schemas(self) -> list[Mapping[str, Any]]:
        """The schemas of the functions, as the model is offered them."""
        return [function.schema for function in self.functions.values()]

    async def run(self, calls: Sequence[ToolCall], place: str) -> list[FinishedCall]:
        """Carry out a round's calls and return their results, in order. `place` identifies the round in the journal."""
        slots = asyncio.Semaphore(self.concurrency)
        refused: list[BudgetExceeded] = []

        async def one(call: ToolCall, index: int) -> Mapping[str, Any]:
            async with slots:
                try:
                    return await self._load_or_run(call, f"{place}:{index}")
                except BudgetExceeded as exceeded:  # the other calls continue, and their paid results are recorded
                    refused.append(exceeded)
                    return {}

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(call, index)) for index, call in enumerate(calls)]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # callers must see a lost lease as such, not as a group
        if refused:
            raise refused[0]
        entries = [task.result() for task in tasks]
        used = [
            FinishedCall(call.name, entry["arguments"], entry["result"])
            for call, entry in zip(calls, entries, strict=True)
        ]
        self.finished += used
        self.artifacts += [artifact for entry in entries for artifact in entry["artifacts"]]
        return used

    async def _load_or_run(self, call: ToolCall, place: str) -> Mapping[str, Any]:
        """Return the journal entry of a call, {arguments, result, artifacts, usage}; make the call if there is none."""
        entry = await self.ctx.journal_get(f"call:{place}")
        if entry is not None:
            self.ctx.add_usage(Usage(*entry["usage"]))
            await self._trace(call, entry, place, has_failed=entry.get("failed", False), is_replayed=True)
            return entry
        function = self.functions.get(call.name)
        if function is None or function.effect != "unsafe":
            return await self._run_call(call, place)
        async with self.ctx.non_repeatable():
            return await self._run_call(call, place)

    async def _run_call(self, call: ToolCall, place: str) -> Mapping[str, Any]:
        clock = asyncio.get_running_loop()
        began = clock.time()
        function = self.functions.get(call.name)
        arguments: Any = call.arguments
        usage, artifacts, has_failed = Usage(), list[Any](), False
        try:
            if function is None:
                raise _InvalidCall(f"LLM tool {call.name} does not exist")
            arguments = _arguments(call)
            inner = ToolContext(self.ctx, function, place)
            try:
                component = function.component
                with count_usage(inner.add_usage), journal_place(f"call:{place}", inside=place, component=component):
                    run = await self._call_within_limit(function, arguments, inner.as_node_context())
            finally:
                usage = inner.usage
            result, artifacts, has_failed = _cut_result(_plain(run.answer)), _artifacts(run), run.error is not None
        except (_InvalidCall, NodeFailure) as failure:
            result, has_failed = _cut_result(to_storable_json(str(failure))), True
        entry = {
            "arguments": arguments,
            "result": result,
            "artifacts": artifacts,
            "usage": usage_entry(usage),
            **({"failed": True} if has_failed else {}),
        }
        await self.ctx.journal_put(f"call:{place}", entry)
        await self._trace(call, entry, place, elapsed=clock.time() - began, has_failed=has_failed)
        return entry

    async def _trace(
        self,
        call: ToolCall,
        entry: Mapping[str, Any],
        place: str,
        *,
        elapsed: float = 0.0,
        has_failed: bool,
        is_replayed: bool = False,
    ) -> None:
        number, _, ordinal = place.partition(":")
        await self.ctx.trace(
            {
                "path": self.ctx.name or self.ctx.node_id,
                "tool_name": call.name,
                "arguments": entry["arguments"],
                "result": entry["result"],
                "elapsed_time": elapsed,
            },
            ToolCallPosition(f"round:{number}", int(ordinal), has_failed, is_replayed),
        )

    async def _call_within_limit(self, function: Function, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolRun:
        left = self.ends_at - asyncio.get_running_loop().time()
        own = function.limit if function.limit is not None else self.ctx.time_limit(function.component)
        seconds = max(0.0, min(own, left))
        limit = PausableTimeout(seconds)
        try:
            async with limit:
                return await function.call(arguments, ctx)
        except TimeoutError:
            if not limit.has_expired():
                raise
            limited = "" if function.limit is not None else function.component
            raise _InvalidCall(timeout_text(round(seconds, 1), limited if own <= left else AGENT)) from None
        finally:
            self.ends_at += limit.paused_seconds  # paused time does not count (worker/context/rate_limit_wait.py)


def usage_entry(usage: Usage) -> list[Any]:
    """Return the usage in the form of journal entries; entries of an older release end after the first four items."""
    counted = [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, usage.calls]
    further = [usage.cached_tokens, dict(usage.costs), usage.unpriced_calls, usage.characters, dict(usage.kinds)]
    return [*counted, *further]


def _arguments(call: ToolCall) -> dict[str, Any]:
    """Parse the arguments of a call. An empty text means no arguments, as models write it."""
    found = parse_repaired(call.arguments) if call.arguments.strip() else {}
    if not isinstance(found, dict):
        raise _InvalidCall(f"Tool arguments for {call.name} must be an object, got {type(found).__name__}")
    return found


def _plain(answer: Any) -> Any:
    try:
        return to_storable_json(answer)
    except RecursionError:
        raise _InvalidCall("The result is nested too deeply to be shown.") from None


def _artifacts(run: ToolRun) -> list[Any]:
    """Return the files that a call produced: {name, url, mime_type}."""
    listed = run.outputs.get("_ARTIFACTS")
    return [to_storable_json(item) for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []


def _cut_result(result: Any) -> Any:
    """Return the result, or the beginning of its text with a note if it is longer than MAX_RESULT_BYTES."""
    text = result if isinstance(result, str) else json_text(result)
    whole = text.encode()
    if len(whole) <= MAX_RESULT_BYTES:
        return result
    return whole[: MAX_RESULT_BYTES - len(_CUT)].decode(errors="ignore") + _CUT
