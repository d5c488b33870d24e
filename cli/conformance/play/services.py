"""The services of a case's tenant: knowledge bases, web search, databases and code, as the case scripts them.

Web search is answered as its vendor's API would answer, below the tool, so that the tool's own code runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from canvas.errors import ToolError
from cli.conformance.cases import Case
from cli.conformance.play import fixtures
from providers.interfaces import Call, Http, Reply, RetrievalQuery, Services
from providers.sandboxes.local import LocalSandbox

TAVILY = "http://tavily.invalid"


def services_of(case: Case, common: Services) -> Services:
    """The common services, with what the case scripts in their place."""
    return replace(
        common,
        http=_Http(common.http, case.tavily),
        retriever=_Retriever(case.retrieval),
        sandbox=LocalSandbox(allow_root=True),  # the cases' own code, in a process of its own
        databases=fixtures.SqliteDatabases(case.sql),
        base_urls={**common.base_urls, "TAVILYSEARCH": TAVILY},
    )


@dataclass(frozen=True, slots=True)
class _Http:
    """Requests go out, but for those to the web search."""

    real: Http
    tavily: Sequence[Mapping[str, Any]]

    async def send(self, call: Call) -> Reply:
        if not call.url.startswith(TAVILY):
            return await self.real.send(call)
        query = str(call.json["query"]) if isinstance(call.json, Mapping) else ""
        try:
            body, status = {"results": fixtures.searched(self.tavily, query)}, 200
        except ToolError as error:
            body, status = {"detail": {"error": error.message}}, 400
        return Reply(status, {"content-type": "application/json"}, orjson.dumps(body), call.url)


@dataclass(frozen=True, slots=True)
class _Retriever:
    """Every dataset exists, and holds what the case says."""

    entries: Sequence[Mapping[str, Any]]

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        return fixtures.retrieved(self.entries, search.question)
