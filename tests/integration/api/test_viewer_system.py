"""The state of the deployment, for administrators."""

import re
from typing import Any

import pytest
from pydantic import AliasChoices, SecretStr

from api.viewer.system import SHOWN_SETTINGS
from scheduler.messaging.celery_app import NODES, make_app
from scheduler.messaging.queue_lengths import read_queue_lengths
from settings import Settings
from store.monitoring import system_facts
from tests.integration.api.conftest import SECRET, Server, start_server, with_settings
from tests.integration.api.talking import ECHO, Client, eventually

PATH = "/api/v1/viewer/system"


def shown_by(server: Server) -> dict[str, Any]:
    reply = server.client(kind="admin").http.get(PATH)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_api_token_is_refused_with_advice(workerless_client: Client) -> None:
    reply = workerless_client.http.get(PATH)

    assert (reply.status_code, reply.json()["code"]) == (403, "missing_scope")
    assert "`admin`" in reply.json()["message"]


def test_working_deployment_shows_moving_queues_and_a_running_sweeper(server: Server) -> None:
    admin = server.client(kind="admin")

    shown = eventually(
        lambda: admin.http.get(PATH).json(), lambda shown: shown["queues"][0]["is_moving"] and shown["sweeper"]["since"]
    )

    assert shown["checks"] == {"database": "ok", "migrations": "ok", "broker": "ok", "bus": "ok"}
    nodes, of_runs = shown["queues"]
    assert (nodes["name"], of_runs["name"], of_runs["is_moving"]) == ("nodes", "runs", None)
    assert isinstance(nodes["length"], int)
    assert isinstance(of_runs["length"], int)
    assert shown["sweeper"]["is_running"]
    assert shown["release"]
    assert shown["uptime_s"] >= 0


def test_deployment_without_a_worker_shows_that_nothing_moves(workerless_server: Server) -> None:
    client = workerless_server.client()
    client.start(client.agent(ECHO))

    shown = shown_by(workerless_server)

    assert shown["queues"][0]["probe_at"] is None
    assert shown["queues"][0]["is_moving"] is False
    assert shown["sweeper"] == {"since": None, "seen_at": None, "is_running": False}
    assert shown["activations"]["ready"] >= 1


def test_counts_end_at_the_limit(workerless_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client = workerless_server.client()
    agent = client.agent(ECHO)
    for _ in range(3):
        client.start(agent)
    monkeypatch.setattr(system_facts, "MAX_COUNTED", 2)
    monkeypatch.setattr("api.viewer.system.MAX_COUNTED", 2)

    assert shown_by(workerless_server)["activations"]["ready"] == 2
    assert shown_by(workerless_server)["activations"]["is_capped"] is True


def test_lengths_of_queues_are_null_while_the_broker_is_away(workerless_server: Server) -> None:
    config = with_settings(workerless_server.config, broker_url="redis://127.0.0.1:1/0")
    with start_server(config) as server:
        shown = shown_by(server)

    assert shown["checks"]["broker"] != "ok"
    assert [queue["length"] for queue in shown["queues"]] == [None, None]
    assert shown["activations"] is not None


def test_messages_that_nobody_has_fetched_are_counted(redis_url: str) -> None:
    app = make_app(redis_url)
    before = read_queue_lengths(app)
    for _ in range(3):
        app.send_task("worker.execute", args=["x"], queue=NODES)

    assert before == {"nodes": 0, "runs": 0}
    assert read_queue_lengths(app) == {"nodes": 3, "runs": 0}
    app.close()


def test_settings_are_shown_as_they_are_written_and_without_secrets(workerless_server: Server) -> None:
    config = with_settings(
        workerless_server.config, flower_url="http://flower.example/", querit_api_key=SecretStr("k3y")
    )
    with start_server(config) as server:
        reply = server.client(kind="admin").http.get(PATH)

    settings = {each["name"]: each["value"] for each in reply.json()["settings"]}
    assert (settings["EASEL_FORM_EXPIRY"], settings["EASEL_LEASE"]) == ("30d", "10s")
    assert (settings["EASEL_RETENTION"], settings["EASEL_OPEN_METRICS"]) == (None, False)
    assert reply.json()["flower_url"] == "http://flower.example/"
    for secret in (SECRET, "k3y", config.settings.servers()[0], config.settings.servers()[1]):
        assert secret not in reply.text


def test_no_shown_setting_is_a_secret_or_an_address() -> None:
    kinds = {field: str(Settings.model_fields[field].annotation) for field in SHOWN_SETTINGS.values()}

    assert {field: kind for field, kind in kinds.items() if re.search(r"\b(str|Path|Secret\w*)\b", kind)} == {}


@pytest.mark.parametrize(("variable", "field"), SHOWN_SETTINGS.items())
def test_shown_settings_have_the_names_of_their_variables(variable: str, field: str) -> None:
    alias = Settings.model_fields[field].validation_alias

    assert variable in (alias.choices if isinstance(alias, AliasChoices) else [f"EASEL_{field.upper()}"])
