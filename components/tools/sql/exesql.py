"""ExeSQL: run read-only SQL on a database.

DSL: `sql`, `db_type`, `host`, `port`, `database`, `username`, `password`, `max_records`, and as additions of Easel
`reject_all` and `bind_references`. `json` has one element for each statement of `sql`: its rows, or
`{"content": message}`. A statement that is refused or fails does not stop the others (docs/tools.md, row T14); with
`reject_all`, one refused statement stops all. With `bind_references`, referenced values are passed as bound values.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework.base import Argument, TextWithReferences, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import flag, not_empty, one_of, positive
from components.tools.sql import bind_values, read_only_rules, result_table
from components.tools.sql.bind_values import MarkedText
from providers.interfaces import DatabaseSession
from providers.isolation.untrusted_threads import in_untrusted_thread

NO_ROWS = "No record in the database!"
_RAGFLOW_DATABASE, _RAGFLOW_HOST, _RAGFLOW_PASSWORD = "rag_flow", "ragflow-mysql", "infini_rag_flow"


class ExeSQLParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("password",)

    db_type: Annotated[str, one_of("Choose DB type", tuple(read_only_rules.DIALECTS))] = "mysql"
    database: Annotated[Any, not_empty("Database name")] = Field("", validate_default=True)
    username: Annotated[Any, not_empty("database username")] = Field("", validate_default=True)
    host: Annotated[Any, not_empty("IP Address")] = Field("", validate_default=True)
    port: Annotated[int, positive("IP Port")] = 3306
    password: Any = Field("", repr=False)
    max_records: Annotated[int, positive("Maximum number of records")] = 1024
    reject_all: Annotated[bool, flag("Reject all")] = False
    bind_references: Annotated[bool, flag("Bind references")] = False

    @field_validator("db_type", mode="before")
    @classmethod
    def _known_in_any_case(cls, db_type: Any) -> Any:
        by_lower_case = {name.lower(): name for name in read_only_rules.DIALECTS}
        return by_lower_case.get(db_type.strip().lower(), db_type) if isinstance(db_type, str) else db_type

    @model_validator(mode="after")
    def _has_a_password(self) -> "ExeSQLParams":
        if not self.password and self.db_type != "trino":
            raise ValueError("Database password does not support empty value.")
        return self

    @model_validator(mode="after")
    def _is_not_ragflows_own(self) -> "ExeSQLParams":
        if self.database == _RAGFLOW_DATABASE and (self.host == _RAGFLOW_HOST or self.password == _RAGFLOW_PASSWORD):
            raise ValueError("For the security reason, it does not support database named rag_flow.")
        return self


async def run_queries(params: ExeSQLParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    sql = arguments.get("sql")
    written = (
        bind_values.mark_references(sql.text, sql.values)
        if isinstance(sql, TextWithReferences)
        else MarkedText(value_text(sql))
    )
    statements = await in_untrusted_thread(read_only_rules.split_statements, written.text, params.db_type)
    if not statements:
        raise ToolError("SQL for `ExeSQL` MUST not be empty.")
    refusals = await in_untrusted_thread(
        lambda: [read_only_rules.refusal_reason(each, params.db_type) for each in statements]
    )
    refused = next((text for text in refusals if text), None)
    if params.reject_all and refused:
        raise ToolError(written.restore_references(refused))
    if ctx.services.databases is None:
        raise ToolError("ExeSQL is not available: this deployment does not allow its canvases to reach databases.")
    target = {name: getattr(params, name) for name in ("db_type", "host", "port", "database", "username", "password")}
    target["timeout"] = ctx.time_limit(EXESQL.name)
    async with ctx.services.databases.connect(target) as connection:
        answers = [
            _message_element(written.restore_references(refusal))
            if refusal
            else await _run_statement(statement, written, params, connection)
            for statement, refusal in zip(statements, refusals, strict=True)
        ]
    formalized = "\n\n".join(text for _, text in answers if text)
    return ToolResult({"formalized_content": formalized, "json": [element for element, _ in answers]}, formalized)


async def _run_statement(
    statement: str, written: MarkedText, params: ExeSQLParams, connection: DatabaseSession
) -> tuple[Any, str]:
    """Run one statement; return its element of `json` and its text."""
    try:
        sent = (
            await in_untrusted_thread(written.bind, statement, params.db_type)
            if written.values_by_marker
            else statement
        )
        rows = await connection.execute(sent, params.max_records)
    except ToolError as error:
        return _message_element(written.restore_references(read_only_rules.failure_text(statement, error.message)))
    if not rows.rows:
        return {"content": NO_ROWS}, ""
    return await in_untrusted_thread(lambda: (result_table.json_rows(rows), result_table.text_table(rows)))


def _message_element(message: str) -> tuple[Any, str]:
    return {"content": message}, message


EXESQL = Tool(
    "ExeSQL",
    "execute_sql",
    ExeSQLParams,
    description="Runs SQL queries on a database and returns their rows. Queries may only read.",
    arguments={
        "sql": Argument(
            "string",
            "One query, or several with semicolons between them, in the database's own dialect.",
            required=True,
            default="{sys.query}",
        )
    },
    call=run_queries,
    effect="idempotent",
    empty_outputs=None,
    unresolved_arguments=lambda params: ("sql",) if params.bind_references else (),
)
