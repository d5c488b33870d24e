"""Records a run: reads its rows and returns them as a case.

What a replay cannot run with recorded answers alone is recorded as it came out (`as_recorded`): steps that reach
outside by other ways than models and tool calls, and steps whose model calls were not stored whole.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from canvas.errors import InvalidRequest, NotFound
from canvas.graph.passwords import MASK
from canvas.ids import ActivationId, RunId, TenantId
from canvas.outcome import LOST, OVER_BUDGET, POSTPONED, UNKNOWN_OUTCOME
from canvas.state.run_state import ActivationStatus, RunStatus
from cli.cases.case_file import (
    Baseline,
    CaseFile,
    CaseMcpTool,
    CaseModel,
    CaseResult,
    CaseStart,
    CaseStep,
    Citations,
    Recorded,
    RecordedCall,
    RecordedEvent,
    RecordedToolCall,
    RunCase,
    Turn,
)
from cli.cases.id_names import IdNames, change_texts, file_name, step_name
from components import registry
from components.nodes.agent.tool_set import AGENT, numbered_name
from components.recorded_steps import ASKING_MODELS, computes_alone
from providers.models.types.chat import ModelSpec
from scheduler.coordinator.run_start import RunRequest
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.run_copies import BASELINE, first_request, history_before
from store.agents import canvases
from store.agents.canvas_secrets import CanvasSecrets
from store.db.transaction import Transaction
from store.files.blobs import Blobs
from store.mcp import pins
from store.primitives.ids import NO_ID
from store.primitives.json_codec import encode
from store.runs import attempt_records, attempts, model_calls, run_rows
from store.runs import stored_contents as contents
from store.runs.attempt_records import ToolCallRow
from store.runs.model_calls import CallBodies, StoredCall
from store.runs.passwords import load_mask
from store.tenants import uploads

MIN_SECRET_CHARS = 8  # a shorter one may be an ordinary word
VOLATILE = ("_created_time", "_elapsed_time")
"""Outputs that differ in every run."""
_UNREPEATED = frozenset({"worker_lost", "released", "postponed", "unknown_outcome", "over_budget"})
"""Ends of attempts whose calls a replay does not make."""
_NUMBERS = re.compile(r"\d+")
_NOT_REPEATABLE = frozenset({LOST, OVER_BUDGET, POSTPONED, UNKNOWN_OUTCOME, "timeout", "worker_timeout", "released"})
"""Codes of failures that come from circumstances and not from the node."""
_STATUSES = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.WAITING})
_TIMES_OF_EVENTS = frozenset({"created_at", "elapsed_time", "usage", *VOLATILE})
_OUTCOME_DETAILS = ("used", "retake", "spoke", "reused")
"""Members of a stored outcome about the attempt and not about the step."""
_ENDED_RUNS = "a run that has ended, or waits for a person"


@dataclass(frozen=True, slots=True)
class RecordSource:
    """Where a run is read from. `find_model` returns a model as its account has it; None: there is no such account."""

    tx: Transaction
    versions: VersionCache
    tenant_id: TenantId
    blobs: Blobs | None
    secrets_of: Callable[[UUID], CanvasSecrets]
    find_model: Callable[[str], ModelSpec | None]


def record_run(source: RecordSource, run_id: RunId, *, name: str = "", release: str = "") -> RunCase:
    """Return a run as a case. The transaction must read one snapshot.

    Raises NotFound, InvalidRequest for a run that is still under way.
    """
    row = run_rows.read(source.tx, source.tenant_id, run_id)
    if row is None:
        raise NotFound(f"There is no run {run_id.hex}.", run_id=run_id.hex)
    if row["status"] not in _STATUSES or row["started_at"] is None:
        raise InvalidRequest(f"The run {run_id.hex} is {row['status']}. Record {_ENDED_RUNS}.", status=row["status"])
    return _Recorder(source, row).record(name, release)


@dataclass
class _Rows:
    """The rows of a run that belong to activations, by activation."""

    values: dict[ActivationId, list[Any]] = field(default_factory=dict[ActivationId, list[Any]])
    variables: dict[ActivationId, dict[str, Any]] = field(default_factory=dict[ActivationId, dict[str, Any]])
    journal: dict[ActivationId, dict[str, Any]] = field(default_factory=dict[ActivationId, dict[str, Any]])
    bodies: dict[UUID, CallBodies] = field(default_factory=dict[UUID, CallBodies])  # by call
    calls: dict[ActivationId, list[StoredCall]] = field(default_factory=dict[ActivationId, list[StoredCall]])
    tools: dict[ActivationId, list[ToolCallRow]] = field(default_factory=dict[ActivationId, list[ToolCallRow]])
    unrepeated: set[tuple[ActivationId, int]] = field(default_factory=set[tuple[ActivationId, int]])
    documents: dict[ActivationId, list[Any]] = field(default_factory=dict[ActivationId, list[Any]])
    cited_in: dict[ActivationId, UUID] = field(default_factory=dict[ActivationId, UUID])  # the message of the turn
    texts: dict[ActivationId, str] = field(default_factory=dict[ActivationId, str])


class _Recorder:
    """Records one run."""

    def __init__(self, source: RecordSource, row: Mapping[str, Any]) -> None:
        self._source = source
        self._tx = source.tx
        self._row = row
        self._run_id: RunId = row["id"]
        self._compiled = source.versions.get(source.tx, row["version_id"])
        self._names = IdNames()
        self._passwords = load_mask(source.tx, self._compiled.canvas, source.tenant_id, self._run_id)
        self._parts: dict[str, str] = {}  # the name of a part by its JSON
        self._rows = _Rows()
        self._steps = list(contents.list_steps(source.tx, self._run_id))

    def record(self, name: str, release: str) -> RunCase:
        row, tx = self._row, self._tx
        self._read_rows()
        chunks = self._read_citations()
        request = first_request(tx, row, self._compiled.canvas)
        self._name_ids()
        steps = [self._step(step) for step in self._steps]
        start = self._start(request)
        files = self._load_uploads(start)
        agent = self._agent_title()
        recorded = Recorded(seed=str(self._run_id), agent=agent, at=row["created_at"].isoformat(), release=release)
        case = RunCase(
            name=name or agent or "run",
            recorded=recorded,
            document=self._source.secrets_of(row["canvas_id"]).mask_document(self._compiled.document.raw),
            start=start,
            files=files,
            models=self._models(steps),
            mcp_tools=tuple(self._mcp_tools()),
            parts={part: json.loads(text) for text, part in self._parts.items()},
            citations=chunks,
            steps=tuple(steps),
            result=self._result(),
        )
        return self._without_ids_and_secrets(case)

    def _agent_title(self) -> str:
        try:
            return canvases.get(self._tx, self._source.tenant_id, self._row["canvas_id"]).title
        except NotFound:  # the agent was deleted; its run is not
            return ""

    # -- reading ------------------------------------------------------------------------------------------------------
    def _read_rows(self) -> None:
        tx, run_id, tenant_id, rows = self._tx, self._run_id, self._source.tenant_id, self._rows
        ids = [step.id.hex for step in self._steps]
        for activation, node_id, inputs, outputs, large in contents.list_values(tx, run_id, ids):
            loaded = tx.large.inputs(node_id, inputs or {}, large), tx.large.outputs(node_id, outputs or {}, large)
            rows.values.setdefault(activation, []).append((node_id, *loaded))
        for activation, variable, value, large in contents.list_variables(tx, run_id, ids):
            rows.variables.setdefault(activation, {})[variable] = tx.large.variable(variable, value, large)
        for activation, key, value in contents.list_journal(tx, run_id):
            rows.journal.setdefault(activation, {})[key] = value
        for message_id, activation, document_name, document in contents.list_cited_documents(tx, run_id):
            rows.documents.setdefault(activation, []).append({"doc_name": document_name, **document})
            rows.cited_in[activation] = message_id
        for activation, _, text, _ in contents.list_streams(tx, run_id):
            rows.texts[activation] = text
        after = NO_ID
        while page := model_calls.list_calls(tx, tenant_id, run_id, after=after):
            for call in page:
                rows.calls.setdefault(call.activation_id, []).append(call)
            after = page[-1].id
        after = NO_ID
        while tools := attempt_records.list_calls_of_run(tx, tenant_id, run_id, after=after):
            for tool in tools:
                if tool.activation_id is not None:
                    rows.tools.setdefault(tool.activation_id, []).append(tool)
            after = tools[-1].id
        first = NO_ID, 0
        while ended := attempts.list_attempts(tx, tenant_id, run_id, after=first, limit=500):
            for attempt in ended:
                if attempt.end_reason in _UNREPEATED:
                    rows.unrepeated.add((attempt.activation_id, attempt.attempt))
            first = ended[-1].activation_id, ended[-1].attempt

    def _read_citations(self) -> dict[str, tuple[dict[str, Any], ...]]:
        """Return the cited chunks by turn; the turns are numbered from 1, in order."""
        found: dict[UUID, list[dict[str, Any]]] = {}
        for message_id, _, chunk_id, chunk in contents.list_cited_chunks(self._tx, self._run_id):
            found.setdefault(message_id, []).append({"chunk_id": chunk_id, **chunk})
        self._turns = {message_id: number for number, message_id in enumerate(sorted(found), 1)}
        return {str(number): tuple(found[message_id]) for message_id, number in self._turns.items()}

    def _name_ids(self) -> None:
        row, names = self._row, self._names
        for name in ("run", "agent", "version", "session", "message", "tenant"):
            column = {"run": "id", "agent": "canvas_id", "session": "conversation_id"}.get(name, f"{name}_id")
            names.add(name, row[column])
        for step in self._steps:
            name = step_name(step.node_id, step.scope, step.ordinal)
            names.add(name, step.id)
            self._name_files(step.id, name)

    def _name_files(self, activation: ActivationId, step: str) -> None:
        """Name the files that an activation has produced: their ids follow from its own and from their names."""
        places = {"", *(key.removeprefix("call:") for key in self._rows.journal.get(activation, ()))}
        values = [self._rows.values.get(activation, ()), list(self._rows.journal.get(activation, {}).values())]
        for found, name in _described_files(values):
            for place in places:
                if uuid5(activation, f"{place}/{name}") == found:
                    self._names.add(file_name(step, place, name), found)

    # -- steps --------------------------------------------------------------------------------------------------------
    def _step(self, row: Any) -> CaseStep:
        activation: ActivationId = row.id
        own: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
        container: dict[str, dict[str, Any]] = {}
        for node_id, inputs, outputs in self._rows.values.get(activation, ()):
            if node_id == row.node_id:
                own = inputs, outputs
            else:
                container[node_id] = _repeatable(outputs)
        outcome = {name: value for name, value in (row.outcome or {}).items() if name not in _OUTCOME_DETAILS}
        calls = self._effective_calls(activation)
        as_recorded = self._is_as_recorded(row, calls)
        journal: dict[str, Any] = {}
        if row.component.lower() in ASKING_MODELS and not as_recorded:
            calls, journal = self._split_calls(row, calls)
        documents = self._rows.documents.get(activation)
        return CaseStep(
            node=row.node_id,
            scope=row.scope,
            ordinal=row.ordinal,
            component=row.component,
            status=row.status,
            as_recorded=as_recorded,
            outcome=outcome or None,
            inputs=self._passwords.node_values(row.node_id, own[0]),
            outputs=self._passwords.node_values(row.node_id, _repeatable(own[1])),
            container=container,
            variables=self._rows.variables.get(activation, {}),
            text=self._rows.texts.get(activation),
            usage=row.usage or {},
            model_calls=tuple(self._call(call) for call in calls),
            tool_calls=tuple(self._tool_calls(activation)),
            journal=journal,
            cites=Citations(turn=self._turns.get(self._rows.cited_in[activation], 1), documents=tuple(documents))
            if documents
            else None,
        )

    def _is_as_recorded(self, row: Any, calls: Sequence[StoredCall]) -> bool:
        """Whether a replay must report what was recorded, instead of running the step's code."""
        if row.outcome is None:
            return False
        component = registry.find(row.component)
        if component is None or row.outcome.get("code") in _NOT_REPEATABLE or row.outcome.get("reused"):
            return True
        if row.status == ActivationStatus.WAITING and not computes_alone(component):
            return True
        if row.component.lower() in ASKING_MODELS:
            return not calls or not all(map(self._is_whole, calls))
        if component.name == "Message" and (calls or self._has_memory_error(row.id)):
            return True
        return not computes_alone(component)

    def _has_memory_error(self, activation: ActivationId) -> bool:
        return any(outputs.get("memory_error") for _, _, outputs in self._rows.values.get(activation, ()))

    def _is_whole(self, call: StoredCall) -> bool:
        """Whether everything of a call is stored that a replay needs."""
        if call.kind != "chat" or call.request is None or "messages" not in call.request:
            return False
        if call.status == "ok" and call.response is None:
            return False
        return not _is_incomplete(self._bodies(call).response)

    def _bodies(self, call: StoredCall) -> CallBodies:
        """Return the bodies of a call, read once."""
        found = self._rows.bodies.get(call.id)
        if found is None:
            found = self._rows.bodies[call.id] = model_calls.load_bodies(self._tx, self._run_id, call)
        return found

    def _effective_calls(self, activation: ActivationId) -> list[StoredCall]:
        """Return the calls that a replay makes: of calls with the same journal key those that counted."""
        calls = self._rows.calls.get(activation, [])
        counted = {call.round: call for call in calls if call.round is not None and call.status == "ok"}
        return [
            call
            for call in calls
            if (activation, call.attempt) not in self._rows.unrepeated or counted.get(call.round or "") is call
        ]

    def _split_calls(self, row: Any, calls: Sequence[StoredCall]) -> tuple[list[StoredCall], dict[str, Any]]:
        """Return the calls that a replay of a step makes itself, and the results of tool calls that it reads.

        Sub-agents run again. Other tools do not, and so their models are not asked either.
        """
        journal = self._rows.journal.get(row.id, {})
        names = set(_agent_names(self._compiled.canvas.node(row.node_id).params))
        results = {
            key: value
            for key, value in journal.items()
            if not _is_reply(value) and _called_function(key, journal) not in names
        }
        places = [key for key in results if "call:" in key]
        kept = [call for call in calls if not any(_is_within(call.round or "", key) for key in places)]
        return kept, results

    def _call(self, call: StoredCall) -> RecordedCall:
        bodies = self._bodies(call)
        request = bodies.request or {}
        return RecordedCall(
            key=call.round,
            kind=call.kind,
            model=call.model,
            status=call.status,
            error=call.error,
            messages=tuple(self._part(message) for message in request.get("messages", ())),
            tools=self._part(request["tools"]) if "tools" in request else None,
            params=request.get("params") or {},
            response=self._part(bodies.response) if bodies.response is not None else None,
            usage=dict(call.usage or {}),
        )

    def _part(self, body: Any) -> str:
        text = encode(body)
        return self._parts.setdefault(text, str(len(self._parts) + 1))

    def _tool_calls(self, activation: ActivationId) -> Iterator[RecordedToolCall]:
        """Yield the tool calls of a step in the order in which models asked for them, not in which they ended.

        Of several attempts at the same call the last one counts.
        """
        by_place: dict[Any, ToolCallRow] = {}
        for number, tool in enumerate(self._rows.tools.get(activation, [])):
            by_place[(tool.round, tool.ordinal) if tool.round is not None else number] = tool
        for tool in sorted(by_place.values(), key=lambda tool: call_order(tool.round, tool.ordinal)):
            yield RecordedToolCall(
                round=tool.round,
                ordinal=tool.ordinal,
                name=tool.body.get("tool_name"),
                arguments=tool.body.get("arguments"),
                result=tool.body.get("result"),
                failed=bool(tool.failed),
            )

    # -- the run ------------------------------------------------------------------------------------------------------
    def _start(self, request: RunRequest) -> CaseStart:
        stored = self._row["baseline"]
        baseline = {name: stored[name] for name in BASELINE if name in stored}
        if "inputs" in baseline:
            baseline["inputs"] = self._passwords.answers(baseline["inputs"])
        turns = self._answers()
        if turns and any(turn.files for turn in turns):
            baseline["files"] = list(request.files)
        return CaseStart(
            query=request.query,
            inputs=self._passwords.answers(request.inputs),
            files=tuple(map(dict, request.files)),
            user_id=request.user_id,
            webhook_payload=dict(request.webhook_payload) if request.webhook_payload is not None else None,
            chat_template_kwargs=dict(request.chat_template_kwargs) if request.chat_template_kwargs else None,
            baseline=Baseline.model_validate(baseline),
            history=history_before(self._tx, self._row),
            turns=tuple(turns),
        )

    def _answers(self) -> list[Turn]:
        """Return the answers to forms, by turn. Each turn stores its number and date with the forms that it answers."""
        found: dict[int, Turn] = {}
        for step in self._steps:
            variables = self._rows.variables.get(step.id, {})
            number = variables.get("sys.conversation_turns")
            if not isinstance(number, int) or not self._is_form(step.node_id):
                continue
            former = found.get(number, Turn())
            inputs = {**(former.inputs or {}), **self._passwords.answers(step.answers or {})}
            found[number] = Turn(
                query=variables.get("sys.query", former.query),
                inputs=inputs or None,
                date=str(variables.get("sys.date") or ""),
            )
        first = self._row["baseline"]["globals"].get("sys.conversation_turns") or 1
        # a turn that answered nothing leaves no trace, once a later one has answered
        turns = [found.get(number, Turn()) for number in range(first + 1, max(found, default=first) + 1)]
        last = RunRequest.from_json(self._row["request"])
        if turns and last.files:
            turns[-1] = turns[-1].model_copy(update={"files": tuple(map(dict, last.files))})
        return turns

    def _is_form(self, node_id: str) -> bool:
        canvas = self._compiled.canvas
        return node_id in canvas.numbers and canvas.node(node_id).kind.waits_for_user

    def _load_uploads(self, start: CaseStart) -> tuple[CaseFile, ...]:
        """Return the files that were uploaded for the run and are still there, and name their ids."""
        described = [file for file, _ in _described_files(start.model_dump(mode="json"))]
        files: list[CaseFile] = []
        for file_id in dict.fromkeys(described):
            try:
                stored = uploads.get(self._tx, self._source.tenant_id, file_id)
                data = self._source.blobs.get(stored.sha256) if self._source.blobs is not None else None
            except NotFound:
                continue
            if data is None:
                continue
            name = f"upload:{len(files) + 1}"
            self._names.add(name, file_id)
            content = base64.b64encode(data).decode()
            files.append(CaseFile(id=name, name=stored.name, mime_type=stored.mime_type, content=content))
        return tuple(files)

    def _models(self, steps: Sequence[CaseStep]) -> dict[str, CaseModel]:
        found: dict[str, CaseModel] = {}
        for call in (call for step in steps if not step.as_recorded for call in step.model_calls):
            spec = self._source.find_model(call.model) if call.model not in found else None
            if spec is not None:
                kinds = tuple(sorted(spec.kinds))
                found[call.model] = CaseModel(
                    name=spec.name,
                    factory=spec.factory,
                    context_tokens=spec.context_tokens,
                    is_tools=spec.is_tools,
                    kinds=kinds,
                )
        return found

    def _mcp_tools(self) -> Iterator[CaseMcpTool]:
        """Yield the stored descriptions of the tools of MCP servers that the canvas names."""
        for server in dict.fromkeys(_mcp_servers(self._compiled.document.raw)):
            try:
                server_id = UUID(server)
            except ValueError:
                continue  # the name of a server in another deployment, which this one does not have
            for pin in pins.list_pins(self._tx, self._source.tenant_id, server_id):
                yield CaseMcpTool(server=server, name=pin.name, description=pin.description, arguments=dict(pin.schema))

    def _result(self) -> CaseResult:
        index = {step.id: number for number, step in enumerate(self._steps)}
        nodes = {step.id: step.node_id for step in self._steps}
        streams = contents.list_streams(self._tx, self._run_id)
        return CaseResult(
            status=self._row["status"],
            error=self._row["error"],
            answer=tuple((nodes[stream], text) for stream, _, text, opened in streams if opened is not None),
            events=tuple(
                RecordedEvent(event=name, node=node_id, step=index.get(activation), body=_stable(body))
                for name, activation, node_id, body in contents.list_events(self._tx, self._run_id)
            ),
        )

    # -- ids and secrets ----------------------------------------------------------------------------------------------
    def _without_ids_and_secrets(self, case: RunCase) -> RunCase:
        secrets = self._secrets()

        def mask(text: str) -> str:
            for secret in secrets:
                text = text.replace(secret, MASK)
            return text

        written = self._passwords.value(case.model_dump(mode="json"))
        seed = written["recorded"].pop("seed")
        written = self._names.with_names(change_texts(written, mask) if secrets else written)
        written["recorded"]["seed"] = seed
        return RunCase.model_validate(written)

    def _secrets(self) -> list[str]:
        """Return the secrets of the canvas, the longest first."""
        found = self._source.secrets_of(self._row["canvas_id"]).find_all(self._compiled.document.raw)
        long = {text for text in found if len(text) >= MIN_SECRET_CHARS and MASK not in text}
        return sorted(long, key=len, reverse=True)


