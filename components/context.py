"""NodeContext: everything that a component may use, as a set of small ports.

`worker/context/node_context.py` implements it for attempts, `tests/fakes.py` for unit tests. A component takes the
whole context; code that needs one port only, such as a tool's helper, declares that port.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from canvas.graph.uncertain_outcomes import OnUnknown
from providers.interfaces import Services
from providers.models.types.chat import ChatModel, Usage

THINK_START = "\ufdd0"  # in streamed text: what follows is reasoning
THINK_END = "\ufdd1"  # in streamed text: reasoning ends
AUDIO_START = "\ufdd2"  # in streamed text: the id of an audio file follows, 32 hex digits
AUDIO_END = "\ufdd3"  # in streamed text: the id of an audio file ends


@dataclass(frozen=True, slots=True)
class ToolCallPosition:
    """Where a tool call is among the calls of an activation, and how it ended.

    `round` is the key in the journal of the reply that asked for it ("round:0"; of a sub-agent "0:1/round:0"), None
    outside of rounds. `is_replayed`: the result is that of an earlier attempt, and nothing was called.
    """

    round: str | None = None
    ordinal: int | None = None
    has_failed: bool = False
    is_replayed: bool = False


class NodeIdentity(Protocol):
    """Which node this is, and which of its activations."""

    @property
    def node_id(self) -> str: ...

    @property
    def name(self) -> str:
        """The node's display name, "" if it has none."""
        ...

    @property
    def component(self) -> str: ...

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters as stored, with aliases replaced by the names that they stand for."""
        ...

    @property
    def parent_id(self) -> str | None:
        """The container around the node."""
        ...

    @property
    def run_id(self) -> str: ...

    @property
    def choice_seed(self) -> str:
        """The seed of choices by chance: the same in every attempt, and in a replay the same as in the recorded run."""
        ...

    @property
    def canvas_id(self) -> str:
        """The same in every version and run of the canvas."""
        ...

    @property
    def activation_id(self) -> str:
        """The same in every attempt, and unique: repeated work is recognised by it."""
        ...

    @property
    def visit(self) -> int:
        """0-based number of this activation of the node in its scope."""
        ...

    @property
    def scope_item(self) -> int:
        """0-based pass of the innermost container around the node; 0 outside of containers."""
        ...


class NodeValues(Protocol):
    """The values that the node may read. Everything that its parameters refer to was read before it started."""

    def lookup(self, expression: str) -> Any:
        """Return the value that a reference, with or without braces, points at. Its type is preserved.

        Inside an Iteration, `item`, `index` and `result` are those of the innermost one.
        Raises UnresolvedReference ("Can't find variable: '...'") for an unknown node or global.
        """
        ...

    def is_reference(self, text: str) -> bool:
        """Return whether the whole text is one reference, with or without braces (RAGFlow: `is_reff`)."""
        ...

    def exists(self, expression: str) -> bool:
        """Return whether `lookup` finds the node or global. Its value may be null."""
        ...

    def has_run(self, node_id: str) -> bool:
        """Return whether the node has run in this run, as far as this node sees."""
        ...

    def display_name(self, node_id: str) -> str:
        """Return the display name of any node of the canvas, "" if it has none."""
        ...

    def previous_output(self, name: str) -> Any:
        """Return this node's own output from an earlier pass or turn; None if there is none."""
        ...

    def previous_inputs(self) -> Mapping[str, Any]:
        """For Begin: return its inputs as of the conversation's previous turn; {} in the first turn."""
        ...

    @property
    def answers(self) -> Mapping[str, Any] | None:
        """Begin: the request's `inputs`. A form: what the person answered, None while it has not been asked."""
        ...

    @property
    def webhook_payload(self) -> Mapping[str, Any] | None: ...

    def note_input(self, name: str, value: Any) -> None:
        """Record a resolved value, which `node_finished.inputs` shows."""
        ...

    def node_components(self) -> Mapping[str, str]:
        """Return the component name of every node of the canvas, by id."""
        ...

    def parent_params(self) -> Mapping[str, Any]:
        """Return the parameters of the container around this node; {} outside of containers."""
        ...

    def collected_lists(self) -> Mapping[str, list[Any]]:
        """For an item node: return what the container has collected so far (`outputs.{k}.ref`), in item order."""
        ...

    def container_outputs(self) -> Mapping[str, Any]:
        """For an item node or ExitLoop: return the container's outputs, with later assignments to loop variables."""
        ...


class NodeStream(Protocol):
    """The text that the node streams to the user."""

    @property
    def is_streaming(self) -> bool:
        """For a model node: whether a Message streams its text. Otherwise the answer is needed as a whole."""
        ...

    @property
    def has_reader(self) -> bool:
        """False for a model node that would stream but whose content no node refers to: its model is not called."""
        ...

    def streams_from(self, node_id: str) -> bool:
        """For a Message: return whether the node streams into it, so that think tags in its content become markers."""
        ...

    async def write(self, text: str) -> None:
        """Stream text to the user; may contain THINK_START and THINK_END. Does nothing without a message stream."""
        ...


