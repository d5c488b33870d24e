"""The rules by which SQL is sent: a text is split into statements, and each must only read (docs/tools.md, row T14).

    split_statements("SELECT ';' AS c; DELETE FROM t", "mysql")   ->  ["SELECT ';' AS c", "DELETE FROM t"]
    refusal_reason("DELETE FROM t", "mysql")                      ->  "For security reasons, ..."

A statement is checked as a parser of the database's dialect reads it. A statement that the parser cannot read (every
database has syntax of its own) is checked by its words, and the database reports what is wrong with it. Comments are
removed, so that the database gets exactly the tokens that were checked. In addition, the session itself is read-only.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from canvas.errors import ToolError
from components.text.extraction.file_kinds import library_missing

DIALECTS: Mapping[str, str] = {
    "mysql": "mysql",
    "mariadb": "mysql",
    "oceanbase": "mysql",
    "postgres": "postgres",
    "mssql": "tsql",
    "trino": "trino",
    "IBM DB2": "",
}
"""The kinds of databases, each with the dialect of its parser."""

MAX_LENGTH = 100_000  # characters of all statements together
WRITE_REFUSAL = "For security reasons, INSERT, UPDATE, and DELETE statements are not supported."


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_QUERY_STARTS = _words("SELECT WITH (")
_EXPLAINS = _words("EXPLAIN DESCRIBE DESC")
_EXPLAIN_OPTIONS = _words(
    "FORMAT JSON TEXT XML YAML TREE TRADITIONAL GRAPHVIZ VERBOSE COSTS BUFFERS SETTINGS SUMMARY TIMING WAL ON OFF TRUE "
    "FALSE EXTENDED PARTITIONS TYPE LOGICAL DISTRIBUTED VALIDATE IO QUERY PLAN FOR ( ) , ="
)
_PRAGMAS = _words("TABLE_INFO TABLE_XINFO")
_WRITING_WORDS = _words(
    "INSERT UPDATE DELETE MERGE REPLACE UPSERT CREATE ALTER DROP TRUNCATE RENAME GRANT REVOKE INTO OUTFILE DUMPFILE "
    "COPY CALL EXEC EXECUTE DO HANDLER IMPORT LOAD LOCK UNLOCK VACUUM ANALYZE ANALYSE REFRESH PREPARE DEALLOCATE SET "
    "RESET USE BEGIN COMMIT ROLLBACK SAVEPOINT START KILL SHUTDOWN INSTALL UNINSTALL ATTACH DETACH REINDEX"
)
# T-SQL does not require a semicolon between statements. These words begin one; they are reserved, so they are not
# column names.
_TSQL_WORDS = _words(
    "INSERT UPDATE DELETE MERGE CREATE ALTER DROP TRUNCATE GRANT REVOKE DENY INTO EXEC EXECUTE DECLARE SET USE BEGIN "
    "COMMIT ROLLBACK SAVE BACKUP RESTORE BULK DBCC KILL SHUTDOWN WAITFOR RECONFIGURE DISABLE ENABLE PRINT RAISERROR IF "
    "WHILE GOTO RETURN OPEN CLOSE DEALLOCATE CHECKPOINT READTEXT WRITETEXT UPDATETEXT REVERT SETUSER ADD BREAK "
    "CONTINUE DISK DUMP LOAD ERRLVL LINENO"
)
_TSQL_NAMES = _words("RECEIVE SEND THROW MOVE GET")  # these begin a statement, too, but may also be names
_FORBIDDEN_FUNCTIONS = _words(
    "load_file sleep benchmark get_lock release_lock release_all_locks sys_exec sys_eval xp_cmdshell openrowset "
    "opendatasource openquery openxml set_config setval nextval pg_sleep pg_sleep_for pg_sleep_until pg_stat_file "
    "pg_reload_conf pg_rotate_logfile pg_terminate_backend pg_cancel_backend pg_switch_wal pg_promote pg_notify "
    "pg_start_backup pg_stop_backup pg_export_snapshot pg_stat_statements_reset loread lowrite ts_stat ts_rewrite "
    "connectby xpath_table master_pos_wait source_pos_wait wait_for_executed_gtid_set "
    "wait_until_sql_thread_after_gtids fn_trace_gettable fn_get_audit_file fn_xe_file_target_read_file fn_dump_dblog "
    "dm_os_file_exists dm_os_enumerate_filesystem pg_current_logfile pg_hba_file_rules pg_ident_file_mappings "
    "pg_show_all_file_settings pg_background_launch pg_background_detach brin_summarize_new_values "
    "brin_summarize_range brin_desummarize_range gin_clean_pending_list plpy_exec db2_install_jar pg_nextoid cypher "
    "pg_extension_config_dump create_hypertable create_distributed_table create_reference_table "
    "add_job run_job alter_job delete_job drop_chunks sys_get sys_set mqsend mqread mqreadall mqreceive mqreceiveall "
    "mqpublish mqsubscribe mqunsubscribe"
)
_FORBIDDEN_PREFIXES = (
    "pg_read_", "pg_ls_", "pg_file_", "pg_logical_", "pg_create_", "pg_drop_", "pg_replication_", "pg_advisory_",
    "pg_try_advisory_", "pg_backup_", "pg_import_", "pg_log_", "pg_stat_reset", "pg_wal_replay_", "lo_", "dblink",
    "query_to_", "cursor_to_", "table_to_", "schema_to_", "database_to_", "crosstab", "group_replication_",
    "asynchronous_connection_failover_", "http", "postgres_fdw_", "pg_execute_", "env_get_", "admin_", "pg_set_",
    "pg_clear_", "pg_restore_", "pg_reset_", "pg_sync_", "pg_stop_", "pg_enable_", "pg_disable_", "pg_truncate_",
    "pg_buffercache_evict", "autoprewarm_", "heap_force_", "binary_upgrade_", "run_command_on_", "citus_", "spider_",
    "keyring_key_", "version_tokens_", "audit_log_", "mysql_firewall_", "service_get_", "service_release_",
    "lib_mysqludf_", "ifs_", "soaphttp",
)  # fmt: skip
# PostgreSQL reads `t.f` as `f(t)` if there is no column `f`, and `t` may be a single text. Only these names are refused
# after a dot; other functions are allowed there, so that a table may have a column called `sleep`.
_ROW_FUNCTIONS = re.compile(
    r"(?:pg_|dblink|lo_(?:import|unlink|open|close|get|creat|create)$|http_(?:get|head|delete)$|nextval$)"
)
_CATALOGS = _words("pg_replication_slots pg_replication_origin pg_replication_origin_status")
# all of their functions have side effects
_FORBIDDEN_PACKAGES = _words("cron net aws_s3 aws_lambda azure_storage vault")
_FORBIDDEN_PACKAGE_PREFIXES = ("utl_", "dbms_")
_TSQL_LOCKS = _words("UPDLOCK XLOCK TABLOCK TABLOCKX HOLDLOCK PAGLOCK SERIALIZABLE REPEATABLEREAD")
# their arguments are run by the database behind Trino
_TRINO_PASSTHROUGH = _words("query raw_query native_query procedure execute")
_SEQUENCE_CALLS = (" NEXT VALUE FOR ", " NEXTVAL FOR ", " . NEXTVAL ")  # these advance a sequence

_FENCE = re.compile(r"```(?:[ \t]*(?:sql|mysql|mariadb|postgresql|postgres|tsql|trino|db2)\b)?", re.IGNORECASE)
_CITATION = re.compile(r"\[ID:\s*\d+\]")
_NO_BLANKS = re.compile(r"\S+")
_WORD = re.compile(r"[^\W\d][\w$#]*")
_ESCAPED, _NUMBER_E = re.compile(r"e'", re.IGNORECASE), re.compile(r"[\d.].*e", re.IGNORECASE)
_QUOTED = re.compile(r"""\w*&?['"]|[`\[]|\$\w*\$""")


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of a statement.

    `word` is the token in capitals, "" for texts and quoted names; `name` is the function that it may call.
    """

    text: str  # as it is written
    word: str
    name: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def split_statements(text: str, db_type: str) -> list[str]:
    """Return the statements of a text without comments, code fences and citation marks such as `[ID:1]`.

    A text with an open quote cannot be split and is one statement. Raises ToolError if the text is too long.
    """
    if len(text) > MAX_LENGTH:
        raise ToolError(f"The SQL is longer than {MAX_LENGTH:,} characters. Send less at once.")
    text = _CITATION.sub("", _FENCE.sub("", text)).strip()
    tokens = _tokens(text, db_type)
    if tokens is None:
        return [text]
    cuts = [-1, *(token.start for token in tokens if token.text == ";"), len(text)]
    parts = (text[start + 1 : end].strip() for start, end in pairwise(cuts))
    return [cleaned for part in parts if (cleaned := _without_comments(part, db_type))]


def refusal_reason(statement: str, db_type: str) -> str | None:
    """Return the error text for a statement that is refused; None for one that may be sent."""
    tokens = _tokens(statement, db_type)
    if not tokens:
        return failure_text(statement, "A quote or a comment is left open.")
    if any(_has_hidden_characters(token) for token in tokens):
        return failure_text(statement, "There are control characters outside of quoted texts.")
    if db_type == "postgres" and any(map(_is_ambiguous_continuation, tokens, tokens[1:])):
        return failure_text(statement, "A quoted text is continued in a way that is ambiguous. Write it as one text.")
    if _first_word(tokens) not in _QUERY_STARTS | _EXPLAINS | _WRITING_WORDS | {"SHOW", "PRAGMA"}:
        return failure_text(statement, f'near "{tokens[0].text}": syntax error')
    if _only_reads(statement, tokens, db_type):
        return None
    name = _forbidden_function(tokens, db_type)
    return function_refusal(name) if name and _first_word(tokens) in _QUERY_STARTS | _EXPLAINS else WRITE_REFUSAL


def function_refusal(name: str) -> str:
    """Return the error text for a query that calls a function which does more than read, or which waits."""
    return f"For security reasons, the function {name} is not supported."


def failure_text(statement: str, error: str) -> str:
    """Return the error text for a statement that failed."""
    return f"SQL Execution Failed: {statement}\n{error}"


def raw_tokens(text: str, db_type: str) -> list[Any] | None:
    """Return the tokens of a text from the parser of its dialect; None if a quote is left open."""
    tokenizer = _tokenizer(db_type)
    from sqlglot.errors import SqlglotError

    try:
        return list(tokenizer.tokenize(text))
    except SqlglotError:
        return None


def _only_reads(statement: str, tokens: Sequence[_Token], db_type: str) -> bool:
    if _has_executable_comments(_gaps(statement, tokens)):
        return False
    if any(_calls_forbidden_function(tokens, number, db_type) for number in range(len(tokens))):
        return False
    words = " ".join(token.word or ("." if token.text == "." else "?") for token in tokens)
    if any(drawing in f" {words} " for drawing in _SEQUENCE_CALLS):
        return False
    if db_type == "mssql" and (
        " END CONVERSATION " in f" {words} " or any(_is_lock_keyword(tokens, number) for number in range(len(tokens)))
    ):
        return False
    first = _first_word(tokens)
    if first in _QUERY_STARTS:
        return _is_query(statement, tokens, db_type)
    if db_type == "mssql":  # T-SQL calls an unknown first word as a procedure
        return False
    if first in _EXPLAINS:
        return _explains(statement, tokens[1:], db_type)
    if first == "PRAGMA":
        return len(tokens) == 5 and tokens[1].word in _PRAGMAS and (tokens[2].text, tokens[4].text) == ("(", ")")
    return first == "SHOW"


def _is_query(statement: str, tokens: Sequence[_Token], db_type: str) -> bool:
    """Whether the statement is one SELECT that does not write, lock, or store its rows."""
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError

    writing = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Into, exp.Lock, exp.Command)
    words = {token.word for token in tokens}
    if db_type == "mssql" and words & _TSQL_WORDS:
        return False
    try:
        parsed: list[Any] = parse(statement, dialect=DIALECTS[db_type])
    except (SqlglotError, RecursionError):
        beginnings = _WRITING_WORDS | (_TSQL_NAMES if db_type == "mssql" else frozenset())
        return ";" not in {token.text for token in tokens} and not words & beginnings
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Select | exp.SetOperation | exp.Subquery):
        return False
    return not any(isinstance(part, writing) for part in parsed[0].walk())


def _explains(statement: str, tokens: Sequence[_Token], db_type: str) -> bool:
    """Whether EXPLAIN is followed by a query that is not executed, or by the name of a table."""
    begin = next((number for number, token in enumerate(tokens) if token.word in ("SELECT", "WITH")), None)
    if db_type == "IBM DB2":  # it writes the plan into tables
        return False
    if db_type == "trino" and len(tokens) > 1 and tokens[0].word in ("INPUT", "OUTPUT"):  # of a prepared statement
        return False
    if begin is None:
        return all(token.word not in _WRITING_WORDS and token.text not in "()" for token in tokens)
    if any((token.word or token.text) not in _EXPLAIN_OPTIONS for token in tokens[:begin]):
        return False
    return _is_query(statement[tokens[begin].start :], tokens[begin:], db_type)


def _forbidden_function(tokens: Sequence[_Token], db_type: str) -> str:
    """Return the first forbidden function of a query; "" for none, and for a name written in code points."""
    refused = (number for number in range(len(tokens)) if _calls_forbidden_function(tokens, number, db_type))
    number = next(refused, None)
    return "" if number is None or tokens[number].word == "U" else tokens[number].name


def _calls_forbidden_function(tokens: Sequence[_Token], number: int, db_type: str) -> bool:
    """Whether a token calls a function that does more than read, or one whose name is written in code points."""
    name = tokens[number].name.lower()
    following = tokens[number + 1].text if number + 1 < len(tokens) else ""
    if tokens[number].word == "U" and following == "&":  # U&"pg\005fread_file"
        return _ends_in_quoted_name(tokens[number : number + 3])
    if db_type == "trino" and name in _TRINO_PASSTHROUGH:
        return (
            following == "(" and number > 0 and (tokens[number - 1].text == "." or _is_in_table_call(tokens[:number]))
        )
    if following == "." and (name in _FORBIDDEN_PACKAGES or name.startswith(_FORBIDDEN_PACKAGE_PREFIXES)):
        return any(token.text == "(" for token in tokens[number + 3 : number + 4])
    is_one_of_them = name in _FORBIDDEN_FUNCTIONS or name.startswith(_FORBIDDEN_PREFIXES)
    return is_one_of_them and (
        following == "("
        or _is_attribute_of_value(tokens, number)
        or (db_type == "postgres" and number > 0 and tokens[number - 1].text == "." and _is_row_function(name))
    )


def _is_lock_keyword(tokens: Sequence[_Token], number: int) -> bool:
    """Whether a token is a locking hint of T-SQL: a word in parentheses behind a table, possibly with others."""
    before = tokens[number - 1].text if number else ""
    behind = tokens[number + 1].text if number + 1 < len(tokens) else ""
    return tokens[number].word in _TSQL_LOCKS and before in ("(", ",") and behind in (")", ",")


def _ends_in_quoted_name(tokens: Sequence[_Token]) -> bool:
    """Whether the last token is a quoted name and there is nothing between the tokens."""
    return tokens[-1].text.startswith('"') and all(left.end == right.start for left, right in pairwise(tokens))


def _is_attribute_of_value(tokens: Sequence[_Token], number: int) -> bool:
    """Whether a name follows a value and a dot: PostgreSQL reads `('a').f` as `f('a')`."""
    begin = number
    while begin >= 2 and tokens[begin - 1].text == ".":
        begin -= 2
    return begin < number and tokens[begin].text in (")", "]")


def _is_row_function(name: str) -> bool:
    return _ROW_FUNCTIONS.match(name) is not None and name not in _CATALOGS


def _is_in_table_call(before: Sequence[_Token]) -> bool:
    """Whether the next token is inside the parentheses of TABLE, where Trino looks up functions of its catalogs."""
    return len(before) > 1 and before[-1].text == "(" and before[-2].word == "TABLE"


def _is_ambiguous_continuation(token: _Token, following: _Token) -> bool:
    """Whether the escapes of a quoted text depend on the token before it.

    That token is a text which this one continues, or an `e` that PostgreSQL does not read as a part of a number.
    """
    if not following.text.startswith("'"):
        return False
    is_near = following.start == token.end
    return _ESCAPED.match(token.text) is not None or (is_near and _NUMBER_E.fullmatch(token.text) is not None)


def _has_hidden_characters(token: _Token) -> bool:
    """Whether a token contains characters that some server reads as white space."""
    return not token.text.isprintable() and _QUOTED.match(token.text) is None


def _first_word(tokens: Sequence[_Token]) -> str:
    return tokens[0].word or tokens[0].text


def _without_comments(statement: str, db_type: str) -> str:
    """Return the statement with white space in place of comments.

    Comments that some servers execute are kept, so that the statement is refused.
    """
    tokens = _tokens(statement, db_type) or []
    gaps = _gaps(statement, tokens)
    if _has_executable_comments(gaps):
        return statement
    blanks = [gap if not gap.strip() else " " for gap in gaps]
    return "".join(blank + token.text for blank, token in zip(blanks, tokens, strict=False)).strip()


def _gaps(text: str, tokens: Sequence[_Token]) -> list[str]:
    """Return the text before, between and after the tokens: white space and comments."""
    ends = [0, *(token.end for token in tokens)]
    starts = [*(token.start for token in tokens), len(text)]
    return [text[end:start] for end, start in zip(ends, starts, strict=True)]


def _has_executable_comments(gaps: Sequence[str]) -> bool:
    """Whether there are comments that MySQL and MariaDB execute."""
    return any("/*!" in gap or "/*M!" in gap for gap in gaps)


def _tokens(text: str, db_type: str) -> list[_Token] | None:
    """Return the tokens of a text without its comments; None if a quote is left open."""
    found = raw_tokens(text, db_type)
    if found is None:
        return None
    return [each for token in found for each in _split_keyword(text, token)]


def _split_keyword(text: str, token: Any) -> Iterator[_Token]:
    """Yield a token; for a keyword of several words (`UPDATE STATISTICS`), each word."""
    written = text[token.start : token.end + 1]
    if _QUOTED.match(written) is not None:
        yield _Token(written, "", token.text, token.start)
        return
    for part in _NO_BLANKS.finditer(written):
        name = part.group() if part.group() != written else token.text
        yield _Token(part.group(), _word(part.group()), name, token.start + part.start())


def _word(written: str) -> str:
    return written.upper() if _WORD.fullmatch(written) else ""


@cache
def _tokenizer_class(dialect: Any) -> Any:
    """Return the dialect's tokenizer, changed to split what follows SHOW or CALL instead of reading it as one text."""
    return type("Tokenizer", (dialect.tokenizer_class,), {"COMMANDS": set[Any]()})


def _tokenizer(db_type: str) -> Any:
    """Return a tokenizer for a kind of database. Raises LibraryMissing if the parser is not installed."""
    try:
        from sqlglot import Dialect
    except ImportError as error:
        raise library_missing("sql", "SQL statements") from error
    dialect = Dialect.get_or_raise(DIALECTS[db_type])
    return _tokenizer_class(type(dialect))(dialect=dialect)
