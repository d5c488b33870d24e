"""Events of a run as a log."""

from typing import Any

import pytest

from tests.integration.api.talking import ECHO, MODEL, Client
from tests.integration.api.test_activation_list import ITERATION, run_to_end
from tests.integration.api.test_activation_page import activation_of


def get(client: Client, run_id: str, **query: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/runs/{run_id}/events", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_details_are_added_to_events_and_text(client: Client) -> None:
    run_id = run_to_end(client, MODEL, "some words")

    plain, detailed = get(client, run_id), get(client, run_id, detail="1")

    added = {"activation", "item", "attempt", "at"}
    assert [{k: v for k, v in each.items() if k not in added} for each in detailed["events"]] == plain["events"]
    finished = [each for each in detailed["events"] if each["event"] == "node_finished"]
    by_node = {each["data"]["component_id"]: each for each in finished}
    assert by_node["LLM:0"]["activation"] == activation_of(client, run_id, "LLM:0")
    assert (by_node["LLM:0"]["attempt"], by_node["LLM:0"]["item"]) == (1, None)
    texts = [each for each in detailed["events"] if each["event"] == "message" and each.get("turn")]
    assert {each["activation"] for each in texts} == {activation_of(client, run_id, "Message:0")}
    times = [each["at"] for each in detailed["events"] if each["at"] is not None]
    assert times == sorted(times)


def test_events_of_items_have_the_number_of_their_item(client: Client) -> None:
    run_id = run_to_end(client, ITERATION, "a,b")

    log = get(client, run_id, detail="1", values="none", name="node_finished", node_id="StringTransform:0")

    assert [each["item"] for each in log["events"]] == [0, 1]


def test_log_without_values_has_the_stored_events_only(client: Client) -> None:
    run_id = run_to_end(client, MODEL)
    stored = [each for each in get(client, run_id)["events"] if "seq" in each]

    log = get(client, run_id, values="none")

    assert [(each["event"], each["seq"]) for each in log["events"]] == [(each["event"], each["seq"]) for each in stored]
    assert all({"inputs", "outputs"}.isdisjoint(each["data"]) for each in log["events"])
    assert (log["next"], log["position"]) == (None, str(stored[-1]["seq"]))


def test_log_with_values_has_those_of_the_stream(client: Client) -> None:
    run_id = run_to_end(client, MODEL)
    stored = {each["seq"]: each for each in get(client, run_id)["events"] if "seq" in each}

    log = get(client, run_id, limit=500)

    assert {each["seq"]: each["data"] for each in log["events"]} == {seq: each["data"] for seq, each in stored.items()}


def test_log_is_paged_from_its_beginning_and_its_end(client: Client) -> None:
    run_id = run_to_end(client, MODEL)
    every = [each["seq"] for each in get(client, run_id, values="none")["events"]]

    def read_all(parameter: str, start: int) -> list[int]:
        seen: list[int] = []
        at: int | None = start
        while at is not None:
            page = get(client, run_id, limit=3, **{parameter: at})
            seen += [each["seq"] for each in page["events"]]
            at = page["next"]
        return seen

    assert read_all("after", 0) == every
    assert read_all("before", 10_000) == every[::-1]


def test_log_is_filtered_by_name_node_and_activation(client: Client) -> None:
    run_id = run_to_end(client, MODEL)
    model = activation_of(client, run_id, "LLM:0")

    by_name = get(client, run_id, name="node_started,node_finished")
    by_node = get(client, run_id, node_id="LLM:0")
    by_activation = get(client, run_id, activation=model, name="node_finished")

    assert {each["event"] for each in by_name["events"]} == {"node_started", "node_finished"}
    assert {each["data"]["component_id"] for each in by_node["events"]} == {"LLM:0"}
    assert [each["data"]["component_id"] for each in by_activation["events"]] == ["LLM:0"]
    assert get(client, run_id, activation="0" * 32)["events"] == []


def test_events_without_new_parameters_keep_their_shape(client: Client) -> None:
    run_id = run_to_end(client, ECHO)

    page = get(client, run_id)

    assert set(page) == {"events", "position", "status"}
    assert all({"activation", "at"}.isdisjoint(each) for each in page["events"])


@pytest.mark.parametrize(
    ("query", "headers", "field"),
    [
        ({"detail": "yes"}, {}, "detail"),
        ({"values": "some"}, {}, "values"),
        ({"before": 0}, {}, "before"),
        ({"limit": 501}, {}, "limit"),
        ({"name": ","}, {}, "name"),
        ({"activation": "x"}, {}, "activation"),
        ({"limit": 5}, {"Accept": "text/event-stream"}, "Accept"),
    ],
)
def test_invalid_log_is_refused_with_the_name_of_its_field(
    workerless_client: Client, query: dict[str, Any], headers: dict[str, str], field: str
) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    reply = workerless_client.http.get(f"/api/v1/runs/{run_id}/events", params=query, headers=headers)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)
