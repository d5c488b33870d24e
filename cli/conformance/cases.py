"""Read, check and prepare the recorded cases of a folder.

    DIR/cases/*.json       one case each: a stored canvas, runs, fixtures, and the recording of the original executor
    DIR/<dsl_file>         documents that cases refer to

The name, file and tags of a case only serve people and selection. They do not change how it is run or compared.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canvas.errors import InvalidRequest

HTTP_BASE = "__HTTP_BASE__"  # in documents: the base URL of the HTTP fixture server

Match: TypeAlias = Literal["load_error", "sequence", "partial_order"]
Start: TypeAlias = Literal["reset", "load", "continue", "reset_stored", "new_session_stored"]
MATCHES: tuple[Match, ...] = ("load_error", "sequence", "partial_order")


class MalformedCase(InvalidRequest):
    """A case file, or the document that it names, is malformed. The message names the file and the position."""

    code = "malformed_case"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CancelOn(_Part):
    """The run is cancelled right after this event was received."""

    event: str
    component_id: str | None = None


class CaseRun(_Part):
    """One run of the session. With a `webhook_payload` it gets query, user id and payload, no inputs or files."""

    query: Any = ""
    inputs: dict[str, Any] = Field(default_factory=dict)
    files: list[Any] = Field(default_factory=list)
    user_id: str = ""
    webhook_payload: Any = None
    start: Start | None = None
    cancel_on: CancelOn | None = None


class RecordedRun(_Part):
    """The normalised result of one run of the recorded executor."""

    error: str = ""
    raised: dict[str, Any] | None = None
    events: list[dict[str, Any]]
    schedule: list[list[str]] = Field(default_factory=list)
    path: list[str] = Field(default_factory=list)
    outputs: dict[str, Any]
    answer: str
    globals: dict[str, Any]
    history: list[Any]
    waiting: dict[str, Any] | None = None
    reference: dict[str, Any] | None = None
    llm_requests: list[dict[str, Any]] = Field(default_factory=list)


class CaseRecording(_Part):
    """`expect`: everything that was recorded of a case."""

    error: dict[str, Any] | None = None
    runs: list[RecordedRun]
    http_requests: list[tuple[str, str]] = Field(default_factory=list)
    unused_llm_rules: list[int] = Field(default_factory=list)


class HttpRoute(_Part):
    """One answer of the HTTP fixture server; without `times` it answers any number of requests."""

    path: str
    method: str | None = None
    times: int | None = None
    status: int = 200
    headers: dict[str, str] = Field(default_factory=dict)
    content_type: str = "text/plain; charset=utf-8"
    body: str = ""
    delay_ms: int = 0
    close: bool = False
    echo: bool = False
    echo_headers: list[str] = Field(default_factory=list)


class _CaseFile(_Part):
    name: str
    description: str = ""
    tags: list[str] = Field(default_factory=list)
    match: Match
    deviations: list[str] = Field(default_factory=list)
    dsl: Any = None
    dsl_file: str | None = None
    dsl_fill_llm_id: str | None = None
    dsl_set: dict[str, dict[str, Any]] = Field(default_factory=dict)
    runs: list[CaseRun] = Field(min_length=1)
    llm: list[dict[str, Any]] = Field(default_factory=list)
    http: list[HttpRoute] = Field(default_factory=list)
    file_store: dict[str, str] = Field(default_factory=dict)
    retrieval: list[dict[str, Any]] = Field(default_factory=list)
    tavily: list[dict[str, Any]] = Field(default_factory=list)
    sql: list[str] = Field(default_factory=list)
    expect: CaseRecording


@dataclass(frozen=True, slots=True)
class Case:
    """One case. Its document is complete except for the address of the HTTP fixture server."""

    name: str
    description: str
    tags: tuple[str, ...]
    match: Match
    deviations: frozenset[str]  # documented differences that the case shows; empty: the case must pass
    document: Any
    runs: tuple[CaseRun, ...]
    expect: CaseRecording = field(repr=False)
    llm: tuple[Mapping[str, Any], ...] = ()  # rules of the scripted model
    http: tuple[HttpRoute, ...] = ()
    file_store: Mapping[str, str] = field(default_factory=dict[str, str])
    retrieval: tuple[Mapping[str, Any], ...] = ()
    tavily: tuple[Mapping[str, Any], ...] = ()
    sql: tuple[str, ...] = ()

    def document_at(self, http_base: str) -> Any:
        """Return a copy of the document with the address of the fixture server."""
        return replace_text(self.document, HTTP_BASE, http_base)

    def start_of(self, index: int) -> Start:
        """Return where the state of a run comes from."""
        return self.runs[index].start or ("reset" if index == 0 else "continue")

    @property
    def component_names(self) -> frozenset[str]:
        """The names of every component and tool in the document, including nested tools."""
        return frozenset(_component_names(self.document))


def load_folder(folder: Path) -> list[Case]:
    """Return all cases of a folder, in order of their file names. Raises MalformedCase."""
    if not (folder / "cases").is_dir():
        raise MalformedCase(f"{folder}: not a conformance folder. It needs a folder `cases` with one JSON file a case.")
    return [load_case(file, folder) for file in sorted((folder / "cases").glob("*.json"))]


def load_case(file: Path, folder: Path) -> Case:
    """Return the case of a file; `dsl_file` is relative to `folder`. Raises MalformedCase."""
    try:
        parsed = _CaseFile.model_validate(_read_json(file))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "the file"
        raise MalformedCase(f"{file}: {where}: {first['msg']}") from error
    played = 0 if parsed.match == "load_error" else len(parsed.runs)
    if len(parsed.expect.runs) != played:
        raise MalformedCase(f"{file}: expect.runs: {len(parsed.expect.runs)} recorded, {played} to play.")
    return Case(
        name=parsed.name,
        description=parsed.description,
        tags=tuple(parsed.tags),
        match=parsed.match,
        deviations=frozenset(parsed.deviations),
        document=_prepared_document(parsed, file, folder),
        runs=tuple(parsed.runs),
        expect=parsed.expect,
        llm=tuple(parsed.llm),
        http=tuple(parsed.http),
        file_store=parsed.file_store,
        retrieval=tuple(parsed.retrieval),
        tavily=tuple(parsed.tavily),
        sql=tuple(parsed.sql),
    )


def select(cases: Iterable[Case], match: str | None = None, tags: Sequence[str] = ()) -> list[Case]:
    """Return the cases that match.

    `match` is a class of comparison ("sequence"), or a pattern for names ("join_*", or a part of a name).
    `tags`: the case has at least one of them.
    """
    return [case for case in cases if _is_match(case, match) and (not tags or set(tags) & set(case.tags))]


def replace_text(value: Any, old: str, new: str) -> Any:
    """Return a copy in which `new` replaces `old` in every text, including keys."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {replace_text(key, old, new): replace_text(item, old, new) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_text(item, old, new) for item in value]
    return value


