"""Routes of files: upload for an agent, download, and files that runs have produced.

A file that a browser would execute as a page is never sent inline, and browsers may not guess another type.
"""

import re
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from api.agents.agents import get_caller_canvas
from api.http.errors import no_access, not_found
from api.http.ranges import ranged_reply
from api.http.replies import parse_canvas_id, parse_id, success
from api.requests.auth import (
    AnyTokenCaller,
    ApiTokenCaller,
    FileUploader,
    FileViewer,
    RequestPrincipal,
    Viewer,
)
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import IdempotentRequest, make_file_request
from api.requests.scopes import NEEDS_READ, NEEDS_RUN, OF_ONE_AGENT
from api.requests.uploads import (
    MAX_NAME_CHARS,
    OCTETS,
    fetch_file,
    file_json,
    guess_type,
    mime_type_of,
    open_uploads,
    store_upload,
)
from canvas.errors import NotFound
from providers.interfaces import Http
from store.tenants import uploads
from store.tenants.uploads import StoredFile, StoredRef

router = APIRouter(tags=["files"], dependencies=[NEEDS_READ])
old_router = APIRouter(tags=["files"], dependencies=[NEEDS_READ])  # paths of older clients, below `/v1`

UNKNOWN = "document not found"

# types that may contain scripts or are scripts
_PAGES = re.compile(r"html|xml|xsl|svg|mimearchive|script|^message/|^multipart/")
_PICTURES = frozenset({"image/png", "image/jpeg"})
_PAGE_EXTENSIONS = frozenset(
    {"html", "htm", "shtml", "xhtml", "xht", "xml", "xsl", "xslt", "svg", "svgz", "mht", "mhtml", "js", "mjs", "cjs"}
)
FORM = {
    "type": "object",
    "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
    "required": ["file"],
}


def get_http(request: Request) -> Http:
    """Return the process's HTTP client, for uploads by URL."""
    http: Http = request.app.state.http
    return http


# -- upload -----------------------------------------------------------------------------------------------------------


@router.post(
    "/agents/{agent_id}/upload",
    openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": FORM}}, "required": True}},
    dependencies=[NEEDS_RUN],
)
async def upload(
    request: Request,
    context: ApiContextDep,
    principal: FileUploader,
    http: Annotated[Http, Depends(get_http)],
    agent_id: str,
    url: str = "",
) -> Response:
    """Store files. The returned descriptors go into `files` and file inputs of a turn.

    With exactly one file and `url`, the file at that address is stored instead.
    """
    await run_in_thread(lambda: _check_agent(context, principal, agent_id))
    blobs = context.blobs
    async with open_uploads(request) as found:
        once = await run_in_thread(
            lambda: make_file_request(request, principal, [(file.filename or "", file.file) for file in found])
        )
        await run_in_thread(lambda: once.check_repeat(context.database))
        if url and len(found) == 1:
            remote_file = await fetch_file(http, url)
            stored_files = [
                await run_in_thread(
                    lambda: uploads.store_content(blobs, remote_file.name, remote_file.mime_type, remote_file.data)
                )
            ]
        else:
            stored_files = await run_in_thread(lambda: [store_upload(blobs, file) for file in found])
    return await run_in_thread(lambda: _store_rows(context, principal, once, stored_files))


def _check_agent(context: ApiContext, principal: RequestPrincipal, agent_id: str) -> None:
    canvas_id = parse_canvas_id(agent_id)
    if canvas_id is not None and not principal.may_use(canvas_id):
        raise no_access()
    with context.database.transaction() as tx:
        get_caller_canvas(tx, principal, agent_id)


def _store_rows(
    context: ApiContext, principal: RequestPrincipal, once: IdempotentRequest, stored_files: list[StoredRef]
) -> Response:
    """Store the rows of all files of a request, in one transaction."""
    with once.transaction(context.database) as tx:
        rows = [
            uploads.register(
                tx, principal.tenant_id, file, created_by=principal.user_id, token_id=principal.uploader_id
            )
            for file in stored_files
        ]
        stored = [file_json(row) for row in rows]
        return once.store_reply(tx, success(stored[0] if len(stored) == 1 else stored))


# -- download ---------------------------------------------------------------------------------------------------------


@router.get("/agents/download", dependencies=[OF_ONE_AGENT])
def download(
    request: Request,
    context: ApiContextDep,
    principal: ApiTokenCaller,
    id: str = "",  # noqa: A002 - the name on the wire
    created_by: str = "",
) -> Response:
    """Download an uploaded file. With `created_by`, which RAGFlow's clients send, only if it belongs to that user."""
    file, data = _read(context, principal, id, created_by)
    return file_reply(request, data, file.sha256, OCTETS, file.name, is_inline=False)


@router.get("/agents/attachments/{attachment_id}/download", dependencies=[OF_ONE_AGENT])
def download_attachment(
    request: Request,
    context: ApiContextDep,
    principal: FileViewer,
    attachment_id: str,
    ext: str = "",
    mime_type: str = "",
    filename: str = "",
    disposition: str = "",
    created_by: str = "",
) -> Response:
    """Download a file that a run has produced. `disposition=inline` shows it in the browser, unless it is a page."""
    return _download(request, context, principal, attachment_id, ext, mime_type, filename, disposition, created_by)


