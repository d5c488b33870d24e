"""Streams that read the same rows at once share one read; a read that has read_number is not shared."""

import asyncio
import threading
from typing import Any, cast
from uuid import UUID, uuid4

from api.events.event_reader import EventReader
from canvas.errors import NotFound

TENANT, RUN = uuid4(), uuid4()


class Rows(EventReader):
    """An event reader that returns the number of each read instead of rows."""

    def __init__(self) -> None:
        super().__init__(cast("Any", _Nothing()), cast("Any", None))
        self.numbers: list[int] = []
        self.may_finish = threading.Event()

    def _rows(self, database: Any, tenant_id: UUID, run_id: UUID, number: int) -> Any:
        self.numbers.append(number)
        read_number = len(self.numbers)
        assert self.may_finish.wait(30)
        if number < 0:
            raise NotFound("There is no such run.")
        return read_number, None


class _Nothing:
    def close(self) -> None: ...


def test_simultaneous_streams_share_one_read():
    async def listen() -> list[Any]:
        rows = Rows()
        rows.may_finish.set()
        read = await asyncio.gather(
            *(rows.read_after(TENANT, RUN, 7) for _ in range(25)), rows.read_after(TENANT, RUN, 8)
        )
        rows.close()
        return [*sorted(rows.numbers), *read]

    assert asyncio.run(listen()) == [7, 8, *[(1, None)] * 25, (2, None)]


def test_read_that_has_begun_is_not_shared():
    async def listen() -> list[Any]:
        rows = Rows()
        first = asyncio.create_task(rows.read_after(TENANT, RUN, 7))
        while not rows.numbers:
            await asyncio.sleep(0)
        second = asyncio.create_task(rows.read_after(TENANT, RUN, 7))
        await asyncio.sleep(0)
        rows.may_finish.set()
        read = [await first, await second]
        rows.close()
        return read

    assert asyncio.run(listen()) == [(1, None), (2, None)]


def test_cancelled_stream_does_not_cancel_a_shared_read():
    async def listen() -> Any:
        rows = Rows()
        cancelled, other = (asyncio.create_task(rows.read_after(TENANT, RUN, 7)) for _ in range(2))
        while not rows.numbers:
            await asyncio.sleep(0)
        cancelled.cancel()
        rows.may_finish.set()
        read = await other
        rows.close()
        return read, cancelled.cancelled()

    assert asyncio.run(listen()) == ((1, None), True)


def test_error_of_a_shared_read_is_raised_in_every_stream():
    async def listen() -> list[Any]:
        rows = Rows()
        rows.may_finish.set()
        read = await asyncio.gather(*(rows.read_after(TENANT, RUN, -1) for _ in range(3)), return_exceptions=True)
        rows.close()
        return read

    read = asyncio.run(listen())

    assert [type(error) for error in read] == [NotFound] * 3
