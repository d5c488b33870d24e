"""Replays cases: the canvas runs on the real engine, and everything from outside comes from the recording.

The engine, its servers and its workers are those of `easel run`, on a database that is empty and goes away. A replay
has ids of its own; the recording is rewritten for them before the run starts, and its result is recorded as a case
again, so that two cases are compared.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import embedded
import local_engine
from canvas import budget
from canvas.document import parsing
from canvas.errors import ExecutorError, InvalidCanvas, ToolError
from canvas.ids import ActivationId, CanvasId, RunId, SessionId, TenantId, VersionId
from canvas.outcome import ContainerExited, ContainerOpened, Failed, Finished, NextIteration, Outcome, Routed
from canvas.run_warnings import Notice, warnings_in
from canvas.state.run_state import RunStatus, activation_id, scope_key
from canvas.validation import check
from cli.cases import recorder
from cli.cases.case_file import CaseMcpTool, CaseModel, CaseStep, RunCase
from cli.cases.id_names import IdNames, step_name
from cli.cases.recorder import RecordSource
from components import recorded_steps, registry
from components.checks.check import findings_of
from components.recorded_steps import RunRecording
from providers.address_policy import Guard
from providers.interfaces import HttpCall, HttpResponse, McpCall, McpToolDescription, Services
from providers.models.recording.replayed_model import RecordedAnswer, RecordedAnswers, unknown_model
from providers.models.types.chat import ModelSpec, Usage
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import RunCopy, Start
from settings import Settings
from store.agents import canvases, conversation_runs, conversations, versions
from store.agents.canvas_secrets import CanvasSecrets
from store.db.transaction import USE_SNAPSHOT
from store.maintenance import migrate
from store.primitives import outcome_codec
from store.primitives.ids import new_id
from store.runs import run_rows
from store.runs import stored_contents as contents
from store.tenants import tenants, uploads

REPLAY = "replay"
"""The kind of a replay in the run's `origin`."""
STALL = 20.0  # seconds without progress after which a replay is taken to differ from its recording, and goes on
RUN_TIMEOUT = 120.0  # seconds without progress after which a replay is given up
_POLL_INTERVAL = 0.02


class ReplayStuck(ExecutorError):
    """A replay did not come to its end."""

    code = "replay_stuck"


@contextmanager
def open_replayer(
    settings: Settings, *, jobs: int = 1, read_file: Callable[[RunCase, Mapping[str, Any]], str] | None = None
) -> Generator["Replayer"]:
    """Start an engine for replays on temporary embedded servers, until the block ends.

    `read_file` returns the text of an uploaded file that is not in the case itself, from its descriptor.
    """
    cases: dict[RunId, RunCase] = {}
    mcp_tools: dict[TenantId, Sequence[CaseMcpTool]] = {}
    recordings: dict[RunId, RunRecording] = {}
    with TemporaryDirectory(prefix="easel-replay-") as home, ExitStack() as stack:
        servers = stack.enter_context(embedded.run_servers(Path(home) / "servers", durable=False))
        migrate.upgrade(servers.database_url)
        own = settings.model_copy(
            update={
                "home": Path(home),
                "files_dir": Path(home) / "files",
                "files_url": None,
                "models_file": None,
                "model_calls": "full",
                "model_calls_hide": None,
                "lease": timedelta(seconds=60),
            }
        )
        engine = stack.enter_context(
            local_engine.run_engine(
                own,
                servers.database_url,
                servers.redis_url,
                threads=max(16, 8 * jobs),
                of_tenant=lambda tenant_id, services: offline(services, mcp_tools.get(tenant_id, ())),
                guard=Guard(),
                recording_of=recordings.get,
                read_file=None if read_file is None else lambda _, run_id, file, __: read_file(cases[run_id], file),
            )
        )
        yield Replayer(engine, recordings, cases, mcp_tools)


