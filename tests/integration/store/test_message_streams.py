"""Message streams: a text that only grows within an epoch and has one writer at a time."""

from uuid import UUID, uuid4

import pytest
from sqlalchemy import update

from store.db.database import Database
from store.primitives.ids import new_id
from store.runs import message_streams, reports
from store.runs.message_streams import StreamLease, StreamRow
from store.runs.reports import ReportPayload
from store.tables.runs import turns as rows


@pytest.fixture
def stream(database: Database) -> "OneStream":
    return OneStream(database)


def test_claiming_a_stream_returns_its_text_so_far(stream: "OneStream"):
    first, second = uuid4(), uuid4()

    assert stream.claim(first) == StreamLease(0, "", 0)
    assert stream.write(first, "Hello")
    assert stream.claim(second) == StreamLease(0, "Hello", 0)


def test_attempt_that_lost_its_stream_cannot_write_to_it(stream: "OneStream"):
    first, second = uuid4(), uuid4()
    stream.claim(first)
    stream.write(first, "Hel")
    stream.claim(second)

    assert not stream.write(first, "Hello")
    assert stream.write(second, "Help")
    assert stream.opened_at(3).text == "Help"


def test_text_of_an_earlier_epoch_is_not_written(stream: "OneStream"):
    writer = uuid4()
    stream.claim(writer)
    stream.write(writer, "Hello")
    stream.truncate(number=7)

    assert not stream.write(writer, "Hello again", epoch=0)
    assert stream.claim(writer) == StreamLease(1, "", 0)


def test_closed_stream_is_not_written(stream: "OneStream"):
    writer = uuid4()
    stream.claim(writer)
    stream.opened_at(3)
    stream.close(5)

    assert not stream.write(writer, "more")
    assert stream.opened_at(3, shown_only=True).closed_at == 5


def test_truncating_a_stream_keeps_the_text_of_finished_attempts(stream: "OneStream"):
    writer = uuid4()
    stream.claim(writer)
    stream.write(writer, "Finished. Begun")
    stream.set_retained_length(len("Finished."))

    stream.truncate(number=7)

    shown = stream.opened_at(3)
    assert (shown.text, shown.retained_length, shown.epoch) == ("Finished.", 9, 1)


def test_streams_are_listed_once_they_are_open_in_the_order_of_opening(database: Database):
    run_id = new_id()
    early, late, never = (OneStream(database, run_id) for _ in range(3))
    for one in (late, early, never):
        one.claim(uuid4())
    late.opened_at(9)
    early.opened_at(4)

    with database.transaction() as tx:
        shown = message_streams.list_opened(tx, run_id)

    assert [(one.id, one.opened_at) for one in shown] == [(early.id, 4), (late.id, 9)]


@pytest.mark.parametrize(("epoch", "expected"), [(None, 4), (3, 3), (7, 7)])
def test_reported_text_has_the_epoch_of_its_writer_or_else_the_next_one(
    database: Database, epoch: int | None, expected: int
):
    writer, column = uuid4(), {"node_id": "say", "writer": uuid4(), "retained_length": 5, "text": "Hello"}
    stream = OneStream(database)
    stream.claim(writer)
    with database.transaction() as tx:
        tx.execute(update(rows).where(rows.c.id == stream.id).values(epoch=3))
        row = {"run_id": stream.run_id, "id": stream.id, "epoch": epoch, **column}
        reports._write_values(tx, ReportPayload({}, {}, [], [], row))

    found = stream.claim(writer)
    assert (found.epoch, found.text, found.retained_length) == (expected, "Hello", 5)


def test_reported_text_of_a_stream_without_a_row_has_the_first_epoch_after_an_unread_one(database: Database):
    stream = OneStream(database)
    with database.transaction() as tx:
        row = {"run_id": stream.run_id, "id": stream.id, "node_id": "say", "writer": uuid4(), "retained_length": 5}
        reports._write_values(tx, ReportPayload({}, {}, [], [], {**row, "text": "Hello", "epoch": None}))

    assert stream.claim(uuid4()).epoch == 1


class OneStream:
    """A message stream, with the statements that an advance executes on it."""

    def __init__(self, database: Database, run_id: UUID | None = None) -> None:
        self._database = database
        self.run_id = run_id or new_id()
        self.id = uuid4()

    def claim(self, writer: UUID) -> StreamLease:
        with self._database.transaction() as tx:
            return message_streams.claim_stream(tx, self.run_id, self.id, "say", writer)

    def write(self, writer: UUID, text: str, *, epoch: int = 0) -> bool:
        with self._database.transaction() as tx:
            return message_streams.write(tx, self.run_id, self.id, writer, epoch, text)

    def truncate(self, number: int) -> None:
        self._run(message_streams.TRUNCATE, number=number)

    def close(self, number: int) -> None:
        self._run(message_streams.CLOSE, number=number)

    def opened_at(self, number: int, *, shown_only: bool = False) -> StreamRow:
        if not shown_only:
            self._run(message_streams.OPEN, number=number, node_id="say")
        with self._database.transaction() as tx:
            return message_streams.list_opened(tx, self.run_id)[0]

    def set_retained_length(self, length: int) -> None:
        with self._database.transaction() as tx:
            tx.execute(update(rows).where(rows.c.id == self.id).values(retained_length=length))

    def _run(self, statement: object, **values: object) -> None:
        with self._database.transaction() as tx:
            tx.execute(statement, run_id=self.run_id, stream_id=self.id, **values)
