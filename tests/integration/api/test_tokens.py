"""Tokens over HTTP: made with at most the rights of their maker, listed without their text, revoked."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from canvas.ids import TenantId
from store.tenants import tenants
from store.tenants.scopes import parse_scopes
from tests.integration.api.conftest import Server
from tests.integration.api.talking import Client, eventually
from tests.integration.api.test_scopes import add_agent, token_of

PATH = "/api/v1/tokens"


@pytest.fixture
def admin(workerless_server: Server) -> Iterator[Client]:
    client = workerless_server.client(kind="admin")
    yield client
    client.http.close()


def make(client: Client, **fields: Any) -> dict[str, Any]:
    """Make a token; return the reply with its text."""
    reply = client.http.post(PATH, json={"name": "made", **fields})
    assert reply.status_code == 201, reply.text
    return reply.json()


def use(server: Server, client: Client, token: str) -> int:
    """Return the status of a request with a token."""
    used = server.client_of(client.tenant_id, token)
    try:
        return used.http.get("/api/v1/runs").status_code
    finally:
        used.http.close()


def test_new_token_works_and_its_text_is_shown_once(workerless_server: Server, admin: Client) -> None:
    reply = admin.http.post(PATH, json={"name": "site", "scopes": ["read"], "expires_in": 3600})

    made = reply.json()
    listed = admin.http.get(PATH)
    assert (reply.status_code, reply.headers["cache-control"]) == (201, "no-store")
    assert (made["name"], made["scopes"], made["kind"], made["is_over"]) == ("site", ["read"], "viewer", False)
    assert made["token"].startswith(made["prefix"])
    assert use(workerless_server, admin, made["token"]) == 200
    assert made["token"] not in listed.text
    assert [(each["id"], each["created_by"]) for each in listed.json()["tokens"]] == [
        (made["id"], listed.json()["tokens"][1]["id"]),
        (listed.json()["tokens"][1]["id"], None),
    ]
    with workerless_server.database.transaction() as tx:
        rows = tx.rows(text("select cast(t as text) from tokens t where tenant_id = :tenant"), tenant=admin.tenant_id)
        logged = tx.rows(text("select cast(a as text) from audit_log a where tenant_id = :of"), of=admin.tenant_id)
    assert made["token"] not in str(rows) + str(logged)


def test_repeat_with_a_key_gets_the_text_again_and_another_caller_does_not(
    workerless_server: Server, admin: Client
) -> None:
    editor = token_of(workerless_server, admin, "read", "edit")
    key, body = {"Idempotency-Key": "once"}, {"name": "x", "scopes": ["read"]}

    first, repeated = (admin.http.post(PATH, json=body, headers=key).json() for _ in range(2))
    other = editor.http.post(PATH, json=body, headers=key).json()

    assert repeated == first
    assert other["token"] != first["token"]
    with workerless_server.database.transaction() as tx:
        stored = tx.rows(
            text("select cast(reply as text) from idempotency_keys where tenant_id = :of"), of=admin.tenant_id
        )
    assert len(stored) == 2
    assert first["token"] not in str(stored)


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (("read", "edit"), {"scopes": ["run"]}),
        (("read", "edit"), {"scopes": ["read", "run", "edit"]}),
        (("read", "run", "edit"), {"scopes": ["admin"]}),
        (("edit",), {"scopes": ["edit"], "may_share": True}),
    ],
)
def test_token_with_more_scopes_than_its_maker_is_refused(
    workerless_server: Server, admin: Client, own: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    client = token_of(workerless_server, admin, *own)

    reply = client.http.post(PATH, json={"name": "more", **wanted})

    assert (reply.status_code, reply.json()["code"]) == (403, "not_allowed")
    assert len(admin.http.get(PATH).json()["tokens"]) == 2


def test_token_of_one_agent_makes_tokens_of_this_agent_only(workerless_server: Server, admin: Client) -> None:
    agent, other = add_agent(admin), add_agent(admin)
    client = token_of(workerless_server, admin, "read", "edit", agent=agent)

    refused = [
        client.http.post(PATH, json={"name": "x", "scopes": scopes, **fields}).status_code
        for scopes, fields in ((["read"], {}), (["read"], {"agent_id": other}), (["share"], {"agent_id": other}))
    ]
    made = make(client, scopes=["share"], agent_id=agent)

    assert refused == [403, 403, 403]
    assert (made["kind"], made["agent_id"]) == ("beta", agent)


def test_token_does_not_outlive_its_maker_by_time(workerless_server: Server, admin: Client) -> None:
    short = workerless_server.client_of(admin.tenant_id, make(admin, scopes=["read", "edit"], expires_in=600)["token"])

    refused = [
        short.http.post(PATH, json={"name": "x", "scopes": ["read"], **fields}).status_code
        for fields in ({}, {"expires_in": 6000})
    ]
    made = make(short, scopes=["read"], expires_in=60)

    assert refused == [403, 403]
    assert datetime.fromisoformat(made["expires_at"]) <= datetime.now(UTC) + timedelta(seconds=61)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": ""}, "name"),
        ({"scopes": []}, "scope"),
        ({"scopes": ["write"]}, "write"),
        ({"scopes": ["share"]}, "agent"),
        ({"scopes": ["share", "read"]}, "share"),
        ({"scopes": ["admin"], "agent_id": "0" * 32}, "agent"),
        ({"expires_in": 5}, "expires_in"),
        ({"expires_at": "2001-01-01T00:00Z"}, "expires_at"),
        ({"expires_at": "2100-01-01T00:00Z", "expires_in": 100}, "expires_at"),
        ({"kind": "admin"}, "kind"),
    ],
)
def test_invalid_token_is_a_400_that_names_the_field(admin: Client, fields: dict[str, Any], named: str) -> None:
    reply = admin.http.post(PATH, json={"name": "x", **fields})

    assert reply.status_code == 400, reply.text
    assert named in reply.json()["message"]


def test_agent_of_another_tenant_is_unknown(workerless_server: Server, admin: Client) -> None:
    theirs = add_agent(workerless_server.client())

    replies = [
        admin.http.post(PATH, json={"name": "x", "scopes": ["read"], "agent_id": agent})
        for agent in (theirs, "0" * 31 + "7")
    ]

    assert [each.status_code for each in replies] == [404, 404]
    assert replies[0].json()["message"].replace(theirs, "") == replies[1].json()["message"].replace("0" * 31 + "7", "")


def test_caller_without_the_scope_admin_lists_and_revokes_its_own_only(
    workerless_server: Server, admin: Client
) -> None:
    editor = token_of(workerless_server, admin, "read", "edit")
    theirs, mine = make(admin, scopes=["read"]), make(editor, scopes=["read"])

    listed = [each["id"] for each in editor.http.get(PATH).json()["tokens"]]
    statuses = [editor.http.delete(f"{PATH}/{each}").status_code for each in (theirs["id"], "0" * 32, mine["id"])]

    assert listed[0] == mine["id"]
    assert theirs["id"] not in listed
    assert len(listed) == 2
    assert statuses == [404, 404, 204]
    assert use(workerless_server, admin, mine["token"]) == 401
    assert use(workerless_server, admin, theirs["token"]) == 200


def test_revoking_with_made_ends_the_whole_family(workerless_server: Server, admin: Client) -> None:
    child = make(admin, scopes=["read", "edit"])
    grandchild = make(workerless_server.client_of(admin.tenant_id, child["token"]), scopes=["read"])
    own = admin.http.get(PATH).json()["tokens"][-1]["id"]

    alone = admin.http.delete(f"{PATH}/{child['id']}").status_code
    before = use(workerless_server, admin, grandchild["token"])
    again = admin.http.delete(f"{PATH}/{child['id']}", params={"with_made": 1}).status_code
    after = use(workerless_server, admin, grandchild["token"])
    itself = admin.http.delete(f"{PATH}/{own}").status_code

    assert (alone, before, again, after, itself) == (204, 200, 204, 401, 204)
    assert admin.http.get(PATH).status_code == 401


def test_pages_of_tokens_follow_each_other(admin: Client) -> None:
    made = [make(admin, name=f"t{number}")["id"] for number in range(4)]

    first = admin.http.get(PATH, params={"limit": 3}).json()
    second = admin.http.get(PATH, params={"limit": 3, "before": first["next"]}).json()

    assert [each["id"] for each in first["tokens"]] == made[:0:-1]
    assert [each["id"] for each in second["tokens"]][:1] == made[:1]
    assert second["next"] is None


def test_expired_token_gets_the_reply_of_an_unknown_one(workerless_server: Server, admin: Client) -> None:
    made = make(admin, expires_in=60)
    with workerless_server.database.transaction() as tx:
        tx.execute(text("update tokens set expires_at = now() where prefix = :prefix"), prefix=made["prefix"])

    replies = [
        workerless_server.client_of(admin.tenant_id, token).http.get("/api/v1/runs")
        for token in (made["token"], "easel_nobody")
    ]

    assert [each.status_code for each in replies] == [401, 401]
    assert replies[0].content == replies[1].content
    (listed, *_) = admin.http.get(PATH).json()["tokens"]
    assert listed["is_over"]


def test_use_of_a_token_is_stored_at_most_once_a_minute_and_outside_of_its_request(
    workerless_server: Server, admin: Client
) -> None:
    made = make(admin, scopes=["read"])

    def used_at() -> str | None:
        return admin.http.get(PATH).json()["tokens"][0]["last_used_at"]

    assert used_at() is None
    use(workerless_server, admin, made["token"])
    first = eventually(used_at, lambda at: at is not None)
    use(workerless_server, admin, made["token"])
    with workerless_server.database.transaction() as tx:
        principal = tenants.find_principal(tx, made["token"])
    assert principal is not None
    assert not principal.is_use_unrecorded
    assert used_at() == first


def test_previous_release_does_not_find_a_token_with_fewer_rights_than_its_kind(
    workerless_server: Server, admin: Client
) -> None:
    agent = add_agent(admin)
    narrow = [make(admin, scopes=["read", "run"]), make(admin, scopes=["read"], agent_id=agent)]
    usual = [make(admin, scopes=["read"]), make(admin), make(admin, scopes=["share"], agent_id=agent)]

    with workerless_server.database.transaction() as tx:  # as the previous release searches
        find = text("select count(*) from tokens where hash = sha256(convert_to(:token, 'UTF8'))")
        found = [tx.scalar(find, token=each["token"]) for each in (*narrow, *usual)]

    assert found == [0, 0, 1, 1, 1]
    assert all(re.match("easel_scoped_", each["token"]) for each in narrow)


def test_token_of_the_previous_release_has_the_rights_of_its_kind(workerless_server: Server, admin: Client) -> None:
    with workerless_server.database.transaction() as tx:
        tenant_id = TenantId(admin.tenant_id)
        made = {kind: tenants.create_token(tx, tenant_id, kind, kind)[1] for kind in ("api", "admin", "viewer")}
        tx.execute(text("update tokens set rights = null, prefix = null where tenant_id = :of"), of=admin.tenant_id)
        found = {kind: tenants.find_principal(tx, token) for kind, token in made.items()}

    expected = {"api": ("read", "run", "edit"), "admin": ("admin",), "viewer": ("read",)}
    assert {kind: each.scopes for kind, each in found.items() if each is not None} == {
        kind: parse_scopes(names) for kind, names in expected.items()
    }
    assert {each["prefix"] for each in admin.http.get(PATH).json()["tokens"]} == {None}
