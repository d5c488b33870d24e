"""Fake vendors with fixed replies, and the two widgets of the specification's examples.

http = vendor(json_reply({"results": []}))
outcome = on_node(TAVILY_SEARCH, {"query": "widgets"}, http)
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from canvas.errors import AddressRefused, HttpFailed
from canvas.outcome import Failed, Finished
from components.tools.framework.base import Tool, ToolRun
from components.tools.framework.tool_node import tool_component
from providers.interfaces import HttpCall, HttpResponse, Services
from tests.fakes import FakeContext, FakeHttp, run

W1 = {"title": "Widget prices rise", "url": "https://example.com/a", "content": "Widget prices rose 4% in May."}
W2 = {"title": "Widget supply", "url": "https://example.com/b", "content": "Supply stayed flat."}
FC_W1 = (
    "\nID: 373\n├── Title: Widget prices rise\n├── URL: https://example.com/a\n"
    "└── Content:\nWidget prices rose 4% in May."
)
FC_W2 = "\nID: 194\n├── Title: Widget supply\n├── URL: https://example.com/b\n└── Content:\nSupply stayed flat."
FC = f"{FC_W1}\n{FC_W2}"

Answer = Callable[[HttpCall], HttpResponse]


def reply(body: bytes | str, status: int = 200, **headers: str) -> HttpResponse:
    content = body.encode() if isinstance(body, str) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status, named, content, "https://vendor.test/")


def json_reply(body: Any, status: int = 200, **headers: str) -> HttpResponse:
    return reply(json.dumps(body), status, **headers)


def vendor(*replies: HttpResponse) -> FakeHttp:
    """Return a client that gets these replies in order, the last one repeatedly."""
    left = list(replies)
    return FakeHttp(lambda call: left.pop(0) if len(left) > 1 else left[0])


def by_path(routes: Mapping[str, HttpResponse]) -> FakeHttp:
    """Return a client that gets a reply by a part of the URL, and 404 for other URLs."""
    return FakeHttp(lambda call: next((r for part, r in routes.items() if part in call.url), reply("no route", 404)))


def refusing(call: HttpCall) -> HttpResponse:
    raise AddressRefused("URL resolves to a non-public address (10.0.0.1), which is not allowed.")


def unreachable(call: HttpCall) -> HttpResponse:
    raise HttpFailed("The request took longer than 12 s.", retryable=True)


def context(http: FakeHttp, **known: Any) -> FakeContext:
    base_urls = known.pop("base_urls", {})
    return FakeContext(services=Services(http, base_urls=base_urls), **known)


def on_node(tool: Tool[Any], params: Mapping[str, Any], http: FakeHttp, **known: Any) -> Finished | Failed:
    """Run the tool as a node of a canvas."""
    outcome = run(tool_component(tool), params, context(http, **known))
    assert isinstance(outcome, Finished | Failed)
    return outcome


def outputs_of(tool: Tool[Any], params: Mapping[str, Any], http: FakeHttp, **known: Any) -> Mapping[str, Any]:
    outcome = on_node(tool, params, http, **known)
    assert isinstance(outcome, Finished), outcome
    return outcome.outputs


def error_of(tool: Tool[Any], params: Mapping[str, Any], http: FakeHttp, **known: Any) -> str:
    outcome = on_node(tool, params, http, **known)
    assert isinstance(outcome, Failed), outcome
    return outcome.error


def by_model(
    tool: Tool[Any], params: Mapping[str, Any], arguments: Mapping[str, Any], http: FakeHttp, **known: Any
) -> ToolRun:
    """Run the tool as a model calls it."""
    return asyncio.run(tool.run(tool.params.model_validate(params), arguments, context(http, **known)))
