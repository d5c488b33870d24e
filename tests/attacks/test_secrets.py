"""Vendors that send keys back: in errors, in results, in other encodings, cut in the middle."""

import asyncio
import json
from typing import Any, cast
from urllib.parse import quote, quote_plus

import pytest

from canvas.errors import HttpFailed
from canvas.outcome import Failed, Finished
from components import tools
from components.context import NodeContext
from components.tools.framework.tool_node import tool_component
from providers.interfaces import HttpCall, HttpResponse, Services
from tests.fakes import FakeContext, FakeHttp

KEY = 's3cret/k3y+"0123&456=789é'
SPELLINGS = (KEY, quote(KEY, safe=""), quote_plus(KEY), json.dumps(KEY, ensure_ascii=False)[1:-1])
# tool -> the parameter that is its key, and other required parameters
TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "BGPT": ("api_key", {}),
    "DeepL": ("auth_key", {}),
    "Google": ("api_key", {"q": "x"}),
    "KeenableSearch": ("api_key", {}),
    "QueritSearch": ("api_key", {}),
    "QWeather": ("web_apikey", {}),
    "TavilySearch": ("api_key", {}),
    "TuShare": ("token", {}),
    "Jin10": ("secret_key", {}),
}
VENDOR_REPLIES = {
    "as an error": lambda text: HttpResponse(
        401, {"content-type": "text/plain"}, text.encode(), "https://vendor.test/"
    ),
    "as a server's error": lambda text: HttpResponse(500, {}, text.encode(), "https://vendor.test/"),
    "cut in the middle": lambda text: HttpResponse(400, {}, b"x" * 185 + text.encode(), "https://vendor.test/"),
    "as no JSON": lambda text: HttpResponse(200, {}, text.encode(), "https://vendor.test/"),
    "as a message": lambda text: HttpResponse(
        200, {}, json.dumps({"error": text, "message": text, "msg": text, "code": 7}).encode(), ""
    ),
    "as a result": lambda text: HttpResponse(
        200,
        {},
        json.dumps({"results": [{"title": text, "url": text, "content": text, text: text}], "code": 0}).encode(),
        "",
    ),
    "over no connection": None,
}


@pytest.mark.parametrize("reply_kind", VENDOR_REPLIES)
@pytest.mark.parametrize("name", TOOLS)
def test_key_sent_back_by_a_vendor_is_not_shown(name: str, reply_kind: str):
    field, other_params = TOOLS[name]
    tool = tools.find(name)
    assert tool is not None
    reply = VENDOR_REPLIES[reply_kind]

    def answer(call: HttpCall) -> HttpResponse:
        requests.append(call)
        if reply is None:
            raise HttpFailed(f"https://vendor.test: cannot connect with {' '.join(SPELLINGS)}")
        return reply(" ".join(SPELLINGS))

    requests: list[HttpCall] = []
    ctx = FakeContext(services=Services(FakeHttp(answer)), limits={name: 5.0})
    params = {"query": "x", "text": "x", "max_retries": 0, "delay_after_error": 0, field: KEY, **other_params}

    outcome: Any = asyncio.run(
        cast(Any, tool_component(tool).run(tool.params.model_validate(params), cast(NodeContext, ctx)))
    )

    assert requests
    assert isinstance(outcome, Finished | Failed)
    shown = f"{outcome} {ctx.reference_store} {ctx.inputs} {ctx.traces} {tool.params.model_validate(params)!r}"
    assert [spelling for spelling in (*SPELLINGS, KEY[:10]) if spelling in shown] == []
