"""Run cases through the real stack: rows, Celery tasks, events.

Scheduler and worker run as threads of this process, so that fixtures and their counters stay local. Every case has its
own tenant, by which its script and its files are found.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import embedded
import local_engine
from canvas.document import parsing
from canvas.errors import ExecutorError, InvalidCanvas
from canvas.ids import CanvasId, RunId, SessionId, TenantId, VersionId
from canvas.state.run_state import RunStatus
from canvas.validation import check
from cli.conformance.cases import Case, CaseRun
from cli.conformance.compare.compare import ObservedCase, ObservedRun, Refusal, compare
from cli.conformance.play.event_watcher import EventWatcher
from cli.conformance.play.fixtures import HttpFixture
from cli.conformance.play.services import services_of
from cli.conformance.report import FailedCase, PassedCase, SkippedCase, Verdict
from components import registry
from components.checks.check import findings_of
from components.text.extraction import file_texts
from providers.address_policy import Guard
from providers.interfaces import Services
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.chat.scripted import Script
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start, Started
from scheduler.views import run_view
from settings import Settings
from store.agents import canvases, versions
from store.maintenance import migrate
from store.primitives.ids import new_id
from store.runs import run_rows
from store.tenants import tenants

RUN_TIMEOUT = 60.0  # seconds for one run
POLL_INTERVAL = 0.005


async def _skip_delay(_: float) -> None:
    """Skip the delay between a provider's retries, as in the recordings."""


@dataclass
class Fixtures:
    """Scripts, files and cases by tenant."""

    scripts: dict[TenantId, Script] = field(default_factory=dict[TenantId, Script])
    files: dict[TenantId, Mapping[str, str]] = field(default_factory=dict[TenantId, Mapping[str, str]])
    cases: dict[TenantId, Case] = field(default_factory=dict[TenantId, Case])

    def of_tenant(self, tenant_id: TenantId, common: Services) -> Services:
        """Return the services of a case's nodes."""
        return services_of(self.cases[tenant_id], common)

    def read_file(self, tenant_id: TenantId, run_id: RunId, descriptor: Mapping[str, Any], _: str) -> str:
        """Return the text of a file of the case, or its image as a data URI, as the parser would."""
        return text_of_file(self.files[tenant_id], descriptor)


def text_of_file(files: Mapping[str, str], descriptor: Mapping[str, Any]) -> str:
    """Return the text of a file of a case, or its image as a data URI, as the parser would."""
    text, mime_type = files[str(descriptor["id"])], str(descriptor.get("mime_type") or "")
    return file_texts.image_data_uri(mime_type, text.encode()) if "image" in mime_type else text


@contextmanager
def start_engine(settings: Settings, fixtures: Fixtures, jobs: int) -> Generator[local_engine.Engine]:
    """Start an engine for cases, on the servers that are named or on temporary embedded ones."""
    with TemporaryDirectory(prefix="easel-conformance-") as home:
        needs_database, needs_redis = settings.database_url is None, settings.redis_url is None
        with embedded.run_servers(
            Path(home), durable=False, need_database=needs_database, need_redis=needs_redis
        ) as services:
            database_url = settings.database_url or services.database_url
            redis_url = settings.redis_url or services.redis_url
            migrate.upgrade(database_url)
            with local_engine.run_engine(
                settings,
                database_url,
                redis_url,
                threads=max(16, 8 * jobs),
                script=fixtures.scripts.get,
                retry_policy=RetryPolicy(sleep=_skip_delay),
                read_file=fixtures.read_file,
                of_tenant=fixtures.of_tenant,
                guard=Guard(allow_any=True),
            ) as engine:
                yield engine


