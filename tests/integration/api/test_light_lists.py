"""Light lists of agents and conversations."""

from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client
from tests.integration.api.test_activation_list import run_to_end


def get(client: Client, path: str, **query: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/viewer/{path}", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_agents_have_their_latest_run_and_counts_of_the_day(client: Client) -> None:
    agent = client.agent(BROKEN, "broken")
    unused = client.agent(ECHO, "unused")
    failed = client.start(agent)["run_id"]
    client.wait_for(failed, "failed")

    agents = {each["id"]: each for each in get(client, "agents")["agents"]}

    assert agents[agent]["last_run"]["id"] == failed
    assert (agents[agent]["runs_24h"], agents[agent]["failed_24h"]) == (1, 1)
    assert (agents[unused]["last_run"], agents[unused]["runs_24h"], agents[unused]["published"]) == (None, 0, False)


def test_agents_are_searched_tagged_and_paged(workerless_client: Client) -> None:
    first, second, third = (workerless_client.agent(ECHO, title) for title in ("50% one", "two", "three"))
    workerless_client.http.put(f"/api/v1/agents/{second}/tags", json={"tags": ["Sales"]})

    def ids(**query: Any) -> list[str]:
        return [each["id"] for each in get(workerless_client, "agents", **query)["agents"]]

    page = get(workerless_client, "agents", limit=2)
    rest = get(workerless_client, "agents", limit=2, after=page["next"])

    assert sorted(each["id"] for part in (page, rest) for each in part["agents"]) == sorted([first, second, third])
    assert rest["next"] is None
    assert ids(q="50%") == [first]
    assert ids(q="o%e") == []
    assert ids(tag="sales") == [second]


def test_head_of_an_agent_has_its_form_and_findings(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO, "head")

    head = get(workerless_client, f"agents/{agent}")

    assert (head["title"], head["begin"]["prologue"]) == ("head", "Hello, I repeat.")
    assert head["draft_digest"] == get(workerless_client, f"agents/{agent}/graph")["digest"]
    assert isinstance(head["findings"], list)
    assert "dsl" not in head


def test_conversations_are_listed_and_their_messages_paged(client: Client) -> None:
    agent = client.agent(ECHO, "talk")
    ids = client.start(agent, "first")
    client.wait_for(ids["run_id"], "succeeded")
    again = client.start(agent, "second", session_id=ids["session_id"])
    client.wait_for(again["run_id"], "succeeded")
    other = client.start(client.agent(FORM, "other"))
    client.wait_for(other["run_id"], "waiting")

    (listed,) = get(client, "conversations", agent_id=agent)["conversations"]
    last = get(client, f"conversations/{ids['session_id']}", limit=2)
    earlier = get(client, f"conversations/{ids['session_id']}", limit=2, before=last["next"])

    assert (listed["id"], listed["agent_title"], listed["last_run"]) == (ids["session_id"], "talk", again["run_id"])
    question, answer = last["messages"]
    assert (question["role"], question["content"], question["run_id"]) == ("user", "second", again["run_id"])
    assert answer["content"]["content"] == "You said: second"
    activation = client.http.get(f"/api/v1/runs/{again['run_id']}/activations/{answer['activation_id']}").json()
    assert activation["node_id"] == answer["node_id"]
    assert (earlier["messages"][0]["content"], earlier["next"]) == ("first", None)
    everything = get(client, "conversations", limit=1)
    assert everything["conversations"][0]["id"] == other["session_id"]
    assert get(client, "conversations", before=everything["next"])["conversations"] == [listed]


def test_lists_of_another_tenant_are_empty(client: Client, server: Server) -> None:
    run_to_end(client, ECHO)
    stranger = server.client()

    assert get(stranger, "agents") == {"agents": [], "next": None}
    assert get(stranger, "conversations") == {"conversations": [], "next": None}


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("agents", {"after": "x"}, "after"),
        ("agents", {"limit": 101}, "limit"),
        ("agents", {"q": "x" * 201}, "q"),
        ("conversations", {"before": "x"}, "before"),
        (f"conversations/{'0' * 32}", {"before": 0}, "before"),
    ],
)
def test_invalid_query_is_refused_with_the_name_of_its_field(
    workerless_client: Client, path: str, query: dict[str, Any], field: str
) -> None:
    reply = workerless_client.http.get(f"/api/v1/viewer/{path}", params=query)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)
