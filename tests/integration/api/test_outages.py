"""Health checks, and the API without Redis: runs are accepted, and streams are read from rows."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from structlog.testing import capture_logs

from api.app import ApiConfig
from store.db.database import Database
from store.tenants import tenants
from telemetry import VERSION
from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.live_frames import LivePage, follow
from tests.integration.api.talking import ECHO, MODEL, Client, names_of, text_of

TRIAGE = json.loads((Path(__file__).resolve().parents[3] / "examples" / "support_triage.json").read_text())
UNREACHABLE = "redis://127.0.0.1:1/0"


@pytest.fixture
def client_without_redis(server: Server, config: ApiConfig) -> Iterator[Client]:
    """A client of an API process that reaches neither broker nor bus; the worker reaches both."""
    with serving(with_settings(config, redis_url=UNREACHABLE, broker_url=UNREACHABLE)) as url:
        client = server.client()
        client.http.base_url = url
        yield client
        client.http.close()


def test_run_started_without_a_broker_is_executed_after_the_sweeper_finds_it(client_without_redis: Client) -> None:
    accepted = client_without_redis.start(client_without_redis.agent(MODEL))

    assert client_without_redis.wait_for(accepted["run_id"], "succeeded")["answer"].startswith("Answer: ")


def test_stream_without_a_bus_is_read_from_rows(client_without_redis: Client) -> None:
    events = client_without_redis.stream(client_without_redis.agent(MODEL), "words")

    assert names_of(events)[-2:] == ["workflow_finished", "[DONE]"]
    assert text_of(events) == events[-2].data["data"]["outputs"]["content"]


def test_live_stream_without_a_bus_shows_states_within_three_seconds(client_without_redis: Client) -> None:  # T046
    client = client_without_redis
    run_id = client.start(client.agent(TRIAGE.get("dsl", TRIAGE)), "My invoice is wrong: it is too high.")["run_id"]

    page = LivePage()
    shown_at: dict[str, int] = {}
    for frame in follow(client.http, run_id):
        page.apply(frame)
        if frame.name == "state":
            over = [row for row in page.rows.values() if row["finished_at"] is not None]
            shown_at = {row["id"]: frame.data["now"] for row in over} | shown_at

    rows = page.rows.values()
    assert page.state["status"] == "succeeded"
    assert {row["id"] for row in rows if row["finished_at"] is not None} == shown_at.keys()
    assert max(shown_at[row["id"]] - row["finished_at"] for row in rows if row["id"] in shown_at) <= 3_000


def test_readyz_names_unreachable_services_without_their_addresses(
    client_without_redis: Client, server: Server
) -> None:
    down = httpx2.get(f"{client_without_redis.http.base_url}/readyz", timeout=10)
    up = httpx2.get(f"{server.url}/readyz", timeout=10)

    assert down.status_code == 503
    assert down.json()["checks"] == {
        "database": "ok", "migrations": "ok", "broker": "does not answer", "bus": "does not answer",
    }  # fmt: skip
    assert (up.status_code, up.json()["status"]) == (200, "ok")


def test_process_without_a_database_is_alive_and_not_ready(config: ApiConfig) -> None:
    unreachable = "postgresql+psycopg://nobody:secret@127.0.0.1:1/nothing"
    with serving(with_settings(config, database_url=unreachable)) as url:
        alive = httpx2.get(f"{url}/healthz")
        ready = httpx2.get(f"{url}/readyz", timeout=10)
        agents = httpx2.get(f"{url}/api/v1/agents", headers={"Authorization": "Bearer x"})
        runs = httpx2.get(f"{url}/api/v1/runs", headers={"Authorization": "Bearer x"})

    assert alive.json() == {"status": "ok", "version": VERSION}
    assert ready.status_code == 503
    assert ready.json()["checks"]["database"] == "does not answer"
    assert (agents.status_code, agents.json()["code"]) == (503, 105)
    assert (runs.status_code, runs.json()["code"]) == (503, "unavailable")
    assert "secret" not in ready.text + agents.text + runs.text


def test_a_database_that_lacks_migrations_is_not_ready(config: ApiConfig, services: object) -> None:
    empty = Database(config.settings.servers()[0].rpartition("/")[0] + "/postgres", pool_size=1)
    with serving(with_settings(config, database_url=empty.url)) as url:
        ready = httpx2.get(f"{url}/readyz", timeout=10)
    empty.close()

    assert ready.status_code == 503
    assert "easel migrate" in ready.json()["checks"]["migrations"]


def test_metrics_need_an_admin_token_unless_a_setting_opens_them(server: Server) -> None:
    admin, api_client = server.client(kind="admin"), server.client()
    with serving(with_settings(server.config, open_metrics=True)) as url:
        opened = httpx2.get(f"{url}/metrics")

    shown, refused = admin.http.get("/metrics"), api_client.http.get("/metrics")

    assert (shown.status_code, refused.status_code) == (200, 403)
    assert httpx2.get(f"{server.url}/metrics").status_code == 401
    assert "easel_runs" in shown.text
    assert (opened.status_code, "easel_runs" in opened.text) == (200, True)


def test_openapi_schema_needs_an_api_token_unless_a_setting_opens_it(server: Server) -> None:
    client = server.client()
    guest = server.guest(client, client.agent(ECHO))
    with serving(with_settings(server.config, open_schema=True)) as url:
        opened = httpx2.get(f"{url}/openapi.json")

    assert client.http.get("/openapi.json").json() == opened.json()
    assert "/api/v1/agents" in opened.json()["paths"]
    assert [caller.get(f"{server.url}/openapi.json").status_code for caller in (guest.http, httpx2)] == [401, 401]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect"])
def test_documentation_pages_with_scripts_of_another_host_are_not_served(server: Server, path: str) -> None:
    assert server.client().http.get(path).status_code == 404


def test_internal_error_shows_a_request_id_and_no_details(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a secret of ours")

    client = server.client()
    monkeypatch.setattr(tenants, "find_principal", fail)

    with capture_logs() as logs:
        ragflow_reply = client.http.get("/api/v1/agents")
        easel_reply = client.http.get("/api/v1/runs")

    assert [entry["event"] for entry in logs] == ["request_failed"] * 2
    assert logs[0]["request_id"] in ragflow_reply.json()["message"]
    assert (ragflow_reply.status_code, ragflow_reply.json()["code"]) == (200, 100)
    assert (easel_reply.status_code, easel_reply.json()["code"]) == (500, "internal")
    assert "secret" not in ragflow_reply.text + easel_reply.text