def _repeatable(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outputs.items() if name not in VOLATILE}


def _described_files(value: Any) -> Iterator[tuple[UUID, str]]:
    """Yield (id, name) of the descriptions of files in a JSON value."""
    match value:
        case Mapping():
            name = next((value[key] for key in ("filename", "name") if isinstance(value.get(key), str)), None)
            for key in ("doc_id", "file_id", "id"):
                if name is not None and isinstance(value.get(key), str):
                    try:
                        yield UUID(value[key]), name
                    except ValueError:
                        continue
            for member in value.values():
                yield from _described_files(member)
        case list() | tuple():
            for item in value:
                yield from _described_files(item)
        case _:
            return


def call_order(round_key: str | None, ordinal: int | None) -> tuple[list[int], int]:
    """Return a sort key of tool calls. Those of a sub-agent ("0:1/round:0") are between "round:0" and "round:1"."""
    return [int(number) for number in _NUMBERS.findall(round_key or "")], ordinal or 0


def _is_reply(entry: Any) -> bool:
    """Whether a journal entry is the reply of a model."""
    return isinstance(entry, Mapping) and "calls" in entry and "text" in entry


def _called_function(key: str, journal: Mapping[str, Any]) -> str | None:
    """Return the name of the function whose result a journal entry is; None for other entries."""
    prefix, found, place = key.rpartition("call:")
    number, _, index = place.partition(":")
    reply: Mapping[str, Any] = journal.get(f"{prefix}round:{number}") or {}
    calls: Sequence[Sequence[Any]] = reply.get("calls") or ()
    return calls[int(index)][1] if found and index.isdecimal() and int(index) < len(calls) else None