@dataclass(frozen=True, slots=True)
class Replayer:
    """Replays cases on one engine, several at the same time."""

    engine: local_engine.Engine
    recordings: dict[RunId, RunRecording]
    cases: dict[RunId, RunCase]
    mcp_tools: dict[TenantId, Sequence[CaseMcpTool]]

    def replay(self, case: RunCase) -> RunCase:
        """Run a case and return what came of it, as a case. Raises ExecutorError if it cannot run at all."""
        place, names = _prepare(self.engine, case)
        run_id = place.run_id
        own = RunCase.model_validate(names.with_ids(case.model_dump(mode="json")))
        gates = _Gates(own, run_id)
        self.recordings[run_id], self.cases[run_id] = _recording(own, run_id, gates), case
        self.mcp_tools[place.tenant_id] = case.mcp_tools
        try:
            self._run(own, place, gates)
            return self._record(place, case, names)
        finally:
            gates.open_all()
            self.recordings.pop(run_id, None)
            self.cases.pop(run_id, None)
            self.mcp_tools.pop(place.tenant_id, None)

    def _run(self, case: RunCase, place: "_Place", gates: "_Gates") -> None:
        lifecycle, start = self.engine.lifecycle, case.start
        request = RunRequest(
            query=start.query,
            inputs=start.inputs,
            files=start.files,
            user_id=start.user_id,
            webhook_payload=start.webhook_payload,
            chat_template_kwargs=start.chat_template_kwargs,
        )
        origin = {"kind": REPLAY, "from": [], "edits": []}
        lifecycle.start_run(
            Start(
                place.tenant_id,
                place.canvas_id,
                place.version_id,
                request,
                run_id=place.run_id,
                conversation_id=place.conversation_id,
                copy=RunCopy(None, None, origin, start.baseline.model_dump(exclude_none=True)),
            )
        )
        status = self._await(place, gates, case)
        for turn in start.turns:
            if status is not RunStatus.WAITING:
                break
            answer = replace(
                request, query=turn.query, inputs=turn.inputs, files=turn.files, webhook_payload=None, date=turn.date
            )
            lifecycle.resume_run(place.tenant_id, place.run_id, answer)
            status = self._await(place, gates, case)

    def _await(self, place: "_Place", gates: "_Gates", case: RunCase) -> RunStatus:
        """Wait until the run ends or waits. Open the gates, and cancel a run that was cancelled, when it is time."""
        progress, since, is_cancelled = -1, time.monotonic(), False
        while True:
            with self.engine.database.transaction() as tx:
                row = run_rows.read(tx, place.tenant_id, place.run_id)
                settled = set(contents.list_settled(tx, place.run_id)) if gates.is_needed else set[ActivationId]()
            assert row is not None, "the run was started"
            status = RunStatus(row["status"])
            if status.is_over or status is RunStatus.WAITING:
                return status
            now = row["revision"] + row["last_event"] + len(settled)
            if now != progress:
                progress, since = now, time.monotonic()
            stalled = time.monotonic() - since
            if gates.is_needed and (gates.are_others_settled(settled) or stalled > STALL):
                if case.result.status == "cancelled" and not is_cancelled:
                    self.engine.lifecycle.cancel_run(place.tenant_id, place.run_id)
                    is_cancelled = True
                gates.open_last()
            if stalled > 2 * STALL:
                gates.open_all()
            if stalled > RUN_TIMEOUT:
                self.engine.lifecycle.cancel_run(place.tenant_id, place.run_id)
                raise ReplayStuck(f"Nothing has happened for {RUN_TIMEOUT:g} s, so the replay was given up.")
            time.sleep(_POLL_INTERVAL)

    def _record(self, place: "_Place", case: RunCase, names: IdNames) -> RunCase:
        coordinator = self.engine.coordinator
        with coordinator.database.transaction() as tx:
            tx.execute(USE_SNAPSHOT)
            source = RecordSource(
                tx,
                coordinator.versions,
                place.tenant_id,
                coordinator.database.large.blobs,
                lambda canvas_id: CanvasSecrets.for_canvas(
                    None, place.tenant_id, CanvasId(canvas_id), registry.secret_fields
                ),
                lambda llm_id: _spec(llm_id, case.models.get(llm_id)) if llm_id in case.models else None,
            )
            replayed = recorder.record_run(source, place.run_id, name=case.name)
        return RunCase.model_validate(names.with_names(replayed.model_dump(mode="json")))


# -- what a replay begins with ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Place:
    """Where a replay runs: the ids of what was made for it."""

    tenant_id: TenantId
    canvas_id: CanvasId
    version_id: VersionId
    conversation_id: SessionId
    run_id: RunId


