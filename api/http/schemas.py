"""Schemas of request bodies, which also describe them in OpenAPI.

Keys with null count as absent; unknown keys are refused (api/requests/request_bodies.py). RAGFlow's clients send some
fields that have no effect here. A schema lists these with the values that need no effect (`without_effect`), and a
reply warns about any other value.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from canvas.errors import InvalidRequest
from canvas.graph.uncertain_outcomes import OUTCOME


def parse_flag(value: Any) -> Any:
    """Return the boolean of a flag that may be a text: RAGFlow's front end sends "true"."""
    return value.strip().lower() not in ("", "false", "0", "no") if isinstance(value, str) else bool(value)


Flag = Annotated[bool, BeforeValidator(parse_flag)]
Text = Annotated[str, Field(max_length=100_000)]

CALLBACKS = (
    "Who is told when the run ends or waits: {url, events, include, secret}, or {id, events, include} with the id of a "
    "stored callback"
)
HEADERS = "Headers for MCP servers; they are stored encrypted"


def _object_or_nothing(value: Any) -> Any:
    """Return None for an empty text, which RAGFlow's clients send if they have no headers; else the value."""
    return None if value == "" else value


Headers = Annotated[dict[str, Any] | None, BeforeValidator(_object_or_nothing)]

NoEffect: TypeAlias = Mapping[str, tuple[Any, ...]]
"""Fields without an effect, each with the values that need none."""

READ_ONLY_FIELDS: NoEffect = dict.fromkeys(
    ("id", "tenant_id", "created_by", "create_time", "create_date", "update_time", "update_date"), ()
)
"""Read-only fields of replies, which clients send back together with the fields that they change."""


def number_or_text(*numbers: int) -> WithJsonSchema:
    """Return the schema of a field that has one of these numbers, or one of them as a text.

    Clients cannot be generated of one enumeration with both.
    """
    texts = [str(number) for number in numbers]
    return WithJsonSchema({"anyOf": [{"type": "string", "enum": texts}, {"type": "integer", "enum": list(numbers)}]})


class Body(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    without_effect: ClassVar[NoEffect] = {}
    """Fields of RAGFlow's clients that have no effect here, each with the values that need none."""


class CanvasFields(Body):
    """The fields of a canvas; an update has the fields that change."""

    without_effect: ClassVar[NoEffect] = {
        **READ_ONLY_FIELDS,
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


class TagsBody(Body):
    """The new tags of a canvas: a list, or a comma list. A comma inside of a listed tag becomes a blank."""

    tags: list[str] | str


class PublishBody(Body):
    """The document to publish, which becomes the draft; by default the draft."""

    title: Annotated[str, Field(max_length=255)] | None = None
    description: Text | None = None
    dsl: dict[str, Any] | str | None = None


class NewSessionBody(Body):
    """A new session."""

    without_effect: ClassVar[NoEffect] = {"id": ()}  # RAGFlow's front end repeats the agent's id

    user_id: str | None = None
    name: str | None = None
    release: Flag = False


class DeleteSessionsBody(Body):
    """The sessions to delete."""

    ids: list[str] = Field(default_factory=list[str], max_length=100)
    delete_all: Flag = False


class TurnBody(Body):
    """A turn: the input of the user, and options of the run and the answer."""

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
        default=None, description="Limits of the run: {tokens, calls, seconds, money, currency}"
    )
    callbacks: list[dict[str, Any]] | None = Field(default=None, description=CALLBACKS, max_length=10)
    run_timeout: float | None = Field(
        default=None, gt=0, description="Seconds after which the run fails: another name for `seconds` of `budget`"
    )

    def options(self) -> dict[str, Any]:
        """Return the given options of a start (scheduler/lifecycle/start_options.py). Raises InvalidRequest."""
        files = self.files[0] if self.files and isinstance(self.files[0], list) else self.files
        options: dict[str, Any] = {
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
            "callbacks": self.callbacks or None,
        }
        return {name: value for name, value in options.items() if value is not None}

    def _limits(self) -> dict[str, Any] | None:
        if self.run_timeout is None:
            return self.budget
        if self.budget is not None and self.budget.get("seconds") is not None:
            message = "`run_timeout` and `seconds` of `budget` are the same limit. Use one of them."
            raise InvalidRequest(message, field="run_timeout")
        return {**(self.budget or {}), "seconds": self.run_timeout}


class CompletionBody(TurnBody):
    """A turn in RAGFlow's format, or in OpenAI's with `openai-compatible`."""

    without_effect: ClassVar[NoEffect] = {"running_hint_text": (), "model": ()}

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    agent_id: str | None = None
    stream: Flag = False
    return_trace: Flag = False
    events: Literal["", "compact"] | None = Field(
        default=None, description="`compact`: text, ends of nodes, forms and usage only"
    )
    openai_compatible: Flag = Field(default=False, alias="openai-compatible")


class RunBody(CompletionBody):
    """A turn of `/run`, which accepts further names of the query."""

    user_input: str | dict[str, Any] | None = None
    message: str | dict[str, Any] | None = None
    resume_from: str | None = Field(default=None, description="A run that has failed: a fork goes on from there")
    confirm_unsafe: list[str] = Field(
        default_factory=list[str], description="With `resume_from`: nodes whose side effects may happen again"
    )


class ResumeBody(Body):
    """Answers to the forms of a run that waits, and to its questions about uncertain outcomes."""

    inputs: dict[str, Any] | None = None
    outcomes: dict[str, Literal["happened", "again"]] = Field(
        default_factory=dict[str, Literal["happened", "again"]],
        description="Node -> what happened to its action; `*` for all nodes that ask",
    )
    query: str | dict[str, Any] | None = None
    files: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    user_id: str | None = None
    custom_header: Headers = Field(default=None, description=HEADERS)
    budget: dict[str, Any] | None = Field(
        default=None, description="New limits of the run; nodes that a budget has stopped continue"
    )

    def all_inputs(self) -> dict[str, Any] | None:
        """Return the inputs, with the outcomes as form fields."""
        answers = {f"{node}{OUTCOME}": answer for node, answer in self.outcomes.items()}
        return {**(self.inputs or {}), **answers} if answers else self.inputs


class BudgetBody(Body):
    """Limits of a run, a session, the tenant or its day; without an id, of every run or session."""

    scope: Literal["run", "session", "tenant", "day"]
    id: str | None = None
    tokens: int | None = None
    calls: int | None = None
    seconds: float | None = None
    money: float | None = None
    currency: str | None = None


class CancelBody(Body):
    """The run or session of an agent to cancel; by default all its open runs."""

    session_id: str | None = None
    run_id: str | None = None


class CancelRunsBody(Body):
    """The runs to cancel, by their ids or external ids."""

    ids: Annotated[list[str], Field(max_length=500)]


class TaskActionBody(Body):
    """An action on a task; the only one is `stop`."""

    action: str | None = None