def _is_within(key: str, call: str) -> bool:
    """Whether the call of a model with a journal key was made during a tool call."""
    inside = "".join(call.rsplit("call:", 1))
    return key == call or key.startswith(f"{inside}/")


def _agent_names(params: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names under which an Agent offers its sub-agents, and they theirs."""
    tools: Sequence[Any] = params.get("tools") or ()
    for number, tool in enumerate(tools):
        if isinstance(tool, Mapping) and str(tool.get("component_name")).lower() == AGENT.lower():
            yield numbered_name(str(tool.get("name") or AGENT), number)
            nested = tool.get("params")
            yield from _agent_names(nested) if isinstance(nested, Mapping) else ()


def _mcp_servers(value: Any) -> Iterator[str]:
    """Yield the ids of MCP servers in a document."""
    match value:
        case Mapping():
            if isinstance(value.get("mcp_id"), str):
                yield value["mcp_id"]
            for member in value.values():
                yield from _mcp_servers(member)
        case list():
            for item in value:
                yield from _mcp_servers(item)
        case _:
            return


def _is_incomplete(body: Any) -> bool:
    """Whether a part of a body is missing or cut."""
    return isinstance(body, Mapping) and ("$cut" in body or "$gone" in body)


def _stable(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of an event without what differs in every run: times, and the ids of messages."""
    return {name: value for name, value in body.items() if name not in _TIMES_OF_EVENTS}
