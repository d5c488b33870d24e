"""A value of a megabyte or more is stored in a file, and readers receive it as any other value."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from canvas.errors import ValueGone
from canvas.outcome import Finished
from components.context import NodeContext
from scheduler.views import run_view
from store.agents import conversations
from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.files.large_values import LargeValues
from store.runs import run_queries, values
from store.tables.runs import node_values
from tests.builders import content
from tests.integration.engine import Bench, Run

READS = {"script": "{work@result}"}
TEXT = "It was a dark and stormy night; " * 40_000  # 1.28 MB


@pytest.fixture
def folder(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the storage of large values."""
    monkeypatch.setattr(database, "large", LargeValues(LocalBlobs(tmp_path), stores_new=True))
    return tmp_path


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def values_row(run: Run, node: str) -> Any:
    query = select(node_values).where(node_values.c.run_id == run.id, node_values.c.node_id == node)
    with run.bench.database.transaction() as tx:
        return tx.rows(query)[0]


def count(ctx: NodeContext) -> Finished:
    text = ctx.lookup("work@result")
    ctx.note_input("text", text)
    return Finished({"result": len(text), "same": text})


def set_large_output(bench: Bench, text: Any = TEXT) -> None:
    bench.does(
        work=lambda ctx: Finished({"result": text, "short": "night"}),
        count=count,
    )


def test_value_of_a_megabyte_is_stored_in_one_file_and_read_whole(bench: Bench, folder: Path):
    set_large_output(bench)
    run = bench.start("begin -> work -> count -> say", count=READS, say=content("{count@result}"))

    bench.play()

    assert (run.status, run.text) == ("succeeded", str(len(TEXT)))
    assert len(files_in(folder)) == 1  # of outputs and inputs of both nodes
    row = values_row(run, "work")
    assert row.outputs | {"_created_time": 0, "_elapsed_time": 0} == {
        "result": None, "short": "night", "_created_time": 0, "_elapsed_time": 0
    }  # fmt: skip
    finished = {event.node_id: event for event in run.events if event.name == "node_finished"}
    assert (finished["work"].outputs or {})["result"] == TEXT
    assert (finished["count"].outputs or {})["same"] == TEXT
    assert TEXT in (finished["count"].inputs or {}).values()
    with bench.database.transaction() as tx:
        read = run_queries.read_events(tx, bench.tenant_id, run.id, 0)
        shown = run_view.outputs_of(tx, bench.coordinator.versions, run.row, lambda entry: ())
    assert shown["work"]["result"] == TEXT
    assert read is not None
    assert read.events == run.events


def test_large_answer_is_whole_in_the_conversation_and_in_the_history(bench: Bench, folder: Path):
    set_large_output(bench)
    run = bench.start("begin -> work -> say", say=content("{work@result}"))

    bench.play()

    assert run.text == TEXT
    with bench.database.transaction() as tx:
        history = conversations.load_history(tx, run.conversation_id, 2, 2)
        messages = conversations.list_messages(tx, bench.tenant_id, run.conversation_id)
    assert history[1]["content"]["content"] == messages[1].content["content"] == TEXT


def test_large_variable_is_read_by_later_nodes_and_later_turns(bench: Bench, folder: Path):
    bench.does(
        work=lambda ctx: Finished(assign={"env.book": TEXT}),
        count=lambda ctx: Finished({"result": len(ctx.lookup("env.book"))}),
    )
    drawn = bench.draw(
        "begin -> work -> count -> say",
        count={"script": "{env.book}"},
        say=content("{count@result}"),
        variables={"book": ""},
    )
    run = bench.start(drawn=drawn)
    bench.play()

    bench.does(work=lambda ctx: Finished())
    again = bench.start(drawn=drawn, conversation_id=run.conversation_id)
    bench.play()

    assert (run.text, again.text) == (str(len(TEXT)), str(len(TEXT)))
    assert len(files_in(folder)) == 1
    with bench.database.transaction() as tx:
        assert values.load_final(tx, run.id).variables["env.book"][0] == TEXT