def _prepare(engine: local_engine.Engine, case: RunCase) -> tuple[_Place, IdNames]:
    """Store the canvas of a case with all that its run begins with; return the ids for the names in the case.

    Raises InvalidCanvas.
    """
    canvas_id, conversation_id, run_id = CanvasId(new_id()), SessionId(new_id()), RunId(new_id())
    names = IdNames()
    for name, known in {"run": run_id, "agent": canvas_id, "session": conversation_id}.items():
        names.add(name, known)
    for step in case.steps:
        step_id = activation_id(run_id, step.node, scope_key(step.scope), step.ordinal)
        names.add(step_name(*step.key), step_id)
    blobs = engine.database.large.blobs
    assert blobs is not None, "an engine has a file storage"
    stored = {file.id: uploads.store_content(blobs, file.name, file.mime_type, file.data) for file in case.files}
    with engine.database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, f"{REPLAY}-{run_id}")
        names.add("tenant", tenant_id)
        for name, content in stored.items():
            names.add(name, uploads.register(tx, tenant_id, content).id)
        document = parsing.parse(names.with_ids(case.document))
        errors = check.errors_of(findings_of(document))
        if errors:
            raise InvalidCanvas(f"The canvas of the case cannot run: {errors[0].message}")
        canvases.create(tx, tenant_id, case.name[:200] or REPLAY, document.raw, canvas_id=canvas_id)
        version_id = versions.lock_draft_version(tx, tenant_id, canvas_id).id
        names.add("version", version_id)
        user_id = case.start.user_id
        conversations.create(tx, tenant_id, canvas_id, version_id, user_id, conversation_id=conversation_id)
        conversation_runs.import_history(tx, conversation_id, names.with_ids(case.start.history))
    return _Place(tenant_id, canvas_id, version_id, conversation_id, run_id), names


# -- the recording of a run -------------------------------------------------------------------------------------------
class _Gates:
    """When steps may begin whose time decides what becomes of the run.

    A step that had not ended in the recording never begins, and in a run that was cancelled no other step does. The
    step whose failure ended the run begins when all others have ended that had then.
    """

    def __init__(self, case: RunCase, run_id: RunId) -> None:
        self.never = threading.Event()
        self._last = threading.Event()
        self._others: set[ActivationId] = set()
        self.by_step: dict[ActivationId, threading.Event] = {}
        decisive = _decisive_step(case)
        for step in case.steps:
            step_id = activation_id(run_id, step.node, scope_key(step.scope), step.ordinal)
            if case.result.status in ("failed", "cancelled") and not _has_ended(step):
                self.by_step[step_id] = self.never
            elif step is decisive:
                self.by_step[step_id] = self.never if case.result.status == "cancelled" else self._last
            else:
                self._others.add(step_id)

    @property
    def is_needed(self) -> bool:
        """Whether the time of a step decides anything."""
        return bool(self.by_step)

    def are_others_settled(self, settled: set[ActivationId]) -> bool:
        """Return whether all steps have ended that had in the recording, apart from the decisive one."""
        return self._others <= settled

    def open_last(self) -> None:
        """Let the decisive step begin."""
        self._last.set()

    def open_all(self) -> None:
        """Let everything begin, since the replay is over."""
        self._last.set()
        self.never.set()


def _decisive_step(case: RunCase) -> CaseStep | None:
    """Return the step during which the run ended: that whose failure is the run's, or the last of a cancelled run."""
    if case.result.status == "cancelled" and all(map(_has_ended, case.steps)):
        return case.steps[-1] if case.steps else None
    if case.result.status != "failed":
        return None
    failed = [step for step in case.steps if step.outcome is not None and step.outcome.get("is") == "Failed"]
    named = [step for step in failed if step.outcome and str(step.outcome.get("error")) in case.result.error]
    return next(iter([*reversed(named), *reversed(failed)]), None)


def _has_ended(step: CaseStep) -> bool:
    return step.has_ended and (step.outcome or {}).get("code") != "cancelled"


def _recording(case: RunCase, run_id: RunId, gates: _Gates) -> RunRecording:
    specs = {llm_id: _spec(llm_id, model) for llm_id, model in case.models.items()}
    steps: dict[ActivationId, recorded_steps.RecordedStep] = {}
    for step in case.steps:
        step_id = activation_id(run_id, step.node, scope_key(step.scope), step.ordinal)
        steps[step_id] = _recorded_step(case, step, specs, gates.by_step.get(step_id))
    others = recorded_steps.RecordedStep(gate=gates.never) if case.result.status == "cancelled" else None
    return RunRecording(case.recorded.seed, steps, others or recorded_steps.RecordedStep())


