"""The route that follows a run live: its frames, their order, resuming, its ends and its limits."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from sqlalchemy import text

import telemetry
from api.events import live_snapshots, live_stream
from api.events.live_frames import ByeReason
from api.events.notification_relay import NotificationRelay
from store.tenants import tenants
from tests.integration.api.activation_rows import rows_of
from tests.integration.api.conftest import NO_TLS, Server, serving, start_server, with_settings
from tests.integration.api.live_frames import LiveFrame, LivePage, fold, follow, frames_of
from tests.integration.api.live_frames import live_stream as open_live
from tests.integration.api.live_streams import live_process, next_frame, rest, stored_rows
from tests.integration.api.talking import BROKEN, ECHO, FORM, MODEL, Client, eventually
from tests.integration.api.test_activation_list import ITERATION, list_activations
from tests.integration.api.test_live import RunWriter, writer  # noqa: F401 (a fixture)
from tests.integration.api.test_run_header import HANDLED
from tests.integration.engine import LEASE, REDIS_AWAY, Bench

ITEMS = ",".join(map(str, range(30)))


def has(page: LivePage, name: str, value: Any) -> bool:
    return page.state.get(name) == value


# -- what a page knows -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dsl", "query", "status"),
    [
        (ECHO, "hi", "succeeded"),
        (MODEL, "hi", "succeeded"),
        (ITERATION, ITEMS, "succeeded"),
        (HANDLED, "hi", "succeeded"),
        (BROKEN, "hi", "failed"),
    ],
    ids=["linear", "model", "iteration", "handled", "failing"],
)
def test_fold_of_the_frames_equals_a_full_read(client: Client, dsl: dict[str, Any], query: str, status: str) -> None:
    # T041
    run_id = client.start(client.agent(dsl), query)["run_id"]

    frames = follow(client.http, run_id)

    page, run = fold(frames), client.run(run_id)
    assert page.rows == {row["id"]: row for row in rows_of(list_activations(client, run_id, limit=2_000))}
    assert (page.bye["reason"], page.bye["status"], page.state["status"]) == ("over", status, status)
    assert {name: page.state[name] for name in ("counts", "nodes", "first_failure", "error")} == {
        name: run[name] for name in ("counts", "nodes", "first_failure", "error")
    }
    assert {**run["usage"], **page.state["usage"]} == run["usage"]  # which also has the models
    assert page.disagreements() == {}
    assert page.revision == page.bye["revision"] == run["revision"]


def test_counts_agree_with_the_rows_after_every_state(client: Client) -> None:  # T034
    run_id = client.start(client.agent(ITERATION), ITEMS)["run_id"]
    page = LivePage()
    differing = list[Any]()

    for frame in follow(client.http, run_id):
        page.apply(frame)
        differing += [page.disagreements()] if frame.name == "state" else []

    assert len(differing) > 1
    assert not any(differing)


def test_frames_come_in_order(client: Client) -> None:  # T141
    run_id = client.start(client.agent(MODEL))["run_id"]

    frames = follow(client.http, run_id)

    names = [frame.name for frame in frames]
    assert (names[0], names[-1]) == ("hello", "bye")
    assert (names.count("hello"), names.count("bye")) == (1, 1)
    assert [frame.data["seq"] for frame in frames if frame.name == "event"] == list(range(1, 10))
    positions = [tuple(map(int, frame.id.split("."))) for frame in frames if frame.id]
    assert positions == sorted(positions)
    assert {frame.name for frame in frames if frame.id} == {"event", "delta"}
    assert frames[-1].data["position"] == [frame.id for frame in frames if frame.id][-1]


def test_hello_has_the_head_of_the_run(client: Client) -> None:
    run_id = client.start(client.agent(MODEL))["run_id"]
    client.wait_for(run_id, "succeeded")

    hello = follow(client.http, run_id)[0].data

    head = client.http.get(f"/api/v1/runs/{run_id}", params={"activations": "none"}).json()
    assert set(hello) == {"now", "build", "heartbeat", "run", "position", "revision"}
    assert {**hello["run"], "now": 0} == {**head, "now": 0}
    assert (hello["position"], hello["revision"]) == ("0", head["revision"])


def test_events_have_their_activation_and_no_values(client: Client) -> None:
    secret = "an output that no Message shows"
    dsl = json.loads(json.dumps(MODEL))
    dsl["components"]["Message:0"]["obj"]["params"]["content"] = ["done"]
    run_id = client.start(client.agent(dsl), secret)["run_id"]

    frames = follow(client.http, run_id)

    finished = [frame.data for frame in frames if frame.name == "event" and frame.data.get("event") == "node_finished"]
    rows = {row["id"]: row for row in rows_of(list_activations(client, run_id))}
    assert [(rows[event["activation"]]["node_id"], event["attempt"]) for event in finished] == [
        (event["data"]["component_id"], 1) for event in finished
    ]
    assert all({"inputs", "outputs"}.isdisjoint(event["data"]) for event in finished)
    shown = [frame.data for frame in frames if frame.name not in ("hello", "event")]
    assert secret not in json.dumps(shown)
    assert "outputs" not in json.dumps([frame.data for frame in frames if frame.name != "hello"])


def test_edges_are_counted_by_the_outcomes(client: Client) -> None:
    run_id = client.start(client.agent(ITERATION), "a,b,c")["run_id"]
    handled = client.start(client.agent(HANDLED, "another"))["run_id"]

    edges, others = fold(follow(client.http, run_id)).state["edges"], fold(follow(client.http, handled)).state["edges"]

    assert edges == {
        "begin>StringTransform:S": 1,
        "StringTransform:S>Iteration:0": 1,
        "IterationItem:0>StringTransform:0": 3,
        "Iteration:0>Message:0": 1,
    }
    assert others == {"begin>VariableAssigner:0": 1, "VariableAssigner:0>Message:0": 1}


def test_calls_are_those_of_the_list(client: Client) -> None:
    run_id = client.start(client.agent(MODEL))["run_id"]

    page = fold(follow(client.http, run_id))

    listed = client.http.get(f"/api/v1/runs/{run_id}/model_calls").json()["calls"]
    assert list(page.calls.values()) == listed
    assert len(listed) == 1


def test_refused_start_has_hello_and_bye(workerless_client: Client, workerless_server: Server) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    with workerless_server.database.transaction() as tx:
        tx.execute(text("update runs set status = 'refused' where id = :run_id"), run_id=UUID(run_id))

    frames = follow(workerless_client.http, run_id)

    assert [frame.name for frame in frames] == ["hello", "bye"]
    assert (frames[1].data["reason"], frames[1].data["status"]) == ("over", "refused")


# -- resuming ----------------------------------------------------------------------------------------------------------
def test_every_id_resumes_the_events_and_the_text(client: Client) -> None:  # T141
    run_id = client.start(client.agent(MODEL))["run_id"]
    whole = fold(follow(client.http, run_id))
    (stream,) = whole.texts
    positions = ["4", "5.0", "5.3", "5.13", "6", "9"]

    pages = {position: resumed(client, run_id, position) for position in positions}

    assert {position: [event["seq"] for event in events] for position, (events, _) in pages.items()} == {
        "4": [5, 6, 7, 8, 9],
        "5.0": [6, 7, 8, 9],
        "5.3": [6, 7, 8, 9],
        "5.13": [6, 7, 8, 9],
        "6": [7, 8, 9],
        "9": [],
    }
    text_of = whole.texts[stream]
    assert [pages[position][1] for position in positions] == [text_of, text_of, text_of[3:], "", "", ""]


def resumed(client: Client, run_id: str, position: str) -> tuple[list[dict[str, Any]], str]:
    """Return the events and the text after a position."""
    frames = follow(client.http, run_id, after=position)
    events = [frame.data for frame in frames if frame.name == "event"]
    return events, "".join(frame.data["text"] for frame in frames if frame.name == "delta")


def test_header_resumes_like_the_parameter(client: Client) -> None:
    run_id = client.start(client.agent(ECHO))["run_id"]
    client.wait_for(run_id, "succeeded")
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "5"}

    with client.http.stream("GET", f"/api/v1/runs/{run_id}/live", params={"after": "1"}, headers=headers) as reply:
        frames = list(frames_of(reply.iter_lines()))

    assert next(frame.data["seq"] for frame in frames if frame.name == "event") == 6


def test_revision_resumes_the_rows(client: Client) -> None:  # T141
    run_id = client.start(client.agent(ITERATION), ITEMS)["run_id"]
    whole = follow(client.http, run_id)
    revisions = [frame.data["revision"] for frame in whole if frame.name == "steps"]

    early = fold(frame for frame in whole if frame.name != "steps" or frame.data["revision"] <= revisions[0])
    page = LivePage(rows=dict(early.rows))
    for frame in follow(client.http, run_id, rev=revisions[0]):
        page.apply(frame)
    last = fold(follow(client.http, run_id, rev=revisions[-1]))

    assert page.rows == fold(whole).rows
    assert last.rows == {}
    assert last.state["counts"] == page.state["counts"]


@pytest.mark.parametrize("position", ["0", "3", "3.4", "4"])
def test_delta_and_reset_give_the_row_of_the_stream(
    workerless_client: Client,
    writer: RunWriter,  # noqa: F811
    position: str,
) -> None:  # T044, T141
    page = LivePage()
    if position != "0":
        page.texts[writer.stream_id.hex] = "wrong"[: int(position.partition(".")[2] or 0)]
    writer.append_event("node_started", opens=True)
    writer.append_text("wrong", is_stored=True)
    if position == "4":
        writer.append_event("message_reset")
    with open_live(workerless_client.http, str(writer.run_id), after=position) as frames:
        read_until(frames, page, lambda: position == "4" or page.texts.get(writer.stream_id.hex) == "wrong")
        if position != "4":
            writer.append_event("message_reset")
        for part in ("\ufdd0I th", "ink\ufdd1so", " it is right"):
            writer.append_text(part)
        writer.append_event("message_end", ends=True)
        read_until(frames, page, lambda: any(event.get("event") == "message_end" for event in page.events))

    assert (
        page.texts == {writer.stream_id.hex: "\ufdd0I think\ufdd1so it is right"} == {writer.stream_id.hex: writer.text}
    )


def read_until(frames: Iterator[LiveFrame], page: LivePage, condition: Any) -> None:
    while not condition():
        page.apply(next(frames))


def test_thinking_is_told_apart_also_after_resuming_in_it(
    workerless_client: Client,
    writer: RunWriter,  # noqa: F811
) -> None:
    writer.append_event("node_started", opens=True)
    writer.append_text("a\ufdd0bcd\ufdd1e", is_stored=True)

    with open_live(workerless_client.http, str(writer.run_id), after="3.3") as frames:
        deltas = [frame.data for frame in islice((each for each in frames if each.name == "delta"), 2)]

    assert [(delta["offset"], delta["text"], delta["thinking"]) for delta in deltas] == [
        (3, "cd\ufdd1", True),
        (6, "e", False),
    ]


def test_text_after_a_reset_in_the_middle_of_thinking_is_no_thinking(
    workerless_client: Client,
    writer: RunWriter,  # noqa: F811
) -> None:
    writer.append_event("node_started", opens=True)
    writer.append_text("\ufdd0I th", is_stored=True)
    with open_live(workerless_client.http, str(writer.run_id)) as frames:
        deltas = (frame.data for frame in frames if frame.name == "delta")
        before = next(deltas)
        writer.append_event("message_reset")
        writer.append_text("plain", is_stored=True)
        after = next(deltas)

    assert [(delta["offset"], delta["text"], delta["thinking"]) for delta in (before, after)] == [
        (0, "\ufdd0I th", True),
        (0, "plain", False),
    ]


def test_text_is_joined(workerless_client: Client, writer: RunWriter) -> None:  # noqa: F811
    writer.append_event("node_started", opens=True)
    page, sizes = LivePage(), list[int]()
    with open_live(workerless_client.http, str(writer.run_id)) as frames:
        read_until(frames, page, lambda: page.events[-1:] and page.events[-1]["seq"] == 3)
        for _ in range(200):
            writer.append_text("x")
        while len(page.texts.get(writer.stream_id.hex, "")) < 200:
            frame = next(frames)
            page.apply(frame)
            sizes += [len(frame.data["text"])] if frame.name == "delta" else []

    assert len(sizes) < 40


# -- waiting, and the end ----------------------------------------------------------------------------------------------
def test_stream_stays_open_while_the_run_waits_for_a_person(client: Client) -> None:
    run_id = client.start(client.agent(FORM))["run_id"]
    page = LivePage()

    with open_live(client.http, run_id) as frames:
        read_until(frames, page, lambda: has(page, "status", "waiting"))
        waits = page.state["waits"]
        reply = client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": {"value": "Ada"}}})
        read_until(frames, page, lambda: bool(page.bye))
        remaining = list(frames)

    assert (waits["waits_for"], reply.status_code) == ("person", 202)
    assert remaining == []
    assert (page.bye["reason"], page.bye["status"]) == ("over", "succeeded")
    assert page.rows == {row["id"]: row for row in rows_of(list_activations(client, run_id))}
    assert "Hello Ada" in page.texts.values()


def test_idle_stream_is_kept_open_by_comments(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    headers = {"Accept": "text/event-stream"}

    with workerless_client.http.stream("GET", f"/api/v1/runs/{run_id}/live", headers=headers) as reply:
        comments = list(islice((line for line in reply.iter_lines() if line.startswith(":")), 2))

    assert comments == [": keep-alive"] * 2


def test_revoked_token_ends_the_stream(
    workerless_client: Client, workerless_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream, "CHECK_INTERVAL", 0.1)
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    page = LivePage()

    with open_live(workerless_client.http, run_id) as frames:
        page.apply(next(frames))
        with workerless_server.database.transaction() as tx:
            for token in tenants.list_tokens(tx, workerless_client.tenant_id):
                tenants.revoke_token(tx, workerless_client.tenant_id, token.id)
        read_until(frames, page, lambda: bool(page.bye))

    assert (page.bye["reason"], page.bye["status"]) == ("signed_out", "running")


def test_shutdown_ends_every_stream_at_once(workerless_server: Server) -> None:
    pages = [LivePage(), LivePage()]
    is_open = threading.Barrier(len(pages) + 1)

    def read(client: Client, run_id: str, page: LivePage) -> None:
        with open_live(client.http, run_id) as frames:
            page.apply(next(frames))
            is_open.wait(30)
            read_until(frames, page, lambda: bool(page.bye))

    with serving(workerless_server.config) as url:
        here = Server(url, workerless_server.database, workerless_server.config)
        threads = list[threading.Thread]()
        for page in pages:
            client = here.client()
            run_id = client.start(client.agent(ECHO))["run_id"]
            threads.append(threading.Thread(target=read, args=(client, run_id, page)))
            threads[-1].start()
        is_open.wait(30)
    for thread in threads:
        thread.join(5)

    assert [page.bye.get("reason") for page in pages] == ["shutting_down"] * 2
    assert all(page.bye["now"] for page in pages)


def test_shutdown_does_not_wait_until_something_happens(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIN_PAUSE", "WORK_INTERVAL", "IDLE_INTERVAL"):
        monkeypatch.setattr(live_snapshots, name, 60.0)
    monkeypatch.setattr(live_stream, "CHECK_INTERVAL", 60.0)
    run = bench.start("begin -> work -> say")

    async def watch() -> LiveFrame:
        async with live_process(bench.database, bench.redis_url) as process:
            client = process.follow(bench.tenant_id, run.id)
            await next_frame(client, "state")
            bye = asyncio.create_task(next_frame(client, "bye"))
            (waiting,) = process.streams._clients  # pyright: ignore[reportPrivateUsage]
            while waiting._waiting is None:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0)
            process.streams.shut_down()
            async with asyncio.timeout(5):
                return await bye

    assert asyncio.run(watch()).data["reason"] == "shutting_down"


# -- refusals and limits -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("query", "field"),
    [({"rev": "x"}, "rev"), ({"rev": "-1"}, "rev"), ({"after": "x"}, None), ({"since": "1"}, "since")],
)
def test_invalid_query_is_refused(workerless_client: Client, query: dict[str, str], field: str | None) -> None:  # T145
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    reply = workerless_client.http.get(
        f"/api/v1/runs/{run_id}/live", params=query, headers={"Accept": "text/event-stream"}
    )

    assert reply.status_code == 400
    assert field in (None, reply.json()["details"].get("field"))


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
def test_client_that_does_not_accept_a_stream_is_refused(workerless_client: Client, accept: str) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    reply = workerless_client.http.get(f"/api/v1/runs/{run_id}/live", headers={"Accept": accept})

    assert (reply.status_code, reply.json()["code"]) == (406, "not_acceptable")


def test_run_of_another_tenant_is_not_found(workerless_server: Server, workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    stranger = workerless_server.client()

    replies = [
        stranger.http.get(f"/api/v1/runs/{each}/live", headers={"Accept": "text/event-stream"})
        for each in (run_id, uuid4().hex)
    ]

    assert [reply.status_code for reply in replies] == [404, 404]


def test_streams_of_a_process_are_limited(workerless_server: Server) -> None:
    with start_server(with_settings(workerless_server.config, live_streams=1)) as server:
        client = server.client()
        run_id = client.start(client.agent(ECHO))["run_id"]
        with open_live(client.http, run_id) as frames:
            next(frames)
            path, headers = f"{server.url}/api/v1/runs/{run_id}/live", {"Accept": "text/event-stream", **bearer(client)}
            refused = httpx2.get(path, headers=headers, verify=NO_TLS)
        again = eventually(lambda: status_of(path, headers), lambda status: status == 200)

    assert (refused.status_code, refused.json()["code"]) == (503, "too_many_streams")
    assert refused.headers["Retry-After"] == "10"
    assert again == 200


def status_of(path: str, headers: dict[str, str]) -> int:
    with httpx2.stream("GET", path, headers=headers, verify=NO_TLS) as reply:
        return reply.status_code


def bearer(client: Client) -> dict[str, str]:
    return {"Authorization": f"Bearer {client.token}"}


def test_client_that_disconnects_is_no_longer_counted(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    with open_live(workerless_client.http, run_id) as frames:
        next(frames)
        while_open = metric("easel_live_streams")

    eventually(lambda: metric("easel_live_streams"), lambda count: count == 0)
    assert while_open == 1


def metric(name: str) -> float:
    page = telemetry.metrics_page()[0].decode()
    return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"{name} "))


# -- snapshots ---------------------------------------------------------------------------------------------------------
def test_clients_of_a_run_share_one_reader_which_ends_with_the_last(bench: Bench) -> None:  # T141
    run = bench.start("begin -> work -> say")

    async def watch() -> tuple[list[int], int, bool]:
        async with live_process(bench.database, bench.redis_url) as process:
            clients = [process.follow(bench.tenant_id, run.id) for _ in range(20)]
            states = await asyncio.gather(*(next_frame(client, "state") for client in clients))
            assert [state.data["counts"] for state in states] == [{"ready": 1}] * 20
            readers, snapshots = [len(process.streams.readers)], len(process.snapshots)
            (task,) = (task for task in asyncio.all_tasks() if task.get_name() == live_snapshots.TASK)
            for client in clients:
                await client.aclose()
                readers.append(len(process.streams.readers))
            await asyncio.wait([task], timeout=10)
            return readers, snapshots, task.cancelled()

    readers, snapshots, is_cancelled = asyncio.run(watch())

    assert readers == [1] * 20 + [0]
    assert snapshots < 20 / 2
    assert is_cancelled


def test_run_that_nobody_watches_has_no_snapshots(bench: Bench, sent_statements: list[bytes]) -> None:  # T098
    async def run_alone() -> list[float]:
        async with live_process(bench.database, bench.redis_url) as process:
            run = bench.start("begin -> work -> say")
            await asyncio.to_thread(bench.play)
            assert run.status == "succeeded"
            return process.snapshots

    snapshots = asyncio.run(run_alone())

    assert snapshots == []
    assert not any(b"json_to_record" in statement and b"activated_rev >" in statement for statement in sent_statements)


def test_claim_is_shown_without_any_notification(bench: Bench) -> None:
    run = bench.start("begin -> work -> say")

    async def watch() -> list[dict[str, int]]:
        async with live_process(bench.database, REDIS_AWAY) as process:
            client = process.follow(bench.tenant_id, run.id)
            first = await next_frame(client, "state")
            await asyncio.to_thread(bench.claim, run, "begin", lease=LEASE)
            second = await next_frame(client, "state")
            await client.aclose()
            return [first.data["counts"], second.data["counts"]]

    assert asyncio.run(watch()) == [{"ready": 1}, {"running": 1}]


def test_events_come_after_the_relay_of_a_run_has_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_snapshots, "RETRY_INTERVAL", 0.05)
    add, failures = NotificationRelay.add, list[Any]()

    def fail_first(relay: NotificationRelay, notification: Any) -> None:
        if not failures:
            failures.append(notification)
            raise RuntimeError("the first notification cannot be relayed")
        add(relay, notification)

    monkeypatch.setattr(NotificationRelay, "add", fail_first)
    run = bench.start("begin -> work -> say")

    async def watch() -> list[LiveFrame]:
        async with live_process(bench.database, bench.redis_url) as process:
            client = process.follow(bench.tenant_id, run.id)
            await next_frame(client, "state")
            playing = asyncio.create_task(asyncio.to_thread(bench.play))
            frames = await rest(client)
            await playing
            return frames

    frames = asyncio.run(watch())

    assert len(failures) == 1
    assert [frame.data["event"] for frame in frames if frame.name == "event"][-1] == "workflow_finished"
    assert frames[-1].data["reason"] == "over"


def test_members_that_have_not_changed_are_left_out(bench: Bench) -> None:
    run = bench.start("begin -> work -> say")

    async def watch() -> tuple[set[str], set[str]]:
        async with live_process(bench.database, bench.redis_url) as process:
            client = process.follow(bench.tenant_id, run.id)
            first = await next_frame(client, "state")
            await asyncio.to_thread(bench.claim, run, "begin", lease=LEASE)
            second = await next_frame(client, "state")
            await client.aclose()
            return set(first.data), set(second.data)

    first, second = asyncio.run(watch())

    members = {"status", "counts", "nodes", "edges", "progress", "usage", "budget", "waits", "first_failure", "error"}
    assert first == {"now", "revision"} | members
    assert second - {"waits"} == {"now", "revision", "counts", "nodes"}


def test_client_that_does_not_read_has_no_queue_and_catches_up(bench: Bench) -> None:
    bench.does(**{f"work{number}": lambda ctx: None for number in range(3)})
    run = bench.start("begin -> each -> say", "each: item -> work", each={"items_ref": "sys.query"}, query="x")

    async def watch() -> tuple[LivePage, int]:
        async with live_process(bench.database, bench.redis_url) as process:
            slow, quick = (process.follow(bench.tenant_id, run.id) for _ in range(2))
            page = LivePage()
            page.apply(await next_frame(slow))
            page.apply(await next_frame(slow, "state"))
            playing = asyncio.create_task(asyncio.to_thread(bench.play))
            await rest(quick)  # while the slow client reads nothing
            await playing
            (waiting,) = process.streams._clients  # pyright: ignore[reportPrivateUsage]
            queued = len(waiting._messages)  # pyright: ignore[reportPrivateUsage]
            for frame in await rest(slow):
                page.apply(frame)
            return page, queued

    page, queued = asyncio.run(watch())

    assert page.rows == stored_rows(bench.database, bench.tenant_id, run.id)
    assert page.disagreements() == {}
    assert queued <= live_stream.QUEUE_SIZE
    assert page.bye["reason"] == "over"


def test_caller_is_checked_by_the_function_of_the_request(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_stream, "CHECK_INTERVAL", 0.05)
    run = bench.start("begin -> work -> say")
    replies = iter([None, None, ByeReason.SHARE_REVOKED])

    async def check() -> ByeReason | None:
        return next(replies)

    async def watch() -> list[LiveFrame]:
        async with live_process(bench.database, bench.redis_url) as process:
            return await rest(process.follow(bench.tenant_id, run.id, check=check))

    frames = asyncio.run(watch())

    assert (frames[-1].name, frames[-1].data["reason"]) == ("bye", "share_revoked")
    assert next(replies, "used") == "used"


ADD_STEPS = text("""
    insert into activations (run_id, id, node_id, component, scope, ordinal, order_key, region, level, trail, status,
        activated_rev, applied_rev, attempt, outcome, usage, started_at, finished_at)
    select :run_id, gen_random_uuid(), 'LLM:' || n % 10, 'LLM', '', n, int4send(n), '', n, '[]', 'done', 1, 1, 1,
        '{"is":"Finished"}', '{"calls": 1, "total_tokens": 5}', now(), now()
    from generate_series(1, :number) n
