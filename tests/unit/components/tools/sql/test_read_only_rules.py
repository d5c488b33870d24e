import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import ToolError
from components.tools.sql.read_only_rules import MAX_LENGTH, WRITE_REFUSAL, refusal_reason, split_statements

KINDS = ("mysql", "mariadb", "oceanbase", "postgres", "mssql", "trino", "IBM DB2")


@pytest.mark.parametrize(
    ("db_type", "text", "expected"),
    [
        ("mysql", "SELECT ';' AS c", ["SELECT ';' AS c"]),
        ("mysql", "DELETE FROM t; SELECT 1 AS n", ["DELETE FROM t", "SELECT 1 AS n"]),
        ("mysql", "SELECT 1;;\n;", ["SELECT 1"]),
        ("mysql", "SELECT `a;b` FROM t; SELECT 2", ["SELECT `a;b` FROM t", "SELECT 2"]),
        ("mysql", r"SELECT 'it\'s; here'; SELECT 2", [r"SELECT 'it\'s; here'", "SELECT 2"]),
        ("postgres", "SELECT $$a;b$$; SELECT 2", ["SELECT $$a;b$$", "SELECT 2"]),
        ("postgres", "EXPLAIN SELECT ';'; SHOW x", ["EXPLAIN SELECT ';'", "SHOW x"]),
        ("mssql", "SELECT [a;b] FROM t; SELECT 2", ["SELECT [a;b] FROM t", "SELECT 2"]),
        ("mysql", "", []),
        ("mysql", " ; -- nothing", []),
        ("mysql", "SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]),
    ],
)
def test_text_is_split_into_statements_as_the_database_splits_it(db_type: str, text: str, expected: list[str]):
    assert split_statements(text, db_type) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```sql\nSELECT 1\n```", ["SELECT 1"]),
        ("```SELECT 1```", ["SELECT 1"]),
        ("SELECT a FROM t WHERE a=1 [ID:12]", ["SELECT a FROM t WHERE a=1"]),
    ],
)
def test_code_fences_and_citation_marks_are_removed(text: str, expected: list[str]):
    assert split_statements(text, "mysql") == expected


@pytest.mark.parametrize(
    ("db_type", "text", "expected"),
    [
        ("postgres", "SELECT 1 -- one; DELETE FROM t", ["SELECT 1"]),
        ("postgres", "SELECT /* a; /* b */ c */ 1", ["SELECT 1"]),
        ("mysql", "SELECT 1 # one; two", ["SELECT 1"]),
        ("mysql", "SELECT 1 --1", ["SELECT 1 --1"]),  # MySQL comments need a blank after --
    ],
)
def test_comments_are_removed_before_sending(db_type: str, text: str, expected: list[str]):
    assert split_statements(text, db_type) == expected


def test_sql_beyond_the_maximum_length_is_refused():
    longest = "SELECT 1" + " " * (MAX_LENGTH - len("SELECT 1"))

    assert split_statements(longest, "mysql") == ["SELECT 1"]
    with pytest.raises(ToolError, match="longer than"):
        split_statements(longest + " ", "mysql")


@pytest.mark.parametrize("db_type", KINDS)
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id, name FROM t WHERE a = 'DELETE' ORDER BY id",
        "WITH a AS (SELECT 1 AS n) SELECT * FROM a",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "select count(*) from a join b on a.x = b.x group by a.y having count(*) > 1",
    ],
)
def test_select_is_allowed_on_every_database(db_type: str, statement: str):
    assert refusal_reason(statement, db_type) is None