def _recorded_step(
    case: RunCase, step: CaseStep, specs: Mapping[str, ModelSpec], gate: threading.Event | None
) -> recorded_steps.RecordedStep:
    cites = step.cites
    chunks = case.citations.get(str(cites.turn), ()) if cites is not None else ()
    documents = cites.documents if cites is not None else ()
    if step.as_recorded and step.outcome is not None:
        return recorded_steps.RecordedStep(
            outcome=_outcome(step),
            inputs=step.inputs,
            text=step.text if step.text is not None else step.outputs.get("_spoken"),
            usage=_usage(step.usage),
            warnings=[Notice(each["code"], each["message"]) for each in warnings_in(step.outcome)],
            chunks=chunks,
            documents=documents,
            gate=gate,
        )
    asks = step.component.lower() in recorded_steps.ASKING_MODELS
    return recorded_steps.RecordedStep(
        answers=RecordedAnswers(_answers(case, step), specs) if asks else None,
        journal=step.journal,
        chunks=chunks,
        documents=documents,
        gate=gate,
    )


def _answers(case: RunCase, step: CaseStep) -> Iterator[RecordedAnswer]:
    for call in step.model_calls:
        message = case.parts.get(call.response) if call.response is not None else None
        yield RecordedAnswer(call.key, message, _usage(call.usage), call.error or "", call.status == "cancelled")


def _outcome(step: CaseStep) -> Outcome:
    """Return the outcome of a step with its values."""
    outcome = outcome_codec.decode_outcome(step.outcome or {}).outcome
    hidden = {"_ERROR", "_spoken"} if isinstance(outcome, Failed) else {"_spoken"}
    outputs = {name: value for name, value in step.outputs.items() if name not in hidden}
    match outcome:
        case Finished():
            return replace(outcome, outputs=outputs, assign=step.variables)
        case ContainerExited():
            return replace(outcome, outputs=outputs, container=next(iter(step.container.values()), {}))
        case Routed() | ContainerOpened() | NextIteration() | Failed():
            return replace(outcome, outputs=outputs)
        case _:
            return outcome


def _spec(llm_id: str, model: CaseModel | None) -> ModelSpec:
    unknown = unknown_model(llm_id)
    if model is None:
        return unknown
    return replace(
        unknown,
        name=model.name,
        factory=model.factory,
        kinds=frozenset(model.kinds),
        context_tokens=model.context_tokens or unknown.context_tokens,
        is_tools=model.is_tools,
    )


def _usage(counts: Mapping[str, int]) -> Usage:
    """Return the usage of a usage column."""
    costs, kinds = _by_prefix(counts, budget.COST), _by_prefix(counts, budget.OF)
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "calls", "cached_tokens")
    plain = {name: counts.get(name, 0) for name in names}
    return Usage(**plain, unpriced_calls=counts.get(budget.UNPRICED, 0), costs=costs, kinds=kinds)


def _by_prefix(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix)}


# -- nothing outside --------------------------------------------------------------------------------------------------
def offline(services: Services, mcp_tools: Sequence[CaseMcpTool] = ()) -> Services:
    """Return services that reach nothing: what a replay needs of them is in its recording."""
    mcp = _RecordedMcp(mcp_tools) if mcp_tools else None
    return Services(_NoHttp(), memories=_NoMemories(), mcp=mcp, base_urls=services.base_urls)


class _NoHttp:
    async def send(self, call: HttpCall) -> HttpResponse:
        raise ToolError(recorded_steps.NOT_RECORDED)


class _NoMemories:
    """Memories to which nothing is saved, since the recorded run has saved its answer."""

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _RecordedMcp:
    """MCP servers whose tools are described and not called."""

    tools: Sequence[CaseMcpTool]

    async def call(self, call: McpCall) -> Any:
        raise ToolError(recorded_steps.NOT_RECORDED)

    async def load_pinned_description(self, server: str, tool: str) -> McpToolDescription | None:
        found = next((each for each in self.tools if (each.server, each.name) == (server, tool)), None)
        return McpToolDescription(found.description, found.arguments) if found is not None else None

    async def close(self) -> None: ...