""")


def test_snapshots_of_a_large_run_take_a_twentieth_of_the_time(bench: Bench) -> None:  # T147
    run = bench.start("begin -> work -> say")
    with bench.database.transaction() as tx:
        tx.execute(ADD_STEPS, run_id=run.id, number=5_000)
    count = 3

    async def watch() -> tuple[list[float], float]:
        async with live_process(bench.database, bench.redis_url) as process:
            client = process.follow(bench.tenant_id, run.id, rev=1)
            await next_frame(client, "state")
            clock = asyncio.get_running_loop().time
            began, reader = clock(), process.streams.readers
            first = len(process.snapshots)
            waiter = asyncio.create_task(drain(client))
            while len(process.snapshots) < first + count:
                assert clock() < began + 30
                await asyncio.sleep(0.01)
            passed = clock() - began
            assert len(reader) == 1
            waiter.cancel()
            with suppress(asyncio.CancelledError):
                await waiter
            return process.snapshots[first - 1 : first - 1 + count], passed

    snapshots, passed = asyncio.run(watch())

    assert sum(snapshots) <= 0.05 * passed * 1.05
    assert all(live_snapshots.pause_after(seconds) >= 20 * seconds for seconds in snapshots)


async def drain(stream: AsyncGenerator[bytes]) -> None:
    async for _ in stream:
        pass
