"""`easel diff` on a real database: what it prints, and exit codes as those of `diff`."""

import json

import pytest
from sqlalchemy import text

from canvas.outcome import Finished
from components.context import NodeContext
from tests.builders import content, reads
from tests.integration.command_line import Easel
from tests.integration.engine import Bench, Run
from tests.integration.scheduler.test_forks import fork, rerun


@pytest.fixture
def source(bench: Bench) -> Run:
    run = bench.start("begin -> work -> after -> say", after=reads("work"), say=content("{after@result}"))
    bench.play()
    assert run.status == "succeeded", run.row["error"]
    return run


def tenant_of(bench: Bench) -> str:
    with bench.database.transaction() as tx:
        return tx.scalar(text("select name from tenants where id = :id"), id=bench.tenant_id)


def test_rerun_is_the_same_with_exit_code_0(bench: Bench, source: Run, easel: Easel):
    copy = rerun(bench, source)

    code, out, err = easel("diff", source.id.hex, copy.id.hex, "--tenant", tenant_of(bench))

    assert (code, err) == (0, "")
    assert out.endswith("All 4 steps are the same.\n")
    assert source.id.hex in out
    assert copy.id.hex in out


def test_fork_with_edited_parameters_is_described_with_exit_code_1(bench: Bench, source: Run, easel: Easel):
    def work(ctx: NodeContext) -> Finished:
        return Finished({"result": ctx.params["script"]})

    bench.does(after=work)
    copy = fork(bench, source, "after", params={"after": {"script": "other {work@result}"}})

    code, out, err = easel("diff", source.id.hex, copy.id.hex, "--tenant", tenant_of(bench))

    assert (code, err) == (1, "")
    assert 'First difference: after has another output: result is "after" in A and "other {work@result}" in B.' in out
    assert "2 steps are the same, 2 differ, 0 are only in A, 0 are only in B." in out
    table = out.split("step ")[1].splitlines()
    assert [line.split()[:2] for line in table[1:3]] == [["after", "outputs"], ["say", "outputs,"]]
    assert 'after  params.script: "{work@result}" in A, "other {work@result}" in B' in out


def test_json_is_the_reply_of_the_route_with_the_steps_that_differ(bench: Bench, source: Run, easel: Easel):
    copy = fork(bench, source, outputs={"work": {"result": "edited"}})

    code, out, _ = easel("diff", source.id.hex, copy.id.hex, "--tenant", tenant_of(bench), "--json", "--limit", "1")

    found = json.loads(out)
    assert (code, found["same"], found["totals"]["differs"], len(found["rows"])) == (1, False, 1, 1)
    assert found["first_divergence"]["node_id"] == "work"


def test_steps_of_one_node_are_chosen(bench: Bench, source: Run, easel: Easel):
    bench.does(work=lambda ctx: Finished({"result": "other"}))
    copy = rerun(bench, source)

    code, out, err = easel("diff", source.id.hex, copy.id.hex, "--tenant", tenant_of(bench), "--node", "after")

    assert code == 1
    assert "First difference: work has another output" in out
    assert "No step of this node differs." in err


@pytest.mark.parametrize(
    "arguments", [("nothing", "nothing"), ("{run}", "nothing"), ("{run}", "{run}", "--limit", "0")]
)
def test_bad_input_has_exit_code_2(bench: Bench, source: Run, easel: Easel, arguments: tuple[str, ...]):
    filled = [each.format(run=source.id.hex) for each in arguments]

    code, out, err = easel("diff", *filled, "--tenant", tenant_of(bench))

    assert (code, out) == (2, "")
    assert err


def test_run_of_another_tenant_is_bad_input(bench: Bench, source: Run, easel: Easel):
    code, out, err = easel("diff", source.id.hex, source.id.hex)

    assert (code, out) == (2, "")
    assert f"There is no run {source.id.hex}." in err
