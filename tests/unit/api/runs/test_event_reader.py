"""Listeners who ask for the same at once share a reading; nobody gets one that began before he asked."""

import asyncio
import threading
from typing import Any, cast
from uuid import UUID, uuid4

from api.runs.event_reader import EventReader
from canvas.errors import NotFound

TENANT, RUN = uuid4(), uuid4()


class Rows(EventReader):
    """Readings of rows that are numbers: how many readings had begun before."""

    def __init__(self) -> None:
        super().__init__(cast("Any", _Nothing()), cast("Any", None))
        self.asked: list[int] = []
        self.may_go_on = threading.Event()

    def _rows(self, database: Any, tenant_id: UUID, run_id: UUID, number: int) -> Any:
        self.asked.append(number)
        begun = len(self.asked)
        assert self.may_go_on.wait(5)
        if number < 0:
            raise NotFound("There is no such run.")
        return begun, None


class _Nothing:
    def close(self) -> None: ...


def test_simultaneous_streams_share_one_read():
    async def listen() -> list[Any]:
        rows = Rows()
        rows.may_go_on.set()
        read = await asyncio.gather(
            *(rows.read_after(TENANT, RUN, 7) for _ in range(25)), rows.read_after(TENANT, RUN, 8)
        )
        rows.close()
        return [*sorted(rows.asked), *read]

    assert asyncio.run(listen()) == [7, 8, *[(1, None)] * 25, (2, None)]


def test_read_that_has_begun_is_not_shared():
    async def listen() -> list[Any]:
        rows = Rows()
        first = asyncio.create_task(rows.read_after(TENANT, RUN, 7))
        while not rows.asked:
            await asyncio.sleep(0)
        second = asyncio.create_task(rows.read_after(TENANT, RUN, 7))
        await asyncio.sleep(0)
        rows.may_go_on.set()
        read = [await first, await second]
        rows.close()
        return read

    assert asyncio.run(listen()) == [(1, None), (2, None)]


def test_cancelled_stream_does_not_cancel_a_shared_read():
    async def listen() -> Any:
        rows = Rows()
        leaving, staying = (asyncio.create_task(rows.read_after(TENANT, RUN, 7)) for _ in range(2))
        while not rows.asked:
            await asyncio.sleep(0)
        leaving.cancel()
        rows.may_go_on.set()
        read = await staying
        rows.close()
        return read, leaving.cancelled()

    assert asyncio.run(listen()) == ((1, None), True)


def test_error_of_a_shared_read_is_raised_in_every_stream():
    async def listen() -> list[Any]:
        rows = Rows()
        rows.may_go_on.set()
        read = await asyncio.gather(*(rows.read_after(TENANT, RUN, -1) for _ in range(3)), return_exceptions=True)
        rows.close()
        return read

    read = asyncio.run(listen())

    assert [type(error) for error in read] == [NotFound] * 3
