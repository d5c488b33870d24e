"""The NodeContext of one attempt: keeps the promise of components/context.py."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import structlog

from canvas.document import references
from canvas.document.references import Ref
from canvas.errors import ToolError, UnresolvedReference
from canvas.events.run_warnings import Notice
from canvas.graph.canvas import Node, NodeKind
from canvas.graph.uncertain_outcomes import OnUnknown
from components.text.extraction.file_texts import UnreadFile
from providers.interfaces import Services
from providers.models.billing.budgeted_model import BudgetedModel
from providers.models.billing.metering import BillingContext
from providers.models.limits.idempotency_keys import IdempotencyKeys, IdempotentHttp, IdempotentModel, VendorLimits
from providers.models.types.chat import ChatModel, Usage
from scheduler.coordinator.version_cache import Compiled
from store.agents import conversations
from store.db.database import Database
from store.runs.activations import Claim
from worker.caches.history import HistoryCache
from worker.context import outcomes
from worker.context.attempt_storage import AttemptStorage
from worker.context.rate_limit_wait import RateLimitWait
from worker.context.read_set import ReadSet
from worker.context.run_budget import RunBudget
from worker.context.side_effects import SideEffectGuard
from worker.context.text_stream import MessageStreamWriter
from worker.context.variables import NodeVariables

ALIASES = frozenset({"item", "index", "result"})
MEMORY_SAVED = "remembered"  # in the journal: memories were told


class TimeLimit(Protocol):
    """Seconds that one attempt of a component may take; `asked` is what its own parameters ask for."""

    def __call__(self, component: str, asked: float | None = None) -> float: ...


@dataclass
class WorkerContext:
    """One attempt's view of the world."""

    claim: Claim
    compiled: Compiled
    node: Node
    slots: NodeVariables
    reads: ReadSet
    voice: MessageStreamWriter
    database: Database
    open_model: Callable[[str], Awaitable[ChatModel]]
    read_text: Callable[[Mapping[str, Any], str], str | UnreadFile]
    keeping: AttemptStorage
    acting: SideEffectGuard
    patience: RateLimitWait
    services: Services
    limit_of: TimeLimit
    histories: HistoryCache = field(default_factory=HistoryCache)
    unsealed_headers: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda request: {}
    purse: RunBudget | None = None  # None: nobody counts
    turns: VendorLimits | None = None  # where requests wait for their vendors' paces; None: nobody keeps any
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    usage: Usage = field(default_factory=Usage)
    recalled: Usage = field(default_factory=Usage)  # of that, what earlier attempts had recorded
    warnings: list[Notice] = field(default_factory=list[Notice])
    opening: str = ""  # what this node has said of its Message's text before its own

    # -- who and where ------------------------------------------------------------------------------------------
    node_id: str = field(init=False)
    name: str = field(init=False)
    component: str = field(init=False)
    params: Mapping[str, Any] = field(init=False)
    parent_id: str | None = field(init=False)
    run_id: str = field(init=False)
    activation_id: str = field(init=False)
    canvas_id: str = field(init=False)
    visit: int = field(init=False)
    scope_item: int = field(init=False)
    repeats: IdempotencyKeys = field(init=False)  # the keys of its requests

    def __post_init__(self) -> None:
        node, claim = self.node, self.claim
        self.node_id, self.name, self.component, self.params = node.id, node.name, node.component, node.params
        self.parent_id = self._canvas.nodes[node.parent].id if node.parent is not None else None
        self.run_id, self.activation_id = str(claim.run_id), str(claim.id)
        self.canvas_id = claim.canvas_id.hex
        self.visit = claim.ordinal
        self.scope_item = claim.scope[-1][2] if claim.scope else 0
        self.repeats = IdempotencyKeys(self.activation_id)
        self.services = replace(self.services, http=IdempotentHttp(self.services.http, self.repeats, self.turns))

    def warn(self, code: str, message: str) -> None:
        self.warnings.append(Notice(code, outcomes.sanitize_json(message)))
        self.log.warning("node_warned", node_id=self.node_id, code=code, detail=message)

    @property
    def log(self) -> Any:
        return structlog.get_logger()

    @property
    def _canvas(self) -> Any:
        return self.compiled.canvas

    # -- values -------------------------------------------------------------------------------------------------
    def lookup(self, expression: str) -> Any:
        """The value a reference points at; type preserved."""
        ref = references.parse_reference(expression)
        if ref.node is None:
            return self._global(ref, expression)
        if ref.node not in self._canvas.numbers:
            raise self._unknown(expression)
        outputs = self._outputs(ref.node)
        return references.get_path(outputs.get(ref.root, ""), ref.path)

    def _outputs(self, node_id: str) -> Mapping[str, Any]:
        outputs = self.slots.outputs(node_id)
        spoken = outputs.get("_spoken")
        return {**outputs, "content": spoken} if spoken is not None and self.listens_to(node_id) else outputs

    def _global(self, ref: Ref, expression: str) -> Any:
        if ref.root in self.slots.globals:
            return self.slots.globals[ref.root]
        found, value = self._of_container(ref.root)
        if not found:
            raise self._unknown(expression)
        return value

    def _of_container(self, name: str) -> tuple[bool, Any]:
        """`item`, `index`, `result` of the innermost Iteration, or a Loop's variable by its bare name."""
        for number in self._canvas.containers_of(self.node.number):
            container = self._canvas.nodes[number]
            is_own = self._canvas.items[number] == self.node.number  # an item node looks for what it is to give out
            if container.kind is NodeKind.ITERATION and name in ALIASES and not is_own:
                return True, self.slots.outputs(self._canvas.nodes[self._canvas.items[number]].id).get(name)
            if container.kind is NodeKind.LOOP and name in (outputs := self.slots.outputs(container.id)):
                return True, outputs[name]
        return False, None

    def _unknown(self, expression: str) -> UnresolvedReference:
        name = expression.strip("{} ")
        return UnresolvedReference(f"Can't find variable: '{name}'", reference=name, node=self.node.id)

    def is_reference(self, text: str) -> bool:
        """Whether the whole text is one reference to something that exists."""
        ref = references.parse(text)
        if ref is None:
            return False
        return ref.node in self._canvas.numbers if ref.node is not None else ref.root in self.slots.globals

    def exists(self, expression: str) -> bool:
        """Whether `lookup` would find it."""
        ref = references.parse_reference(expression)
        if ref.node is not None:
            return ref.node in self._canvas.numbers
        return ref.root in self.slots.globals or self._of_container(ref.root)[0]

    def has_run(self, node_id: str) -> bool:
        return self.slots.has_run(node_id)

    def display_name(self, node_id: str) -> str:
        number = self._canvas.numbers.get(node_id)
        return self._canvas.nodes[number].name if number is not None else ""

    def previous_output(self, name: str) -> Any:
        return self.slots.outputs(self.node.id).get(name)

    def earlier_inputs(self) -> Mapping[str, Any]:
        return self.slots.given.base.get("inputs") or {}

    @property
    def answers(self) -> Mapping[str, Any] | None:
        if self.node.kind is NodeKind.BEGIN:
            return self.slots.given.request.get("inputs")
        if self.node.kind is NodeKind.ANSWER and self.claim.answers is not None:
            return {"query": self.slots.given.request.get("query")}
        return self.claim.answers

    @property
    def webhook_payload(self) -> Mapping[str, Any] | None:
        return self.slots.given.request.get("webhook_payload")

    def note_input(self, name: str, value: Any) -> None:
        self.inputs[name] = value

    def node_components(self) -> Mapping[str, str]:
        return {node.id: node.component for node in self._canvas.nodes}

    def children(self) -> Sequence[str]:
        container = self.node.number if self.node.kind.is_container else self.node.parent
        return [child.id for child in self._canvas.children(container)] if container is not None else []

    def parent_params(self) -> Mapping[str, Any]:
        return self._canvas.nodes[self.node.parent].params if self.node.parent is not None else {}

    # -- containers ---------------------------------------------------------------------------------------------
    def collected(self) -> Mapping[str, list[Any]]:
        return self.slots.collected

    def container_outputs(self) -> Mapping[str, Any]:
        return self.slots.outputs(self.parent_id) if self.parent_id is not None else {}

    # -- speech -------------------------------------------------------------------------------------------------
    @property
    def speaks(self) -> bool:
        return bool(self._canvas.speaking & self.node.bit)

    @property
    def heard(self) -> bool:
        return not self._canvas.unheard & self.node.bit

    def listens_to(self, node_id: str) -> bool:
        number = self._canvas.numbers.get(node_id)
        turn = self._canvas.turns.get(number) if number is not None else None
        return turn is not None and turn.message == self.node.number

    async def say(self, text: str) -> None:
        await self.voice.say(text)

    # -- outside world ------------------------------------------------------------------------------------------
    async def model(self, llm_id: str) -> ChatModel:
        return self._paid(await self.open_model(llm_id))

    def _paid(self, model: ChatModel) -> ChatModel:
        budgeted = model if self.purse is None else BudgetedModel(model, self.purse)
        return IdempotentModel(budgeted, self.repeats, self.patience)

    @property
    def payer(self) -> BillingContext:
        """For what is asked of models on behalf of this attempt, without its component's doing."""
        return BillingContext(self.patience, self.purse, self.spent, self._paid, self.repeats)

    def spent(self, usage: Usage) -> None:
        self.usage = self.usage + usage

    async def history(self, window: int) -> Sequence[Mapping[str, Any]]:
        if window <= 0:
            return []
        known = self.histories.get(self.claim, 2 * window)
        entries = known if known is not None else await asyncio.to_thread(self._history, 2 * window)
        return [{"role": entry["role"], "content": _content(entry)} for entry in entries]

    def _history(self, limit: int) -> list[Mapping[str, Any]]:
        with self.database.statements() as tx:
            entries = conversations.history(tx, self.claim.conversation_id, self.claim.history_upto, limit)
        self.histories.put(self.claim, limit, entries)
        return entries

    async def references(self) -> Mapping[str, Any]:
        return await self.keeping.references()

    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        return await self.keeping.cite(chunks, documents)

    async def file_text(self, descriptor: Mapping[str, Any], layout_recognize: str) -> str:
        found = await asyncio.to_thread(self.read_text, descriptor, layout_recognize)
        return await found.text() if isinstance(found, UnreadFile) else found

    def descriptors(self, expression: str) -> list[Mapping[str, Any]]:
        """Raw descriptors: the turn's uploads, or what a form kept beside the text of a file field."""
        ref = references.parse_reference(expression)
        if ref.node is None:
            found = self.slots.given.base.get("files", ()) if ref.root == "sys.files" else ()
        else:
            kept = self.slots.outputs(ref.node).get("_files") if ref.node in self._canvas.numbers else None
            found = kept.get(ref.root, ()) if isinstance(kept, Mapping) else ()
        return [file for file in found if isinstance(file, Mapping)]

    async def read_file(self, descriptor: Mapping[str, Any]) -> bytes:
        return await self.keeping.read(descriptor)

    async def save_file(self, name: str, data: bytes, mime_type: str, *, place: str = "") -> Mapping[str, Any]:
        return await self.keeping.save(name, data, mime_type, place)

    def caller_headers(self) -> Mapping[str, str]:
        return self.unsealed_headers(self.slots.given.request)

    def time_limit(self, component: str) -> float:
        return self.limit_of(component)

    async def recall(self, key: str) -> Any:
        found = await self.keeping.recall(key)
        if isinstance(found, Mapping) and "usage" in found:  # whoever recalls it counts it as spent
            self.recalled += Usage(*cast("Mapping[str, Any]", found)["usage"])
        return found

    async def record(self, key: str, value: Any) -> bool:
        is_new = await self.keeping.record(key, value)
        self.patience.has_recorded()
        return is_new

    @property
    def on_unknown(self) -> OnUnknown:
        return self.node.on_unknown

    def unrepeatable(self) -> AbstractAsyncContextManager[None]:
        return self.acting.unrepeatable()

    async def trace(self, call: Mapping[str, Any]) -> None:
        await self.keeping.trace(call)

    async def remember(self, memory_ids: Sequence[str], user_id: str, answer: str) -> None:
        if self.services.memories is None:
            raise ToolError("No memory store is configured for this deployment.")
        if await self.recall(MEMORY_SAVED):  # not every server knows the key of what it was told before
            return
        record = {
            "user_id": user_id,
            "agent_id": self.claim.canvas_id.hex,
            "session_id": self.claim.conversation_id.hex,
            "user_input": self.slots.globals.get("sys.query", ""),
            "agent_response": answer,
        }
        self.patience.sends()  # what was said stands: it does not begin anew for the allowance of a model of vectors
        await self.services.memories.save(memory_ids, record, str(self.claim.id))
        await self.record(MEMORY_SAVED, True)


def _content(entry: Mapping[str, Any]) -> Any:
    """Engine 7: the `content` member of an object entry, else the value itself; null reads as nothing."""
    content = entry["content"]
    if isinstance(content, Mapping) and entry["role"] == "assistant":
        content = content.get("content", "")
    elif isinstance(content, Mapping) and "content" in content:
        content = content["content"]
    return "" if content is None else content