@pytest.mark.parametrize(
    ("db_type", "statement"),
    [
        ("mysql", "SHOW TABLES"),
        ("mysql", "SHOW CREATE TABLE t"),
        ("mysql", "DESCRIBE db.t"),
        ("mysql", "EXPLAIN SELECT 1"),
        ("mysql", "EXPLAIN FORMAT=JSON SELECT 1"),
        ("mysql", "PRAGMA table_info(t)"),
        ("mysql", "SELECT REPLACE(a, 'x', 'y'), TRUNCATE(b, 1), INSERT(c, 1, 2, 'z') FROM t"),
        ("mysql", "SELECT `update`, sleep FROM t"),
        ("postgres", "EXPLAIN (FORMAT JSON) SELECT 1"),
        ("postgres", "SHOW server_version"),
        ("postgres", "SELECT a & b, U & b, (x).name, 'NEXT VALUE FOR' FROM t"),
        ("postgres", "WITH query (a) AS (SELECT 1) SELECT t.sleep FROM query t"),
        ("postgres", "SELECT $x$\x01$x$, E'\x01\\n', \"a\x01\""),
        ("mssql", "SELECT N'\x01', [a\x01] FROM t"),
        ("trino", "WITH query (a) AS (SELECT 1) SELECT a FROM query"),
        ("mssql", "SELECT a FROM t ORDER BY a OFFSET 0 ROWS FETCH NEXT 5 ROWS ONLY"),
        ("IBM DB2", "SELECT 1 FROM sysibm.sysdummy1 WITH UR"),
    ],
)
def test_reading_statement_is_allowed(db_type: str, statement: str):
    assert refusal_reason(statement, db_type) is None


@pytest.mark.parametrize(
    ("db_type", "statement"),
    [
        ("mysql", "DELETE FROM t"),
        ("mysql", "/* x */ delete from t"),
        ("mysql", "WITH a AS (SELECT 1) DELETE FROM t"),
        ("mysql", "SELECT a FROM t INTO OUTFILE '/tmp/x'"),
        ("mysql", "SELECT * INTO DUMPFILE '/tmp/x' FROM t"),
        ("mysql", "SELECT * FROM t FOR UPDATE"),
        ("mysql", "SELECT * FROM t LOCK IN SHARE MODE"),
        ("mysql", "SELECT 1 /*!50000 INTO OUTFILE '/tmp/x' */"),
        ("mysql", "SELECT /*M! sleep(9) */ 1"),
        ("mysql", "SELECT load_file('/etc/passwd')"),
        ("mysql", "SELECT sleep (9)"),
        ("mysql", "SET GLOBAL general_log = 1"),
        ("mysql", "CALL x()"),
        ("mysql", "EXPLAIN DELETE FROM t"),
        ("mysql", "PRAGMA journal_mode = 'off'"),
        ("postgres", "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a"),
        ("postgres", "SELECT * INTO u FROM t"),
        ("postgres", "COPY t TO PROGRAM 'x'"),
        ("postgres", "EXPLAIN ANALYZE SELECT 1"),
        ("postgres", "EXPLAIN (ANALYZE, BUFFERS) SELECT 1"),
        ("postgres", "SELECT pg_catalog.\"pg_read_file\"('/etc/passwd')"),
        ("postgres", "SELECT * FROM dblink_connect('x')"),
        ("postgres", "SELECT lo_import('/etc/passwd')"),
        ("postgres", "SELECT set_config('transaction_read_only', 'off', false)"),
        ("postgres", "SELECT nextval('s')"),
        ("postgres", "SELECT pg_stat_reset()"),
        ("postgres", r"""SELECT U&"pg\005fread_file"('/etc/passwd')"""),
        ("postgres", """SELECT u&"pg!005fread_file" UESCAPE '!' ('/etc/passwd')"""),
        ("postgres", "SELECT ('/etc/passwd'::text).pg_read_file"),
        ("postgres", "SELECT (ARRAY['/etc/passwd'])[1].pg_read_file"),
        ("postgres", "SELECT (x).path.pg_read_file FROM t x"),
        ("postgres", "SELECT * FROM ts_stat('SELECT to_tsvector(pg_read_file(''/etc/passwd''))')"),
        ("postgres", "SELECT * FROM crosstab2('DELETE FROM t')"),
        ("mariadb", "SELECT NEXT VALUE FOR s"),
        ("mssql", "SELECT NEXT VALUE FOR s"),
        ("mssql", "SELECT 1 a RECEIVE * FROM q"),
        ("mssql", "SELECT 1 SETUSER 'sa'"),
        ("mssql", "SELECT * FROM sys.fn_trace_gettable('x', 1)"),
        ("trino", "SELECT * FROM TABLE(pg.system.query(query => 'WITH a AS (DELETE FROM t) SELECT 1'))"),
        ("trino", "SELECT * FROM TABLE(ms.system.procedure(query => 'EXECUTE x'))"),
        ("IBM DB2", "SELECT NEXTVAL FOR s FROM sysibm.sysdummy1"),
        ("IBM DB2", "SELECT s.NEXTVAL FROM sysibm.sysdummy1"),
        ("mssql", "SELECT 1 DELETE FROM t"),
        ("mssql", "SELECT 1\nEXEC xp_cmdshell 'dir'"),
        ("mssql", "SELECT * INTO u FROM t"),
        ("mssql", "SHOW x"),
        ("trino", "CREATE TABLE u AS SELECT 1"),
        ("IBM DB2", "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE"),
    ],
)
def test_writing_statement_is_refused(db_type: str, statement: str):
    sent = split_statements(statement, db_type)

    [reason] = [refusal_reason(each, db_type) for each in sent]
    assert reason == WRITE_REFUSAL or re.fullmatch(
        r"For security reasons, the function \w+ is not supported\.", reason or ""
    )


