"""The routes that compare two runs: a rerun, a fork, another version, items, passes of a Loop, and pages."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from store.runs.run_comparison import StepDifference
from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client, canvas, message
from tests.integration.api.test_run_copies import TWO_STEPS, finished_run, post

ITEMS = {
    "components": {
        node: {"obj": {"component_name": name, "params": params}, "downstream": after, **more}
        for node, name, params, after, more in (
            ("begin", "Begin", {}, ["Split:0"], {}),
            (
                "Split:0", "StringTransform",
                {"method": "split", "split_ref": "sys.query", "delimiters": [","]}, ["Iteration:0"], {},
            ),
            (
                "Iteration:0", "Iteration",
                {"items_ref": "Split:0@result", "outputs": {"all": {"ref": "LLM:0@content"}}}, ["Message:0"], {},
            ),
            ("IterationItem:0", "IterationItem", {}, ["LLM:0"], {"parent_id": "Iteration:0"}),
            (
                "LLM:0", "LLM", {"llm_id": "echo", "prompts": [{"role": "user", "content": "{IterationItem:0@item}"}]},
                [], {"parent_id": "Iteration:0"},
            ),
            ("Message:0", "Message", message("{Iteration:0@all}"), [], {}),
        )
    },
    "globals": {},
    "path": [],
}  # fmt: skip
LOOP = {
    "components": {
        node: {"obj": {"component_name": name, "params": params}, "downstream": after, **more}
        for node, name, params, after, more in (
            ("begin", "Begin", {}, ["Loop:0"], {}),
            ("Loop:0", "Loop", {"maximum_loop_count": 3, "logical_operator": "or"}, ["Message:0"], {}),
            ("LoopItem:0", "LoopItem", {}, ["LLM:0"], {"parent_id": "Loop:0"}),
            (
                "LLM:0", "LLM", {"llm_id": "echo", "prompts": [{"role": "user", "content": "{sys.query}"}]}, [],
                {"parent_id": "Loop:0"},
            ),
            ("Message:0", "Message", message("done"), [], {}),
        )
    },
    "globals": {},
    "path": [],
}  # fmt: skip
SWITCH = canvas(
    ("begin", "Begin", {}, ["Switch:0"]),
    (
        "Switch:0", "Switch",
        {
            "conditions": [
                {
                    "logical_operator": "and",
                    "items": [{"cpn_id": "sys.query", "operator": "contains", "value": "bill"}],
                    "to": ["Message:Invoice"],
                }
            ],
            "end_cpn_ids": ["Message:Technical"],
        },
        ["Message:Invoice", "Message:Technical"],
    ),
    ("Message:Invoice", "Message", message("invoice"), []),
    ("Message:Technical", "Message", message("technical"), []),
)  # fmt: skip


def compare(client: Client, a: str, b: str, **params: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/runs/{a}/compare/{b}", params=params)
    assert reply.status_code == 200, reply.text
    return reply.json()


def compare_step(client: Client, a: str, b: str, step: str) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/runs/{a}/compare/{b}/steps/{step}")
    assert reply.status_code == 200, reply.text
    return reply.json()


def rows(comparison: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(comparison["columns"], row, strict=True)) for row in comparison["rows"]]


def bits(comparison: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(row["node_id"], row["scope"]): row["what"] for row in rows(comparison)}


def run_again(client: Client, source: str, query: str) -> str:
    return post(client, f"/runs/{source}/rerun", {"query": query}).headers["x-run-id"]


def fork(client: Client, source: str, **body: Any) -> str:
    reply = post(client, f"/runs/{source}/fork", body)
    assert reply.status_code == 200, reply.text
    return reply.headers["x-run-id"]


@pytest.mark.parametrize("dsl", [ECHO, TWO_STEPS, ITEMS, LOOP, SWITCH])
def test_rerun_is_the_same_as_its_source(client: Client, dsl: dict[str, Any]):
    source = finished_run(client, dsl, "a,b,c")
    copy = post(client, f"/runs/{source}/rerun").headers["x-run-id"]

    comparison = compare(client, source, copy)

    assert (comparison["same"], comparison["first_divergence"]) == (True, None), comparison["first_divergence"]
    assert comparison["totals"] == {
        "same": comparison["a"]["steps"], "differs": 0, "only_a": 0, "only_b": 0,
    }  # fmt: skip
    assert comparison["totals"]["same"] >= 2
    assert (comparison["same_version"], comparison["versions"]) == (True, None)
    assert compare(client, source, copy, only="differs")["rows"] == []
    step = rows(comparison)[-1]
    assert compare_step(client, source, copy, step["a_id"])["what"] == 0


def test_fork_differs_from_its_source_from_the_edit_on(client: Client):
    source = finished_run(client, TWO_STEPS)
    copy = fork(client, source, edits={"outputs": {"LLM:0": {"content": "edited"}}})

    comparison = compare(client, source, copy)

    assert comparison["totals"] == {"same": 1, "differs": 2, "only_a": 0, "only_b": 0}
    first = comparison["first_divergence"]
    assert (first["node_id"], first["name"], first["what"]) == ("LLM:0", "the LLM:0", StepDifference.OUTPUTS)
    assert (
        first["sentence"] == f'LLM:0 has another output: content is "{echo_of(client, source)}" in A and "edited" in B.'
    )
    begin, model, answer = rows(comparison)
    assert [row["b_reused"] for row in (begin, model, answer)] == [True, True, False]
    assert (model["a_tokens"] > 0, model["b_tokens"]) == (True, 0)  # a step that was taken over costs nothing
    assert answer["what"] & StepDifference.OUTPUTS
    assert comparison["b"]["origin"]["run_id"] == source


def echo_of(client: Client, run: str) -> str:
    return client.run(run)["answer"].removesuffix(" in plain")


def test_other_branch_is_the_first_divergence_and_its_steps_are_in_one_run_only(client: Client):
    source = finished_run(client, SWITCH, "my bill")
    copy = run_again(client, source, "my router")

    comparison = compare(client, source, copy)

    first = comparison["first_divergence"]
    assert first["node_id"] == "Switch:0"
    assert first["what"] & StepDifference.OUTCOME
    assert "Switch:0 chose the Message:Invoice in A and the Message:Technical in B." in first["sentence"]
    assert comparison["totals"] == {"same": 1, "differs": 1, "only_a": 1, "only_b": 1}
    (only_a,) = rows(compare(client, source, copy, only="only_a"))
    assert (only_a["node_id"], only_a["b_id"], only_a["b_ms"]) == ("Message:Invoice", None, None)
    (only_b,) = rows(compare(client, source, copy, only="only_b"))
    assert (only_b["node_id"], only_b["a_id"], only_b["what"]) == ("Message:Technical", None, StepDifference.ONLY_B)
    step = compare_step(client, source, copy, only_b["b_id"])
    assert (step["a"], step["b"]["id"]) == (None, only_b["b_id"])
    assert step["sentence"] == "Message:Technical has run only in B."
    assert [each["kind"] for each in step["outputs"]["values"]] == ["only_b"] * len(step["outputs"]["values"])


def test_items_correspond_by_their_number_and_more_items_are_in_one_run_only(client: Client):
    source = finished_run(client, ITEMS, "a,b,c")
    copy = run_again(client, source, "a,x,c,d")

    comparison = compare(client, source, copy)

    found = bits(comparison)
    models = {scope: what for (node, scope), what in found.items() if node == "LLM:0"}
    assert models["Iteration:0#0.0"] == models["Iteration:0#0.2"] == 0
    assert models["Iteration:0#0.1"] & StepDifference.OUTPUTS
    assert models["Iteration:0#0.3"] == StepDifference.ONLY_B
    assert found["Iteration:0", ""] & StepDifference.OUTCOME
    assert set(bits(compare(client, source, copy, node_id="LLM:0"))) == {("LLM:0", scope) for scope in models}
    (changed,) = [row for row in rows(comparison) if (row["node_id"], row["scope"]) == ("LLM:0", "Iteration:0#0.1")]
    step = compare_step(client, source, copy, changed["b_id"])
    assert step["sentence"].startswith('LLM:0 (item 2) has another output: content is "')
    assert step["what"] == changed["what"]
    (content,) = [each for each in step["outputs"]["values"] if each["name"] == "content"]
    assert (content["kind"], content["a"]["value"] != content["b"]["value"]) == ("changed", True)
    assert content["diff"].startswith("--- A\n+++ B\n")


def test_passes_of_a_loop_correspond_by_their_number(client: Client):
    source = finished_run(client, LOOP, "a")
    copy = run_again(client, source, "b")

    comparison = compare(client, source, copy)

    assert comparison["totals"]["differs"] == 3, comparison
    assert comparison["first_divergence"]["scope"] == "Loop:0#0.0"
    differing = rows(compare(client, source, copy, only="differs"))
    assert [(row["node_id"], row["scope"]) for row in differing] == [("LLM:0", f"Loop:0#0.{item}") for item in range(3)]
    assert all(row["what"] & StepDifference.OUTPUTS for row in differing)


def test_failed_run_and_its_repaired_fork_differ_in_outcome_and_status(client: Client):
    source = finished_run(client, BROKEN)
    copy = fork(
        client, source,
        edits={"params": {"VariableAssigner:0": {"variables": []}}},
        **{"from": ["VariableAssigner:0"]},
    )  # fmt: skip

    comparison = compare(client, source, copy)

    assert (comparison["a"]["status"], comparison["b"]["status"]) == ("failed", "succeeded")
    first = comparison["first_divergence"]
    assert first["what"] & StepDifference.OUTCOME
    assert first["what"] & StepDifference.ERROR
    assert first["sentence"].startswith("VariableAssigner:0 ended as Failed in A and Finished in B.")
    assert comparison["totals"]["only_b"] == 1
    (changed,) = comparison["versions"]["changed"]
    assert changed["node_id"] == "VariableAssigner:0"
    assert {change["path"] for change in changed["changes"]} == {"params.variables[0]"}


def test_other_version_lists_parameters_nodes_edges_and_masks_secrets(client: Client):
    before = canvas(
        ("begin", "Begin", {}, ["Message:0", "TavilySearch:0"]),
        ("Message:0", "Message", message("one\ntwo\nthree"), []),
        ("TavilySearch:0", "TavilySearch", {"api_key": "tvly-s3cr3t", "query": "x"}, []),
    )
    after = canvas(
        ("begin", "Begin", {}, ["Message:0", "Message:1"]),
        ("Message:0", "Message", message("one\n2\nthree"), []),
        ("Message:1", "Message", message("more"), []),
        ("TavilySearch:0", "TavilySearch", {"api_key": "tvly-0th3r", "query": "x"}, []),
    )
    agent = client.agent(before)
    source = client.start(agent)["run_id"]
    assert client.http.put(f"/api/v1/agents/{agent}", json={"dsl": after}).json()["code"] == 0
    copy = client.start(agent)["run_id"]
    for run in (source, copy):
        client.wait_for(run, "succeeded", "failed")

    reply = client.http.get(f"/api/v1/runs/{source}/compare/{copy}")

    assert "s3cr3t" not in reply.text
    assert "0th3r" not in reply.text
    assert "easel-sealed" not in reply.text
    comparison = reply.json()
    assert (comparison["same"], comparison["same_version"]) == (False, False)
    versions = comparison["versions"]
    texts, keys = ({change["path"]: change for change in node["changes"]} for node in versions["changed"])
    assert texts["params.content[0]"]["diff"].splitlines()[2:] == ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]
    assert set(keys) == {"params.api_key"}
    assert all(keys["params.api_key"][side]["value"].startswith("••••") for side in "ab")
    assert [node["node_id"] for node in versions["only_b"]] == ["Message:1"]
    assert versions["edges"] == {
        "only_a": [{"from": "begin", "to": "TavilySearch:0"}],
        "only_b": [{"from": "begin", "to": "Message:1"}],
    }


def test_run_that_waits_can_be_compared(client: Client):
    source = finished_run(client, FORM)
    post(client, f"/runs/{source}/resume", {"inputs": {"name": "Ada"}})
    copy = post(client, f"/runs/{source}/rerun").headers["x-run-id"]
    assert client.run(copy)["status"] == "waiting"

    first = compare(client, source, copy)["first_divergence"]

    assert first["node_id"] == "UserFillUp:0"
    assert first["what"] & StepDifference.STATUS


def test_runs_of_other_status_are_not_the_same_though_all_steps_are(client: Client, server: Server):
    source = finished_run(client, ECHO, "hello")
    copy = post(client, f"/runs/{source}/rerun").headers["x-run-id"]
    before = compare(client, source, copy)
    with server.database.transaction() as tx:
        tx.execute(text("update runs set status = 'cancelled' where id = :id"), id=UUID(copy))

    after = compare(client, source, copy)

    assert (before["same"], after["same"]) == (True, False)
    assert after["totals"] == before["totals"]


def test_comparison_above_8_kib_is_compressed_for_clients_that_accept_it(client: Client):
    source = finished_run(client, ITEMS, ",".join("abcdefghijklmnopqrstuvwxyz" * 3))
    copy = post(client, f"/runs/{source}/rerun").headers["x-run-id"]
    path = f"/api/v1/runs/{source}/compare/{copy}"

    packed = client.http.get(path, headers={"Accept-Encoding": "gzip"})
    plain = client.http.get(path, headers={"Accept-Encoding": "identity"})

    assert (packed.headers.get("content-encoding"), plain.headers.get("content-encoding")) == ("gzip", None)
    assert {**packed.json(), "now": 0} == {**plain.json(), "now": 0}


def test_pages_contain_each_step_once_in_canonical_order(client: Client):
    source = finished_run(client, ITEMS, "a,b,c")
    copy = run_again(client, source, "a,x,c,d")
    whole = compare(client, source, copy)

    paged: list[Any] = []
    after: dict[str, str] = {}
    while True:
        page = compare(client, source, copy, limit=4, **after)
        assert len(page["rows"]) <= 4
        assert page["totals"] == whole["totals"]
        paged += page["rows"]
        if page["next"] is None:
            break
        after = {"after": page["next"]}

    assert paged == whole["rows"]
    assert whole["next"] is None
    order = [step["id"] for step in flatten(client.run(source)["activations"])]
    assert sorted(order) == sorted(row["a_id"] for row in rows(whole) if row["a_id"])


def flatten(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for step in steps for each in (step, *flatten(step["activations"]))]


def test_long_value_is_shown_cut_and_says_so(client: Client):
    source = finished_run(client, ECHO, "x" * 20_000)
    copy = run_again(client, source, "x" * 20_000 + "y")
    (row,) = rows(compare(client, source, copy, only="differs"))

    step = compare_step(client, source, copy, row["a_id"])

    (content,) = [each for each in step["outputs"]["values"] if each["name"] == "content"]
    assert (content["a"]["cut"], len(content["a"]["value"]), content["diff_cut"]) == (True, 16 * 1024, True)
    assert content["a"]["chars"] == len("You said: ") + 20_000


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"only": "different"}, "only"),
        ({"limit": "0"}, "limit"),
        ({"limit": "501"}, "limit"),
        ({"after": "x"}, "after"),
        ({"after": "0" * 32}, "after"),
        ({"page": "1"}, "page"),
    ],
)
def test_invalid_parameter_is_refused_and_named(client: Client, params: dict[str, str], field: str):
    run = finished_run(client, ECHO)

    reply = client.http.get(f"/api/v1/runs/{run}/compare/{run}", params=params)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)


@pytest.mark.parametrize("path", ["{mine}/compare/{theirs}", "{theirs}/compare/{mine}"])
@pytest.mark.parametrize("step", ["", "/steps/{step}"])
def test_run_of_another_tenant_is_not_found_on_either_side(server: Server, client: Client, path: str, step: str):
    stranger = server.client()
    runs = {"mine": finished_run(client, ECHO), "theirs": finished_run(stranger, ECHO)}
    runs["step"] = client.run(runs["mine"])["activations"][0]["id"]

    reply = client.http.get(f"/api/v1/runs/{path}{step}".format(**runs))

    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
    assert reply.json()["message"] == f"There is no run {runs['theirs']}."


@pytest.mark.parametrize("step", ["x", "0" * 32])
def test_unknown_step_is_not_found(client: Client, step: str):
    run = finished_run(client, ECHO)

    reply = client.http.get(f"/api/v1/runs/{run}/compare/{run}/steps/{step}")

    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")


def test_fork_with_another_parameter_differs_in_what_its_model_was_asked(client: Client) -> None:
    asking = {"llm_id": "echo", "prompts": [{"role": "user", "content": "{sys.query}"}], "temperature": 0.1}
    dsl = canvas(
        ("begin", "Begin", {}, ["LLM:0"]),
        ("LLM:0", "LLM", {**asking, "temperatureEnabled": True}, ["Message:0"]),
        ("Message:0", "Message", message("{LLM:0@content}"), []),
    )
    source = finished_run(client, dsl, "hello")
    edits = {"params": {"LLM:0": {"temperature": 0.5}}}
    fork = post(client, f"/runs/{source}/fork", {"from": ["LLM:0"], "edits": edits}).headers["x-run-id"]

    shown = compare(client, source, fork)
    first = shown["first_divergence"]
    step = client.http.get(f"/api/v1/runs/{source}/compare/{fork}/steps/{first['a_id']}").json()

    assert (first["node_id"], first["what"]) == ("LLM:0", StepDifference.PROMPTS)
    assert first["sentence"] == (
        'LLM:0 has another prompt: call 1, params is {"temperature": 0.1} in A and {"temperature": 0.5} in B.'
    )
    (changed,) = [each for each in step["prompts"]["values"] if each["kind"] != "same"]
    assert changed["name"] == "call 1, params"
