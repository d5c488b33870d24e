"""Recorded databases of earlier releases: this release finishes every run in them."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.state.run_state import RULES_VERSION
from embedded import EmbeddedServers
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start
from store.db.database import Database
from store.maintenance import migrate
from store.primitives.encryption import EncryptionKey
from store.runs import attempt_records
from store.tables.runs import FORMER_COLUMNS
from store.tenants import model_accounts, tenants, uploads
from tests import services as test_services
from tests.integration.engine import Bench, bench_on
from tests.upgrade.recording import Recording, recordings
from tests.upgrade.scenes import IDEMPOTENCY, NEXT_TURN, SCENES, finish_runs, recorded_run

COLUMNS = text("""
    select table_name || '.' || column_name as name, data_type, is_nullable = 'YES' as may_be_null,
           column_default is not null as has_default
    from information_schema.columns where table_schema = 'public'
""")

every_release = pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.folder.name)


@pytest.fixture
def url(services: EmbeddedServers) -> Iterator[str]:
    """A database without a single table."""
    with test_services.fresh_database(services.database_url) as url:
        yield url


@contextmanager
def this_release_on(url: str, redis_url: str) -> Generator[Bench]:
    database = Database(url)
    with pytest.MonkeyPatch.context() as patched, bench_on(database, redis_url, patched) as bench:
        yield bench
    database.close()


def restore_and_upgrade(url: str, recording: Recording) -> None:
    """Restore the release's database and upgrade it."""
    recording.make_tables(url)
    recording.write_rows(url)
    migrate.upgrade(url)


def columns_of(url: str) -> Mapping[str, Any]:
    database = Database(url, pool_size=1)
    with database.transaction() as tx:
        recorded_run = {row.name: row for row in tx.rows(COLUMNS)}
    database.close()
    return recorded_run


@every_release
def test_runs_of_an_earlier_release_end_as_they_would_have_ended_there(recording: Recording, url: str, redis_url: str):
    # T144
    restore_and_upgrade(url, recording)

    with this_release_on(url, redis_url) as bench:
        results = finish_runs(bench, recording.release["runs"])

    expected = recording.expected
    assert results.keys() == expected.keys() == SCENES.keys() | {NEXT_TURN}
    for name, run in expected.items():
        assert {part: results[name][part] for part in run} == run, name


@every_release
def test_runs_that_an_earlier_release_writes_after_the_upgrade_end_as_recorded(
    recording: Recording, url: str, redis_url: str
):  # T144
    """Processes of the earlier release still run after the upgrade of the tables and do not know new columns."""
    migrate.upgrade(url)
    recording.write_rows(url)

    with this_release_on(url, redis_url) as bench:
        results = finish_runs(bench, recording.release["runs"])

    assert {name: run["status"] for name, run in results.items()} == {
        name: run["status"] for name, run in recording.expected.items()
    }
    assert results[NEXT_TURN]["said"] == recording.expected[NEXT_TURN]["said"]


@every_release
def test_migrations_remove_nothing_that_the_previous_release_needs(recording: Recording, url: str):
    recording.make_tables(url)
    before = columns_of(url)

    migrate.upgrade(url)
    after = columns_of(url)

    for name, column in before.items():
        assert name in after, f"{name} is gone"
        assert after[name].data_type == column.data_type, name
        assert after[name].may_be_null or not column.may_be_null, f"{name} must have a value now"
    filled_by_triggers = {(table, name) for table, names in FORMER_COLUMNS.items() for name in names.values()}
    for name in after.keys() - before.keys():
        relation, _, column = name.partition(".")
        is_filled = (relation.removesuffix("_default"), column) in filled_by_triggers
        if relation in {known.partition(".")[0] for known in before} and not is_filled:
            assert after[name].may_be_null or after[name].has_default, f"{name} is new and an insert must name it"


@every_release
def test_data_beside_the_runs_is_found_after_the_upgrade(recording: Recording, url: str, redis_url: str):
    restore_and_upgrade(url, recording)
    facts, tenant = recording.release["facts"], UUID(recording.release["facts"]["tenant"])

    with this_release_on(url, redis_url) as bench, bench.database.transaction() as tx:
        finished = recorded_run(bench, UUID(recording.release["runs"]["finished"]))
        principal = tenants.find_principal(tx, facts["token"])
        (account,) = model_accounts.list_accounts(tx, tenant, EncryptionKey.from_secret(facts["sealing_key"]))
        file = uploads.get(tx, tenant, UUID(facts["file"][0]))
        references = attempt_records.load_citations(tx, finished.id, finished.row["message_id"])

    assert principal is not None
    assert principal.tenant_id == tenant
    assert account.api_key == facts["api_key"]
    assert [str(file.id), file.name, file.size] == facts["file"]
    assert {str(number): chunk for number, chunk in references["chunks"].items()} == facts["references"]["chunks"]


@every_release
def test_request_that_an_earlier_release_has_answered_is_not_executed_again(
    recording: Recording, url: str, redis_url: str
):
    restore_and_upgrade(url, recording)

    with this_release_on(url, redis_url) as bench:
        first = recorded_run(bench, UUID(recording.release["runs"]["finished"]))
        row, request = first.row, RunRequest(query="hello")
        start = Start(row["tenant_id"], row["canvas_id"], row["version_id"], request, idempotency=IDEMPOTENCY)
        again = bench.lifecycle.start_run(start)

    assert (again.run_id, again.conversation_id, again.repeated) == (first.id, first.conversation_id, True)


@every_release
def test_rules_version_of_a_recording_is_supported_by_this_release(recording: Recording):
    assert recording.release["engine"] <= RULES_VERSION
    assert recording.release["revision"] <= migrate.newest_revision()
