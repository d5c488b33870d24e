import sqlite3
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import ToolError
from canvas.outcome import Failed, Finished
from components.tools.framework.tool_node import tool_component
from components.tools.sql.exesql import EXESQL, ExeSQLParams
from components.tools.sql.read_only_rules import WRITE_REFUSAL
from providers.interfaces import BoundStatement, Rows, Services
from tests.fakes import FakeContext, FakeHttp, no_network, run

STORED = {
    "db_type": "mysql", "database": "db", "username": "u", "host": "db.test", "port": 3306, "password": "pa55word",
}  # fmt: skip
ITEMS = (
    "CREATE TABLE items(name TEXT, qty INTEGER, price REAL)",
    "INSERT INTO items VALUES ('apple', 5, 1.5), ('pear', 2, 2.25), ('plum', 9, NULL)",
)


class Sqlite:
    """A database in memory, whatever database a node names."""

    def __init__(self, *setup: str) -> None:
        self._database = sqlite3.connect(":memory:")
        self.params: Mapping[str, Any] = {}
        self.statements: list[str] = []
        for statement in setup:
            self._database.execute(statement)

    @asynccontextmanager
    async def connect(self, params: Mapping[str, Any]) -> AsyncGenerator["Sqlite"]:
        self.params = params
        yield self

    async def execute(self, sql: str | BoundStatement, most_rows: int) -> Rows:
        text, values = (sql, ()) if isinstance(sql, str) else ("?".join(sql.parts), sql.values)
        self.statements.append(text)
        try:
            cursor = self._database.execute(text, values)
        except sqlite3.Error as error:
            raise ToolError(str(error)) from error
        return Rows([column[0] for column in cursor.description], cursor.fetchmany(most_rows))


def ask(sql: Any, database: Any = None, ctx: FakeContext | None = None, **params: Any) -> Finished | Failed:
    ctx = ctx or FakeContext()
    ctx.services = Services(FakeHttp(no_network), databases=database or Sqlite(*ITEMS))
    outcome = run(tool_component(EXESQL), {**STORED, "sql": sql, **params}, ctx)
    assert isinstance(outcome, Finished | Failed)
    return outcome


def outputs(sql: Any, database: Any = None, **params: Any) -> Mapping[str, Any]:
    outcome = ask(sql, database, **params)
    assert isinstance(outcome, Finished), outcome
    return outcome.outputs


def test_rows_become_a_table_and_objects():
    found = outputs("SELECT name, qty FROM items ORDER BY name", max_records="2")

    assert found == {
        "formalized_content": "| name   |   qty |\n|:-------|------:|\n| apple  |     5 |\n| pear   |     2 |",
        "json": [[{"name": "apple", "qty": 5}, {"name": "pear", "qty": 2}]],
    }


def test_a_write_is_refused_and_the_rest_runs():
    found = outputs("DELETE FROM items; SELECT count(*) AS c FROM items")

    assert found["json"] == [{"content": WRITE_REFUSAL}, [{"c": 3}]]
    assert found["formalized_content"] == f"{WRITE_REFUSAL}\n\n|   c |\n|----:|\n|   3 |"


def test_reject_all_sends_nothing_if_one_statement_is_refused():
    database = Sqlite(*ITEMS)

    outcome = ask("SELECT 1 AS n; DROP TABLE items", database, reject_all=True)

    assert isinstance(outcome, Failed)
    assert (outcome.error, database.statements) == (WRITE_REFUSAL, [])


def test_failed_statement_is_reported_and_the_rest_runs():
    error_text = "SQL Execution Failed: SELECT * FROM nope\nno such table: nope"

    found = outputs("SELECT * FROM nope; SELECT 1 AS n")

    assert found["json"] == [{"content": error_text}, [{"n": 1}]]
    assert found["formalized_content"].startswith(f"{error_text}\n\n|   n |")


def test_no_rows_are_a_message_in_json_and_no_text_and_the_rest_runs():
    found = outputs("SELECT 1 AS n WHERE 1=0; SELECT 2 AS n")

    assert found["json"] == [{"content": "No record in the database!"}, [{"n": 2}]]
    assert found["formalized_content"] == "|   n |\n|----:|\n|   2 |"


