"""Templates of agents: the files of examples/templates, which run on the built-in model, and the route that lists them.

The list has RAGFlow's shape; the id of a template is the name of its file.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.replies import date, success
from api.requests.auth import Viewer
from scheduler.views.json_values import milliseconds

router = APIRouter(tags=["agents"])

FOLDER = Path(__file__).parents[2] / "examples" / "templates"


@cache
def read_templates() -> Mapping[str, Mapping[str, Any]]:
    """Return the templates by id, as the list shows them, in the order of their ids."""
    return {path.stem: _template_json(path) for path in sorted(FOLDER.glob("*.json"))}


@router.get("/agents/templates")
def list_templates(principal: Viewer) -> Response:
    """List templates of agents with their documents."""
    return success(list(read_templates().values()))


def _template_json(path: Path) -> dict[str, Any]:
    changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    times = {
        f"{what}_{unit}": value
        for what in ("create", "update")
        for unit, value in (("time", milliseconds(changed_at)), ("date", date(changed_at)))
    }
    return {"id": path.stem, "avatar": None, **json.loads(path.read_text(encoding="utf-8")), **times}
