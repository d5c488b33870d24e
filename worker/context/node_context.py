"""WorkerContext: the NodeContext (components/context.py) of one attempt."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import structlog

from canvas.errors import ToolError
from canvas.graph.uncertain_outcomes import OnUnknown
from canvas.run_warnings import Notice
from components.context import ToolCallPosition
from components.text.extraction.file_texts import UnparsedFile
from providers.interfaces import Services
from providers.models.billing.budgeted_model import BudgetedModel
from providers.models.billing.metering import BillingContext
from providers.models.limits.idempotency_keys import IdempotencyKeys, IdempotentHttp, IdempotentModel, VendorLimits
from providers.models.recording.recorded_model import RecordedModel
from providers.models.types.chat import ChatModel, Usage
from store.agents import conversations
from store.db.database import Database
from worker.caches.history import HistoryCache
from worker.context import outcomes
from worker.context.attempt_storage import AttemptStorage
from worker.context.model_calls import CallLog
from worker.context.rate_limit_wait import AttemptRateLimitWait
from worker.context.readable_context import ReadableContext
from worker.context.run_budget import RunBudget
from worker.context.side_effects import SideEffectGuard
from worker.context.text_stream import MessageStreamWriter

MEMORY_SAVED = "remembered"  # key in the journal: memories have the answer


class TimeLimit(Protocol):
    """Returns the seconds that an attempt of a component may take. `requested`: what the node's parameters say."""

    def __call__(self, component: str, requested: float | None = None) -> float: ...


