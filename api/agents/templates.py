"""Templates of agents: the files of examples/templates, which run on the built-in model, and the route that lists them.

The list has RAGFlow's shape; the id of a template is the name of its file. Easel adds an example, which is the body of
a start (`query`, `inputs`) that shows what the agent does.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.replies import date, success
from api.requests.auth import Viewer
from api.requests.scopes import NEEDS_READ, OF_ONE_AGENT
from scheduler.views.json_values import milliseconds

router = APIRouter(tags=["agents"], dependencies=[NEEDS_READ])

FOLDER = Path(__file__).parents[2] / "examples" / "templates"
SIMPLEST = "chat"
MODEL = "echo@Easel"
"""The model of every node of a template, which needs no vendor."""


@cache
def read_templates() -> Mapping[str, Mapping[str, Any]]:
    """Return the templates by id, as the list shows them: the simplest first, then in the order of their ids."""
    paths = sorted(FOLDER.glob("*.json"), key=lambda path: (path.stem != SIMPLEST, path.stem))
    return {path.stem: _template_json(path) for path in paths}


@router.get("/agents/templates", dependencies=[OF_ONE_AGENT])
def list_templates(principal: Viewer) -> Response:
    """List templates of agents with their documents."""
    return success(list(read_templates().values()))


def with_model(document: Any, llm_id: str) -> Any:
    """Return a template's document with another model in every node that has the built-in one."""
    if isinstance(document, Mapping):
        members: Iterable[tuple[str, Any]] = document.items()
        return {
            key: llm_id if (key, value) == ("llm_id", MODEL) else with_model(value, llm_id) for key, value in members
        }
    items: Any = document
    return [with_model(item, llm_id) for item in items] if isinstance(items, list) else items


def _template_json(path: Path) -> dict[str, Any]:
    changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    times = {
        f"{what}_{unit}": value
        for what in ("create", "update")
        for unit, value in (("time", milliseconds(changed_at)), ("date", date(changed_at)))
    }
    return {"id": path.stem, "avatar": None, **json.loads(path.read_text(encoding="utf-8")), **times}
