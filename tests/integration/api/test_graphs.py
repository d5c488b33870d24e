"""The routes of graphs."""

from typing import Any

from tests.integration.api.talking import ECHO, FORM, Client


def get(client: Client, path: str, **options: Any) -> Any:
    return client.http.get(f"/api/v1/{path}", **options)


def test_run_has_the_graph_of_its_version(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    run_id = workerless_client.start(agent)["run_id"]
    workerless_client.http.put(f"/api/v1/agents/{agent}", json={"dsl": FORM})

    of_run = get(workerless_client, f"runs/{run_id}/graph")
    of_draft = get(workerless_client, f"viewer/agents/{agent}/graph")

    run = workerless_client.run(run_id)
    assert [node["id"] for node in of_run.json()["nodes"]] == ["begin", "Message:0"]
    assert [(each["from"], each["to"]) for each in of_run.json()["edges"]] == [("begin", "Message:0")]
    assert of_run.json()["digest"] == run["version_digest"] != of_draft.json()["digest"] == run["draft_digest"]
    assert len(of_draft.json()["nodes"]) == 3
    assert "immutable" in of_run.headers["cache-control"]
    assert of_draft.headers["cache-control"] == "private, no-cache"


def test_graph_of_a_version_is_that_of_its_runs(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    run = workerless_client.run(workerless_client.start(agent)["run_id"])

    of_version = get(workerless_client, f"viewer/agents/{agent}/graph", params={"version": run["version_id"]})

    assert of_version.json() == get(workerless_client, f"runs/{run['id']}/graph").json()


def test_known_graph_is_not_sent_again(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    tag = get(workerless_client, f"runs/{run_id}/graph").headers["etag"]

    again = get(workerless_client, f"runs/{run_id}/graph", headers={"If-None-Match": f'"x", {tag}'})

    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)


def test_unknown_agents_and_versions_have_no_graph(workerless_client: Client) -> None:
    agent, other = workerless_client.agent(ECHO), workerless_client.agent(ECHO, "other")
    version = workerless_client.run(workerless_client.start(other)["run_id"])["version_id"]

    for path, query in (
        (f"viewer/agents/{'0' * 32}/graph", {}),
        ("viewer/agents/x/graph", {}),
        (f"viewer/agents/{agent}/graph", {"version": version}),
        (f"viewer/agents/{agent}/graph", {"version": "x"}),
    ):
        reply = get(workerless_client, path, params=query)
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found"), path


def test_large_list_is_compressed_for_clients_that_accept_gzip(workerless_client: Client) -> None:
    components = {
        f"Message:{n}": {"obj": {"component_name": "Message", "params": {"content": ["x"]}}, "downstream": []}
        for n in range(100)
    }
    begin = {"obj": {"component_name": "Begin", "params": {}}, "downstream": list(components)}
    agent = workerless_client.agent({"components": {"begin": begin, **components}})

    packed = get(workerless_client, f"viewer/agents/{agent}/graph", headers={"Accept-Encoding": "gzip"})
    plain = get(workerless_client, f"viewer/agents/{agent}/graph", headers={"Accept-Encoding": "identity"})
    small = get(workerless_client, f"viewer/agents/{workerless_client.agent(ECHO, 'small')}/graph")

    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert packed.json() == plain.json()
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in small.headers
