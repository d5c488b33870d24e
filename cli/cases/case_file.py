"""The format of cases, `easel-case/1`: a recorded run, and what it takes to run it again without the outside world.

docs/cases.md describes the file. Values that are too large for it are files of their own in a folder beside it, named
by their hash; where nothing may lie beside it, a value that is only compared is cut, and compared by its hash.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from canvas.errors import InvalidRequest, StateError
from canvas.state.run_state import scope_key
from store.primitives import outcome_codec
from store.primitives.json_codec import encode

FORMAT = "easel-case/1"
MAX_VALUE_BYTES = 256 * 1024  # of a value's JSON in the file itself
_HEAD = 1000  # characters of a cut value that are kept for people


class MalformedRunCase(InvalidRequest):
    """A case cannot be read. The message names the file, the position and the remedy."""

    code = "malformed_case"


class ValueTooLarge(InvalidRequest):
    """A value that a replay needs is too large to be kept in the file."""

    code = "value_too_large"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedCall(_Part):
    """A call of a model. `messages`, `tools` and `response` name parts of the case."""

    key: str | None = None
    kind: str = "chat"
    model: str
    status: str = "ok"
    error: str | None = None
    messages: tuple[str, ...] = ()
    tools: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    response: str | None = None
    usage: dict[str, int] = Field(default_factory=dict)


class RecordedToolCall(_Part):
    """A tool call of an Agent, as it is compared. Its result for the replay is in the step's journal."""

    round: str | None = None
    ordinal: int | None = None
    name: str | None = None
    arguments: Any = None
    result: Any = None
    failed: bool = False


class Citations(_Part):
    """What a step cited, in which turn of the run."""

    turn: int
    documents: tuple[dict[str, Any], ...] = ()


class CaseStep(_Part):
    """An activation. `as_recorded`: a replay reports this outcome and these outputs instead of running its code."""

    node: str
    scope: str = ""
    ordinal: int = 0
    component: str
    status: str
    as_recorded: bool = False
    outcome: dict[str, Any] | None = None
    inputs: dict[str, Any] = Field(default_factory=dict)
    outputs: dict[str, Any] = Field(default_factory=dict)
    container: dict[str, dict[str, Any]] = Field(default_factory=dict)
    variables: dict[str, Any] = Field(default_factory=dict)
    text: str | None = None
    usage: dict[str, int] = Field(default_factory=dict)
    model_calls: tuple[RecordedCall, ...] = ()
    tool_calls: tuple[RecordedToolCall, ...] = ()
    journal: dict[str, Any] = Field(default_factory=dict)
    cites: Citations | None = None

    @field_validator("scope")
    @classmethod
    def _is_a_scope(cls, scope: str) -> str:
        scope_key(scope)
        return scope

    @field_validator("outcome")
    @classmethod
    def _is_an_outcome(cls, outcome: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            if outcome is not None:
                outcome_codec.decode_outcome(outcome)
        except KeyError as error:
            raise ValueError(f"the outcome lacks its member {error}") from error
        except StateError as error:
            raise ValueError(f"this is not an outcome of a step: {error}") from error
        return outcome

    @property
    def key(self) -> tuple[str, str, int]:
        """Return what identifies the step in every run of the canvas."""
        return self.node, self.scope, self.ordinal

    @property
    def label(self) -> str:
        """Return the name of the step for people: `LLM:0 visit 2 in Iteration:A#0.3`."""
        visit = f" visit {self.ordinal + 1}" if self.ordinal else ""
        return f"{self.node}{visit}{f' in {self.scope}' if self.scope else ''}"

    @property
    def has_ended(self) -> bool:
        """Return whether the step has an outcome that the run has applied."""
        return self.outcome is not None and self.status not in ("ready", "running", "reported", "queued")


class Turn(_Part):
    """An answer to the run's open forms. `date` is `sys.date` of the turn."""

    query: Any = ""
    inputs: dict[str, Any] | None = None
    files: tuple[dict[str, Any], ...] = ()
    date: str = ""


class Baseline(_Part):
    """The globals and values that the run began with. `given`: of a run of one node, the nodes that count as run."""

    globals: dict[str, Any]
    values: dict[str, Any] = Field(default_factory=dict)
    files: list[Any] = Field(default_factory=list)
    inputs: dict[str, Any] = Field(default_factory=dict)
    given: list[str] | None = None


class CaseStart(_Part):
    """What the run began with."""

    query: Any = ""
    inputs: dict[str, Any] | None = None
    files: tuple[dict[str, Any], ...] = ()
    user_id: str = ""
    webhook_payload: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    baseline: Baseline
    history: tuple[tuple[str, Any], ...] = ()
    turns: tuple[Turn, ...] = ()


class CaseFile(_Part):
    """A file that was uploaded for the run; `content` is base64."""

    id: str
    name: str
    mime_type: str
    content: str

    @field_validator("content")
    @classmethod
    def _is_base64(cls, content: str) -> str:
        base64.b64decode(content, validate=True)
        return content

    @property
    def data(self) -> bytes:
        """Return the bytes of the file."""
        return base64.b64decode(self.content)


class CaseModel(_Part):
    """A model as its account described it. `context_tokens` null: it is not known, and no prompt is cut."""

    name: str
    factory: str
    context_tokens: int | None = None
    is_tools: bool = True
    kinds: tuple[str, ...] = ("chat", "vision")


class CaseMcpTool(_Part):
    """A tool of an MCP server, as it was offered to models: its stored description, and the schema of its arguments."""

    server: str
    name: str
    description: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)


