"""Record the runs of cases, and replay them: each must come out as it did (`easel conformance --replay`)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import local_engine
from canvas.errors import ExecutorError
from canvas.ids import CanvasId, TenantId
from cli.cases import case_diff
from cli.cases.case_file import RunCase
from cli.cases.commands import lines_of_differences
from cli.cases.recorder import RecordSource, record_run
from cli.cases.replayer import Replayer, open_replayer
from cli.conformance.cases import Case
from cli.conformance.play.runner import Fixtures, text_of_file
from cli.conformance.report import FailedCase, PassedCase, Verdict
from components import registry
from settings import Settings
from store.agents.canvas_secrets import CanvasSecrets
from store.db.transaction import USE_SNAPSHOT
from store.runs import run_queries


def record_runs(engine: local_engine.Engine, fixtures: Fixtures) -> list[RunCase]:
    """Return all runs that the engine has executed for cases. Each is named after its case."""
    return [run for tenant_id, case in fixtures.cases.items() for run in _runs_of(engine, tenant_id, case)]


def _runs_of(engine: local_engine.Engine, tenant_id: TenantId, case: Case) -> Iterator[RunCase]:
    with engine.database.transaction() as tx:
        runs, _ = run_queries.page(tx, tenant_id, limit=1000)
    for run in reversed(runs):
        with engine.database.transaction() as tx:
            tx.execute(USE_SNAPSHOT)
            source = RecordSource(
                tx,
                engine.coordinator.versions,
                tenant_id,
                engine.database.large.blobs,
                lambda canvas_id: CanvasSecrets.for_canvas(
                    None, tenant_id, CanvasId(canvas_id), registry.secret_fields
                ),
                lambda _: None,
            )
            yield record_run(source, run.id, name=case.name)


def replay_runs(settings: Settings, fixtures: Fixtures, recorded: Sequence[RunCase], jobs: int) -> Iterable[Verdict]:
    """Replay recorded runs, and yield a verdict on each."""
    files = {case.name: case.file_store for case in fixtures.cases.values()}

    def read_file(case: RunCase, descriptor: Mapping[str, Any]) -> str:
        return text_of_file(files[case.name], descriptor)

    with open_replayer(settings, jobs=jobs, read_file=read_file) as replayer, ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(partial(_judge, replayer), recorded)


def _judge(replayer: Replayer, recorded: RunCase) -> Verdict:
    name = f"{recorded.name}, replayed"
    try:
        found = case_diff.compare(recorded, replayer.replay(recorded))
    except ExecutorError as error:
        return FailedCase(name, f"{type(error).__name__}: {error}")
    return FailedCase(name, "; ".join(lines_of_differences(found))) if found else PassedCase(name)
