"""NodeContext: all that a component may touch. `worker/context/node_context.py` keeps this promise; tests use
`tests/fakes.py`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from canvas.graph.uncertain_outcomes import OnUnknown
from providers.interfaces import Services
from providers.models.types.chat import ChatModel, Usage

THINK_START = "\ufdd0"  # in spoken text: what follows is reasoning
THINK_END = "\ufdd1"  # in spoken text: reasoning ends
AUDIO_START = "\ufdd2"  # in spoken text: the id of a file of audio follows, 32 hex digits
AUDIO_END = "\ufdd3"  # in spoken text: the id of a file of audio ends


class NodeContext(Protocol):
    """One attempt's view of the world. Everything a text or parameter of the node refers to is at hand already."""

    node_id: str
    name: str  # the node's display name ("" if unknown)
    component: str
    params: Mapping[str, Any]  # as stored, aliases unfolded
    parent_id: str | None
    run_id: str
    canvas_id: str  # the same in every version and run of the canvas
    activation_id: str  # the same in every attempt, and nobody else's: what repeated work is recognised by
    visit: int  # 0-based number of this activation of the node in its scope
    scope_item: int  # 0-based pass of the innermost container around the node; 0 outside of containers

    # -- values -------------------------------------------------------------------------------------------------
    def lookup(self, expression: str) -> Any:
        """The whole value a reference points at, with or without braces (engine 2.2); type preserved.

        Also `item`, `index`, `result` inside an Iteration, innermost first (components E26).
        Raises UnresolvedReference ("Can't find variable: '...'") for an unknown node or global.
        """
        ...

    def is_reference(self, text: str) -> bool:
        """Whether the whole text is one reference, with or without braces (engine 2.2, `is_reff`)."""
        ...

    def exists(self, expression: str) -> bool:
        """Whether `lookup` would find the node or global (its value may be null)."""
        ...

    def has_run(self, node_id: str) -> bool:
        """Whether the node has run in this run, as far as this node can see (Message alternatives, components E27)."""
        ...

    def display_name(self, node_id: str) -> str:
        """The display name of any node of the canvas, "" if it has none."""
        ...

    def previous_output(self, name: str) -> Any:
        """What this node's own output holds from an earlier pass or turn; None if nothing."""
        ...

    def earlier_inputs(self) -> Mapping[str, Any]:
        """For Begin: what its inputs held after the conversation's previous turn; {} for a new one (engine 3.4)."""
        ...

    @property
    def answers(self) -> Mapping[str, Any] | None:
        """Begin: the request's `inputs`. A form: what the person answered, None while it has not been asked."""
        ...

    @property
    def webhook_payload(self) -> Mapping[str, Any] | None: ...

    def note_input(self, name: str, value: Any) -> None:
        """Remember what was resolved; shown as `node_finished.inputs`."""
        ...

    def node_components(self) -> Mapping[str, str]:
        """Component name of every node of the canvas, by id."""
        ...

    def children(self) -> Sequence[str]:
        """Ids of the nodes whose parent is this container (or this item node's container), in component order."""
        ...

    def parent_params(self) -> Mapping[str, Any]:
        """Params of the container around this node ({} outside)."""
        ...

    # -- containers ---------------------------------------------------------------------------------------------
    def collected(self) -> Mapping[str, list[Any]]:
        """For an item node: what the container's `outputs.{k}.ref` collect from all passes so far, in item order."""
        ...

    def container_outputs(self) -> Mapping[str, Any]:
        """For an item node or ExitLoop: the container's current outputs (loop variables with later assignments)."""
        ...

    # -- speech -------------------------------------------------------------------------------------------------
    @property
    def speaks(self) -> bool:
        """For a model node: a Message shows its text, so it streams (components 1.8). Else it answers as a whole."""
        ...

    @property
    def heard(self) -> bool:
        """False for a model node that meets 1.8 but whose content no node refers to: it is not called at all."""
        ...

    def listens_to(self, node_id: str) -> bool:
        """For a Message: the node speaks in this Message's turn, so think tags in its content become markers."""
        ...

    async def say(self, text: str) -> None:
        """Give text to the user's ear. Costs nothing when the node has no turn. May contain THINK_START/THINK_END."""
        ...

    # -- outside world ------------------------------------------------------------------------------------------
    async def model(self, llm_id: str) -> ChatModel:
        """A chat model by id. Raises ModelError when the tenant has no such model."""
        ...

    def spent(self, usage: Usage) -> None:
        """Add to the attempt's usage, which the run sums."""
        ...

    async def history(self, window: int) -> Sequence[Mapping[str, Any]]:
        """The last 2*window entries `{role, content}` of the conversation; [] for window <= 0.

        The current user entry is among them. `content` is text, or the plain value of engine 7 (the `content` member
        of object entries).
        """
        ...

    async def references(self) -> Mapping[str, Any]:
        """The run's reference store so far: {"chunks": {id: chunk}, "doc_aggs": {name: agg}}."""
        ...

    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        """Add evidence to the run's references, for this turn; the display number of each chunk, in order.

        A chunk has `chunk_id`, a document `doc_name`. The first with an id keeps its number (tools 1.6), a second
        attempt gets the numbers of the first.
        """
        ...

    async def file_text(self, descriptor: Mapping[str, Any], layout_recognize: str) -> str:
        """An uploaded file as one text block, or as a data URI for images (components 3.1.1)."""
        ...

    def descriptors(self, expression: str) -> list[Mapping[str, Any]]:
        """The raw file descriptors behind a form's file field or `sys.files`, whose value is text; [] for others."""
        ...

    async def read_file(self, descriptor: Mapping[str, Any]) -> bytes:
        """The bytes of a stored file of the tenant, by `id`, `file_id` or `doc_id`. Raises NodeFailure: not there."""
        ...

    async def save_file(self, name: str, data: bytes, mime_type: str, *, place: str = "") -> Mapping[str, Any]:
        """Keep a produced file: {"doc_id": 32 hex digits, "filename", "mime_type", "size"}.

        What another attempt of this activation saves under the same name and place is the same file.
        """
        ...

    @property
    def services(self) -> Services:
        """The tenant's way to the outside world, models apart."""
        ...

    def caller_headers(self) -> Mapping[str, str]:
        """Headers for MCP servers that came with the request of this turn; they may hold secrets (components E15)."""
        ...

    def time_limit(self, component: str) -> float:
        """Seconds that a component of this class may take, for tools that run inside this node."""
        ...

    # -- what a second attempt needs not do again ---------------------------------------------------------------
    async def recall(self, key: str) -> Any:
        """What an earlier attempt of this activation recorded under the key; None if nothing."""
        ...

    async def record(self, key: str, value: Any) -> bool:
        """Record a JSON value under a key of this activation, for good, before it is acted upon.

        False: the key had a value before, which stays.
        """
        ...

    @property
    def on_unknown(self) -> OnUnknown:
        """What follows, by the author's choice, when nobody knows whether this node has acted."""
        ...

    def unrepeatable(self) -> AbstractAsyncContextManager[None]:
        """Around work that may not be done twice, and the record of what came of it.

        A worker that is lost meanwhile leaves the question whether it has happened
        (canvas/graph/uncertain_outcomes.py). Entering waits for the disk; an attempt that has lost its lease ends
        there.
        """
        ...

    async def trace(self, call: Mapping[str, Any]) -> None:
        """Note a tool call: {path, tool_name, arguments, result, elapsed_time} (engine 5.7)."""
        ...

    async def remember(self, memory_ids: Sequence[str], user_id: str, answer: str) -> None:
        """Save what was asked and answered into memories (components 5). Raises ToolError."""
        ...

    def warn(self, code: str, message: str) -> None:
        """Tell those who look at the run what its outputs do not show; the node goes on. Not for what fails it.

        `code` stays the same when the words change. Texts of canvases and vendors may be in the message, keys may not.
        """
        ...

    @property
    def log(self) -> Any: ...