class NodeModels(Protocol):
    """Models, what they cost, and the conversation that they are given."""

    async def model(self, llm_id: str) -> ChatModel:
        """Return a chat model by id. Raises ModelError if the tenant has no such model."""
        ...

    def add_usage(self, usage: Usage) -> None:
        """Add to the usage of the attempt, which the run sums."""
        ...

    async def history(self, window: int) -> Sequence[Mapping[str, Any]]:
        """Return the last 2*window entries `{role, content}` of the conversation; [] for window <= 0.

        The current user entry is among them. `content` is a text, or the plain value (of object entries, their member
        `content`).
        """
        ...


class NodeEvidence(Protocol):
    """The references of the run: what its answers cite."""

    async def references(self) -> Mapping[str, Any]:
        """Return the run's references so far: {"chunks": {id: chunk}, "doc_aggs": {name: agg}}."""
        ...

    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        """Add evidence to the run's references for this turn; return the display number of each chunk, in order.

        A chunk has `chunk_id`, a document `doc_name`. An id keeps the number that it was given first; a second attempt
        gets the numbers of the first.
        """
        ...


class NodeFiles(Protocol):
    """Files that users uploaded, and files that nodes produce."""

    async def file_text(self, descriptor: Mapping[str, Any], layout_recognize: str) -> str:
        """Return an uploaded file as one text block, or an image as a data URI."""
        ...

    def descriptors(self, expression: str) -> list[Mapping[str, Any]]:
        """Return the file descriptors behind a form's file field or `sys.files`, whose value is text; [] for others."""
        ...

    async def read_file(self, descriptor: Mapping[str, Any]) -> bytes:
        """Return the bytes of a stored file of the tenant, by `id`, `file_id` or `doc_id`. Raises NodeFailure."""
        ...

    async def save_file(self, name: str, data: bytes, mime_type: str, *, place: str = "") -> Mapping[str, Any]:
        """Store a produced file; return {"doc_id": 32 hex digits, "filename", "mime_type", "size"}.

        A file that another attempt of this activation saves under the same name and place is the same file.
        """
        ...


class NodeServices(Protocol):
    """What the node may reach outside, models apart."""

    @property
    def services(self) -> Services:
        """The services of the tenant: HTTP, knowledge, sandboxes, databases, mail, MCP."""
        ...

    def caller_headers(self) -> Mapping[str, str]:
        """Return the headers for MCP servers that came with the request of this turn. They may hold secrets."""
        ...

    def time_limit(self, component: str) -> float:
        """Return the seconds that a component of this class may take, for tools that run inside this node."""
        ...

    async def remember(self, memory_ids: Sequence[str], user_id: str, answer: str) -> None:
        """Save the user's message and the answer into memories. Raises ToolError."""
        ...


class NodeJournal(Protocol):
    """What a later attempt of the activation need not do again, or must not."""

    async def journal_get(self, key: str) -> Any:
        """Return what an earlier attempt of this activation recorded under the key; None if nothing."""
        ...

    async def journal_put(self, key: str, value: Any) -> bool:
        """Record a JSON value under a key of this activation; it is durable when this returns.

        False: the key had a value before, which stays.
        """
        ...

    @property
    def on_unknown(self) -> OnUnknown:
        """What the author wants if it is not known whether this node has acted."""
        ...

    def non_repeatable(self) -> AbstractAsyncContextManager[None]:
        """Enclose work that must not be done twice, and the record of its result.

        If the worker is lost inside, it is not known whether the work took place
        (canvas/graph/uncertain_outcomes.py). Entering waits for the disk; an attempt that has lost its lease ends
        there.
        """
        ...

    async def trace(self, call: Mapping[str, Any], at: ToolCallPosition | None = None) -> None:
        """Record a tool call for people: {path, tool_name, arguments, result, elapsed_time}."""
        ...


class NodeLog(Protocol):
    """Messages for those who look at the run or at the log."""

    def warn(self, code: str, message: str) -> None:
        """Record a warning that the run shows; the node continues. Not for a failure.

        `code` stays the same when the words change. The message may contain texts of canvases and vendors, but no keys.
        """
        ...

    @property
    def log(self) -> Any: ...


class NodeContext(
    NodeIdentity,
    NodeValues,
    NodeStream,
    NodeModels,
    NodeEvidence,
    NodeFiles,
    NodeServices,
    NodeJournal,
    NodeLog,
    Protocol,
):
    """One attempt's view of its node, run and environment: all ports together."""