@pytest.mark.parametrize("sql", ["", "  ", ";", "```sql\n```", None])
def test_no_sql_at_all_fails_the_node(sql: Any):
    outcome = ask(sql, ctx=FakeContext(globals={"sys.query": ""}))

    assert isinstance(outcome, Failed)
    assert outcome.error == "SQL for `ExeSQL` MUST not be empty."


def test_query_of_the_user_is_run_if_the_node_has_no_sql():
    database = Sqlite()
    ctx = FakeContext(
        globals={"sys.query": "SELECT 1 AS n"}, services=Services(FakeHttp(no_network), databases=database)
    )

    run(tool_component(EXESQL), STORED, ctx)

    assert database.statements == ["SELECT 1 AS n"]


def test_references_are_resolved_once_and_values_are_not_templates():
    database = Sqlite()
    ctx = FakeContext(values={"begin": {"word": "{env.secret}"}}, globals={"env.secret": "s"})

    ask("SELECT '{begin@word}' AS w", database, ctx)

    assert database.statements == ["SELECT '{env.secret}' AS w"]


def test_connection_has_the_parameters_and_the_time_limit_of_the_node():
    database = Sqlite()

    ask("SELECT 1 AS n", database, FakeContext(limits={"ExeSQL": 3.0}))

    assert database.params == {**STORED, "timeout": 3.0}


def test_password_is_redacted_in_all_outputs():
    found = outputs("SELECT 'pa55word' AS w")

    assert found["json"] == [[{"w": "[REDACTED]"}]]
    assert "pa55word" not in repr(ExeSQLParams.model_validate(STORED))


def test_node_without_databases_fails():
    ctx = FakeContext(services=Services(FakeHttp(no_network)))

    outcome = run(tool_component(EXESQL), {**STORED, "sql": "SELECT 1"}, ctx)

    assert isinstance(outcome, Failed)
    assert "does not allow its canvases to reach databases" in outcome.error


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"db_type": "oracle"}, "Choose DB type oracle is not supported"),
        ({"database": ""}, "Database name does not support empty value."),
        ({"username": " "}, "database username does not support empty value."),
        ({"host": ""}, "IP Address does not support empty value."),
        ({"password": ""}, "Database password does not support empty value."),
        ({"port": 0}, "IP Port 0 not supported, should be positive integer"),
        ({"max_records": -1}, "Maximum number of records -1 not supported, should be positive integer"),
        (
            {"database": "rag_flow", "host": "ragflow-mysql"},
            "For the security reason, it does not support database named rag_flow.",
        ),
        (
            {"database": "rag_flow", "password": "infini_rag_flow"},
            "For the security reason, it does not support database named rag_flow.",
        ),
    ],
)
def test_invalid_parameters_are_refused_when_the_canvas_is_loaded(changed: Mapping[str, Any], text: str):
    with pytest.raises(ValidationError, match=text):
        ExeSQLParams.model_validate({**STORED, **changed})


@pytest.mark.parametrize(
    "changed", [{"db_type": "trino", "password": ""}, {"port": "5432"}, {"db_type": "Postgres"}, {"top_n": 3}]
)
def test_parameters_as_canvases_store_them_are_accepted(changed: Mapping[str, Any]):
    assert ExeSQLParams.model_validate({**STORED, **changed}).port in (3306, 5432)


def test_unreachable_database_fails_the_node_with_the_message_of_the_driver():
    class Down:
        @asynccontextmanager
        async def connect(self, params: Mapping[str, Any]) -> AsyncGenerator[Sequence[Any]]:
            raise ToolError("Database Connection Failed! \nconnection refused")
            yield ()

    outcome = ask("SELECT 1", Down())

    assert isinstance(outcome, Failed)
    assert outcome.error == "Database Connection Failed! \nconnection refused"


# -- bound values -----------------------------------------------------------------------------------------------------
def run_bound(sql: str, value: Any, **params: Any) -> tuple[Any, list[str]]:
    """Run a node with `bind_references`; return its JSON or error, and the statements sent."""
    database = Sqlite(*ITEMS)
    ctx = FakeContext(values={"begin": {"x": value}})
    outcome = ask(sql, database, ctx, bind_references=True, **params)
    return outcome.outputs["json"] if isinstance(outcome, Finished) else outcome.error, database.statements


def test_value_of_a_reference_is_sent_as_a_bound_value():
    found, sent = run_bound("SELECT name FROM items WHERE name = {begin@x}", "pear")

    assert (found, sent) == ([[{"name": "pear"}]], ["SELECT name FROM items WHERE name = ?"])


