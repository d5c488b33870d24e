"""Any reply of a vendor becomes a result or a readable error of the tool."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.outcome import Failed, Finished
from components.tools import find
from components.tools.framework.base import Tool
from providers.interfaces import HttpResponse
from tests.unit.components.tools.vendors import on_node, reply, vendor

KEYS = ("code", "status", "data", "result", "cmsArticleWebOld", "fields", "items", "content", "title", "msg", "message")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 300) | st.floats(allow_nan=True) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
NODES: Mapping[str, Mapping[str, Any]] = {
    "AkShare": {},
    "Jin10": {},
    "Jin10 ": {"type": "symbols"},
    "Jin10  ": {"type": "news"},
    "TuShare": {"keyword": "a"},
}
GOOD: Mapping[str, Any] = {"AkShare": {"code": 0}, "Jin10": {"status": 200}, "TuShare": {"code": 0}}
TYPES = st.sampled_from(["", "text/html", "text/plain", "application/json", "text/html; charset=utf-16", "image/png"])


def tool(name: str) -> Tool[Any]:
    found = find(name.strip())
    assert found is not None
    return found


def assert_handled(name: str, params: Mapping[str, Any], answer: HttpResponse) -> None:
    """Assert that the tool returns a valid result or a readable error."""
    outcome = on_node(tool(name), {"query": "https://q.test/a", "delay_after_error": 0, **params}, vendor(answer))
    if isinstance(outcome, Failed):
        assert outcome.error
        assert not re.search(r"Traceback|Error\(|object has no attribute|'NoneType'|unhashable", outcome.error)
        return
    assert isinstance(outcome, Finished)
    assert isinstance(outcome.outputs["formalized_content"], str)
    json.dumps(outcome.outputs, ensure_ascii=False).encode()


@pytest.mark.parametrize("name", NODES)
@settings(max_examples=12, deadline=None)
@given(body=JSON, good=st.booleans())
def test_any_json_answer_is_handled_by_every_tool(name: str, body: Any, good: bool):
    if good and isinstance(body, dict):
        body |= GOOD[name.strip()]
    text = json.dumps(body)

    assert_handled(name, NODES[name], reply(f"cb({text})" if name == "AkShare" else text))


@pytest.mark.parametrize("name", ["AkShare", "Jin10", "TuShare", "Crawler"])
@settings(max_examples=12, deadline=None)
@given(body=st.binary(max_size=60), status=st.sampled_from([200, 200, 204, 302, 404, 500]), kind=TYPES)
def test_any_body_is_handled_by_every_tool(name: str, body: bytes, status: int, kind: str):
    assert_handled(name, {"keyword": "a"}, reply(body, status, content_type=kind))


FRAGMENTS = st.sampled_from(
    [
        "<a href='", "'>", "<td>", "</td>", "<tr>", "<table>", "</table>", "<li>", "<ol start=", "<ul>", "<pre>",
        "</a>", "<b>", "</b>", "x ", "\n", "|", "<br>", "<img src=", "<h2>", "&#0;", "<div hidden>", "</div>", "<!--",
        "-->", "<base href=",
    ]
)  # fmt: skip


@pytest.mark.parametrize("extract_type", ["markdown", "html", "content"])
@settings(max_examples=20, deadline=None)
@given(fragments=st.lists(FRAGMENTS, max_size=25))
def test_any_page_is_handled_by_the_crawler(extract_type: str, fragments: list[str]):
    assert_handled("Crawler", {"extract_type": extract_type}, reply("".join(fragments), content_type="text/html"))
