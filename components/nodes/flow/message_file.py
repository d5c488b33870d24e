"""A Message's answer as a downloadable file.

The file is an extra: if it fails, the error is logged and the answer stays as it is.
"""

from typing import Any

from components.context import NodeContext
from components.documents import MIME_TYPES, make_document, without_reasoning

FORMATS = ("markdown", "html", "pdf", "docx", "xlsx")
DEFAULT_FORMAT = "markdown"  # for any other value of `output_format`


def parse_format(output_format: Any) -> str | None:
    """Return the file format of a Message, matched in any case; None if it asks for no file."""
    if not isinstance(output_format, str) or not output_format.strip():
        return None
    name = output_format.strip().lower()
    return name if name in FORMATS else DEFAULT_FORMAT


async def export_file(ctx: NodeContext, output_format: str, text: str) -> dict[str, Any] | None:
    """Make and store the file; return {doc_id, format, file_name}, or None if that fails.

    A second attempt stores the same file again.
    """
    try:
        data = await make_document(without_reasoning(text), output_format)
        file = await ctx.save_file(f"message.{output_format}", data, MIME_TYPES[output_format])
    except Exception as error:  # noqa: BLE001 (a missing extra, a library's error, a full disk: the answer stays)
        reason = str(error).partition("\n")[0][:200]
        ctx.log.warning("message_file_not_made", format=output_format, error_type=type(error).__name__, error=reason)
        return None
    doc_id = str(file["doc_id"])
    return {"doc_id": doc_id, "format": output_format, "file_name": f"{doc_id[:8]}.{output_format}"}