@pytest.mark.parametrize(
    ("db_type", "statement", "name"),
    [
        ("postgres", "select pg_sleep(10)", "pg_sleep"),
        ("postgres", "SELECT pg_catalog.\"pg_read_file\"('/etc/passwd')", "pg_read_file"),
        ("postgres", "EXPLAIN SELECT * FROM pg_sleep(10)", "pg_sleep"),
        ("mysql", "SELECT sleep (9)", "sleep"),
        ("mysql", "SELECT LOAD_FILE('/etc/passwd')", "LOAD_FILE"),
    ],
)
def test_refused_function_is_named_in_the_error(db_type: str, statement: str, name: str):
    [sent] = split_statements(statement, db_type)

    assert refusal_reason(sent, db_type) == f"For security reasons, the function {name} is not supported."


def test_a_write_that_calls_a_refused_function_is_refused_as_a_write():
    assert refusal_reason("DELETE FROM t WHERE pg_sleep(1) IS NULL", "postgres") == WRITE_REFUSAL


def test_text_that_does_not_begin_like_a_statement_is_a_syntax_error():
    assert refusal_reason("SELEC 1", "mysql") == 'SQL Execution Failed: SELEC 1\nnear "SELEC": syntax error'
    assert (
        refusal_reason("SELECT 'open", "mysql")
        == "SQL Execution Failed: SELECT 'open\nA quote or a comment is left open."
    )


@pytest.mark.parametrize("blank", ["\x00", "\x01", "\x1a", "\u200b", "\ufeff"])
def test_control_characters_outside_of_quotes_are_refused(blank: str):
    statement = f"SELECT a FROM t{blank}EXEC{blank}xp_cmdshell 'dir'"

    reason = refusal_reason(statement, "mssql")

    assert reason == f"SQL Execution Failed: {statement}\nThere are control characters outside of quoted texts."
    assert refusal_reason(f"SELECT ${blank}EXEC xp_cmdshell 'dir'", "mssql") is not None


def test_query_that_the_parser_cannot_read_is_sent():
    assert refusal_reason("SELECT * FORM items WHERE ??", "mysql") is None


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(
        st.sampled_from(["DELETE FROM t", "DROP TABLE t", ";", "--", "/*", "*/", "'", "$$", "\\", "SELECT 1", "\n"])
    ),
)
def test_write_statement_in_any_wrapping_is_refused(db_type: str, parts: list[str]):
    passed = [each for each in split_statements(" ".join(parts), db_type) if refusal_reason(each, db_type) is None]

    assert not any(each.lstrip().upper().startswith(("DELETE", "DROP")) for each in passed)
