"""Live frames of visitors: redacted once for all who see the same of a run, and never with what another may see."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from typing import Any
from uuid import uuid4

import pytest

from api.events.live_frames import encode_frame
from api.events.shared_frames import SharedFrames
from api.visitors import live_redaction
from api.visitors.redaction import Redaction
from canvas.budget import time_budget_error
from canvas.ids import RunId
from scheduler.views.activation_columns import COLUMNS
from store.tenants.run_shares import Hide

RUN = RunId(uuid4())
BUDGET_ERROR = time_budget_error(60_000)


def steps(error: str = "it broke") -> bytes:
    values = {"id": "a", "worker": 0, "error": error, "tokens_in": 7, "cost": "1"}
    row = [values.get(name) for name in COLUMNS]
    return encode_frame("steps", {"revision": 1, "columns": COLUMNS, "strings": ["worker-1"], "rows": [row]})


async def follow(shared: SharedFrames, hide: Iterable[Hide], *chunks: bytes, run_id: RunId = RUN) -> list[bytes]:
    async def frames() -> AsyncGenerator[bytes]:
        for chunk in chunks:
            yield chunk

    redacted = live_redaction.redact_frames(frames(), Redaction(True, frozenset(hide)), run_id, shared)
    return [each async for each in redacted]


def row_of(chunks: list[bytes]) -> dict[str, Any]:
    (data,) = [json.loads(line[6:]) for line in b"".join(chunks).split(b"\n") if line.startswith(b"data: ")]
    assert "worker-1" not in data["strings"]
    return dict(zip(COLUMNS, data["rows"][0], strict=True))


def test_visitors_at_the_same_time_get_what_their_own_share_shows() -> None:
    shared = SharedFrames()

    async def watch() -> list[list[bytes]]:
        kinds = [(), (), (Hide.ERRORS,), (Hide.COST,), (Hide.ERRORS,), ()]
        return await asyncio.gather(*(follow(shared, hide, steps()) for hide in kinds))

    plain, again, no_errors, no_cost, no_errors_again, last = [row_of(each) for each in asyncio.run(watch())]
    assert plain == again == last
    assert (plain["error"], plain["tokens_in"], plain["worker"]) == ("it broke", 7, None)
    assert no_errors == no_errors_again
    assert (no_errors["error"], no_errors["tokens_in"]) == (None, 7)
    assert (no_cost["error"], no_cost["tokens_in"]) == ("it broke", None)
    assert len(shared) == 0


def test_frame_is_redacted_once_for_visitors_of_one_run_and_again_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    redacted: list[bytes] = []
    redact_frame = live_redaction.redact_frame

    def note(frame: bytes, redaction: Redaction) -> bytes:
        redacted.append(frame)
        return redact_frame(frame, redaction)

    monkeypatch.setattr(live_redaction, "redact_frame", note)
    shared, stays = SharedFrames(), Redaction(True)

    async def watch() -> None:
        with shared.share((RUN, stays), lambda frame: note(frame, stays)):
            for _ in range(3):
                await follow(shared, (), steps())
            await follow(shared, (Hide.COST,), steps())
            await follow(shared, (), steps(), run_id=RunId(uuid4()))

    asyncio.run(watch())
    assert len(redacted) == 3


def test_error_of_a_budget_is_hidden_in_rows_where_cost_is_hidden() -> None:
    shown, hidden = [asyncio.run(follow(SharedFrames(), hide, steps(BUDGET_ERROR))) for hide in ((), (Hide.COST,))]

    assert row_of(shown)["error"] == BUDGET_ERROR
    assert row_of(hidden)["error"] is None
