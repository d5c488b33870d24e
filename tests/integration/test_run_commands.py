"""Commands about runs: `easel show`, `explain`, `events` and `cancel` on a real database."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.ids import VersionId
from store.agents import versions
from store.db.database import Database
from tests.integration.api.talking import ECHO
from tests.integration.command_line import Easel


def start(easel: Easel, tmp_path: Path) -> str:
    """Start a run of an agent, which no worker executes; return its id."""
    file = tmp_path / "echo.json"
    file.write_text(json.dumps(ECHO))
    _, out, _ = easel("start", str(file), "-q", "hello", "--json")
    return json.loads(out)["run_id"]


def end(database: Database, run: str) -> tuple[UUID, UUID, VersionId]:
    """Mark a run as over; return its tenant, agent and version."""
    with database.transaction() as tx:
        (row,) = tx.rows(
            text("update runs set status = 'succeeded' where id = :id returning tenant_id, canvas_id, version_id"),
            id=UUID(run),
        )
    return row.tenant_id, row.canvas_id, row.version_id


@pytest.mark.parametrize("by", ["force", "an earlier release"])
def test_a_run_is_shown_after_its_version_was_deleted(
    easel: Easel, database: Database, tmp_path: Path, by: str
) -> None:
    run = start(easel, tmp_path)
    tenant_id, canvas_id, version_id = end(database, run)
    before = {command: easel(command, run)[:2] for command in ("show", "explain", "events")}  # other threads may log
    with database.transaction() as tx:
        if by == "force":
            versions.delete(tx, tenant_id, canvas_id, version_id, force=True)
        else:
            tx.execute(text("delete from versions where id = :id"), id=version_id)

    after = {command: easel(command, run)[:2] for command in before}

    assert {code for code, _ in after.values()} == {0}
    if by == "force":
        assert after == before


# -- cancel ------------------------------------------------------------------------------------------------------------
def test_several_runs_are_cancelled_by_one_command(easel: Easel, database: Database, tmp_path: Path) -> None:
    running, over = start(easel, tmp_path), start(easel, tmp_path)
    end(database, over)

    code, out, err = easel("cancel", running, over)

    assert (code, err) == (0, "")
    assert out == f"{running}  cancelled\n{over}  it was over already: succeeded\n"


def test_unknown_run_among_others_is_named_and_the_others_are_cancelled(easel: Easel, tmp_path: Path) -> None:
    run = start(easel, tmp_path)

    code, out, err = easel("cancel", "nothing", run, "--json")

    assert (code, json.loads(out)) == (2, {"id": run, "run_id": run, "status": "cancelled"})
    assert "There is no run nothing." in err


def test_one_unknown_run_is_an_error(easel: Easel) -> None:
    code, out, err = easel("cancel", "nothing")

    assert (code, out) == (2, "")
    assert "There is no run nothing. `easel runs` lists them." in err
