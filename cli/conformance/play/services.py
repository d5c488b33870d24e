"""The services of a case's tenant: knowledge bases, web search, databases and code, as the case scripts them.

The fixture answers web searches like the vendor's API, below the tool, so that the tool's own code runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from canvas.errors import ToolError
from cli.conformance.cases import Case
from cli.conformance.play import fixtures
from providers.interfaces import Http, HttpCall, HttpResponse, RetrievalQuery, Services
from providers.sandboxes.local import LocalSandbox

TAVILY = "http://tavily.invalid"


def services_of(case: Case, common: Services) -> Services:
    """Return the common services, with those that the case scripts replaced."""
    return replace(
        common,
        http=_Http(common.http, case.tavily),
        retriever=_Retriever(case.retrieval),
        sandbox=LocalSandbox(allow_root=True),  # the code is that of the cases; it runs in a child process
        databases=fixtures.SqliteDatabases(case.sql),
        base_urls={**common.base_urls, "TAVILYSEARCH": TAVILY},
    )


@dataclass(frozen=True, slots=True)
class _Http:
    """Sends requests, and answers those to the web search from the case."""

    real: Http
    tavily: Sequence[Mapping[str, Any]]

    async def send(self, call: HttpCall) -> HttpResponse:
        if not call.url.startswith(TAVILY):
            return await self.real.send(call)
        query = str(call.json["query"]) if isinstance(call.json, Mapping) else ""
        try:
            body, status = {"results": fixtures.find_results(self.tavily, query)}, 200
        except ToolError as error:
            body, status = {"detail": {"error": error.message}}, 400
        return HttpResponse(status, {"content-type": "application/json"}, orjson.dumps(body), call.url)


@dataclass(frozen=True, slots=True)
class _Retriever:
    """Finds in every dataset what the case scripts."""

    entries: Sequence[Mapping[str, Any]]

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        return fixtures.find_chunks(self.entries, search.question)
