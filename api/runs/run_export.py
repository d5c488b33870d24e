"""A run as one file, for bug reports and for reading without a server."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import Any, Literal, TextIO

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse

from api.http.reply_styles import OwnRoute
from api.requests.auth import Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.runs.reply_models import RunFileReply
from api.runs.run_lookup import find_run_id, run_not_found
from scheduler.views.run_file import RunFile
from store.db.transaction import USE_SNAPSHOT
from store.runs import run_queries
from store.runs.run_queries import RunSummary

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])

CHUNK_CHARS = 64 * 1024


@router.get("/runs/{run_id}/export", response_model=RunFileReply)
def export_run(context: ApiContextDep, principal: Viewer, run_id: str, large: Literal["0", "1"] = "0") -> Response:
    """Get all that is stored about a run as one JSON document, `easel-run/1`.

    Values above 1 MiB are cut, unless `large=1`. The document is of one moment, and is complete before it is sent.
    """

    def mask(run: RunSummary, document: Mapping[str, Any]) -> Mapping[str, Any]:
        return context.canvas_secrets(principal.tenant_id, run.canvas_id).mask_document(document)

    with ExitStack() as stack:
        file = stack.enter_context(TemporaryFile("w+", encoding="utf-8"))
        with context.database.transaction() as tx:
            tx.execute(USE_SNAPSHOT)
            run = run_queries.get_summary(tx, principal.tenant_id, find_run_id(tx, principal.tenant_id, run_id))
            if run is None:
                raise run_not_found(run_id)
            RunFile(tx, context.versions, principal.tenant_id, run, mask, has_large=large == "1").write(file)
        stack.pop_all()  # the reply closes it
    file.seek(0)
    name = f'attachment; filename="run-{run.id.hex}.json"'
    return StreamingResponse(_chunks(file), media_type="application/json", headers={"Content-Disposition": name})


def _chunks(file: TextIO) -> Generator[str]:
    with file:
        while chunk := file.read(CHUNK_CHARS):
            yield chunk