@dataclass(kw_only=True)
class WorkerContext(ReadableContext):
    """One attempt's view of its node, run and environment."""

    stream: MessageStreamWriter
    database: Database
    open_model: Callable[[str], Awaitable[ChatModel]]
    read_text: Callable[[Mapping[str, Any], str], str | UnparsedFile]
    storage: AttemptStorage
    side_effects: SideEffectGuard
    rate_limit_wait: AttemptRateLimitWait
    open_services: Callable[[], Services]
    find_time_limit: TimeLimit
    history_cache: HistoryCache = field(default_factory=HistoryCache)
    decrypt_headers: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda request: {}
    run_budget: RunBudget | None = None  # None: no budget counts
    # where requests wait for their vendors' rate limits; None: they do not wait
    vendor_limits: VendorLimits | None = None
    calls: CallLog | None = None  # where model calls are recorded; None: nowhere
    usage: Usage = field(default_factory=Usage)
    recorded_usage: Usage = field(default_factory=Usage)  # the part of it that earlier attempts had recorded
    warnings: list[Notice] = field(default_factory=list[Notice])
    opening: str = ""  # the part of its Message's text that this node has streamed before its own
    idempotency_keys: IdempotencyKeys = field(init=False)  # the keys of its requests
    _services: Services | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.idempotency_keys = IdempotencyKeys(self.activation_id)

    def warn(self, code: str, message: str) -> None:
        self.warnings.append(Notice(code, outcomes.sanitize_json(message)))
        self.log.warning("node_warned", node_id=self.node_id, code=code, detail=message)

    @property
    def log(self) -> Any:
        return structlog.get_logger()

    # -- the message stream -------------------------------------------------------------------------------------
    @property
    def is_streaming(self) -> bool:
        return bool(self._canvas.streaming_models & self.node.bit)

    @property
    def has_reader(self) -> bool:
        return not self._canvas.uncalled_models & self.node.bit

    async def write(self, text: str) -> None:
        await self.stream.write(text)

    # -- models, files, services and the journal ----------------------------------------------------------------
    @property
    def services(self) -> Services:
        if self._services is None:  # most nodes that compute need none
            services = self.open_services()
            http = IdempotentHttp(services.http, self.idempotency_keys, self.vendor_limits)
            self._services = replace(services, http=http)
        return self._services

    async def model(self, llm_id: str) -> ChatModel:
        return self._add_billing(await self.open_model(llm_id))

    def _add_billing(self, model: ChatModel) -> ChatModel:
        recorded = model if self.calls is None else RecordedModel(model, self.calls)
        budgeted = recorded if self.run_budget is None else BudgetedModel(recorded, self.run_budget)
        return IdempotentModel(budgeted, self.idempotency_keys, self.rate_limit_wait)

    @property
    def billing_context(self) -> BillingContext:
        """Who pays for model calls that are made for this attempt, but not by its component."""
        return BillingContext(
            self.rate_limit_wait,
            self.run_budget,
            self.add_usage,
            self._add_billing,
            self.idempotency_keys,
            recorder=self.calls,
        )

    def add_usage(self, usage: Usage) -> None:
        self.usage = self.usage + usage

    async def history(self, window: int) -> Sequence[Mapping[str, Any]]:
        if window <= 0:
            return []
        known = self.history_cache.get(self.claim, 2 * window)
        entries = known if known is not None else await asyncio.to_thread(self._history, 2 * window)
        return [{"role": entry["role"], "content": _plain_content(entry)} for entry in entries]

    def _history(self, limit: int) -> list[Mapping[str, Any]]:
        with self.database.statements() as tx:
            entries = conversations.load_history(tx, self.claim.conversation_id, self.claim.history_upto, limit)
        self.history_cache.put(self.claim, limit, entries)
        return entries

    async def references(self) -> Mapping[str, Any]:
        return await self.storage.references()

    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        return await self.storage.cite(chunks, documents)

    async def file_text(self, descriptor: Mapping[str, Any], layout_recognize: str) -> str:
        found = await asyncio.to_thread(self.read_text, descriptor, layout_recognize)
        return await found.text() if isinstance(found, UnparsedFile) else found

    async def read_file(self, descriptor: Mapping[str, Any]) -> bytes:
        return await self.storage.read(descriptor)

    async def save_file(self, name: str, data: bytes, mime_type: str, *, place: str = "") -> Mapping[str, Any]:
        return await self.storage.save(name, data, mime_type, place)

    def caller_headers(self) -> Mapping[str, str]:
        return self.decrypt_headers(self.variables.run_inputs.request)

    def time_limit(self, component: str) -> float:
        return self.find_time_limit(component)

    async def journal_get(self, key: str) -> Any:
        found = await self.storage.journal_get(key)
        if isinstance(found, Mapping) and "usage" in found:  # the component adds it to its usage again
            self.recorded_usage += Usage(*cast("Mapping[str, Any]", found)["usage"])
        return found

    async def journal_put(self, key: str, value: Any) -> bool:
        is_new = await self.storage.journal_put(key, value, self.calls)
        self.rate_limit_wait.mark_recorded()
        return is_new

    @property
    def on_unknown(self) -> OnUnknown:
        return self.node.on_unknown

    def non_repeatable(self) -> AbstractAsyncContextManager[None]:
        return self.side_effects.non_repeatable()

    async def trace(self, call: Mapping[str, Any], at: ToolCallPosition | None = None) -> None:
        await self.storage.trace(call, at)

    async def remember(self, memory_ids: Sequence[str], user_id: str, answer: str) -> None:
        if self.services.memories is None:
            raise ToolError("No memory store is configured for this deployment.")
        if await self.journal_get(MEMORY_SAVED):  # not every server recognises the key of a repeated request
            return
        record = {
            "user_id": user_id,
            "agent_id": self.claim.canvas_id.hex,
            "session_id": self.claim.conversation_id.hex,
            "user_input": self.variables.globals.get("sys.query", ""),
            "agent_response": answer,
        }
        self.rate_limit_wait.mark_sent()  # waiting for an embedding model must not postpone the attempt
        await self.services.memories.save(memory_ids, record, str(self.claim.id))
        await self.journal_put(MEMORY_SAVED, True)


def _plain_content(entry: Mapping[str, Any]) -> Any:
    """Return the plain content of a history entry: the member `content` of an object, else the value; null gives ""."""
    content = entry["content"]
    if isinstance(content, Mapping) and entry["role"] == "assistant":
        content = content.get("content", "")
    elif isinstance(content, Mapping) and "content" in content:
        content = content["content"]
    return "" if content is None else content
