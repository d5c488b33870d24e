"""A run as one document, over HTTP and on the command line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from scheduler.views.value_previews import MAX_SHOWN_BYTES
from store.agents.canvas_secrets import is_mask
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, MODEL, Client
from tests.integration.api.test_activation_list import ITERATION, list_activations, rows_of, run_to_end
from tests.integration.api.test_activation_page import LONG
from tests.integration.api.test_canvas_secrets import KEY, api_key_of, search_canvas
from tests.integration.api.test_versions_gone import delete_version_row

LISTS = {
    "activations",
    "values",
    "variables",
    "attempts",
    "model_calls",
    "call_parts",
    "tool_calls",
    "events",
    "message_streams",
}


def export(client: Client, run_id: str, **query: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/runs/{run_id}/export", params=query)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-disposition"] == f'attachment; filename="run-{run_id}.json"'
    return reply.json()


def test_document_has_the_run_its_version_and_all_its_rows(client: Client) -> None:
    run_id = run_to_end(client, ITERATION, ",".join(map(str, range(30))))

    written = export(client, run_id)

    assert set(written) == {"format", "exported_at", "run", "version", "graph", *LISTS}
    assert (written["format"], written["run"]["status"]) == ("easel-run/1", "succeeded")
    assert (written["run"]["agent_title"], written["run"]["version_title"]) == ("agent", "")
    assert set(written["version"]["document"]["components"]) == set(ITERATION["components"])
    assert {node["id"] for node in written["graph"]["nodes"]} == set(ITERATION["components"])
    listed = rows_of(list_activations(client, run_id, limit=2_000))
    assert written["activations"] == listed
    assert {row["activation_id"] for row in written["values"]} <= {row["id"] for row in listed}
    items = [row for row in written["values"] if row["node_id"].startswith("StringTransform")]
    assert len(items) >= 30
    events = client.http.get(f"/api/v1/runs/{run_id}/events", params={"limit": 500}).json()["events"]
    assert [row["number"] for row in written["events"]] == [int(event["id"]) for event in events]
    answer = client.run(run_id)["answer"]
    assert "".join(stream["text"] for stream in written["message_streams"]) == answer


def test_pages_follow_each_other_without_gap(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_to_end(client, ITERATION, ",".join(map(str, range(30))))
    whole = export(client, run_id)

    monkeypatch.setattr("scheduler.views.run_file.PAGE_SIZE", 7)

    assert {name: export(client, run_id)[name] for name in LISTS} == {name: whole[name] for name in LISTS}


def test_model_calls_name_the_parts_of_their_bodies(client: Client) -> None:
    run_id = run_to_end(client, MODEL, "Hello?")

    written = export(client, run_id)

    (call,) = written["model_calls"]
    parts = {part["digest"]: part["body"] for part in written["call_parts"]}
    assert parts[call["response"]] == {"role": "assistant", "content": "Hello?"}
    assert parts[call["request"]["messages"][-1]] == {"role": "user", "content": "Hello?"}


def test_value_above_1_mib_is_cut_unless_requested(client: Client, home: Path) -> None:
    run_id = run_to_end(client, LONG, "x" * 50_000)

    cut = value_of(export(client, run_id), "StringTransform:0", "result")
    whole = value_of(export(client, run_id, large=1), "StringTransform:0", "result")
    shutil.rmtree(home / "files" / "values")
    lost = value_of(export(client, run_id, large=1), "StringTransform:0", "result")

    assert cut == {"$preview": "", "bytes": 1_500_002, "type": "file"}
    assert whole == "x" * 1_500_000
    assert (lost["$gone"], lost["bytes"]) == (True, 1_500_002)


def test_large_value_in_its_row_is_cut_to_its_beginning(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_to_end(client, LONG, "x" * 1_000)
    monkeypatch.setattr("scheduler.views.run_file.MAX_VALUE_BYTES", 20_000)

    cut = value_of(export(client, run_id), "StringTransform:0", "result")

    assert cut == {"$preview": "x" * MAX_SHOWN_BYTES, "bytes": 30_000, "type": "text"}


def test_secrets_of_the_canvas_are_masked(client: Client) -> None:
    run_id = run_to_end(client, search_canvas())

    written = export(client, run_id)

    assert KEY not in json.dumps(written)
    assert is_mask(api_key_of(written["version"]["document"]))


def test_waiting_and_failed_runs_are_exported(client: Client) -> None:
    waiting = client.start(client.agent(FORM), "hello")["run_id"]
    client.wait_for(waiting, "waiting")
    failed = client.start(client.agent(BROKEN, title="broken"), "hello")["run_id"]
    client.wait_for(failed, "failed")

    assert export(client, waiting)["run"]["status"] == "waiting"
    assert export(client, failed)["run"]["error"] == client.run(failed)["error"]


def test_run_without_its_version_is_exported_without_graph(client: Client, server: Server) -> None:
    run_id = run_to_end(client, ECHO)
    delete_version_row(client, server, export(client, run_id)["run"]["version_id"])

    written = export(client, run_id)

    assert (written["version"], written["graph"]) == (None, None)
    assert len(written["activations"]) == 2


def test_invalid_parameter_is_refused_with_its_name(client: Client) -> None:
    run_id = run_to_end(client, ECHO)

    reply = client.http.get(f"/api/v1/runs/{run_id}/export", params={"large": "yes"})

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, "large")


def test_command_prints_the_document_of_the_route(client: Client, server: Server, tmp_path: Path) -> None:
    run_id = run_to_end(client, MODEL, "Hello?")
    variables = {
        "DATABASE_URL": server.database_url,
        "REDIS_URL": server.redis_url,
        "EASEL_HOME": str(tmp_path),
        "EASEL_SECRET_KEY": SECRET,
    }

    printed = subprocess.run(
        [sys.executable, "-m", "cli", "export-run", run_id, "--tenant", tenant_name(client, server)],
        env={**os.environ, **variables},
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout

    assert {**json.loads(printed), "exported_at": None} == {**export(client, run_id), "exported_at": None}


def value_of(written: dict[str, Any], node_id: str, name: str) -> Any:
    (row,) = (row for row in written["values"] if row["node_id"] == node_id)
    return row["outputs"][name]


def tenant_name(client: Client, server: Server) -> str:
    with server.database.transaction() as tx:
        return tx.scalar(text("select name from tenants where id = :id"), id=client.tenant_id)
