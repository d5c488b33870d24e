"""BGPT: search of scientific papers, with their methods, limitations and blind spots.

DSL: `query`, `top_n`, `api_key`, `days_back`. A final error begins with `HTTP error: `, a transient one with
`Network error: `, as upstream.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from canvas.errors import HttpFailed, ToolError
from components.context import NodeContext
from components.text.templates.templates import plain_text, value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import positive, whole_number
from providers.interfaces import HttpCall, HttpResponse

SEARCH = "https://bgpt.pro/api/mcp-search"
TIMEOUT_SECONDS = 25.0
MISSING_TEXT = "-"

_LINES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Title", ("title",)),
    ("Authors", ("authors",)),
    ("Journal", ("journal",)),
    ("Year", ("year",)),
    ("DOI", ("doi",)),
    ("Abstract", ("abstract",)),
    ("Methods", ("methods_and_experimental_techniques", "methods")),
    (
        "Sample size / population",
        ("sample_size_and_population_characteristics", "sample_size_and_population"),
    ),
    ("Results", ("results_and_conclusions", "results")),
    ("Limitations", ("paper_limitations_and_biases", "limitations")),
    ("Conflicts of interest", ("conflict_of_interest_statements", "conflict_of_interest")),
    ("Data availability", ("data_availability_statements", "data_availability")),
    ("Blind spots", ("study_blindspots",)),
    ("How to falsify", ("how_to_falsify",)),
)
"""The lines that a model gets of a paper: each line's label, and the members that may hold its text."""


def _parse_days(value: Any) -> int | None:
    """Return a number of days; None for no value and for 0. Raises ValueError for anything else."""
    number = 0 if value is None or value == "" else whole_number(value)
    if number is None or number < 0:
        raise ValueError(f"BGPT days back {value} not supported, should be positive integer")
    return number or None


class BGPTParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    top_n: Annotated[int, positive("Top N")] = 10
    api_key: Any = ""
    days_back: Annotated[int | None, BeforeValidator(_parse_days)] = None


async def search(params: BGPTParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    body: dict[str, Any] = {"query": value_text(arguments["query"]).strip(), "num_results": params.top_n}
    if params.api_key:
        body["api_key"] = params.api_key
    if params.days_back:
        body["days_back"] = params.days_back
    rows = _parse_rows(await _fetch(body, ctx))
    formalized = await citations.cite_hits((_hit(row) for row in rows if isinstance(row, Mapping)), ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


async def _fetch(body: Mapping[str, Any], ctx: NodeContext) -> HttpResponse:
    try:
        return await http.fetch(ctx, "BGPT", HttpCall("POST", SEARCH, json=body, timeout=TIMEOUT_SECONDS))
    except HttpFailed as failed:
        status = failed.details.get("status", 0)
        for_good = 400 <= status < 500 and status != HTTPStatus.TOO_MANY_REQUESTS
        text = f"{'HTTP' if for_good else 'Network'} error: {failed.message}"
        raise HttpFailed(text, retryable=failed.retryable and not for_good, **failed.details) from failed


def _parse_rows(reply: HttpResponse) -> list[Any]:
    body = http.parse_json(reply)
    if not isinstance(body, dict):
        raise ToolError("Invalid response from BGPT")
    rows = body.get("results")
    if not isinstance(rows, list):
        raise ToolError("Invalid results format from BGPT")
    return rows


def _hit(row: Mapping[str, Any]) -> Hit:
    lines = (f"{label}: {_first_text(row, names) or MISSING_TEXT}" for label, names in _LINES)
    return Hit(_first_text(row, ("title",)) or "Untitled", _first_text(row, ("url", "doi")), "\n".join(lines))


def _first_text(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first member that is not blank; a list or an object as its Python `repr`, as upstream."""
    found = (plain_text(row.get(name)).strip() for name in names)
    return next((text for text in found if text), "")


BGPT = Tool(
    "BGPT",
    "bgpt_search",
    BGPTParams,
    description=(
        "Searches scientific papers, and returns their methods, samples, results, limitations and conflicts of "
        "interest. Use it where a claim needs evidence."
    ),
    arguments={"query": Argument("string", "The question or claim, in words.", required=True, default="{sys.query}")},
    call=search,
    effect="idempotent",
    brings_sources=True,
)
