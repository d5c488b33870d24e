"""GitHub: search of public repositories, those with the most stars first.

DSL: `query`, `top_n`, `access_token` (an addition of Easel: more requests an hour). A 403 with a `Retry-After` or with
no requests remaining is a rate limit and is retried; every other 403 is final.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import positive
from providers.interfaces import HttpCall, HttpResponse

SEARCH = "https://api.github.com/search/repositories"
NO_ITEMS = "GitHub search returned no items."
MAX_ROWS = 100  # the most that the vendor returns in one answer
DEFAULT_WAIT = 60.0  # seconds, if the vendor does not say when it accepts requests again


class GitHubParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("access_token",)

    top_n: Annotated[int, positive("Top N")] = 10
    access_token: Any = ""


async def search(params: GitHubParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    if params.access_token:
        headers["Authorization"] = f"Bearer {params.access_token}"
    per_page = min(params.top_n, MAX_ROWS)
    query_params = {"q": value_text(arguments["query"]), "sort": "stars", "order": "desc", "per_page": per_page}
    reply = await http.send(ctx, "GitHub", HttpCall("GET", SEARCH, params=query_params, headers=headers))
    rows = http.list_in_reply(reply, "items", error_key="message", default_error=NO_ITEMS, wait=_rate_limit_wait(reply))
    formalized = await citations.cite_hits((_hit(row) for row in rows if isinstance(row, Mapping)), ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


def _rate_limit_wait(reply: HttpResponse) -> float | None:
    """Return the seconds until a rate limit is over; None if the reply is not about a rate limit."""
    is_used_up = reply.headers.get("x-ratelimit-remaining", "").strip() == "0"
    if reply.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS):
        return None
    if not is_used_up and "retry-after" not in reply.headers:
        return None
    reset = reply.headers.get("x-ratelimit-reset", "").strip()
    if not is_used_up or not reset.isdecimal():
        return DEFAULT_WAIT
    return max(0.0, float(reset[:12]) - datetime.now(UTC).timestamp())


def _hit(row: Mapping[str, Any]) -> Hit:
    """Return a repository as a search result: its description, if any, and a line with the stars."""
    stars = f" stars:{value_text(row.get('watchers'))}"
    return Hit(row.get("name"), row.get("html_url"), f"{value_text(row.get('description'))}\n{stars}".lstrip("\n"))


GITHUB = Tool(
    "GitHub",
    "github_search",
    GitHubParams,
    description="Searches public repositories on GitHub and returns their descriptions and stars.",
    arguments={
        "query": Argument("string", "Key words and GitHub's own qualifiers.", required=True, default="{sys.query}")
    },
    call=search,
    effect="idempotent",
    brings_sources=True,
)
