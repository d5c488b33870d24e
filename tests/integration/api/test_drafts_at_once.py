"""Two writers of one draft at the same time: an editor's save, and a reset."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from canvas.document import defaults
from canvas.document.document import Document
from cli.agents import drafts
from settings import Settings
from store.agents import canvases
from store.db.database import Database
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import ECHO, Client, canvas, eventually, message

USED = {**ECHO, "path": ["begin"]}
SAVED = {
    **canvas(("begin", "Begin", {}, ["Message:0"]), ("Message:0", "Message", message("Saved"), [])),
    "path": ["begin"],
}
COUNT_LOCK_WAITERS = text(
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock' and query like '%canvases%'"
)
SECONDS = 60  # for a request to reach the row on a busy machine


def count_lock_waiters(database: Database) -> int:
    """Count the database sessions that wait for a row lock."""
    with database.transaction() as tx:
        return int(tx.scalar(COUNT_LOCK_WAITERS))


def read_draft(client: Client, agent: str) -> tuple[Any, Any]:
    """Return the message parameters and the path of the agent's draft."""
    dsl = client.http.get(f"/api/v1/agents/{agent}").json()["data"]["dsl"]
    return dsl["components"]["Message:0"]["obj"]["params"], dsl["path"]


def test_reset_that_waited_for_a_save_empties_the_saved_document(
    workerless_client: Client, workerless_server: Server
) -> None:
    agent = workerless_client.agent(USED)

    with ThreadPoolExecutor(1) as threads:
        with workerless_server.database.transaction() as tx:
            canvases.update(tx, workerless_client.tenant_id, UUID(agent), dsl=SAVED)
            replying = threads.submit(workerless_client.http.post, f"/api/v1/agents/{agent}/reset")
            eventually(lambda: count_lock_waiters(workerless_server.database), bool, SECONDS)
        emptied = replying.result(SECONDS).json()["data"]

    assert emptied["components"]["Message:0"]["obj"]["params"] == message("Saved")
    assert read_draft(workerless_client, agent) == (message("Saved"), [])


def test_save_during_a_reset_waits_and_becomes_the_draft(
    workerless_client: Client, workerless_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = workerless_client.agent(USED)
    original_reset = defaults.reset_by_type

    with ThreadPoolExecutor(1) as threads:
        saves: list[Any] = []

        def reset_after_a_save_waits(document: Document) -> Document:
            saves.append(threads.submit(workerless_client.http.put, f"/api/v1/agents/{agent}", json={"dsl": SAVED}))
            eventually(lambda: count_lock_waiters(workerless_server.database) or saves[0].done(), bool, SECONDS)
            return original_reset(document)

        monkeypatch.setattr(defaults, "reset_by_type", reset_after_a_save_waits)
        emptied = workerless_client.http.post(f"/api/v1/agents/{agent}/reset").json()["data"]
        saved = saves[0].result(SECONDS).json()

    assert emptied["components"]["Message:0"]["obj"]["params"] == ECHO["components"]["Message:0"]["obj"]["params"]
    assert saved["code"] == 0
    assert read_draft(workerless_client, agent) == (message("Saved"), ["begin"])


def test_draft_from_a_file_saved_during_an_editor_save_becomes_the_draft(
    workerless_client: Client, workerless_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "load", lambda: Settings(secret_key=SecretStr(SECRET)))
    agent = workerless_client.agent(USED, "put")

    with workerless_server.database.transaction() as tx:
        draft = dict(canvases.get(tx, workerless_client.tenant_id, UUID(agent)).draft)

    def save_from_file() -> None:
        with workerless_server.database.transaction() as tx:
            assert drafts.save_draft(tx, workerless_client.tenant_id, "put", draft) == (UUID(agent), False)

    with ThreadPoolExecutor(1) as threads, closing(Database(workerless_server.database_url)) as editor:
        with editor.transaction() as tx:
            canvases.update(tx, workerless_client.tenant_id, UUID(agent), dsl=SAVED)
            saving = threads.submit(save_from_file)
            eventually(lambda: count_lock_waiters(workerless_server.database) or saving.done(), bool, SECONDS)
        saving.result(SECONDS)

    assert read_draft(workerless_client, agent)[0] == message("You said: {sys.query}")