def judge_all(engine: local_engine.Engine, fixtures: Fixtures, cases: Sequence[Case], jobs: int) -> Iterable[Verdict]:
    """Run cases in threads and yield the verdicts in the order of the cases."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(partial(judge, engine, fixtures), cases)


def judge(engine: local_engine.Engine, fixtures: Fixtures, case: Case) -> Verdict:
    """Run one case and compare it with its recording."""
    missing = sorted(name for name in case.component_names if registry.find(name) is None)
    if missing and case.match != "load_error":
        return SkippedCase(case.name, f"missing component: {', '.join(missing)}")
    try:
        difference = compare(case, run_case(engine, fixtures, case))
    except (ExecutorError, TimeoutError) as error:
        return FailedCase(case.name, f"{type(error).__name__}: {error}")
    return PassedCase(case.name) if difference is None else FailedCase(case.name, difference)


def run_case(engine: local_engine.Engine, fixtures: Fixtures, case: Case) -> ObservedCase | Refusal:
    """Load the document and execute the runs, one after another."""
    with HttpFixture(case.http) as http:
        try:
            document = parsing.parse(case.document_at(http.base))
        except InvalidCanvas as refused:
            return Refusal(str(refused))
        errors = check.errors_of(findings_of(document))
        if errors:
            return Refusal(errors[0].message)
        with engine.database.transaction() as tx:
            tenant_id = tenants.ensure_tenant(tx, f"conformance-{new_id()}")
            canvas_id = canvases.create(tx, tenant_id, case.name, document.raw)
            version_id = versions.lock_draft_version(tx, tenant_id, canvas_id).id
        script = fixtures.scripts[tenant_id] = Script(case.llm)
        fixtures.files[tenant_id] = case.file_store
        fixtures.cases[tenant_id] = case
        bus = engine.coordinator.dispatch.bus
        watcher = EventWatcher(engine.database, engine.coordinator.versions, bus.url)
        player = _CaseRunner(engine, tenant_id, canvas_id, version_id, fixtures.read_file, watcher)
        seen = [player.run(case.start_of(index), run) for index, run in enumerate(case.runs)]
        requests = [
            {"model": s.model, "messages": s.messages, "tools": s.tools, "params": s.params} for s in script.requests
        ]
        return ObservedCase(seen, requests, [list(call) for call in http.calls], http.base)


@dataclass
class _CaseRunner:
    engine: local_engine.Engine
    tenant_id: TenantId
    canvas_id: CanvasId
    version_id: VersionId
    read_file: Callable[[TenantId, RunId, Mapping[str, Any], str], str]
    watcher: EventWatcher
    conversation_id: SessionId | None = None

    def run(self, start: str, case_run: CaseRun) -> ObservedRun:
        """Execute one run of a case. Every start except `continue` begins a new conversation."""
        if start != "continue":
            self.conversation_id = None
        is_webhook = case_run.webhook_payload is not None
        started = self.engine.lifecycle.start_run(
            Start(
                self.tenant_id,
                self.canvas_id,
                self.version_id,
                RunRequest(
                    query=case_run.query,
                    inputs=None if is_webhook else case_run.inputs,
                    files=() if is_webhook else tuple(_descriptors(case_run.files)),
                    user_id=case_run.user_id,
                    webhook_payload=case_run.webhook_payload,
                ),
                conversation_id=self.conversation_id,
            )
        )
        self.conversation_id = started.conversation_id
        return self._observe(started, self._await_end(started, case_run))

    def _await_end(self, started: Started, case_run: CaseRun) -> Mapping[str, Any]:
        deadline = time.monotonic() + RUN_TIMEOUT
        is_cancelled = False
        while time.monotonic() < deadline:
            with self.engine.database.transaction() as tx:
                row = run_rows.read(tx, self.tenant_id, started.run_id)
            assert row is not None
            status = RunStatus(row["status"])
            if status.is_over or status is RunStatus.WAITING:
                return row
            on = case_run.cancel_on
            if on is not None and not is_cancelled:
                seen = self.watcher.events_of(self.tenant_id, started.run_id, started.after)
                is_cancelled = any(_is(event, on.event, on.component_id) for event in seen)
                if is_cancelled:
                    self.engine.coordinator.dispatch.bus.set_cancel_key(started.run_id)
            time.sleep(POLL_INTERVAL)
        raise TimeoutError(f"The run {started.run_id} did not end within {RUN_TIMEOUT:g} s.")

    def _observe(self, started: Started, row: Mapping[str, Any]) -> ObservedRun:
        with self.engine.database.statements() as tx:
            outputs = run_view.outputs_of(tx, self.engine.coordinator.versions, row, registry.default_outputs)
            known = run_view.globals_of(tx, row)
            known["sys.files"] = [
                self.read_file(self.tenant_id, started.run_id, file, "") if isinstance(file, Mapping) else file
                for file in known["sys.files"]
            ]
            history = run_view.history_of(tx, row)
        shown = self.watcher.events_of(self.tenant_id, started.run_id, started.after)
        error = ""
        if row["status"] == RunStatus.FAILED:
            error = self.watcher.error_of(self.tenant_id, started.run_id, started.after)
        waiting = next((event["data"] for event in shown if event["event"] == "user_inputs"), None)
        return ObservedRun(
            error=error,
            events=shown,
            answer="".join(map(_message_text, shown)),
            outputs=outputs,
            globals=known,
            history=history,
            waiting=waiting,
        )


def _descriptors(files: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    return (file for file in files if isinstance(file, Mapping))


def _is(event: Mapping[str, Any], name: str, node_id: str | None) -> bool:
    return event["event"] == name and (node_id is None or event["data"].get("component_id") == node_id)


def _message_text(event: Mapping[str, Any]) -> str:
    if event["event"] != "message":
        return ""
    data = event["data"]
    if data.get("start_to_think"):
        return "<think>"
    return "</think>" if data.get("end_to_think") else data["content"]
