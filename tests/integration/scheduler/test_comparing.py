"""Runs side by side on real rows: forks, loops, cycles, large values, other weeks, and rows at random."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, text

from canvas.errors import NotFound
from canvas.outcome import Failed, Finished
from canvas.state.run_state import activation_id, scope_key
from components.context import NodeContext
from scheduler.views import divergence
from scheduler.views import run_comparison as views
from scheduler.views.run_comparison import ComparisonPage
from store.db.database import Database
from store.db.transaction import Transaction
from store.files.blobs import LocalBlobs
from store.files.large_values import LargeValues
from store.primitives.ids import first_id_at, new_id
from store.runs import run_comparison
from store.runs.run_comparison import RunComparison, StepDifference, StepPair
from store.tables.runs import activations, node_values, variables
from tests.builders import content, reads
from tests.integration.engine import Bench, Run
from tests.integration.scheduler.test_forks import Counted, fork, rerun
from tests.integration.store.rows import add_run

MANY_ACTIVATIONS = text("""
    insert into activations (run_id, id, node_id, component, scope, ordinal, order_key, region, level, trail, status,
        attempt, activated_rev, outcome, usage)
    select :of_run, cast(md5(:seed || n) as uuid), 'LLM:0', 'LLM', '', n, int4send(n), '', 1, '[]', 'done', 1, 1,
        json_build_object('is', 'Finished'), '{}'
    from generate_series(1, :count) n
""")
MANY_VALUES = text("""
    insert into node_values (run_id, activation_id, node_id, container_entry, item, order_key, region, outputs, inputs,
        names)
    select :of_run, cast(md5(:seed || n) as uuid), 'LLM:0', '', 0, int4send(n), '',
        json_build_object('content', repeat('answer ' || n, 60), '_created_time', random()),
        json_build_object('prompt', repeat('question ' || n, 30)), array['content', '_created_time']
    from generate_series(1, :count) n
