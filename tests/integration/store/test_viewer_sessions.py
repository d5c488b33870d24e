"""Sign-ins, one-time codes and shares of runs as rows: what is over is deleted, in portions."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Executable, text

from canvas.errors import InvalidRequest
from canvas.ids import CanvasId, RunId
from scheduler.sweeper.maintenance import run_maintenance
from store.db.database import Database
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.tenants import run_shares, tenants, viewer_sessions
from store.tenants.tenants import Principal


def token_of(database: Database, tenant_id: UUID, kind: str = "api") -> Principal:
    with database.transaction() as tx:
        _, plain = tenants.create_token(tx, tenant_id, "test", kind)
        found = tenants.find_principal(tx, plain)
    assert found is not None
    return found


def counts(database: Database, tenant_id: UUID) -> dict[str, int]:
    with database.transaction() as tx:
        return {
            table: tx.scalar(text(f"select count(*) from {table} where tenant_id = :tenant"), tenant=tenant_id)
            for table in ("viewer_sessions", "viewer_codes", "run_shares")
        }


def share_of(database: Database, tenant_id: UUID) -> None:
    with database.transaction() as tx:
        run_shares.create(
            tx, tenant_id, RunId(new_id()), CanvasId(new_id()), created_by=new_id(), expires_in=timedelta(days=1),
            hide=(), may_answer=False, note="",
        )  # fmt: skip


def test_maintenance_deletes_what_is_over_and_keeps_the_rest(database: Database, tenant_id: UUID):
    principal = token_of(database, tenant_id)
    with database.transaction() as tx:
        cookies = [viewer_sessions.sign_in_with_token(tx, principal, "browser") for _ in range(4)]
        for _ in range(2):
            viewer_sessions.create_code(tx, tenant_id, principal.token_id)
    for _ in range(3):
        share_of(database, tenant_id)
    changes = (
        "update viewer_sessions set ended_at = now() where hash = :first",
        "update viewer_sessions set last_seen_at = now() - interval '13 hours' where hash = :second",
        "update viewer_sessions set expires_at = now() - interval '1 second' where hash = :third",
        "update viewer_codes set expires_at = now() - interval '1 second' "
        "where hash = (select min(hash) from viewer_codes where tenant_id = :tenant)",
        "update run_shares set expires_at = now() - interval '31 days' "
        "where id = (select cast(min(cast(id as text)) as uuid) from run_shares where tenant_id = :tenant)",
        "update run_shares set expires_at = now() - interval '29 days', revoked_at = now() "
        "where id = (select cast(max(cast(id as text)) as uuid) from run_shares where tenant_id = :tenant)",
    )
    with database.transaction() as tx:
        hashes = [viewer_sessions.hash_of(each) for each in cookies]
        names = {"first": hashes[0], "second": hashes[1], "third": hashes[2], "tenant": tenant_id}
        for change in changes:
            tx.execute(text(change), **{name: value for name, value in names.items() if f":{name}" in change})

    run_maintenance(database, datetime.now(UTC))

    with database.transaction() as tx:
        kept = [viewer_sessions.find(tx, each) is not None for each in cookies]
    assert kept == [False, False, False, True]
    assert counts(database, tenant_id) == {"viewer_sessions": 1, "viewer_codes": 1, "run_shares": 2}


def test_sign_ins_are_deleted_in_portions(database: Database, tenant_id: UUID):
    fill = text("""
        insert into viewer_sessions (hash, id, tenant_id, token_id, kind, expires_at)
        select decode(md5(random()::text), 'hex'), gen_random_uuid(), :tenant, gen_random_uuid(), 'api', now()
        from generate_series(1, 501)
    """)
    with database.transaction() as tx:
        tx.execute(fill, tenant=tenant_id)

    with database.transaction() as tx:
        first, second = viewer_sessions.delete_over(tx), viewer_sessions.delete_over(tx)

    assert (first, second) == (500, 1)


def test_reading_a_sign_in_takes_one_statement(database: Database, tenant_id: UUID, monkeypatch: pytest.MonkeyPatch):
    principal = token_of(database, tenant_id)
    with database.transaction() as tx:
        cookie = viewer_sessions.sign_in_with_token(tx, principal, "x" * 1000)
    sent = list[Executable]()
    send = Transaction.send
    monkeypatch.setattr(
        Transaction, "send", lambda tx, statement, **values: sent.append(statement) or send(tx, statement, **values)
    )

    with database.statements() as tx:
        found = viewer_sessions.find(tx, cookie)

    assert found is not None
    assert (found.tenant_id, found.kind, found.token_id, found.share) == (tenant_id, "api", principal.token_id, None)
    assert sent == [viewer_sessions.FIND]


def test_sign_in_of_another_tenants_token_is_not_valid(database: Database, tenant_id: UUID, other_tenant_id: UUID):
    principal = token_of(database, tenant_id)
    with database.transaction() as tx:
        cookie = viewer_sessions.sign_in_with_token(tx, principal, "")
        tx.execute(text("update viewer_sessions set tenant_id = :other where tenant_id = :tenant"),
                   other=other_tenant_id, tenant=tenant_id)  # fmt: skip

    with database.transaction() as tx:
        assert viewer_sessions.find(tx, cookie) is None


def test_list_of_sign_ins_shows_those_of_the_token_only(database: Database, tenant_id: UUID):
    one, other = token_of(database, tenant_id), token_of(database, tenant_id, "viewer")
    with database.transaction() as tx:
        viewer_sessions.sign_in_with_token(tx, one, "mine")
        viewer_sessions.sign_in_with_token(tx, other, "theirs")
        found = viewer_sessions.list_of_token(tx, tenant_id, one.token_id, before=UUID(int=2**128 - 1), limit=10)

    assert [each.agent for each in found] == ["mine"]


def test_right_to_share_is_given_to_tokens_of_kind_api_only(database: Database, tenant_id: UUID):
    for kind in ("admin", "viewer", "beta"):
        with pytest.raises(InvalidRequest, match=r"right to share|opens one agent"), database.transaction() as tx:
            tenants.create_token(tx, tenant_id, "x", kind, may_share=True)

    with database.transaction() as tx:
        _, plain = tenants.create_token(tx, tenant_id, "x", may_share=True)
        found = tenants.find_principal(tx, plain)

    assert found is not None
    assert found.may_share
