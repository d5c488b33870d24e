"""Background tasks that outlive their request, and a shutdown that happens meanwhile."""

import asyncio

from structlog.testing import capture_logs

from api.http.background import BackgroundTasks


async def _shut_down_during_a_task() -> tuple[list[str], list[str]]:
    background, may_end, done = BackgroundTasks(), asyncio.Event(), list[str]()

    async def cancel() -> None:
        await may_end.wait()
        done.append("cancelled")

    background.start(cancel())
    finishing = asyncio.create_task(background.finish(30))
    await asyncio.sleep(0)
    before = list(done)
    may_end.set()
    await finishing

    return before, done


def test_shutdown_waits_for_background_work() -> None:
    assert asyncio.run(_shut_down_during_a_task()) == ([], ["cancelled"])


def test_background_work_that_takes_too_long_is_cancelled_and_logged() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async def shut_down() -> None:
        background = BackgroundTasks()
        background.start(hang())
        await background.finish(0.01)

    with capture_logs() as logs:
        asyncio.run(shut_down())

    assert [entry["event"] for entry in logs] == ["background_work_stopped"]


def test_work_that_fails_is_logged() -> None:
    async def fail() -> None:
        raise ValueError("lost")

    async def shut_down() -> None:
        background = BackgroundTasks()
        background.start(fail())
        await background.finish(30)

    with capture_logs() as logs:
        asyncio.run(shut_down())

    assert [entry["event"] for entry in logs] == ["background_work_failed"]