""")
TEXT = "It was a dark and stormy night; " * 40_000  # 1.28 MB


def compare(bench: Bench, a: Run, b: Run, **options: Any) -> RunComparison:
    with bench.database.transaction() as tx:
        return run_comparison.compare(tx, bench.tenant_id, a.id, b.id, **options)


def as_json(bench: Bench, a: Run, b: Run, **page: Any) -> dict[str, Any]:
    with bench.database.transaction() as tx:
        found = views.comparison_json(
            tx,
            bench.coordinator.versions,
            bench.tenant_id,
            a.id,
            b.id,
            lambda canvas_id, document: document,
            ComparisonPage(**page),
        )
    return json.loads(json.dumps(found))


def step_json(bench: Bench, a: Run, b: Run, step: UUID) -> dict[str, Any]:
    with bench.database.transaction() as tx:
        return views.step_json(tx, bench.coordinator.versions, bench.tenant_id, a.id, b.id, step)


def differing(comparison: RunComparison) -> dict[str, StepDifference]:
    return {divergence.describe_step(pair.either): pair.what for pair in comparison.pairs if pair.what}


def test_fork_is_the_same_up_to_the_chosen_node(bench: Bench):
    work = Counted(bench, "first", "left", "right", "join")
    source = bench.start(
        "begin -> first -> left, right -> join -> say", left=reads("first"), join=reads("left", "right"),
        say=content("{join@result}"),
    )  # fmt: skip
    bench.play()
    work.tweaks["left"] = "!"
    copy = fork(bench, source, "left")

    found = compare(bench, source, copy)

    assert found.totals == {"same": 3, "differs": 3, "only_a": 0, "only_b": 0}
    assert list(differing(found)) == ["left", "join", "say"]
    assert as_json(bench, source, copy)["first_divergence"]["sentence"] == (
        'left has another output: result is "left(first())" in A and "left!(first())" in B.'
    )


def test_pass_of_a_loop_that_differs_is_named_with_its_number(bench: Bench):
    calls: list[str] = []

    def body(ctx: NodeContext) -> Finished:
        calls.append(ctx.node_id)
        return Finished({"result": "other" if len(calls) == 7 else "as ever"})

    bench.does(body=body)
    source = bench.start(
        "begin -> loop -> say",
        "loop: visit -> body",
        loop={"maximum_loop_count": 4, "logical_operator": "or"},
        say=content("x"),
    )
    bench.play()
    copy = rerun(bench, source)
    assert (len(calls), copy.status) == (8, "succeeded")

    found = as_json(bench, source, copy)

    assert found["totals"]["differs"] == 1
    assert found["first_divergence"]["sentence"] == (
        'body (item 3) has another output: result is "as ever" in A and "other" in B.'
    )


def test_rounds_of_a_cycle_correspond_by_their_number(bench: Bench):
    results = iter(["again", "done", "again", "again", "done"])
    bench.does(work=lambda ctx: Finished({"result": next(results)}))
    condition = {"cpn_id": "work@result", "operator": "=", "value": "again"}
    drawn = {
        "pick": {
            "conditions": [{"logical_operator": "and", "items": [condition], "to": ["work"]}],
            "end_cpn_ids": ["say"],
        }
    }
    source = bench.start("begin -> work -> pick -> work, say", say=content("x"), **drawn)
    bench.play()
    assert source.status == "succeeded", source.row["error"]
    copy = rerun(bench, source)

    found = compare(bench, source, copy)

    assert set(differing(found)) >= {"work (round 2)", "work (round 3)", "pick (round 3)"}
    assert differing(found)["work (round 3)"] is StepDifference.ONLY_B


def test_error_is_told_apart_from_another_error(bench: Bench):
    errors = iter(["no luck", "no power"])
    bench.does(work=lambda ctx: Failed(next(errors)))
    source = bench.start("begin -> work -> say", say=content("x"))
    bench.play()
    copy = rerun(bench, source)

    found = as_json(bench, source, copy)

    assert found["first_divergence"]["what"] & StepDifference.ERROR
    assert 'work failed with "no luck" in A and with "no power" in B.' in found["first_divergence"]["sentence"]
    assert found["same"] is False


def test_large_values_are_compared_by_their_files(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench.database, "large", LargeValues(LocalBlobs(tmp_path), stores_new=True))
    texts = iter([TEXT, TEXT, TEXT + "!"])
    bench.does(work=lambda ctx: Finished({"result": next(texts)}))
    source = bench.start("begin -> work -> say", say=content("x"))
    bench.play()
    same, other = rerun(bench, source), rerun(bench, source)

    assert compare(bench, source, same).totals["differs"] == 0
    assert differing(compare(bench, source, other)) == {"work": StepDifference.OUTPUTS}
    step = step_json(bench, source, other, source.activation("work").id)
    (value,) = step["outputs"]["values"]
    assert (value["kind"], value["a"]) == ("changed", {"value": None, "chars": len(TEXT) + 2, "cut": True})
    assert step["what"] == StepDifference.OUTPUTS


def test_variable_that_a_step_writes_counts_as_its_output(bench: Bench):
    values = iter(["one", "two"])
    assign = {"component": "VariableAssigner", "variables": [
        {"variable": "env.found", "operator": "overwrite", "parameter": "work@result"}
    ]}  # fmt: skip
    bench.does(work=lambda ctx: Finished({"result": next(values)}))
    parts = ("begin -> work -> note -> say",)
    params: dict[str, Any] = {"note": assign, "say": content("x")}
    source = bench.start(*parts, drawn=bench.draw(*parts, variables={"found": ""}, **params))
    bench.play()
    assert source.status == "succeeded", source.row["error"]
    copy = rerun(bench, source)

    found = compare(bench, source, copy)

    assert differing(found)["note"] & StepDifference.OUTPUTS
    step = step_json(bench, source, copy, copy.activation("note").id)
    (value,) = step["variables"]["values"]
    assert (value["name"], value["a"]["value"], value["b"]["value"]) == ("env.found", "one", "two")


def test_runs_of_different_weeks_are_compared(bench: Bench):
    bench.does(work=lambda ctx: Finished({"result": 1}))
    source = bench.start("begin -> work -> say", say=content("x"))
    bench.play()
    copy = rerun(bench, source)
    with bench.database.transaction() as tx:
        moment = tx.scalar(text("select now() - interval '21 days'"))
        moved = UUID(int=first_id_at(moment).int | new_id().int & (1 << 62) - 1)
        tx.execute(text("update runs set id = :moved where id = :id"), moved=moved, id=copy.id)
        for table in ("activations", "node_values", "variables"):
            tx.execute(text(f"update {table} set run_id = :moved where run_id = :id"), moved=moved, id=copy.id)

    with bench.database.transaction() as tx:
        found = run_comparison.compare(tx, bench.tenant_id, source.id, moved)

    assert found.totals == {"same": 3, "differs": 0, "only_a": 0, "only_b": 0}


def test_run_of_another_tenant_has_no_steps_to_compare(bench: Bench):
    source = bench.start("begin -> say", say=content("x"))
    bench.play()
    stranger = bench.a_tenant()

    with bench.database.transaction() as tx:
        found = run_comparison.compare(tx, stranger, source.id, source.id)
        (step, _) = (each.id for each in source.activations)
        assert run_comparison.find_step(tx, stranger, source.id, step) is None
        with pytest.raises(NotFound):
            views.step_json(tx, bench.coordinator.versions, stranger, source.id, source.id, step)

    assert (sum(found.totals.values()), found.pairs) == (0, [])


def test_long_runs_among_short_ones_are_compared_in_time(bench: Bench):
    count = 10_000
    with bench.database.transaction() as tx:
        for _ in range(100):  # so that the server expects each run to have one step, and nested loops to be cheap
            short = add_run(tx, bench.tenant_id)
            tx.write(MANY_ACTIVATIONS, of_run=short, seed=short.hex, count=1)
            tx.write(MANY_VALUES, of_run=short, seed=short.hex, count=1)
        for table in ("runs", "activations", "node_values"):
            tx.execute(text(f"analyze {table}"))
        a, b = add_run(tx, bench.tenant_id), add_run(tx, bench.tenant_id)
        for run in (a, b):
            tx.execute(MANY_ACTIVATIONS, of_run=run, seed=run.hex, count=count)
            tx.execute(MANY_VALUES, of_run=run, seed=run.hex, count=count)
        tx.execute(text("update activations set outcome = null where run_id = :of_run and ordinal = 7"), of_run=b)

    with bench.database.transaction() as tx:  # a statement has ten seconds
        found = run_comparison.compare(tx, bench.tenant_id, a, b, only="differs")

    assert found.totals == {"same": count - 1, "differs": 1, "only_a": 0, "only_b": 0}
    assert [pair.either.ordinal for pair in found.pairs] == [7]


# -- rows at random ----------------------------------------------------------------------------------------------------
values_at_random = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 2**70, "", "a", "null", "ä\u0000", '"'])
    , lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "_b"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
names_at_random = st.sampled_from(["content", "result", "_created_time", "_ERROR", "a:b", "a"])
outputs_at_random = st.dictionaries(names_at_random, values_at_random, max_size=3)
files_at_random = st.dictionaries(
    st.sampled_from(["content", "result"]),
    st.tuples(st.sampled_from(["2026w47/t/aa", "2026w48/t/aa", "2026w48/t/bb"]), st.integers(1, 2)).map(list),
    max_size=1,
)
outcomes_at_random = st.sampled_from(
    [
        None,
        {"is": "Finished", "used": {}},
        {"is": "Finished", "used": {"calls": 1}, "spoke": True},
        {"is": "Finished", "reused": True},
        {"is": "Chose", "to": ["a"]},
        {"is": "Chose", "to": ["b"]},
        {"is": "Expanded", "count": 3, "concurrency": 1},
        {"is": "Failed", "error": "no luck", "code": "x"},
        {"is": "Failed", "error": "no power", "code": "x"},
        {"is": "Finished", "told": "no luck"},
        {"is": "Waiting", "inputs": {"a": 1}, "tips": ""},
    ]
)
step_at_random = st.fixed_dictionaries(
    {
        "outputs": outputs_at_random,
        "inputs": st.none() | outputs_at_random,
        "files": files_at_random,
        "outcome": outcomes_at_random,
        "status": st.sampled_from(["done", "running"]),
        "attempt": st.integers(1, 2),
        "written": st.dictionaries(st.sampled_from(["env.a", "sys.b"]), values_at_random, max_size=1),
    }
)
places_at_random = st.tuples(
    st.sampled_from(["LLM:0", "LLM:1"]), st.sampled_from(["", "Iteration:0#0.1"]), st.integers(0, 1)
)
runs_at_random = st.dictionaries(places_at_random, step_at_random, max_size=5)


def add_steps(tx: Transaction, run_id: UUID, steps: dict[tuple[str, str, int], dict[str, Any]]) -> None:
    for (node_id, scope, ordinal), step in steps.items():
        id_ = activation_id(run_id, node_id, scope_key(scope), ordinal)
        order_key = f"{scope}{ordinal}{node_id}".encode()
        tx.execute(
            insert(activations).values(
                run_id=run_id, id=id_, node_id=node_id, component="LLM", scope=scope, ordinal=ordinal,
                order_key=order_key, region=b"", level=0, trail=[], status=step["status"], attempt=step["attempt"],
                activated_rev=1, outcome=step["outcome"], usage=None,
            )
        )  # fmt: skip
        files = {name: file for name, file in step["files"].items() if name in step["outputs"]}
        outputs = {**step["outputs"], **dict.fromkeys(files)}
        tx.execute(
            insert(node_values).values(
                run_id=run_id, activation_id=id_, node_id=node_id, container_entry="", item=0, order_key=order_key,
                region=b"", outputs=outputs, inputs=step["inputs"], names=list(outputs),
                large={"outputs": files} if files else None,
            )
        )  # fmt: skip
        for name, value in step["written"].items():
            tx.execute(
                insert(variables).values(
                    run_id=run_id, activation_id=id_, name=name, order_key=order_key, region=b"", value=value
                )
            )


STEP: dict[str, Any] = {
    "outputs": {"content": "a"}, "inputs": {"text": "b"}, "files": {}, "outcome": {"is": "Finished"}, "status": "done",
    "attempt": 1, "written": {},
}  # fmt: skip
IN_FILE = {**STEP, "files": {"content": ["2026w47/t/aa", 1]}}


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [
        ({**STEP, "outputs": {"content": "\u0000"}}, {**STEP, "outputs": {"content": "\u0000", "_x": 1}}, 0),
        ({**STEP, "inputs": None}, {**STEP, "inputs": {"_x": 1}}, 0),
        (STEP, {**STEP, "inputs": {}}, StepDifference.INPUTS),
        (IN_FILE, {**STEP, "files": {"content": ["2026w48/t/aa", 1]}}, 0),
        (IN_FILE, {**STEP, "files": {"content": ["2026w47/t/bb", 1]}}, StepDifference.OUTPUTS),
        (IN_FILE, {**STEP, "files": {"content": ["2026w47/t/aa", 2]}}, StepDifference.OUTPUTS),
        (IN_FILE, {**STEP, "outputs": {"content": None}}, StepDifference.OUTPUTS),
        (STEP, {**STEP, "attempt": 2}, StepDifference.ATTEMPTS),
        (STEP, {**STEP, "attempt": 2, "outcome": {"is": "Finished", "reused": True}}, 0),
        (STEP, {**STEP, "outcome": {"is": "Finished", "used": {"calls": 1}, "spoke": True}}, 0),
        (STEP, {**STEP, "outcome": {"is": "Finished", "told": "x"}}, StepDifference.ERROR),
    ],
)
def test_two_steps_differ_in_what_counts(
    database: Database, a: dict[str, Any], b: dict[str, Any], what: StepDifference
):
    with database.transaction() as tx:
        tenant_id = new_id()
        runs = [add_run(tx, tenant_id) for _ in "ab"]
        for run, step in zip(runs, (a, b), strict=True):
            add_steps(tx, run, {("LLM:0", "", 0): step})

        (pair,) = run_comparison.compare(tx, tenant_id, *runs).pairs

    assert pair.what == what


def mirrored(pair: StepPair) -> tuple[Any, ...]:
    sides = {StepDifference.ONLY_A: StepDifference.ONLY_B, StepDifference.ONLY_B: StepDifference.ONLY_A}
    return (sides.get(pair.what, pair.what), pair.b, pair.a)


AT_RANDOM = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@AT_RANDOM
@given(steps=runs_at_random)
def test_run_compared_with_itself_has_no_difference(database: Database, steps: dict[Any, Any]):
    with database.transaction() as tx:
        tenant_id = new_id()
        run = add_run(tx, tenant_id)
        copy = add_run(tx, tenant_id)
        add_steps(tx, run, steps)
        add_steps(tx, copy, steps)

        for other in (run, copy):
            found = run_comparison.compare(tx, tenant_id, run, other)

            assert found.totals == {"same": len(steps), "differs": 0, "only_a": 0, "only_b": 0}
            assert (found.first, len(found.pairs)) == (None, len(steps))


@AT_RANDOM
@given(steps=runs_at_random, others=runs_at_random)
def test_database_finds_what_the_values_of_each_pair_tell(
    database: Database, steps: dict[Any, Any], others: dict[Any, Any]
):
    with database.transaction() as tx:
        tenant_id = new_id()
        a, b = add_run(tx, tenant_id), add_run(tx, tenant_id)
        add_steps(tx, a, steps)
        add_steps(tx, b, {**others, **{place: steps[place] for place in list(steps)[:1]}})

        found, turned = run_comparison.compare(tx, tenant_id, a, b), run_comparison.compare(tx, tenant_id, b, a)

        for pair in found.pairs:
            values_a, values_b = (
                run_comparison.load_values(tx, tenant_id, run, step) if step else divergence.NOTHING
                for run, step in ((a, pair.a), (b, pair.b))
            )
            assert pair.what == divergence.find_difference(pair.a, pair.b, values_a, values_b)
        assert sorted(map(repr, map(mirrored, turned.pairs))) == sorted(
            repr((pair.what, pair.a, pair.b)) for pair in found.pairs
        )
        assert found.first == next((pair for pair in found.pairs if pair.what), None)
        assert found.totals["differs"] == sum(1 for pair in found.pairs if pair.what > 0 and pair.a and pair.b)