class RecordedEvent(_Part):
    """An event of the run. `step` is the index of its step; null: the run's own."""

    event: str
    node: str | None = None
    step: int | None = None
    body: dict[str, Any] = Field(default_factory=dict)


class CaseResult(_Part):
    """What came of the run. `answer`: its message streams in order, as (node, text)."""

    status: Literal["succeeded", "failed", "cancelled", "waiting"]
    error: str = ""
    answer: tuple[tuple[str, str], ...] = ()
    events: tuple[RecordedEvent, ...] = ()


class Recorded(_Part):
    """Where and when the case was recorded, for people. `seed`: what choices by chance depended on."""

    seed: str
    agent: str = ""
    at: str = ""
    release: str = ""


class RunCase(_Part):
    """A recorded run."""

    format: str = FORMAT
    name: str
    recorded: Recorded
    document: dict[str, Any]
    start: CaseStart
    files: tuple[CaseFile, ...] = ()
    models: dict[str, CaseModel] = Field(default_factory=dict)
    mcp_tools: tuple[CaseMcpTool, ...] = ()
    parts: dict[str, Any] = Field(default_factory=dict)
    citations: dict[str, tuple[dict[str, Any], ...]] = Field(default_factory=dict)  # chunks by turn
    steps: tuple[CaseStep, ...]
    result: CaseResult

    @model_validator(mode="after")
    def _is_whole(self) -> "RunCase":
        """Refuse names of parts and steps that the case does not have."""
        for step in self.steps:
            for call in step.model_calls:
                named = [*call.messages, *(name for name in (call.tools, call.response) if name is not None)]
                missing = [name for name in named if name not in self.parts]
                if missing:
                    raise ValueError(f"a model call of {step.label} names part {missing[0]}, which is not there")
        for event in self.result.events:
            if event.step is not None and not 0 <= event.step < len(self.steps):
                raise ValueError(f"an event names step {event.step}, and there are {len(self.steps)}")
        return self