@pytest.mark.parametrize("sql", ["SELECT {begin@x} AS x", "SELECT '{begin@x}' AS x", "SELECT '{{ begin@x }}' AS x"])
@pytest.mark.parametrize(
    "attack",
    [
        "' OR '1'='1", "x'; DROP TABLE items; --", "\\' OR 1=1 -- ", "1 OR 1=1", "'; SELECT 1; SELECT '", "?", "%s",
        "%(a)s", "{begin@x}", "{sys.query}", "easel_value_0_", "--", "/*", "\"", "`", "\n", "[ID:1]", "```sql", "$1",
    ],
)  # fmt: skip
def test_bound_user_input_is_a_value_and_never_sql(sql: str, attack: str):
    found, sent = run_bound(sql, attack)

    assert found == [[{"x": attack}]]
    assert sent == ["SELECT ? AS x"]


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (["pear", "plum"], [{"name": "pear"}, {"name": "plum"}]),
        ([], {"content": "No record in the database!"}),
        ("pear", [{"name": "pear"}]),
        (["x') OR ('1'='1"], {"content": "No record in the database!"}),
    ],
)
def test_bound_list_becomes_several_values(value: Any, rows: Any):
    found, _ = run_bound("SELECT name FROM items WHERE name IN ({begin@x}) ORDER BY name", value)

    assert found == [rows]


def test_quoted_text_with_references_is_one_bound_value():
    found, sent = run_bound("SELECT name FROM items WHERE name LIKE '%{begin@x}%' AND '{begin@x}' <> 'it''s'", "ea")

    assert found == [[{"name": "pear"}]]
    assert sent == ["SELECT name FROM items WHERE name LIKE ? AND ? <> 'it''s'"]


def test_bound_value_keeps_its_type_outside_of_quotes():
    for value, kind in ((5, "integer"), (1.5, "real"), ("5", "text"), (None, "null"), ({"a": 1}, "text")):
        found, _ = run_bound("SELECT typeof({begin@x}) AS kind", value)
        assert found == [[{"kind": kind}]]


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM `{begin@x}`", "SELECT * FROM items_{begin@x}", "SELECT N'{begin@x}'", "SELECT {begin@x}_a"]
)
def test_reference_where_no_value_can_be_bound_sends_nothing(sql: str):
    found, sent = run_bound(f"{sql}; SELECT 1 AS n", "items")

    assert "No value can be bound in" in found[0]["content"]
    assert "{begin@x}" in found[0]["content"]
    assert "easel_value" not in str(found)
    assert (found[1], sent) == ([{"n": 1}], ["SELECT 1 AS n"])


def test_reference_in_a_comment_is_removed():
    assert run_bound("SELECT 1 AS n -- {begin@x}\n", "x\n; DROP TABLE items")[1] == ["SELECT 1 AS n"]


def test_write_with_bound_values_is_refused():
    found, sent = run_bound("DELETE FROM items WHERE name = {begin@x}", "pear")

    assert (found, sent) == ([{"content": WRITE_REFUSAL}], [])


def test_error_of_a_bound_statement_shows_the_authors_references():
    found, _ = run_bound("SELECT * FROM nope WHERE a = '{begin@x}'", "secret")

    assert found == [{"content": "SQL Execution Failed: SELECT * FROM nope WHERE a = '{begin@x}'\nno such table: nope"}]


def test_too_many_values_are_not_sent():
    found, sent = run_bound("SELECT 1 WHERE 1 IN ({begin@x})", list(range(1001)))

    assert "1,000 values at most" in found[0]["content"]
    assert sent == []


def test_sql_that_is_one_reference_is_sent_as_the_statement():
    found, sent = run_bound("{begin@x}", "SELECT 1 AS n")

    assert (found, sent) == ([[{"n": 1}]], ["SELECT 1 AS n"])


def test_values_that_look_like_markers_are_not_replaced():
    database = Sqlite()
    ctx = FakeContext(values={"begin": {"a": "easel_value_1_", "b": "secret"}})

    outcome = ask("SELECT 'a {begin@a}' AS a, '{begin@b}' AS b", database, ctx, bind_references=True)

    assert outcome.outputs is not None
    assert outcome.outputs["json"] == [[{"a": "a easel_value_1_", "b": "secret"}]]
