"""Files: upload for an agent, download, and what runs have produced (http-api 6).

What a browser would run as a page is never shown inline, and no reply may be taken for another type than it says.
"""

import re
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from api.agents.agents import canvas_of
from api.dependencies import Edge, TheEdge, in_thread
from api.http.auth import Anyone, Caller, Principal
from api.http.errors import absent, no_access
from api.http.idempotency import Keyed, by_files
from api.http.replies import id_of, success
from api.http.uploads import LONGEST_NAME, OCTETS, fetched, guessed_type, keep, mime_type_of, shown, uploaded
from canvas.errors import NotFound
from providers.interfaces import Http
from store.tenants import uploads
from store.tenants.uploads import StoredFile, StoredRef

router = APIRouter(tags=["files"])
old_router = APIRouter(tags=["files"])  # paths that older clients know, below `/v1`

UNKNOWN = "document not found"

_PAGES = re.compile(
    r"html|xml|xsl|svg|mimearchive|script|^message/|^multipart/"
)  # types that may carry scripts, or be some
_PICTURES = frozenset({"image/png", "image/jpeg"})
_PAGE_EXTENSIONS = frozenset(
    {"html", "htm", "shtml", "xhtml", "xht", "xml", "xsl", "xslt", "svg", "svgz", "mht", "mhtml", "js", "mjs", "cjs"}
)
FORM = {
    "type": "object",
    "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
    "required": ["file"],
}


def http_of(request: Request) -> Http:
    """The process's way out, for uploads by address."""
    http: Http = request.app.state.http
    return http


# -- upload -----------------------------------------------------------------------------------------------------------


@router.post(
    "/agents/{agent_id}/upload",
    openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": FORM}}, "required": True}},
)
async def upload(
    request: Request,
    edge: TheEdge,
    principal: Anyone,
    http: Annotated[Http, Depends(http_of)],
    agent_id: str,
    url: str = "",
) -> Response:
    """Store files: what comes back goes into `files` and file inputs.

    With exactly one file and `url`, what lies at that address is stored instead.
    """
    await in_thread(lambda: _see_agent(edge, principal, agent_id))
    blobs = edge.storage
    async with uploaded(request) as found:
        once = await in_thread(
            lambda: by_files(request, principal, [(file.filename or "", file.file) for file in found])
        )
        await in_thread(lambda: once.look(edge.database))
        if url and len(found) == 1:
            wanted = await fetched(http, url)
            kept = [await in_thread(lambda: uploads.store(blobs, wanted.name, wanted.mime_type, wanted.data))]
        else:
            kept = await in_thread(lambda: [keep(blobs, file) for file in found])
    return await in_thread(lambda: _noted(edge, principal, once, kept))


def _see_agent(edge: Edge, principal: Principal, agent_id: str) -> None:
    canvas_id = id_of(agent_id)
    if canvas_id is not None and not principal.opens(canvas_id):
        raise no_access()
    with edge.database.transaction() as tx:
        canvas_of(tx, principal, agent_id)


def _noted(edge: Edge, principal: Principal, once: Keyed, kept: list[StoredRef]) -> Response:
    """All files of a request, or none."""
    with once.transaction(edge.database) as tx:
        token_id = principal.link.token_id if principal.link is not None else None
        rows = [
            uploads.register(tx, principal.tenant_id, file, created_by=principal.user_id, token_id=token_id)
            for file in kept
        ]
        stored = [shown(row) for row in rows]
        return once.keep(tx, success(stored[0] if len(stored) == 1 else stored))


# -- download ---------------------------------------------------------------------------------------------------------


@router.get("/agents/download")
def download(
    edge: TheEdge,
    principal: Caller,
    id: str = "",  # noqa: A002 - the name on the wire
    created_by: str = "",
) -> Response:
    """The bytes of an uploaded file; with `created_by`, which RAGFlow's clients send, only if the file is theirs."""
    file, data = _read(edge, principal, id, created_by)
    return reply_with(data, OCTETS, file.name, is_inline=False)