# -- reading ----------------------------------------------------------------------------------------------------------
def read_case(file: Path) -> RunCase:
    """Read a case and the values beside it. Raises MalformedRunCase."""
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MalformedRunCase(f"{file} cannot be read as JSON: {error}") from error
    found = written.get("format") if isinstance(written, Mapping) else None
    if found != FORMAT:
        raise MalformedRunCase(
            f"{file} is not a case: its format is {str(found)[:40]!r} and not {FORMAT}. `easel record RUN` writes "
            "cases; one of a newer release needs that release."
        )
    folder = values_folder(file)
    try:
        return RunCase.model_validate(_map_values(written, lambda value: _load_beside(value, folder)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise MalformedRunCase(f"{file}: {where}: {first['msg']}") from error


def values_folder(file: Path) -> Path:
    """Return the folder with the large values of a case."""
    return file.with_suffix(".values")


def _load_beside(value: Any, folder: Path) -> Any:
    if not is_beside(value):
        return value
    content = folder / f"{value['$beside']}.json"
    try:
        data = content.read_bytes()
    except OSError as error:
        raise MalformedRunCase(f"{content} is missing. It belongs to the case; keep both together.") from error
    if hashlib.sha256(data).hexdigest() != value["$beside"]:
        raise MalformedRunCase(f"{content} has been changed. Take it from where the case was recorded.")
    return json.loads(data)


# -- writing ----------------------------------------------------------------------------------------------------------
def case_text(case: RunCase, beside: Callable[[str, bytes], None] | None, most: int = MAX_VALUE_BYTES) -> str:
    """Return a case as the text of its file. `beside` stores a large value under its hash; None: it must not.

    Raises ValueTooLarge for a value that a replay needs, if it may not be stored beside.
    """

    def shorten(value: Any) -> Any:
        text = encode(value)
        if len(text) <= most // 4 or len(data := text.encode()) <= most:
            return value
        digest = hashlib.sha256(data).hexdigest()
        if beside is None:
            return {"$cut": len(data), "sha256": digest, "head": text[:_HEAD]}
        beside(digest, data)
        return {"$beside": digest, "bytes": len(data)}

    written = _map_values(case.model_dump(mode="json", exclude_defaults=True), shorten)
    if beside is None:
        _require_whole(written)
    lines = [f"{json.dumps(name)}:{_lines(value)}" for name, value in {"format": FORMAT, **written}.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_case(case: RunCase, file: Path, most: int = MAX_VALUE_BYTES) -> None:
    """Write a case, and its large values beside it. Makes its folder; removes values of an earlier recording."""
    folder = values_folder(file)
    stored: set[str] = set()

    def store(digest: str, data: bytes) -> None:
        folder.mkdir(exist_ok=True)
        (folder / f"{digest}.json").write_bytes(data)
        stored.add(f"{digest}.json")

    file.parent.mkdir(parents=True, exist_ok=True)
    text = case_text(case, store, most)
    temporary = file.with_name(f".{file.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
    for former in folder.glob("*.json") if folder.is_dir() else ():
        if former.name not in stored:
            former.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def is_beside(value: Any) -> bool:
    """Return whether a value stands for one that lies beside the case."""
    return isinstance(value, Mapping) and set(value) == {"$beside", "bytes"}


def is_cut(value: Any) -> bool:
    """Return whether a value was cut, so that only its hash is known."""
    return isinstance(value, Mapping) and set(value) == {"$cut", "sha256", "head"}


def _lines(value: Any) -> str:
    """Return JSON with an element of the outermost list or object on each line, so that versions can be compared."""
    match value:
        case list() if value:
            return "[\n" + ",\n".join(f" {encode(item)}" for item in value) + "\n]"
        case dict() if value:
            return "{\n" + ",\n".join(f" {json.dumps(str(key))}:{encode(item)}" for key, item in value.items()) + "\n}"
        case _:
            return encode(value)


def _map_values(written: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a case with each value changed that may be large: values of steps, parts, contents of files."""

    def members(group: Mapping[str, Any]) -> dict[str, Any]:
        return {name: change(value) for name, value in group.items()}

    changed = dict(written)
    if isinstance(changed.get("parts"), Mapping):
        changed["parts"] = members(changed["parts"])
    if isinstance(changed.get("files"), list):
        changed["files"] = [
            {**file, "content": change(file.get("content"))} if isinstance(file, Mapping) else file
            for file in changed["files"]
        ]
    if isinstance(changed.get("steps"), list):
        changed["steps"] = [_map_step(step, change, members) for step in changed["steps"]]
    return changed


def _map_step(step: Any, change: Callable[[Any], Any], members: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
    if not isinstance(step, Mapping):
        return step
    changed = dict(step)
    for name in ("inputs", "outputs", "variables", "journal"):
        if isinstance(changed.get(name), Mapping):
            changed[name] = members(changed[name])
    if isinstance(changed.get("container"), Mapping):
        changed["container"] = {
            node: members(outputs) if isinstance(outputs, Mapping) else outputs
            for node, outputs in changed["container"].items()
        }
    if isinstance(changed.get("tool_calls"), list):
        changed["tool_calls"] = [
            {**call, "result": change(call["result"])} if isinstance(call, Mapping) and "result" in call else call
            for call in changed["tool_calls"]
        ]
    return changed


def _require_whole(written: Mapping[str, Any]) -> None:
    """Raise ValueTooLarge if a value was cut that a replay needs."""
    answers = {call.get("response") for step in written["steps"] for call in step.get("model_calls", ())}
    needed: dict[str, Any] = {f"an answer of a model ({name})": written.get("parts", {}).get(name) for name in answers}
    for file in written.get("files", ()):
        needed[f'the file "{file["name"]}"'] = file["content"]
    for step in written["steps"]:
        values = {**step.get("journal", {}), **(step.get("outputs", {}) if step.get("as_recorded") else {})}
        needed |= {f'"{name}" of {step["node"]}': value for name, value in values.items()}
    for what, value in needed.items():
        if is_cut(value):
            raise ValueTooLarge(
                f"The replay needs {what}, which has {value['$cut']:,} bytes and so does not fit the file. Write the "
                "case with `--output FILE`, which keeps large values beside it, or raise `--max-value`.",
                bytes=value["$cut"],
            )
