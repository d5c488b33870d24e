"""Start messages of other services: any id identifies its run, and a refusal is found under that id."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
import structlog
from sqlalchemy import text

from canvas.errors import NotFound
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle import start_messages
from scheduler.lifecycle.accept import RunNotWaiting
from scheduler.lifecycle.start_messages import parse_message
from scheduler.messaging.redis_bus import Bus
from scheduler.sweeper.sweeper import Sweeper
from store.primitives.ids import first_id_at, new_id
from store.primitives.weeks import Week
from store.runs import external_ids, run_queries
from store.runs.run_queries import RunSummary
from store.tenants import callback_deliveries, tenants
from tests.integration.engine import FORM, Bench, until
from tests.integration.store.rows import add_run

MAX_BYTES = 1024 * 1024
COUNT_RUNS = text("select count(*) from runs where tenant_id = :tenant_id")

V4 = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
IDS = [V4, UUID(V4).hex, V4.upper(), "order-4711", "Auftrag Nr. 7 / Köln", "x" * 255]
KINDS = {"text": lambda: "order-4711", "uuid4": lambda: str(uuid4()), "uuid7": lambda: str(new_id())}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def sent_id(request: pytest.FixtureRequest) -> str:
    """An id of each kind that a service may choose."""
    return request.param()


@pytest.fixture
def agent(bench: Bench) -> UUID:
    return bench.draw("begin -> work")[0]


def send(bench: Bench, *args: Any, **options: Any) -> None:
    """Carry out a message as the scheduler does."""
    start_messages.carry_out(bench.lifecycle, parse_message(args, options), MAX_BYTES)


def find_run(bench: Bench, sent_id: str, tenant_id: UUID | None = None) -> RunSummary | None:
    """Return the run with this id, or None."""
    tenant = tenant_id or bench.tenant_id
    with bench.database.transaction() as tx:
        run_id = external_ids.find_run(tx, tenant, sent_id)
        return run_queries.get_summary(tx, tenant, run_id) if run_id is not None else None


def get_run(bench: Bench, sent_id: str, tenant_id: UUID | None = None) -> RunSummary:
    run = find_run(bench, sent_id, tenant_id)
    assert run is not None
    return run


def count_runs(bench: Bench) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(COUNT_RUNS, tenant_id=bench.tenant_id)


def test_flower_shows_the_ids_of_a_message_and_only_the_names_of_its_other_options():
    shown = start_messages.format_options({"run_id": "order-4711", "query": "a secret", "x" * 99: 1})

    assert shown == f"{{'run_id': 'order-4711', 'query': ..., '{'x' * 64}': ...}}"
    assert start_messages.format_options("no object") == "{}"
    assert (
        start_messages.format_arguments(("acme", "order-4711", "agent", "a secret"))
        == "('acme', 'order-4711', 'agent')"
    )


# -- any id ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sent_id", IDS)
def test_run_of_any_external_id_is_in_the_current_week_and_found_under_that_id(bench: Bench, agent: UUID, sent_id: str):
    send(bench, str(bench.tenant_id), sent_id, str(agent), query="Hello")

    run = get_run(bench, sent_id)
    assert (run.status, run.external_id, run.request["query"]) == ("running", sent_id, "Hello")
    assert abs(Week.of_run(run.id).begins_at - Week.of(datetime.now(UTC)).begins_at) <= timedelta(weeks=1)
    assert get_run(bench, str(run.id)) == run


def test_run_is_found_by_every_spelling_of_its_uuid(bench: Bench, agent: UUID):
    sent_id = uuid4()
    send(bench, str(bench.tenant_id), sent_id.hex, str(agent))

    assert {get_run(bench, each).id for each in (sent_id.hex, str(sent_id), str(sent_id).upper())} == {
        get_run(bench, str(sent_id)).id
    }


def test_uuid7_of_today_is_used_as_the_run_id(bench: Bench, agent: UUID):
    run_id = new_id()
    send(bench, str(bench.tenant_id), str(run_id), str(agent))

    assert get_run(bench, str(run_id)).id == run_id


@pytest.mark.parametrize("days", [-400, -2, 2, 4000])
def test_a_uuid7_of_another_time_becomes_an_external_id(bench: Bench, agent: UUID, days: int):
    past = UUID(int=first_id_at(datetime.now(UTC) + timedelta(days=days)).int | new_id().int & (1 << 80) - 1)
    assert past.version == 7
    send(bench, str(bench.tenant_id), str(past), str(agent))

    assert get_run(bench, str(past)).id != past


def test_a_start_that_is_sent_twice_starts_one_run(bench: Bench, agent: UUID, sent_id: str):
    for _ in range(2):
        send(bench, str(bench.tenant_id), sent_id, str(agent), query="Hello")

    assert count_runs(bench) == 1
    assert get_run(bench, sent_id).status == "running"


def test_concurrent_starts_with_one_id_start_one_run(bench: Bench, agent: UUID, sent_id: str):
    with ThreadPoolExecutor(4) as pool:
        sent = [
            pool.submit(send, bench, str(bench.tenant_id), sent_id, str(agent), query=f"body {number % 2}")
            for number in range(8)
        ]
        for each in sent:
            each.result()

    assert count_runs(bench) == 1
    assert get_run(bench, sent_id).request["query"] in ("body 0", "body 1")
    assert get_run(bench, sent_id).status == "running"


def test_another_request_with_the_id_of_a_run_changes_nothing_and_is_logged(bench: Bench, agent: UUID):
    send(bench, str(bench.tenant_id), "order-4711", str(agent), query="Hello")

    with structlog.testing.capture_logs() as logs:
        send(bench, str(bench.tenant_id), "order-4711", str(agent), query="other")

    assert count_runs(bench) == 1
    assert get_run(bench, "order-4711").request["query"] == "Hello"
    (line,) = [line for line in logs if line["event"] == "start_refused"]
    assert line["code"] == "conflict"
    assert "belongs to another request" in line["error"]
    assert "other" not in str(line).replace("another", "")


def test_the_same_id_of_two_tenants_is_two_runs(bench: Bench, agent: UUID, sent_id: str):
    other = bench.a_tenant()
    others_agent, _ = bench.draw("begin -> work", tenant_id=other)
    send(bench, str(bench.tenant_id), sent_id, str(agent))
    send(bench, str(other), sent_id, str(others_agent))

    ours, theirs = get_run(bench, sent_id), get_run(bench, sent_id, other)
    assert ours.id != theirs.id
    assert (ours.canvas_id, theirs.canvas_id) == (agent, others_agent)


def test_a_run_of_an_earlier_release_is_found_under_its_id_and_is_not_started_again(bench: Bench, agent: UUID):
    old, request = uuid4(), {"query": "Hello", "inputs": None, "files": [], "user_id": "ada"}
    with bench.database.transaction() as tx:
        add_run(tx, bench.tenant_id, run_id=old, canvas_id=agent, request=request)

    with structlog.testing.capture_logs() as logs:
        send(bench, str(bench.tenant_id), str(old), str(agent), query="Hello", user_id="ada")

    assert [line for line in logs if line["event"] == "start_refused"] == []
    assert count_runs(bench) == 1
    assert get_run(bench, str(old)).id == old


@pytest.mark.parametrize("differs", ["agent", "query", "inputs", "files", "user_id"])
def test_different_request_with_the_id_of_a_run_is_refused_and_changes_nothing(bench: Bench, agent: UUID, differs: str):
    old = new_id()
    with bench.database.transaction() as tx:
        add_run(tx, bench.tenant_id, run_id=old, canvas_id=agent, request={"query": "Hello"})
    others = {"query": "Bye", "inputs": {"name": "Ada"}, "files": [{"id": "f", "name": "a.txt"}], "user_id": "ada"}
    options = {"query": "Hello", **({differs: others[differs]} if differs in others else {})}
    requested_agent = bench.draw("begin -> work")[0] if differs == "agent" else agent

    with structlog.testing.capture_logs() as logs:
        send(bench, str(bench.tenant_id), str(old), str(requested_agent), **options)

    (line,) = [line for line in logs if line["event"] == "start_refused"]
    assert (line["code"], "belongs to another request" in line["error"]) == ("conflict", True)
    assert count_runs(bench) == 1
    run = get_run(bench, str(old))
    assert (run.id, run.request["query"], run.canvas_id) == (old, "Hello", agent)


def test_an_answer_to_a_form_is_found_under_the_id_that_it_was_sent_with(bench: Bench):
    run = bench.start("begin -> form -> work", form=FORM)
    bench.play()
    assert run.status == "waiting"
    canvas_id = run.row["canvas_id"]
    for _ in range(2):
        send(bench, str(bench.tenant_id), "answer-1", str(canvas_id), session_id=str(run.conversation_id), query="Ada")

    assert get_run(bench, "answer-1").id == run.id
    bench.play()
    assert run.status == "succeeded"


def test_a_second_id_with_the_idempotency_key_of_the_first_leads_to_the_same_run(bench: Bench, agent: UUID):
    for sent_id in ("first", "second"):
        send(bench, str(bench.tenant_id), sent_id, str(agent), query="Hello", idempotency_key="k")

    assert count_runs(bench) == 1
    assert get_run(bench, "first").id == get_run(bench, "second").id


@pytest.mark.parametrize("spell", [str, lambda sent_id: UUID(sent_id).hex], ids=["as sent", "hex"])
def test_a_cancel_key_of_an_external_id_stops_its_run(bench: Bench, agent: UUID, sent_id: str, spell: Any):
    send(bench, str(bench.tenant_id), sent_id, str(agent))
    key = spell(sent_id) if external_ids.uuid_of(sent_id) else sent_id
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{key}-cancel", "x")

    Sweeper(bench.coordinator).tick()

    until(lambda: get_run(bench, sent_id).status == "cancelled")


def test_start_deletes_a_cancel_key_that_was_set_before_it(bench: Bench, agent: UUID):
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set("order-4711-cancel", "x")
        send(bench, str(bench.tenant_id), "order-4711", str(agent))

        assert client.get("order-4711-cancel") is None


@pytest.fixture
def keys(bench: Bench) -> Iterator[redis.Redis]:
    """A Redis client, to set cancel keys as other programs do."""
    with redis.Redis.from_url(bench.redis_url) as client:
        yield client


def test_cancel_key_still_cancels_its_run_after_another_tenant_has_started_the_same_id(
    bench: Bench, agent: UUID, sent_id: str, keys: redis.Redis
):
    other = bench.a_tenant()
    others_agent, _ = bench.draw("begin -> work", tenant_id=other)
    send(bench, str(bench.tenant_id), sent_id, str(agent))
    keys.set(f"{sent_id}-cancel", "x")

    send(bench, str(other), sent_id, str(others_agent))
    Sweeper(bench.coordinator).tick()

    assert get_run(bench, sent_id).status == "cancelled"
    own_id_is_the_key = str(get_run(bench, sent_id).id) == sent_id
    assert get_run(bench, sent_id, other).status == ("cancelled" if own_id_is_the_key else "running")


def test_queued_start_deletes_a_cancel_key_that_was_set_before_it(bench: Bench, agent: UUID, keys: redis.Redis):
    send(bench, str(bench.tenant_id), "first", str(agent))
    session = str(get_run(bench, "first").conversation_id)
    keys.set("second-cancel", "x")

    send(bench, str(bench.tenant_id), "second", str(agent), session_id=session, on_busy="enqueue")
    Sweeper(bench.coordinator).tick()

    assert get_run(bench, "second").status == "queued"


def test_end_of_a_run_deletes_the_cancel_keys_of_its_external_id(
    bench: Bench, agent: UUID, sent_id: str, keys: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    send(bench, str(bench.tenant_id), sent_id, str(agent))
    monkeypatch.setattr(Bus, "find_cancelled", lambda *_: [])  # the key is set after the last query of cancel keys
    keys.set(f"{sent_id}-cancel", "x")

    bench.play()

    assert get_run(bench, sent_id).status == "succeeded"
    assert keys.get(f"{sent_id}-cancel") is None


def test_end_of_a_run_does_not_lose_the_cancel_of_another_tenants_run_with_its_id(
    bench: Bench, agent: UUID, keys: redis.Redis
):
    other = bench.a_tenant()
    others_agent, _ = bench.draw("begin -> form -> work", form=FORM, tenant_id=other)
    send(bench, str(other), "order-4711", str(others_agent))
    bench.play()
    send(bench, str(bench.tenant_id), "order-4711", str(agent))
    keys.set("order-4711-cancel", "x")

    bench.play()
    Sweeper(bench.coordinator).tick()

    assert get_run(bench, "order-4711").status == "succeeded"
    assert get_run(bench, "order-4711", other).status == "cancelled"
    assert keys.keys("*-cancel") == []


def test_cancel_key_of_the_id_of_an_answer_cancels_the_run_and_is_deleted(bench: Bench, keys: redis.Redis):
    run = bench.start("begin -> form -> work", form=FORM)
    bench.play()
    keys.set("answer-1-cancel", "x")  # set before the answer
    answer = (str(bench.tenant_id), "answer-1", str(run.row["canvas_id"]))
    send(bench, *answer, session_id=str(run.conversation_id), query="Ada")
    Sweeper(bench.coordinator).tick()
    assert run.status == "running"

    keys.set("answer-1-cancel", "x")
    Sweeper(bench.coordinator).tick()

    assert run.status == "cancelled"
    assert keys.keys("*-cancel") == []


# -- lists -----------------------------------------------------------------------------------------------------------
def test_runs_of_earlier_releases_are_listed_by_their_time_of_acceptance(bench: Bench, agent: UUID):
    now = datetime.now(UTC)
    with bench.database.transaction() as tx:
        yesterday, last_week = (
            UUID("ffea0880-0000-4000-8000-000000000000"),
            UUID("00ea0880-0000-4000-8000-000000000000"),
        )
        for run_id, days in ((yesterday, 1), (last_week, 7)):
            add_run(tx, bench.tenant_id, run_id=run_id, accepted_at=now - timedelta(days=days))
    send(bench, str(bench.tenant_id), "ffff-first", str(agent))
    send(bench, str(bench.tenant_id), str(UUID(int=uuid4().int >> 8)), str(agent), query="newest")

    with bench.database.transaction() as tx:
        page, total = run_queries.page(tx, bench.tenant_id)

    assert total == 4
    assert [run.external_id or run.id for run in page][1:] == ["ffff-first", yesterday, last_week]
    assert page[0].request["query"] == "newest"


# -- refusals --------------------------------------------------------------------------------------------------------
def refusal_of(bench: Bench, sent_id: str) -> str:
    run = get_run(bench, sent_id)
    assert run.status == "refused"
    assert run.finished_at is not None
    return run.error


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"qurey": "Hello"},
            "There is no option 'qurey'. Did you mean \"query\"? The options are: query, inputs, files,",
        ),
        ({"custom_header": {"a": "b"}}, '"custom_header" is an option of the HTTP API only.'),
        ({"cancel_on_disconnect": True}, '"cancel_on_disconnect" is an option of the HTTP API only.'),
        ({"inputs": ["a"]}, '"inputs" must be an object, and is list.'),
        ({"query": 7}, '"query" must be a text or an object, and is int.'),
        ({"release": "false"}, '"release" must be true or false, and is str.'),
        ({"on_busy": "maybe"}, "\"on_busy\" is 'maybe'. Use one of: refuse, enqueue, interrupt."),
        ({"session_id": "mine"}, "\"session_id\" is 'mine', which is not a valid id."),
        ({"files": ["a"]}, '"files" must be a list of descriptors'),
        ({"budget": {"tokens": -1}}, "tokens"),
        ({"query": "a\0b"}, '"query" cannot be stored'),
        ({"query": "x" * MAX_BYTES}, "EASEL_MAX_BODY_BYTES allows 1048576"),
    ],
)
def test_a_start_with_a_wrong_option_is_refused_under_its_id(
    bench: Bench, agent: UUID, options: Mapping[str, Any], reason: str
):
    send(bench, str(bench.tenant_id), "order-4711", str(agent), **options)

    assert reason in refusal_of(bench, "order-4711")
    assert bench.outbox.sent == []


def test_callbacks_of_a_message_are_stored_and_one_with_a_secret_is_refused_without_showing_it(
    bench: Bench, agent: UUID
):
    told = {"url": "https://example.com/hook", "events": ["run.succeeded"]}
    send(bench, str(bench.tenant_id), "order-1", str(agent), callbacks=[told])
    send(bench, str(bench.tenant_id), "order-2", str(agent), callbacks=[{**told, "secret": "whsec_hidden"}])

    bench.play()
    run_id = get_run(bench, "order-1").id
    with bench.database.transaction() as tx:
        (delivery,) = callback_deliveries.list_deliveries(tx, bench.tenant_id, limit=9)
    assert (delivery.run_id, delivery.event) == (run_id, "run.succeeded")
    assert "`callbacks[0].secret` cannot be sent in a message" in refusal_of(bench, "order-2")
    assert "hidden" not in refusal_of(bench, "order-2")


@pytest.mark.parametrize("sent_id", ["My agent", "", "7", V4])
def test_start_of_an_unknown_agent_is_refused_under_its_id(bench: Bench, sent_id: str):
    send(bench, str(bench.tenant_id), "order-4711", sent_id, query="Hello")

    assert refusal_of(bench, "order-4711")
    assert get_run(bench, "order-4711").request["query"] == "Hello"


def test_start_by_the_title_of_an_agent_is_refused_with_the_advice_to_send_its_id(bench: Bench):
    send(bench, str(bench.tenant_id), "order-4711", "My agent")

    assert "Send the agent's id, not its title" in refusal_of(bench, "order-4711")


def test_a_message_without_an_agent_is_refused_under_its_id(bench: Bench):
    send(bench, str(bench.tenant_id), "order-4711")

    assert refusal_of(bench, "order-4711") == "agent_id is missing. Send tenant_id, run_id, agent_id, in this order."


def test_a_message_with_too_many_arguments_is_refused_under_its_id(bench: Bench, agent: UUID):
    send(bench, str(bench.tenant_id), "order-4711", str(agent), {"query": "Hello"})

    assert refusal_of(bench, "order-4711").startswith("There are 4 positional arguments.")


def test_ids_may_be_sent_as_keyword_arguments(bench: Bench, agent: UUID):
    send(bench, tenant_id=str(bench.tenant_id), run_id="order-4711", agent_id=str(agent), query="Hello")

    assert get_run(bench, "order-4711").status == "running"


def test_tenant_may_be_given_by_its_name(bench: Bench, agent: UUID):
    with bench.database.transaction() as tx:
        name = next(tenant.name for tenant in tenants.list_tenants(tx) if tenant.id == bench.tenant_id)
    send(bench, name, "order-4711", str(agent))

    assert get_run(bench, "order-4711").status == "running"


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("nobody", "order-4711", V4),
        (V4, "order-4711", V4),
        (None, "order-4711", V4),
        ({"a": "b"}, "order-4711", V4),
        ("a\0b", "order-4711", V4),
    ],
)
def test_start_message_of_an_unknown_tenant_is_logged_and_stores_no_row(bench: Bench, args: tuple[Any, ...]):
    with bench.database.transaction() as tx:
        before = tx.scalar(text("select count(*) from runs"))

    with structlog.testing.capture_logs() as logs:
        send(bench, *args, query="confidential")

    with bench.database.transaction() as tx:
        assert tx.scalar(text("select count(*) from runs")) == before
    assert [line["event"] for line in logs] == ["start_refused"]
    assert "confidential" not in str(logs)


@pytest.mark.parametrize("sent_id", ["", "  ", "x" * 256, "a\nb", "a\0b", "\ud800", 4711, None, ["order"]])
def test_start_message_with_an_invalid_run_id_is_logged_and_stores_no_row(bench: Bench, agent: UUID, sent_id: Any):
    with structlog.testing.capture_logs() as logs:
        send(bench, str(bench.tenant_id), sent_id, str(agent), query="confidential")

    assert count_runs(bench) == 0
    assert [line["event"] for line in logs] == ["start_refused"]
    assert "confidential" not in str(logs)


def test_repeatedly_refused_start_has_one_row(bench: Bench, agent: UUID):
    for name in ("qurey", "qeury", "queyr"):
        send(bench, str(bench.tenant_id), "order-4711", str(agent), **{name: "Hello"})

    assert count_runs(bench) == 1
    assert "'queyr'" in refusal_of(bench, "order-4711")


def test_row_of_a_repeatedly_refused_start_has_the_agent_of_the_last_message(bench: Bench, agent: UUID):
    tenant = str(bench.tenant_id)

    send(bench, tenant, "order-4711")
    without_agent = get_run(bench, "order-4711").canvas_id
    send(bench, tenant, "order-4711", str(agent), qurey="Hello")
    with_agent = get_run(bench, "order-4711").canvas_id
    send(bench, tenant, "order-4711")

    assert (without_agent, with_agent) == (UUID(int=0), agent)
    assert get_run(bench, "order-4711").canvas_id == UUID(int=0)


def test_concurrent_refusals_of_one_id_store_one_row(bench: Bench, agent: UUID):
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(send, bench, str(bench.tenant_id), "x", str(agent), qurey="Hi") for _ in range(8)]:
            each.result()

    assert count_runs(bench) == 1
    assert refusal_of(bench, "x")


def test_corrected_start_replaces_the_refused_one(bench: Bench, agent: UUID, sent_id: str):
    send(bench, str(bench.tenant_id), sent_id, str(agent), qurey="Hello")
    assert refusal_of(bench, sent_id)

    send(bench, str(bench.tenant_id), sent_id, str(agent), query="Hello")

    assert (get_run(bench, sent_id).status, count_runs(bench)) == ("running", 1)


def test_refused_start_does_not_replace_the_run_with_its_id(bench: Bench, agent: UUID):
    send(bench, str(bench.tenant_id), "order-4711", str(agent), query="Hello")
    send(bench, str(bench.tenant_id), "order-4711", str(agent), qurey="Hello")

    assert (get_run(bench, "order-4711").status, count_runs(bench)) == ("running", 1)


def test_a_busy_session_refuses_a_start_under_its_id(bench: Bench):
    run = bench.start("begin -> work")
    canvas_id = run.row["canvas_id"]

    send(bench, str(bench.tenant_id), "second", str(canvas_id), session_id=str(run.conversation_id), query="Hello")

    assert refusal_of(bench, "second") == "This agent session is already running."


def test_internal_error_refuses_the_start_and_is_logged(bench: Bench, agent: UUID, monkeypatch: pytest.MonkeyPatch):
    def breaks(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(start_messages, "start_for_service", breaks)
    with structlog.testing.capture_logs() as logs:
        send(bench, str(bench.tenant_id), "order-4711", str(agent), query="confidential")

    assert refusal_of(bench, "order-4711") == start_messages.INTERNAL
    assert [(line["event"], line.get("kind")) for line in logs] == [
        ("start_failed", "RuntimeError"),
        ("start_refused", None),
    ]
    assert "confidential" not in str(logs)


def test_a_refused_start_can_be_neither_cancelled_nor_answered(bench: Bench, agent: UUID):
    send(bench, str(bench.tenant_id), "order-4711", str(agent), qurey="Hello")
    run = get_run(bench, "order-4711")

    assert bench.lifecycle.cancel_run(bench.tenant_id, run.id) == "refused"
    with pytest.raises(RunNotWaiting):
        bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Hello"))
    with pytest.raises(NotFound):
        bench.lifecycle.cancel_run(bench.a_tenant(), run.id)
