"""Events on Redis pub/sub: a subscriber without Easel receives every event of a run as the API sends it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
import redis
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from canvas.errors import ValueGone
from canvas.events.stream_sequencer import SequencedEvent, StreamSequencer
from canvas.ids import RunId
from canvas.outcome import Finished
from components.context import NodeContext
from providers.models.chat.scripted import Script
from scheduler.messaging.event_notifier import EventNotification
from scheduler.messaging.redis_bus import Bus, events_channel
from scheduler.views import event_messages
from scheduler.views.event_frames import EventSerializer
from scheduler.views.event_messages import EventMessages
from store.primitives.ids import new_id
from store.primitives.json_codec import encode
from store.runs import run_queries
from store.runs.events import EventRow
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run, subscribe, until

ROOT = Path(__file__).parents[3]
ANSWER = "Forty-two, of course."


@pytest.fixture(autouse=True)
def publishing(bench: Bench) -> None:
    coordinator = bench.coordinator
    coordinator.dispatch.bus.publish_events(EventMessages(coordinator.database, coordinator.versions).read)


class Follower:
    """A subscriber to one run, and everything that it has received."""

    def __init__(self, pubsub: Any) -> None:
        self.pubsub = pubsub
        self.messages = list[dict[str, Any]]()

    def receive(self) -> list[dict[str, Any]]:
        while (message := self.pubsub.get_message(timeout=0.02)) is not None:
            self.messages.append(json.loads(message["data"]))
        return self.messages

    def events(self) -> list[dict[str, Any]]:
        """Return all events, in the order of their numbers."""
        return sorted((each for each in self.receive() if "seq" in each), key=lambda each: each["seq"])

    def wait_for(self, number: int) -> list[dict[str, Any]]:
        """Return the events once there are as many as `number`."""
        return until(lambda: self.events() if len(self.events()) >= number else None)


@contextmanager
def following(bench: Bench, run_id: UUID | None) -> Iterator[Follower]:
    """Follow a run with a bare Redis client until the block ends."""
    assert run_id is not None, "a subscriber knows the run before it starts"
    with redis.Redis.from_url(bench.redis_url) as client, client.pubsub() as pubsub:
        subscribe(pubsub, events_channel(RunId(run_id)))
        yield Follower(pubsub)


def play_followed(bench: Bench, *parts: str, **options: Any) -> tuple[Run, list[dict[str, Any]], Follower]:
    """Play a run that is followed from its start; return it, its events as they came, and the follower."""
    start = bench.a_start(*parts, run_id=new_id(), **options)
    with following(bench, start.run_id) as follower:
        run = bench.start_run(start)
        bench.play()
        return run, follower.wait_for(len(run.events)), follower


def frames_of(bench: Bench, run: Run) -> list[dict[str, Any]]:
    """Return the events of a run as the API sends them."""
    with bench.database.transaction() as tx:
        page = run_queries.read_events(tx, bench.tenant_id, run.id, 0)
        assert page is not None
        serializer = EventSerializer(page.run, bench.coordinator.versions.get_or_empty(tx, page.run.version_id).canvas)
    frames = StreamSequencer[EventRow]().on_rows(page.events, page.streams)
    sent = [body for frame in frames if isinstance(frame, SequencedEvent) for _, body in serializer.frames(frame)]
    return json.loads(encode(sent))


def run_out_of_paper(ctx: NodeContext) -> Finished:
    raise RuntimeError("out of paper")


# -- events ----------------------------------------------------------------------------------------------------------
def test_subscriber_receives_every_event_of_a_run_as_the_api_sends_it(bench: Bench):
    bench.script = Script([{"reply": ANSWER}])
    run, events, _ = play_followed(bench, "begin -> model -> say", say=content("So: {model@content}"))

    assert run.status == "succeeded"
    assert [event["event"] for event in events] == run.event_names
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events == frames_of(bench, run)
    assert events[-1]["data"]["outputs"]["content"] == f"So: {ANSWER}"


def test_subscriber_receives_the_failure_of_a_run(bench: Bench):
    bench.does(work=run_out_of_paper)
    run, events, _ = play_followed(bench, "begin -> work")

    assert run.status == "failed"
    assert (events[-1]["code"], events[-1]["run_id"]) == (500, run.id.hex)
    assert "out of paper" in events[-1]["message"]


def test_subscriber_of_a_waiting_run_receives_its_form_and_what_follows_the_answer(bench: Bench):
    start = bench.a_start("begin -> form -> say", run_id=new_id(), form=FORM, say=content("Thanks"))
    with following(bench, start.run_id) as follower:
        run = bench.start_run(start)
        bench.play()
        assert follower.wait_for(len(run.events))[-1]["event"] == "user_inputs"
        bench.lifecycle.resume_run(bench.tenant_id, run.id, bench.a_start("begin", query="Ann").request)
        bench.play()
        events = follower.wait_for(len(run.events))

    assert (run.status, events[-1]["event"]) == ("succeeded", "workflow_finished")


def test_large_event_is_announced_by_its_size_and_the_route_where_it_lies(bench: Bench):
    bench.does(work=lambda ctx: Finished(outputs={"result": "x" * event_messages.MAX_MESSAGE_BYTES}))
    run, events, _ = play_followed(bench, "begin -> work")

    large = next(event for event in events if "size" in event)
    assert large == {
        "event": "node_finished",
        "seq": large["seq"],
        "run_id": run.id.hex,
        "session_id": run.conversation_id.hex,
        "task_id": run.conversation_id.hex,
        "size": large["size"],
        "path": f"/api/v1/runs/{run.id.hex}/events?after={large['seq'] - 1}",
    }
    assert large["size"] > event_messages.MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("select", {}, Exception("connection refused")),
        ValueGone('Node "work": the value of "result" is not in the file storage.'),
    ],
    ids=["database", "file storage"],
)
def test_last_number_tells_a_subscriber_that_events_which_cannot_be_read_are_missing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    def fail(*_: Any) -> Any:
        raise error

    start = bench.a_start("begin -> work", run_id=new_id())
    with following(bench, start.run_id) as follower, capture_logs() as logs:
        monkeypatch.setattr(run_queries, "read_events", fail)
        run = bench.start_run(start)
        bench.play()
        until(lambda: follower.receive() and follower.messages[-1].get("over"))

    assert follower.messages[-1] == {"run_id": run.id.hex, "stored": len(run.events), "over": True}
    assert follower.events() == []
    assert {line["event"] for line in logs} >= {"events_not_published"}


def test_nothing_is_read_for_a_run_without_a_subscriber(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    reads = list[UUID]()
    read = EventMessages.read

    def record(self: EventMessages, notification: EventNotification) -> Any:
        reads.append(notification.run_id)
        return read(self, notification)

    monkeypatch.setattr(EventMessages, "read", record)
    coordinator = bench.coordinator
    coordinator.dispatch.bus.publish_events(EventMessages(coordinator.database, coordinator.versions).read)
    start, other = (bench.a_start("begin -> work", run_id=new_id()) for _ in range(2))
    with following(bench, start.run_id) as follower:
        bench.start_run(other)
        run = bench.start_run(start)
        bench.play()
        follower.wait_for(len(run.events))

    assert set(reads) == {run.id}


def test_more_events_than_a_page_are_all_published(bench: Bench):
    width = 300
    bench.does(**{f"n{number}": lambda ctx: Finished() for number in range(width)})
    run = bench.start("begin -> " + ", ".join(f"n{number}" for number in range(width)))
    bench.play()
    reader = EventMessages(bench.database, bench.coordinator.versions)

    messages = reader.read(EventNotification(run.id, 3, len(run.events) - 1))

    assert len(run.events) > run_queries.PAGE_SIZE
    assert [json.loads(each)["seq"] for each in messages] == list(range(3, len(run.events)))


# -- the documented ways to follow a run -----------------------------------------------------------------------------
def test_documented_program_follows_a_run_from_its_start_to_its_end(bench: Bench):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "events.md").read_text(), re.DOTALL)[0]
    assert len(code.splitlines()) <= 12
    start = bench.a_start("begin -> one, two -> say", run_id=new_id(), say=content("Hi"))
    assert start.run_id is not None
    command = [sys.executable, "-c", code, start.run_id.hex]
    environment = {"REDIS_URL": bench.redis_url, "PATH": os.environ["PATH"]}
    with subprocess.Popen(command, cwd="/", env=environment, stdout=subprocess.PIPE, text=True) as program:
        wait_for_subscriber(bench, start.run_id)
        run = bench.start_run(start)
        bench.play()
        printed, _ = program.communicate(timeout=60)

    assert program.returncode == 0
    numbered = [line.split(" ", 1) for line in printed.splitlines()]
    assert [name for _, name in sorted(numbered, key=lambda each: int(each[0]))] == run.event_names


@pytest.mark.skipif(
    shutil.which("redis-cli") is None, reason="There is no redis-cli here: apt-get install redis-tools."
)
def test_redis_cli_shows_the_events_of_a_run(bench: Bench):
    start = bench.a_start("begin -> say", run_id=new_id(), say=content("Hi"))
    assert start.run_id is not None
    url = urlsplit(bench.redis_url)
    command = ["redis-cli", "-h", str(url.hostname), "-p", str(url.port), "subscribe", events_channel(start.run_id)]
    environment = {"PATH": os.environ["PATH"], "REDISCLI_AUTH": url.password or ""}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as program:
        wait_for_subscriber(bench, start.run_id)
        run = bench.start_run(start)
        bench.play()
        assert program.stdout is not None
        shown = dict[int, str]()
        while len(shown) < len(run.events):
            line = program.stdout.readline()
            assert line, "redis-cli has ended"
            message = parse_message(line)
            if "seq" in message:
                shown[message["seq"]] = message["event"]
        program.terminate()

    assert [shown[number] for number in sorted(shown)] == run.event_names


def parse_message(line: str) -> dict[str, Any]:
    """Return the message on a line of redis-cli; {} for its other lines."""
    return json.loads(line) if line.startswith("{") else {}


def wait_for_subscriber(bench: Bench, run_id: UUID) -> None:
    """Wait until another process has subscribed to a run."""
    with redis.Redis.from_url(bench.redis_url) as client:
        numbers: Any = lambda: client.pubsub_numsub(events_channel(RunId(run_id)))  # noqa: E731 (untyped)
        until(lambda: numbers()[0][1])


# -- text ------------------------------------------------------------------------------------------------------------
def test_text_is_published_with_its_stream_and_offset(bench: Bench):
    bench.script = Script([{"reply": ANSWER}])
    run, _, follower = play_followed(bench, "begin -> model -> say", say=content("So: {model@content}"))
    texts = [each for each in follower.messages if "text" in each]

    text = ""
    for delta in texts:
        assert (delta["run_id"], delta["turn"], delta["epoch"]) == (run.id.hex, run.streams[0].id.hex, 0)
        text = text[: delta["offset"]] + delta["text"]
    assert text == run.text


def test_bus_without_a_source_of_events_publishes_numbers_only(redis_url: str, bench: Bench):
    bus, run_id = Bus(redis_url), new_id()
    with following(bench, run_id) as follower:
        bus.notify_event(EventNotification(run_id, 1, 2))
        until(follower.receive)
    bus.close()

    assert follower.messages == [{"run_id": run_id.hex, "stored": 2, "over": False}]
