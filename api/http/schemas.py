"""Request bodies, as OpenAPI describes them. Keys with null count as absent; unknown ones are refused
(api/http/request_bodies.py).

RAGFlow's clients send some fields that have no effect here. A schema lists these with the values that hold anyway
(`without_effect`), and a reply warns of any other value.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from canvas.errors import InvalidRequest
from canvas.graph.uncertain_outcomes import OUTCOME


def truthy(value: Any) -> Any:
    """`true`, or any text that does not say no: RAGFlow's front end sends "true"."""
    return value.strip().lower() not in ("", "false", "0", "no") if isinstance(value, str) else bool(value)


Flag = Annotated[bool, BeforeValidator(truthy)]
Text = Annotated[str, Field(max_length=100_000)]

HEADERS = "Headers for MCP servers; they are kept sealed"


def _object_or_nothing(value: Any) -> Any:
    """An object; an empty text is none, since RAGFlow's clients send it where they have no headers."""
    return None if value == "" else value


Headers = Annotated[dict[str, Any] | None, BeforeValidator(_object_or_nothing)]

NoEffect: TypeAlias = Mapping[str, tuple[Any, ...]]
"""Fields without an effect, each with the values that hold anyway."""

SHOWN: NoEffect = dict.fromkeys(
    ("id", "tenant_id", "created_by", "create_time", "create_date", "update_time", "update_date"), ()
)
"""What replies show of a thing and nobody can change. Clients send it back with what they have changed."""


class Body(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    without_effect: ClassVar[NoEffect] = {}
    """Fields of RAGFlow's clients that are not acted upon here, with the values that hold anyway."""


class CanvasFields(Body):
    """What a canvas is made of; an update gives what is to change."""

    without_effect: ClassVar[NoEffect] = {
        **SHOWN,
        **dict.fromkeys(("user_id", "nickname", "tenant_avatar", "last_publish_time", "release_time", "tags"), ()),
        "type": ("agent",),
    }

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

    without_effect: ClassVar[NoEffect] = {"id": ()}  # RAGFlow's front end names the agent once more

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
    custom_header: Headers = Field(default=None, description=HEADERS)
    chat_template_kwargs: dict[str, Any] | None = None
    cancel_on_disconnect: Flag = False
    idempotency_key: Annotated[str, Field(max_length=255)] | None = None
    budget: dict[str, Any] | None = Field(
        default=None, description="What the run may spend: {tokens, calls, seconds, money, currency}"
    )
    run_timeout: float | None = Field(
        default=None, gt=0, description="Seconds after which the run fails: another name for `seconds` of `budget`"
    )

    def options(self) -> dict[str, Any]:
        """The options of a start (scheduler/lifecycle/start_options.py), those that were given. Raises
        InvalidRequest.
        """
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
            "budget": self._limits(),
        }
        return {name: value for name, value in given.items() if value is not None}

    def _limits(self) -> dict[str, Any] | None:
        if self.run_timeout is None:
            return self.budget
        if self.budget is not None and self.budget.get("seconds") is not None:
            message = "`run_timeout` and `seconds` of `budget` are one limit. Give one of them."
            raise InvalidRequest(message, field="run_timeout")
        return {**(self.budget or {}), "seconds": self.run_timeout}


class Completion(Turn):
    """A turn in RAGFlow's words, or in OpenAI's with `openai-compatible`."""

    without_effect: ClassVar[NoEffect] = {"running_hint_text": (), "model": ()}

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    agent_id: str | None = None
    stream: Flag = False
    return_trace: Flag = False
    events: Literal["", "compact"] | None = Field(
        default=None, description="`compact`: text, ends of nodes, forms and usage only"
    )
    openai_compatible: Flag = Field(default=False, alias="openai-compatible")


class Running(Completion):
    """A turn of `/run`, where what is said has more names."""

    user_input: str | dict[str, Any] | None = None
    message: str | dict[str, Any] | None = None


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
    custom_header: Headers = Field(default=None, description=HEADERS)
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
