"""A transaction that the database rolled back is repeated; one whose outcome is unknown is not."""

from collections.abc import Iterator
from threading import Thread

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from store.db.database import Database
from store.db.transaction import Transaction
from tests.integration.engine import until

ADD = text("update counts set number = number + 1 where id = :id")
LOCK = text("select number from counts where id = :id for update")
PID = text("select pg_backend_pid()")
IS_WAITING = text("select wait_event_type = 'Lock' from pg_stat_activity where pid = :pid")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    with database.transaction() as tx:
        tx.execute(text("create table counts (id int primary key, number int not null)"))
        tx.execute(text("insert into counts values (1, 0), (2, 0)"))
    yield database
    database.close()


def numbers(database: Database) -> list[int]:
    with database.transaction() as tx:
        return [row[0] for row in tx.rows(text("select number from counts order by id"))]


def test_transaction_with_a_deadlock_at_its_commit_is_repeated(database: Database):
    tries: list[int] = []

    def work(tx: Transaction) -> None:
        tx.execute(text("set local deadlock_timeout = '50ms'"))  # so that this transaction detects the deadlock
        tries.append(tx.scalar(PID))
        if len(tries) > 1:
            other.join()  # from here on the order does not matter
        tx.execute(ADD, id=1)
        if len(tries) == 1:
            other.start()
            until(lambda: is_waiting(database, pids[0]) if pids else False)
        tx.send(ADD, id=2)  # waited for by the commit only

    pids: list[int] = []

    def hold() -> None:
        with database.transaction() as tx:
            tx.execute(LOCK, id=2)
            pids.append(tx.scalar(PID))
            tx.execute(LOCK, id=1)

    other = Thread(target=hold)
    database.run_with_retry(work)
    other.join()

    assert len(tries) == 2
    assert numbers(database) == [1, 1]


def is_waiting(database: Database, pid: int) -> bool:
    with database.transaction() as tx:
        return bool(tx.scalar(IS_WAITING, pid=pid))


def test_a_commit_whose_connection_breaks_is_not_repeated(database: Database):
    tries: list[int] = []

    def work(tx: Transaction) -> None:
        tries.append(tx.scalar(PID))
        tx.execute(ADD, id=1)
        with database.transaction() as other:
            other.scalar(text("select pg_terminate_backend(:pid)"), pid=tries[-1])

    with pytest.raises(DBAPIError):
        database.run_with_retry(work)

    assert len(tries) == 1
    assert numbers(database) == [0, 0]
