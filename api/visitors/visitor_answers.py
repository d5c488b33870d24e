"""What a visitor of a share may answer: the open forms of the canvas itself, with values and own files, nothing else.

A run may also ask whether a node with side effects has acted, or wait for a higher budget: these questions are for the
owner of the run.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from api.http.schemas import ResumeBody
from api.requests.dependencies import ApiContext
from canvas.budget import budget_stop
from canvas.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from canvas.ids import TenantId
from store.runs import run_rows
from store.runs.external_ids import uuid_of
from store.tenants import uploads
from store.tenants.run_shares import SharedRun


def check_answers(context: ApiContext, tenant_id: TenantId, share: SharedRun, fields: ResumeBody) -> None:
    """Check the answers of a visitor.

    Raises NotAllowed for anything but `inputs`, and for a file that was not uploaded with this share; Conflict if no
    form of the canvas is open; InvalidRequest for a name that no open form has.
    """
    extra = sorted(fields.model_fields_set - {"inputs"})
    if extra:
        raise NotAllowed(f"Visitors of a share send `inputs` only, and not `{extra[0]}`.")
    with context.database.transaction() as tx:
        row = run_rows.read(tx, tenant_id, share.run_id)
        if row is None:
            raise NotFound(f"There is no run {share.run_id.hex}.")
        canvas = context.versions.get_or_empty(tx, row["version_id"]).canvas
        forms = [
            form
            for form in row["state"].get("forms", {}).values()
            if canvas.node(form[0]).kind.waits_for_user and budget_stop(form[3]) is None
        ]
        if not forms:
            raise Conflict("The run has no open form.", status=row["status"])
        known = {name for form in forms for name in form[3]}
        for name in fields.inputs or {}:
            if name not in known:
                message = f"`{name[:64]}` is not a field of an open form. The fields are: {', '.join(sorted(known))}."
                raise InvalidRequest(message, field=name[:64])
        ids = set(_ids_in(fields.inputs))
        if ids and uploads.has_other_files(tx, tenant_id, sorted(ids), share.id):
            raise NotAllowed("A visitor of a share sends files that were uploaded with this share only.")


def _ids_in(value: Any) -> Iterator[UUID]:
    """Yield every id in a value, whatever it stands for."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _ids_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _ids_in(inner)
    elif isinstance(value, str) and (found := uuid_of(value.strip())) is not None:
        yield found
