"""Health, and life without Redis: runs are accepted, streams are made of rows."""

from collections.abc import Iterator

import httpx2
import pytest
from structlog.testing import capture_logs

from api.app import ApiConfig
from store.db.database import Database
from store.tenants import tenants
from telemetry import VERSION
from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.talking import ECHO, MODEL, Client, names_of, text_of

NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture
def deaf(server: Server, config: ApiConfig) -> Iterator[Client]:
    """A client of an API process that reaches neither broker nor bus; the worker reaches both."""
    with serving(with_settings(config, redis_url=NOBODY, broker_url=NOBODY)) as url:
        client = server.client()
        client.http.base_url = url
        yield client
        client.http.close()


def test_a_run_is_accepted_without_a_broker_and_carried_out_once_the_sweeper_finds_it(deaf: Client) -> None:
    accepted = deaf.start(deaf.agent(MODEL))

    assert deaf.until(accepted["run_id"], "succeeded")["answer"].startswith("Answer: ")


def test_a_stream_without_a_bus_is_made_of_rows(deaf: Client) -> None:
    shown = deaf.stream(deaf.agent(MODEL), "words")

    assert names_of(shown)[-2:] == ["workflow_finished", "[DONE]"]
    assert text_of(shown) == shown[-2].data["data"]["outputs"]["content"]


def test_what_is_missing_is_named_without_telling_where_it_is(deaf: Client, server: Server) -> None:
    down = httpx2.get(f"{deaf.http.base_url}/readyz", timeout=10)
    up = httpx2.get(f"{server.url}/readyz", timeout=10)

    assert down.status_code == 503
    assert down.json()["checks"] == {
        "database": "ok", "migrations": "ok", "broker": "does not answer", "bus": "does not answer",
    }  # fmt: skip
    assert (up.status_code, up.json()["status"]) == (200, "ok")


def test_a_process_without_a_database_lives_and_is_not_ready(config: ApiConfig) -> None:
    away = "postgresql+psycopg://nobody:secret@127.0.0.1:1/nothing"
    with serving(with_settings(config, database_url=away)) as url:
        alive = httpx2.get(f"{url}/healthz")
        ready = httpx2.get(f"{url}/readyz", timeout=10)
        asked = httpx2.get(f"{url}/api/v1/agents", headers={"Authorization": "Bearer x"})
        run = httpx2.get(f"{url}/api/v1/runs", headers={"Authorization": "Bearer x"})

    assert alive.json() == {"status": "ok", "version": VERSION}
    assert ready.status_code == 503
    assert ready.json()["checks"]["database"] == "does not answer"
    assert (asked.status_code, asked.json()["code"]) == (503, 105)
    assert (run.status_code, run.json()["code"]) == (503, "unavailable")
    assert "secret" not in ready.text + asked.text + run.text


def test_a_database_that_lacks_migrations_is_not_ready(config: ApiConfig, services: object) -> None:
    empty = Database(config.settings.servers()[0].rpartition("/")[0] + "/postgres", pool_size=1)
    with serving(with_settings(config, database_url=empty.url)) as url:
        ready = httpx2.get(f"{url}/readyz", timeout=10)
    empty.close()

    assert ready.status_code == 503
    assert "easel migrate" in ready.json()["checks"]["migrations"]


def test_counters_are_shown_to_admin_tokens_unless_a_setting_opens_them(server: Server) -> None:
    admin, program = server.client(kind="admin"), server.client()
    with serving(with_settings(server.config, open_metrics=True)) as url:
        opened = httpx2.get(f"{url}/metrics")

    shown, refused = admin.http.get("/metrics"), program.http.get("/metrics")

    assert (shown.status_code, refused.status_code) == (200, 403)
    assert httpx2.get(f"{server.url}/metrics").status_code == 401
    assert "easel_runs" in shown.text
    assert (opened.status_code, "easel_runs" in opened.text) == (200, True)


def test_the_schema_is_shown_to_api_tokens_unless_a_setting_opens_it(server: Server) -> None:
    client = server.client()
    guest = server.guest(client, client.agent(ECHO))
    with serving(with_settings(server.config, open_schema=True)) as url:
        opened = httpx2.get(f"{url}/openapi.json")

    assert client.http.get("/openapi.json").json() == opened.json()
    assert "/api/v1/agents" in opened.json()["paths"]
    assert [caller.get(f"{server.url}/openapi.json").status_code for caller in (guest.http, httpx2)] == [401, 401]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect"])
def test_no_page_loads_scripts_of_another_host(server: Server, path: str) -> None:
    assert server.client().http.get(path).status_code == 404


def test_what_goes_wrong_here_is_told_with_a_request_id_only(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a secret of ours")

    client = server.client()
    monkeypatch.setattr(tenants, "find_principal", fail)

    with capture_logs() as logs:
        wire = client.http.get("/api/v1/agents")
        ours = client.http.get("/api/v1/runs")

    assert [entry["event"] for entry in logs] == ["request_failed"] * 2
    assert logs[0]["request_id"] in wire.json()["message"]
    assert (wire.status_code, wire.json()["code"]) == (200, 100)
    assert (ours.status_code, ours.json()["code"]) == (500, "internal")
    assert "secret" not in wire.text + ours.text
