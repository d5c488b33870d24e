"""KeenableSearch: web search through keenable.ai, with a key or, in the mode `pro`, without.

DSL: `query`, `site`, `api_key`, `mode`, `top_n`. A deployment may set another server (`KEENABLE_API_URL`). Keys are
sent to it, so it must use TLS or be on this machine.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import model_validator

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import one_of, positive
from providers.interfaces import HttpCall

SERVER = "https://api.keenable.ai"
TIMEOUT_SECONDS = 30.0
MODES = ("pro", "realtime")
_CALLER = {"User-Agent": "keenable-easel", "X-Keenable-Title": "Easel"}


class KeenableSearchParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    site: Any = ""
    api_key: Any = ""
    mode: Annotated[str, one_of("Keenable search mode", MODES)] = "pro"
    top_n: Annotated[int, positive("Top N")] = 10

    @property
    def key(self) -> str:
        """The stripped key; "" if there is none."""
        return value_text(self.api_key).strip()

    @model_validator(mode="after")
    def _realtime_has_a_key(self) -> "KeenableSearchParams":
        if self.mode == "realtime" and not self.key:
            raise ValueError("Keenable 'realtime' mode requires an API key")
        return self


async def search(params: KeenableSearchParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    body_params = {"query": value_text(arguments["query"]), "mode": params.mode}
    site = value_text(arguments["site"]).strip()
    if site:
        body_params["site"] = site
    headers = {**_CALLER, "X-API-Key": params.key} if params.key else _CALLER
    path = "/v1/search" if params.key else "/v1/search/public"
    server, is_named = _server(ctx.services.base_urls)
    call = HttpCall("POST", server + path, headers=headers, json=body_params, timeout=TIMEOUT_SECONDS, trusted=is_named)
    body = http.parse_object(await http.fetch(ctx, "KeenableSearch", call))
    rows = http.require_list(body.get("results"), "results")[: params.top_n]
    formalized = await citations.cite_hits((_hit(row) for row in rows if isinstance(row, Mapping)), ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


def _server(base_urls: Mapping[str, str]) -> tuple[str, bool]:
    """Return the server, and whether the deployment configured it. Raises ToolError if keys must not be sent to it."""
    named = base_urls.get("KEENABLE", "").strip().rstrip("/")
    if not named or "KEENABLESEARCH" in base_urls:
        return SERVER, False
    try:
        split = urlsplit(named)
        host = (split.hostname or "").lower()
    except ValueError:
        raise ToolError("KEENABLE_API_URL is not a valid URL. Use one such as https://api.keenable.ai.") from None
    if not host or not (split.scheme == "https" or (split.scheme == "http" and _is_this_machine(host))):
        raise ToolError("KEENABLE_API_URL must begin with https, or with http where the host is this machine.")
    return named, True


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a host name
        return False


def _hit(row: Mapping[str, Any]) -> Hit:
    texts = (value_text(row.get(name) or "").split() for name in ("snippet", "description"))
    return Hit(row.get("title"), row.get("url"), " ".join(next(filter(None, texts), ())))


KEENABLE_SEARCH = Tool(
    "KeenableSearch",
    "keenable_search",
    KeenableSearchParams,
    description="Searches the web. Use it for facts, current events and pages on a subject.",
    arguments={
        "query": Argument("string", "A short, specific question or key words.", required=True, default="{sys.query}"),
        "site": Argument("string", "Search this site only, such as example.com; else leave it empty.", default=""),
    },
    call=search,
    effect="idempotent",
    brings_sources=True,
    error_label="Keenable",
)