def _is_match(case: Case, match: str | None) -> bool:
    if match is None:
        return True
    if match in MATCHES:
        return case.match == match
    return match in case.name or fnmatchcase(case.name, match)


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MalformedCase(f"{file}: cannot be read as JSON: {error}") from error


def _prepared_document(parsed: _CaseFile, file: Path, folder: Path) -> Any:
    if parsed.dsl_file is None:
        document = copy.deepcopy(parsed.dsl)
    else:
        source = (folder / parsed.dsl_file).resolve()
        if not source.is_relative_to(folder.resolve()):
            raise MalformedCase(f"{file}: dsl_file: {parsed.dsl_file} lies outside of the folder.")
        document = _read_json(source)
        if isinstance(document, dict) and "components" not in document and "dsl" in document:
            document = document["dsl"]
    if document is None:
        raise MalformedCase(f"{file}: needs `dsl` or `dsl_file`.")
    components = document.get("components") if isinstance(document, dict) else None
    if parsed.dsl_fill_llm_id is not None:
        _fill_llm_id(components, parsed.dsl_fill_llm_id)
    for node_id, values in parsed.dsl_set.items():
        try:
            params = components[node_id]["obj"]["params"]  # pyright: ignore[reportOptionalSubscript]  # TypeError is the answer
        except (KeyError, TypeError) as error:
            raise MalformedCase(f"{file}: dsl_set: the document has no component {node_id}.") from error
        params.update(copy.deepcopy(values))
    return document


def _fill_llm_id(value: Any, llm_id: str) -> None:
    if isinstance(value, dict):
        if value.get("llm_id") == "":
            value["llm_id"] = llm_id
        for item in value.values():
            _fill_llm_id(item, llm_id)
    elif isinstance(value, list):
        for item in value:
            _fill_llm_id(item, llm_id)


def _component_names(document: Any) -> Iterator[str]:
    if not isinstance(document, Mapping):
        return
    components = document.get("components")
    if isinstance(components, Mapping):
        for entry in components.values():
            if isinstance(entry, Mapping) and "obj" not in entry and isinstance(entry.get("name"), str):
                yield entry["name"]  # the flat form of an entry
            yield from _named_below(entry)


def _named_below(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("component_name"), str):
            yield value["component_name"]
        for item in value.values():
            yield from _named_below(item)
    elif isinstance(value, list):
        for item in value:
            yield from _named_below(item)