@router.get("/document/download/{attachment_id}", deprecated=True, dependencies=[OF_ONE_AGENT])
@old_router.get(
    "/v1/document/download/{attachment_id}",
    operation_id="download_document_v1",
    deprecated=True,
    dependencies=[OF_ONE_AGENT],
)
def download_document(
    request: Request,
    context: ApiContextDep,
    principal: AnyTokenCaller,
    attachment_id: str,
    ext: str = "",
    mime_type: str = "",
    filename: str = "",
    disposition: str = "",
    created_by: str = "",
) -> Response:
    """Download a file that a run has produced, at the path of older clients."""
    return _download(request, context, principal, attachment_id, ext, mime_type, filename, disposition, created_by)


def _download(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    attachment_id: str,
    ext: str,
    mime_type: str,
    filename: str,
    disposition: str,
    created_by: str,
) -> Response:
    file, data = _read(context, principal, attachment_id, created_by)
    kind = _reply_type(mime_type, ext)
    return file_reply(
        request,
        data,
        file.sha256,
        kind,
        filename or file.name,
        is_inline=disposition == "inline" and not is_page(kind, ext),
    )


@router.get("/agents/attachments/{attachment_id}/preview", dependencies=[OF_ONE_AGENT])
def preview_attachment(
    request: Request,
    context: ApiContextDep,
    principal: Viewer,
    attachment_id: str,
    ext: str = "",
    mime_type: str = "",
    filename: str = "",
    created_by: str = "",
) -> Response:
    """Show a file that a run has produced in the browser."""
    file, data = _read(context, principal, attachment_id, created_by)
    kind = _reply_type(mime_type, ext)
    return file_reply(request, data, file.sha256, kind, filename or file.name, is_inline=not is_page(kind, ext))


@router.get("/documents/artifact/{name}", dependencies=[OF_ONE_AGENT])
def show_artifact(
    request: Request, context: ApiContextDep, principal: FileViewer, name: str, session_id: str = ""
) -> Response:
    """Get a file that a program of CodeExec has produced. Its links have the form `{id}.{extension}`.

    Pictures are shown in the browser, other files are attachments. `session_id`, if given, is the run that made it.
    """
    file, data = _read(context, principal, name.partition(".")[0])
    if session_id and file.run_id != parse_id(session_id):
        raise not_found(UNKNOWN)
    kind = mime_type_of(file.mime_type) or OCTETS
    return file_reply(request, data, file.sha256, kind, file.name, is_inline=kind in _PICTURES)


def _read(
    context: ApiContext, principal: RequestPrincipal, written: str, created_by: str = ""
) -> tuple[StoredFile, bytes]:
    """Return a file of the caller with its bytes; share links reach only files that came by them.

    Raises RequestRefused for a missing file and for one of another owner.
    `created_by`: the owner that the file must have, as uploads and descriptors show it, or the tenant. "": any owner.
    """
    file_id = parse_id(written)
    if file_id is None:
        raise not_found(UNKNOWN)
    with context.database.transaction() as tx:
        file = uploads.get(tx, principal.tenant_id, file_id, token_id=principal.uploader_id, canvas_id=principal.agent)
    if created_by not in ("", file.created_by) and parse_id(created_by) != principal.tenant_id:
        raise not_found(UNKNOWN)
    try:
        return file, context.blobs.get(file.sha256)
    except NotFound:
        raise not_found(UNKNOWN) from None


def _reply_type(mime_type: str, ext: str) -> str:
    """Return the media type of a reply: the requested one, else by extension."""
    return mime_type_of(mime_type) or guess_type(f"file.{_clean_extension(ext)}")


def is_page(kind: str, ext: str) -> bool:
    """Return whether a file may contain scripts, by its media type or its extension."""
    return _PAGES.search(kind) is not None or _clean_extension(ext) in _PAGE_EXTENSIONS


def _clean_extension(ext: str) -> str:
    """Return an extension reduced to letters and digits."""
    return re.sub(r"[^a-z0-9]", "", ext.lower())


def file_reply(request: Request, data: bytes, digest: bytes, kind: str, name: str, *, is_inline: bool) -> Response:
    """Return the reply with a file or a part of it, with headers that keep browsers from guessing another type."""
    headers = {
        "Content-Disposition": "inline" if is_inline else f"attachment{_disposition_name(name)}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    }
    return ranged_reply(request, data, digest, kind, headers)


def _disposition_name(name: str) -> str:
    """Return a file name for Content-Disposition; a name beyond ASCII also in the extended form."""
    whole = re.sub(r"[^\w.-]", "_", name[-MAX_NAME_CHARS:])
    plain = re.sub(r"[^\w.-]", "_", whole, flags=re.ASCII)
    extended = f"; filename*=UTF-8''{quote(whole)}" if whole != plain else ""
    return f'; filename="{plain}"{extended}'
