"""The types that the pages are written against are those of the routes."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.openapi_document import PATH, RENEW, ROOT, document_text

VIEWER = ROOT / "viewer"
GENERATOR = VIEWER / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
OF_PAGES = re.compile(r"/api/v1/(runs|schedules|viewer|components|agents/\{agent_id\}/runs)(/|$)")


def test_openapi_document_of_the_pages_is_that_of_the_routes() -> None:  # T113, T145
    assert PATH.read_text() == document_text(), f"{PATH.relative_to(ROOT)} is stale: {RENEW}"


@pytest.mark.skipif(shutil.which("node") is None or not GENERATOR.exists(), reason="needs Node, and `npm ci` in viewer")
def test_types_of_the_pages_are_those_of_the_openapi_document() -> None:  # T113
    made = subprocess.run(
        ["node", str(GENERATOR), "--default-non-nullable=false", "openapi.json"],
        cwd=VIEWER,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert (VIEWER / "src" / "api" / "schema.ts").read_text() == made.stdout, f"schema.ts is stale: {RENEW}"


def successes_of_pages() -> list[tuple[str, dict[str, Any]]]:
    """Return each good reply with a body of the routes that pages use, `GET /api/v1/runs 200`, and its declaration."""
    paths: dict[str, Any] = json.loads(PATH.read_text())["paths"]
    return [
        (f"{method.upper()} {path} {status}", reply)
        for path, methods in paths.items()
        if OF_PAGES.match(path)
        for method, operation in methods.items()
        for status, reply in operation["responses"].items()
        if status.startswith("2") and status != "204"
    ]


@pytest.mark.parametrize(
    ("name", "reply"), successes_of_pages(), ids=lambda each: each if isinstance(each, str) else ""
)
def test_every_reply_to_the_pages_has_a_model(name: str, reply: dict[str, Any]) -> None:
    declared = [
        reply["content"][kind] for kind in ("application/json", "text/event-stream") if kind in reply["content"]
    ]

    assert declared
    assert declared[0]["schema"], f"{name} declares no `response_model`"


def test_routes_of_the_pages_are_found() -> None:
    names = [name for name, _ in successes_of_pages()]

    assert len(names) > 25
    assert {"GET /api/v1/runs/{run_id} 200", "POST /api/v1/agents/{agent_id}/runs 202"} <= set(names)
