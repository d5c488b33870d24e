"""The audit log: who changed, published, deleted or cancelled what, in the transaction of the change."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.ids import TenantId
from scheduler.sweeper.maintenance import run_maintenance
from store.primitives.ids import new_id
from store.tenants import audit
from store.tenants.audit import Action, Actor
from tests.integration.api.browsers import share, signed_in
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, Client
from tests.integration.api.test_scopes import add_agent, token_of


@pytest.fixture
def admin(workerless_server: Server) -> Iterator[Client]:
    client = workerless_server.client(kind="admin")
    yield client
    client.http.close()


def entries(client: Client, **filters: Any) -> list[dict[str, Any]]:
    """Return the newest entries of the log."""
    reply = client.http.get("/api/v1/audit", params={"limit": 100, **filters})
    assert reply.status_code == 200, reply.text
    return reply.json()["entries"]


def actions(client: Client, **filters: Any) -> list[str]:
    """Return the actions of the log, the oldest first."""
    return [each["action"] for each in reversed(entries(client, **filters))]


def test_changes_of_an_agent_are_logged_with_who_and_without_values(admin: Client) -> None:
    agent = add_agent(admin)
    http = admin.http
    http.put(f"/api/v1/agents/{agent}", json={"description": "a secret plan"})
    http.put(f"/api/v1/agents/{agent}/tags", json={"tags": ["x"]})
    version = http.post(f"/api/v1/agents/{agent}/publish", json={}, headers={"X-Request-Id": "req-7"}).json()["data"]
    etag = http.get(f"/api/v1/viewer/agents/{agent}/draft").json()["etag"]
    restored = http.post(
        f"/api/v1/viewer/agents/{agent}/restore", json={"version_id": version["id"]}, headers={"If-Match": etag}
    )
    session = http.post(f"/api/v1/agents/{agent}/sessions", json={}).json()["data"]["id"]
    http.delete(f"/api/v1/agents/{agent}/sessions/{session}")
    http.delete(f"/api/v1/agents/{agent}")

    found = entries(admin)

    assert restored.status_code == 200
    assert [each["action"] for each in reversed(found)] == [
        "agent.created", "agent.changed", "agent.changed", "agent.published", "agent.restored", "session.deleted",
        "agent.deleted",
    ]  # fmt: skip
    assert {each["object"]["id"] for each in found} == {agent, session}
    assert [each["request_id"] for each in found if each["action"] == "agent.published"] == ["req-7"]
    assert {(each["actor"]["kind"], each["actor"]["name"]) for each in found} == {("token", "test")}
    assert "a secret plan" not in str(found)


def test_saves_of_a_draft_share_an_entry_of_each_caller(workerless_server: Server, admin: Client) -> None:
    agent = add_agent(admin)
    other = token_of(workerless_server, admin, "read", "edit")
    path = f"/api/v1/viewer/agents/{agent}/draft"

    for client in (admin, admin, other, admin):
        etag = client.http.get(path).json()["etag"]
        assert client.http.put(path, json={**ECHO, "note": str(new_id())}, headers={"If-Match": etag}).is_success
    before = [(each["times"], each["actor"]["name"]) for each in entries(admin, action="agent.draft_saved")]
    with workerless_server.database.transaction() as tx:
        tx.execute(
            text("update audit_log set at = at - interval '11 minutes' where tenant_id = :of"), of=admin.tenant_id
        )
    etag = admin.http.get(path).json()["etag"]
    admin.http.put(path, json=ECHO, headers={"If-Match": etag})

    assert before == [(1, "scoped"), (3, "test")]
    assert [each["times"] for each in entries(admin, action="agent.draft_saved")] == [1, 1, 3]


def test_refused_save_leaves_no_entry(admin: Client) -> None:
    agent = add_agent(admin)

    reply = admin.http.put(f"/api/v1/viewer/agents/{agent}/draft", json=ECHO, headers={"If-Match": '"9-9"'})

    assert reply.status_code in (400, 412)
    assert actions(admin) == ["agent.created"]


def test_operations_on_runs_are_logged(workerless_server: Server, admin: Client) -> None:
    agent = add_agent(admin)
    first, second = admin.start(agent)["run_id"], admin.start(agent)["run_id"]
    http = admin.http

    cancelled = [http.post(f"/api/v1/runs/{first}/cancel") for _ in range(2)]
    http.post("/api/v1/runs/cancel", json={"ids": [second]})
    again = http.post(f"/api/v1/runs/{first}/rerun", json={})
    made = share(admin, first)
    http.delete(f"/api/v1/runs/{first}/shares/{made['id']}")
    http.put("/api/v1/budgets", json={"scope": "run", "id": first, "tokens": 5})
    http.delete("/api/v1/budgets", params={"scope": "run", "id": first})

    assert all(each.is_success for each in cancelled)
    assert again.status_code == 202
    assert actions(admin, action="run,share,budget") == [
        "run.cancelled", "run.cancelled", "run.rerun", "share.created", "share.revoked", "budget.set",
        "budget.removed",
    ]  # fmt: skip
    (copied,) = entries(admin, action="run.rerun")
    assert (copied["object"], copied["details"]) == (
        {"kind": "run", "id": again.json()["run_id"]},
        {"source": first},
    )
    assert made["secret"] not in str(entries(admin))


def test_answer_of_a_form_is_logged_for_its_sign_in(server: Server, client: Client) -> None:
    run = client.start(client.agent(FORM))["run_id"]
    client.wait_for(run, "waiting")

    with signed_in(server, client) as page:
        reply = page.post(f"/api/v1/runs/{run}/resume", json={"inputs": {"name": {"value": "answer of a person"}}})

    with server.database.transaction() as tx:
        found = audit.list_entries(tx, TenantId(client.tenant_id), audit.AuditFilter(object_id=run), limit=9)
    assert reply.status_code == 202, reply.text
    assert [(each.action, each.actor, each.actor_name) for each in found] == [("run.resumed", "sign_in", "test")]
    assert found[0].token_id not in (None, found[0].actor_id)
    assert "answer of a person" not in str(found)


def test_deletions_of_knowledge_and_tokens_are_logged(admin: Client) -> None:
    http = admin.http
    base = http.post("/api/v1/datasets", json={"name": "Facts"}).json()["data"]["id"]
    files = {"file": ("a.txt", b"a", "text/plain")}
    document = http.post(f"/api/v1/datasets/{base}/documents", files=files).json()["data"][0]["id"]
    http.request("DELETE", f"/api/v1/datasets/{base}/documents", json={"ids": [document]})
    http.request("DELETE", "/api/v1/datasets", json={"ids": [base]})
    token = http.post("/api/v1/tokens", json={"name": "x"}).json()
    http.delete(f"/api/v1/tokens/{token['id']}")

    found = [(each["action"], each["object"]["id"]) for each in reversed(entries(admin))]

    assert found == [
        ("document.deleted", document),
        ("knowledge_base.deleted", base),
        ("token.created", token["id"]),
        ("token.revoked", token["id"]),
    ]


def test_log_is_filtered_and_paged(workerless_server: Server, admin: Client) -> None:
    agents = [add_agent(admin) for _ in range(3)]
    other = token_of(workerless_server, admin, "edit")
    other.http.delete(f"/api/v1/agents/{agents[0]}")
    token_id = entries(admin, action="agent.deleted")[0]["actor"]["token_id"]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()

    assert actions(admin, object_id=agents[0]) == ["agent.created", "agent.deleted"]
    assert actions(admin, object_id=str(UUID(agents[0]))) == ["agent.created", "agent.deleted"]
    assert actions(admin, actor=token_id) == ["agent.deleted"]
    assert actions(admin, actor="command_line") == actions(admin, since=later) == []
    assert len(actions(admin, actor="token", until=later, action="agent")) == 4
    seen: list[str] = []
    before = ""
    while before is not None:
        page = admin.http.get("/api/v1/audit", params={"limit": 3, "before": before}).json()
        seen += [each["id"] for each in page["entries"]]
        before = page["next"]
    assert seen == [each["id"] for each in entries(admin)]


@pytest.mark.parametrize("query", [{"action": "agent.renamed"}, {"actor": "nobody"}, {"since": "x"}, {"limit": "0"}])
def test_invalid_filter_is_a_400(admin: Client, query: dict[str, str]) -> None:
    assert admin.http.get("/api/v1/audit", params=query).status_code == 400


def test_log_of_another_tenant_is_not_shown(workerless_server: Server, admin: Client) -> None:
    agent = add_agent(admin)

    assert entries(workerless_server.client(kind="admin"), object_id=agent) == []


def test_old_entries_are_deleted_in_batches(workerless_server: Server, admin: Client) -> None:
    database, tenant_id = workerless_server.database, TenantId(admin.tenant_id)
    with database.transaction() as tx:
        for _ in range(3):
            audit.record(tx, tenant_id, Actor("command_line"), Action.RUN_CANCELLED, new_id())
        tx.execute(
            text("update audit_log set last_at = now() - interval '200 days' where tenant_id = :of"), of=tenant_id
        )
        audit.record(tx, tenant_id, Actor("command_line"), Action.AGENT_DELETED, new_id())
    now = datetime.now(UTC)

    run_maintenance(database, now)
    kept = actions(admin)
    run_maintenance(database, now, audit_period=timedelta(days=180))

    assert kept == ["run.cancelled"] * 3 + ["agent.deleted"]
    assert actions(admin) == ["agent.deleted"]


def test_entry_is_gone_with_its_transaction(workerless_server: Server, admin: Client) -> None:
    def fail_after_the_change() -> None:
        with workerless_server.database.transaction() as tx:
            audit.record(tx, TenantId(admin.tenant_id), Actor("command_line"), Action.AGENT_DELETED, new_id())
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail_after_the_change()

    assert entries(admin) == []
