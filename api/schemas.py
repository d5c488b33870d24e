"""Request bodies, as OpenAPI describes them. Unknown keys are ignored, keys with null count as absent."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from canvas.unknown import OUTCOME


def _truthy(value: Any) -> Any:
    """`true`, or any text that does not say no: RAGFlow's front end sends "true"."""
    return value.strip().lower() not in ("", "false", "0", "no") if isinstance(value, str) else bool(value)


Flag = Annotated[bool, BeforeValidator(_truthy)]
Text = Annotated[str, Field(max_length=100_000)]

HEADERS = "Headers for MCP servers; they are kept sealed"


class Body(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class CanvasFields(Body):
    """What a canvas is made of; an update gives what is to change."""

    title: Annotated[str, Field(max_length=255)] | None = None
    dsl: dict[str, Any] | str | None = Field(default=None, description="The document, or its JSON text")
    description: Text | None = None
    avatar: str | None = None
    canvas_type: Annotated[str, Field(max_length=255)] | None = None
    canvas_category: Annotated[str, Field(max_length=64)] | None = None
    permission: Literal["me", "team"] | None = None
    release: Flag = False


class Tags(Body):
    """The tags that a canvas is to have: a list, or comma text. A comma inside of a listed one becomes a blank."""

    tags: list[str] | str


class Publishing(Body):
    """What to publish: the draft, or a document that becomes the draft."""

    title: Annotated[str, Field(max_length=255)] | None = None
    description: Text | None = None
    dsl: dict[str, Any] | str | None = None


class NewSession(Body):
    """A session to be created."""

    user_id: str | None = None
    name: str | None = None
    release: Flag = False


class SomeSessions(Body):
    """Sessions to be deleted."""

    ids: list[str] = Field(default_factory=list[str], max_length=100)
    delete_all: Flag = False


class Turn(Body):
    """What a caller says, and how the answer is wanted."""

    query: str | dict[str, Any] | None = None
    question: str | dict[str, Any] | None = None
    inputs: dict[str, Any] | None = Field(default=None, description="Form values: name -> {value, type} or value")
    files: list[Any] = Field(default_factory=list[Any])
    session_id: str | None = None
    user_id: str | None = None
    name: str | None = None
    release: Flag = False
    version: str | None = None
    on_busy: str | None = Field(default=None, description="refuse (default), enqueue or interrupt")
    custom_header: dict[str, Any] | None = Field(default=None, description=HEADERS)
    chat_template_kwargs: dict[str, Any] | None = None
    cancel_on_disconnect: Flag = False
    idempotency_key: Annotated[str, Field(max_length=255)] | None = None
    budget: dict[str, Any] | None = Field(
        default=None, description="What the run may spend: {tokens, calls, seconds, money, currency}"
    )

    def options(self) -> dict[str, Any]:
        """The options of a start (scheduler/requests.py), those that were given."""
        files = self.files[0] if self.files and isinstance(self.files[0], list) else self.files
        given: dict[str, Any] = {
            "query": self.question if self.query is None else self.query,
            "inputs": self.inputs,
            "files": files or None,
            "session_id": self.session_id,
            "user_id": self.user_id,
            "name": self.name,
            "release": self.release or None,
            "version": self.version,
            "on_busy": self.on_busy,
            "chat_template_kwargs": self.chat_template_kwargs,
            "cancel_on_disconnect": self.cancel_on_disconnect or None,
            "idempotency_key": self.idempotency_key,
            "budget": self.budget,
        }
        return {name: value for name, value in given.items() if value is not None}


class Completion(Turn):
    """A turn in RAGFlow's words, or in OpenAI's with `openai-compatible`."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    agent_id: str | None = None
    stream: Flag = False
    return_trace: Flag = False
    events: str | None = Field(default=None, description="`compact`: text, ends of nodes, forms and usage only")
    openai_compatible: Flag = Field(default=False, alias="openai-compatible")


class Running(Completion):
    """A turn of `/run`, where what is said has more names."""

    user_input: str | dict[str, Any] | None = None
    message: str | dict[str, Any] | None = None


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


class ChatCompletion(Body):
    """An OpenAI request (http-api 4.2); `model` is ignored."""

    messages: list[ChatMessage] = Field(default_factory=list[ChatMessage])
    stream: Flag = False
    session_id: str | None = None
    id: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    user_id: str | None = None
    release: Flag = False
    on_busy: str | None = Field(default=None, description="refuse (default), enqueue or interrupt")
    custom_header: dict[str, Any] | None = Field(default=None, description=HEADERS)
    cancel_on_disconnect: Flag = False
    idempotency_key: str | None = None

    def key(self) -> dict[str, Any]:
        """The idempotency key among the options of a start, if the body has one."""
        return {"idempotency_key": self.idempotency_key} if self.idempotency_key is not None else {}

    @property
    def session(self) -> str | None:
        """The session that goes on, wherever it is named."""
        named = self.metadata.get("id")
        return self.session_id or self.id or (named if isinstance(named, str) else None)


class Answers(Body):
    """A person's answers to the forms of a run that waits, and to its questions what has happened."""

    inputs: dict[str, Any] | None = None
    outcomes: dict[str, Literal["happened", "again"]] = Field(
        default_factory=dict[str, Literal["happened", "again"]],
        description="Node -> what is known of it now; `*` for all nodes that ask",
    )
    query: str | dict[str, Any] | None = None
    files: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    user_id: str | None = None
    custom_header: dict[str, Any] | None = Field(default=None, description=HEADERS)
    budget: dict[str, Any] | None = Field(
        default=None, description="What the run may spend from now on; nodes go on that a budget has stopped"
    )

    def all_inputs(self) -> dict[str, Any] | None:
        """The inputs, and the outcomes as the fields that they answer."""
        told = {f"{node}{OUTCOME}": answer for node, answer in self.outcomes.items()}
        return {**(self.inputs or {}), **told} if told else self.inputs


class Budget(Body):
    """Limits of a run, a session, the tenant or its day; without an id of each run or session."""

    scope: Literal["run", "session", "tenant", "day"]
    id: str | None = None
    tokens: int | None = None
    calls: int | None = None
    seconds: float | None = None
    money: float | None = None
    currency: str | None = None


class Cancelling(Body):
    """What of an agent to cancel; nothing named: all its active runs."""

    session_id: str | None = None
    run_id: str | None = None


class TaskAction(Body):
    """What to do with a task; `stop` is all there is."""

    action: str | None = None