def test_equal_values_of_two_tenants_are_stored_in_separate_files(bench: Bench, folder: Path):
    set_large_output(bench)
    ours = bench.start("begin -> work")
    theirs = bench.start("begin -> work", tenant_id=bench.a_tenant())

    bench.play()

    assert len(files_in(folder)) == 2
    (folder_of_theirs,) = folder.glob(f"values/*/{theirs.row['tenant_id'].hex}")
    for path in files_in(folder_of_theirs):
        path.unlink()
    assert values_row(ours, "work").large != values_row(theirs, "work").large
    assert [event for event in ours.events if event.outputs and event.outputs.get("result") == TEXT]


def test_large_value_in_a_row_is_read_after_file_storage_is_enabled(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    set_large_output(bench)
    run = bench.start("begin -> work -> count -> say", count=READS, say=content("{count@result}"))
    bench.play(until=lambda: run.statuses.get("count") == "ready")
    assert values_row(run, "work").outputs["result"] == TEXT

    monkeypatch.setattr(bench.database, "large", LargeValues(LocalBlobs(tmp_path), stores_new=True))
    bench.play()

    assert run.text == str(len(TEXT))


def test_node_whose_input_file_is_missing_fails_and_names_the_value(bench: Bench, folder: Path):
    set_large_output(bench)
    run = bench.start("begin -> work -> count", count=READS)
    bench.play(until=lambda: run.statuses.get("count") == "ready")
    for path in files_in(folder):
        path.unlink()

    bench.play()

    assert run.status == "failed"
    assert 'Node "work": the value of "result"' in run.row["error"]
    assert "restore it from a backup" in run.row["error"]
    with pytest.raises(ValueGone):
        _ = run.events


def test_failure_of_a_node_keeps_its_earlier_large_output(bench: Bench, folder: Path):
    set_large_output(bench)
    run = bench.start("begin -> work")
    bench.play()

    with bench.database.transaction() as tx:
        values.put_error(tx, run.id, run.activation("work").id, "work", "lost")

    with bench.database.transaction() as tx:
        outputs = values.load_final(tx, run.id).outputs["work"][0]
    assert (outputs["result"], outputs["_ERROR"]) == (TEXT, "lost")


def play_iteration(bench: Bench) -> Run:
    """Play a run that iterates over two items, each of which outputs a different large text."""
    bench.does(
        work=lambda ctx: Finished({"result": f"{ctx.lookup('item@item')}{TEXT}"}),
        count=lambda ctx: Finished({"result": [len(text) for text in ctx.lookup("each@all")]}),
    )
    run = bench.start(
        "begin -> each -> count -> say",
        "each: item -> work",
        variables={"items": ["a", "b"]},
        work={"script": "{item@item}"},
        count={"script": "{each@all}"},
        each={"items_ref": "env.items", "max_concurrency": 1, "outputs": {"all": {"ref": "work@result"}}},
        say=content("{count@result}"),
    )

    bench.play()
    return run


def test_large_outputs_of_iteration_items_and_their_collected_list_are_whole(bench: Bench, folder: Path):
    run = play_iteration(bench)

    assert run.status == "succeeded", run.row["error"]
    assert run.text.count(str(len(TEXT) + 1)) == 2
    assert len(files_in(folder)) == 3  # two texts, and the list of both


def test_failed_item_shows_the_large_output_of_the_previous_item(bench: Bench, folder: Path):
    run = play_iteration(bench)
    failed = run.activation("work").id
    of = {"of_run": run.id, "of_activation": failed, "of_node": "work"}

    with bench.database.transaction() as tx:
        tx.execute(values.PUT_OUTPUTS, **of, new_outputs={"_ERROR": "bad"}, new_names=["_ERROR"], new_large=None)
        values.copy_previous_outputs(tx, run.id, failed)

    with bench.database.transaction() as tx:
        assert values.load_final(tx, run.id).outputs["work"][0] == {"result": f"a{TEXT}", "_ERROR": "bad"}
