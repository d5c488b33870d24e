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
WAITERS = text(
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock' and query like '%canvases%'"
)
SECONDS = 60  # until a request has come to the row, on a machine that is busy


def waiters(database: Database) -> int:
    """How many sessions wait for a row of this database."""
    with database.transaction() as tx:
        return int(tx.scalar(WAITERS))


def shown(client: Client, agent: str) -> tuple[Any, Any]:
    """What the agent's draft says, and its path."""
    dsl = client.http.get(f"/api/v1/agents/{agent}").json()["data"]["dsl"]
    return dsl["components"]["Message:0"]["obj"]["params"], dsl["path"]


def test_reset_that_waited_for_a_save_empties_the_saved_document(lonely: Client, lonely_server: Server) -> None:
    agent = lonely.agent(USED)

    with ThreadPoolExecutor(1) as threads:
        with lonely_server.database.transaction() as tx:
            canvases.update(tx, lonely.tenant_id, UUID(agent), dsl=SAVED)
            replying = threads.submit(lonely.http.post, f"/api/v1/agents/{agent}/reset")
            eventually(lambda: waiters(lonely_server.database), bool, SECONDS)
        emptied = replying.result(SECONDS).json()["data"]

    assert emptied["components"]["Message:0"]["obj"]["params"] == message("Saved")
    assert shown(lonely, agent) == (message("Saved"), [])


def test_save_during_a_reset_waits_and_is_the_draft(
    lonely: Client, lonely_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = lonely.agent(USED)
    fresh = defaults.reset_by_type

    with ThreadPoolExecutor(1) as threads:
        saves: list[Any] = []

        def after_a_save_came(document: Document) -> Document:
            saves.append(threads.submit(lonely.http.put, f"/api/v1/agents/{agent}", json={"dsl": SAVED}))
            eventually(lambda: waiters(lonely_server.database) or saves[0].done(), bool, SECONDS)
            return fresh(document)

        monkeypatch.setattr(defaults, "reset_by_type", after_a_save_came)
        emptied = lonely.http.post(f"/api/v1/agents/{agent}/reset").json()["data"]
        saved = saves[0].result(SECONDS).json()

    assert emptied["components"]["Message:0"]["obj"]["params"] == ECHO["components"]["Message:0"]["obj"]["params"]
    assert saved["code"] == 0
    assert shown(lonely, agent) == (message("Saved"), ["begin"])


def test_file_that_is_put_while_an_editor_saves_is_the_draft(
    lonely: Client, lonely_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "load", lambda: Settings(secret_key=SecretStr(SECRET)))
    agent = lonely.agent(USED, "put")

    with lonely_server.database.transaction() as tx:
        draft = dict(canvases.get(tx, lonely.tenant_id, UUID(agent)).draft)

    def put() -> None:
        with lonely_server.database.transaction() as tx:
            assert drafts.save_draft(tx, lonely.tenant_id, "put", draft) == (UUID(agent), False)

    with ThreadPoolExecutor(1) as threads, closing(Database(lonely_server.database_url)) as editor:
        with editor.transaction() as tx:
            canvases.update(tx, lonely.tenant_id, UUID(agent), dsl=SAVED)
            putting = threads.submit(put)
            eventually(lambda: waiters(lonely_server.database) or putting.done(), bool, SECONDS)
        putting.result(SECONDS)

    assert shown(lonely, agent)[0] == message("You said: {sys.query}")
