"""The acceptance story by a generated client alone: `python story.py URL TOKEN`, with the client on the path.

It makes an agent, publishes it, runs it, follows a form to its answer, cancels a run, and reads an error. Nothing here
knows a path of the API.
"""

import sys
import time
from typing import Any

from easel_client import AuthenticatedClient  # pyright: ignore[reportMissingImports]
from easel_client.api.agents import create_agent, delete_agent, publish  # pyright: ignore[reportMissingImports]
from easel_client.api.runs import (  # pyright: ignore[reportMissingImports]
    cancel_run,
    explain_run,
    get_run,
    list_runs,
    resume_run,
    start_run,
)
from easel_client.models import (  # pyright: ignore[reportMissingImports]
    CanvasFields,
    EaselError,
    PublishBody,
    ResumeBody,
    TurnBody,
)

DEADLINE = 60.0  # seconds


def document(form: bool) -> dict[str, Any]:
    """Return a canvas that repeats what it is told, or asks for a name before."""
    said = "{UserFillUp:0@name}" if form else "{sys.query}"
    nodes: list[tuple[str, str, dict[str, Any]]] = [("begin", "Begin", {})]
    if form:
        nodes.append(("UserFillUp:0", "UserFillUp", {"inputs": {"name": {"type": "line", "name": "Name"}}}))
    nodes.append(("Message:0", "Message", {"content": [f"Hello {said}"]}))
    names = [name for name, _, _ in nodes]
    return {
        "components": {
            name: {"obj": {"component_name": component, "params": params}, "downstream": names[at + 1 : at + 2]}
            for at, (name, component, params) in enumerate(nodes)
        },
        "graph": {"nodes": [], "edges": []},
    }


def wait_for(client: Any, run_id: str, *statuses: str) -> Any:
    """Return the run once it has one of these statuses."""
    deadline = time.monotonic() + DEADLINE
    while True:
        run = get_run.sync(run_id, client=client)
        if run.status in statuses:
            return run
        assert time.monotonic() < deadline, run
        time.sleep(0.1)


def made_agent(client: Any, title: str, *, form: bool) -> str:
    """Make an agent and publish it; return its id."""
    body = CanvasFields.from_dict({"title": title, "dsl": document(form)})
    made = create_agent.sync(client=client, body=body)
    assert made.code == 0, made  # RAGFlow's envelope
    agent_id: str = made.data.id
    assert publish.sync_detailed(agent_id, client=client, body=PublishBody()).status_code == 200
    return agent_id


def started(client: Any, agent_id: str, query: str) -> str:
    """Start a run; return its id."""
    reply = start_run.sync_detailed(agent_id, client=client, body=TurnBody.from_dict({"query": query}))
    assert reply.status_code == 202, reply
    return str(reply.parsed.run_id)


def main(url: str, token: str) -> None:
    """Play the story."""
    client = AuthenticatedClient(base_url=url, token=token)
    echo, asking = made_agent(client, "echo", form=False), made_agent(client, "asking", form=True)

    done = wait_for(client, started(client, echo, "Ada"), "succeeded")
    assert done.to_dict()["answer"] == "Hello Ada", done

    waiting = started(client, asking, "x")
    wait_for(client, waiting, "waiting")
    assert explain_run.sync(waiting, client=client) is not None
    answer = ResumeBody.from_dict({"inputs": {"name": {"value": "Grace"}}})
    assert resume_run.sync_detailed(waiting, client=client, body=answer).status_code in (200, 202)
    assert wait_for(client, waiting, "succeeded").to_dict()["answer"] == "Hello Grace"

    cancelled = started(client, asking, "x")
    wait_for(client, cancelled, "waiting")
    cancel_run.sync_detailed(cancelled, client=client)
    wait_for(client, cancelled, "cancelled")

    listed = list_runs.sync(client=client)
    assert {run.id for run in listed.runs} >= {done.id, waiting, cancelled}
    missing = get_run.sync("0" * 32, client=client)
    assert isinstance(missing, EaselError), missing
    assert missing.code == "not_found"
    assert delete_agent.sync_detailed(echo, client=client).status_code == 200
    print("the story by the generated client: well")  # noqa: T201 (what this is for)


if __name__ == "__main__":
    main(*sys.argv[1:3])
