"""Uploaded files of a run, as nodes read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from canvas.errors import NodeFailure, NotFound
from canvas.ids import RunId, TenantId
from components.text.extraction.file_texts import UnparsedFile
from store.db.database import Database
from store.files.blobs import Blobs
from store.tenants import uploads

ReadFile = Callable[[TenantId, RunId, Mapping[str, Any], str], str | UnparsedFile]
"""(tenant, run, descriptor, layout) -> the text of a file, or its bytes."""


@dataclass(frozen=True, slots=True)
class UploadedFiles:
    """Reads uploads from the file storage."""

    database: Database
    blobs: Blobs | None

    def read(
        self, tenant_id: TenantId, run_id: RunId, descriptor: Mapping[str, Any], layout_recognize: str
    ) -> UnparsedFile:
        """Return an upload, which becomes a data URI (images) or one text block. Raises NodeFailure if it is gone."""
        if self.blobs is None:
            raise NodeFailure("This worker has no file storage. Set EASEL_FILES_DIR.")
        name = str(descriptor.get("name") or descriptor.get("id"))
        try:
            file_id = UUID(str(descriptor.get("id")))
            with self.database.statements() as tx:
                stored = uploads.get_for_run(tx, tenant_id, file_id, run_id)
            data = self.blobs.get(stored.sha256)
        except (NotFound, ValueError) as error:
            raise NodeFailure(f'The file "{name}" is not there. Upload it again.') from error
        return UnparsedFile(name, str(descriptor.get("mime_type") or stored.mime_type), data)
