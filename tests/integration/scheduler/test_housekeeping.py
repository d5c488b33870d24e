"""What is done now and then: what is past its day goes, however much of it there is."""

from datetime import UTC, datetime

from sqlalchemy import text

from scheduler.housekeeping import keep_house
from store import idempotency
from store.database import Database

MANY = 2 * idempotency.BATCH + 1

OFFER = text("""
    insert into idempotency_keys (tenant_id, route, key, digest, created_at)
    select '00000000-0000-0000-0000-000000000007', 'runs', 'key ' || n, '', now() - make_interval(hours => :hours)
    from generate_series(1, :many) n
""")
LEFT = text("select count(*) from idempotency_keys")


def test_keys_past_their_day_are_forgotten_however_many_there_are(database: Database):
    with database.transaction() as tx:
        tx.run(OFFER, hours=25, many=MANY)

    keep_house(database, datetime.now(UTC))

    with database.transaction() as tx:
        assert tx.scalar(LEFT) == 0


def test_keys_of_today_are_kept(database: Database):
    with database.transaction() as tx:
        tx.run(OFFER, hours=23, many=3)

    keep_house(database, datetime.now(UTC))

    with database.transaction() as tx:
        assert tx.scalar(LEFT) == 3