@router.get("/agents/attachments/{attachment_id}/download")
@router.get("/document/download/{attachment_id}", deprecated=True)
@old_router.get("/v1/document/download/{attachment_id}", deprecated=True)
def download_attachment(
    edge: TheEdge,
    principal: Anyone,
    attachment_id: str,
    ext: str = "",
    mime_type: str = "",
    filename: str = "",
    disposition: str = "",
    created_by: str = "",
) -> Response:
    """A file that a run has produced; shown in the browser with `disposition=inline`, unless it is a page."""
    file, data = _read(edge, principal, attachment_id, created_by)
    kind = _type(mime_type, ext)
    return reply_with(data, kind, filename or file.name, is_inline=disposition == "inline" and not _is_page(kind, ext))


@router.get("/agents/attachments/{attachment_id}/preview")
def preview_attachment(
    edge: TheEdge,
    principal: Caller,
    attachment_id: str,
    ext: str = "",
    mime_type: str = "",
    filename: str = "",
    created_by: str = "",
) -> Response:
    """The same, shown in the browser."""
    file, data = _read(edge, principal, attachment_id, created_by)
    kind = _type(mime_type, ext)
    return reply_with(data, kind, filename or file.name, is_inline=not _is_page(kind, ext))


@router.get("/documents/artifact/{name}")
def show_artifact(edge: TheEdge, principal: Anyone, name: str, session_id: str = "") -> Response:
    """A file that a program of CodeExec has left, where its links point: `{id}.{extension}`.

    Pictures are shown, everything else is an attachment. `session_id`, if given, is the run that made it.
    """
    file, data = _read(edge, principal, name.partition(".")[0])
    if session_id and file.run_id != id_of(session_id):
        raise absent(UNKNOWN)
    kind = mime_type_of(file.mime_type) or OCTETS
    return reply_with(data, kind, file.name, is_inline=kind in _PICTURES)


def _read(edge: Edge, principal: Principal, written: str, created_by: str = "") -> tuple[StoredFile, bytes]:
    """A file of the caller with its bytes: of a share link one that came by it. Raises Refused.

    `created_by`: whose file it must be, as uploads and descriptors show it, or the tenant; "": anybody's of the tenant.
    """
    file_id = id_of(written)
    if file_id is None:
        raise absent(UNKNOWN)
    token_id = principal.link.token_id if principal.link is not None else None
    with edge.database.transaction() as tx:
        file = uploads.get(tx, principal.tenant_id, file_id, token_id=token_id)
    if created_by not in ("", file.created_by) and id_of(created_by) != principal.tenant_id:
        raise absent(UNKNOWN)
    try:
        return file, edge.storage.get(file.sha256)
    except NotFound:
        raise absent(UNKNOWN) from None


def _type(mime_type: str, ext: str) -> str:
    """The type of a reply: as asked for, else by extension."""
    return mime_type_of(mime_type) or guessed_type(f"file.{_plain(ext)}")


def _is_page(kind: str, ext: str) -> bool:
    return _PAGES.search(kind) is not None or _plain(ext) in _PAGE_EXTENSIONS


def _plain(ext: str) -> str:
    """An extension in letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", ext.lower())


def reply_with(data: bytes, kind: str, name: str, *, is_inline: bool) -> Response:
    """A file as it goes out: never taken for another type than it says."""
    headers = {
        "Content-Disposition": "inline" if is_inline else f"attachment{_named(name)}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    }
    return Response(data, headers=headers, media_type=kind)


def _named(name: str) -> str:
    """A name as a part of Content-Disposition; one beyond ASCII also in the spelling that allows for it."""
    whole = re.sub(r"[^\w.-]", "_", name[-LONGEST_NAME:])
    plain = re.sub(r"[^\w.-]", "_", whole, flags=re.ASCII)
    extended = f"; filename*=UTF-8''{quote(whole)}" if whole != plain else ""
    return f'; filename="{plain}"{extended}'
