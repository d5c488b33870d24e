"""A Message's answer as a file to take away (components 3.3.2).

The file is an extra: whatever goes wrong with it is logged, and the answer stands.
"""

from typing import Any

from components.context import NodeContext
from components.documents import MIME_TYPES, make_document, without_reasoning

FORMATS = ("markdown", "html", "pdf", "docx", "xlsx")
OTHERWISE = "markdown"  # what any other word asks for


def wanted(output_format: Any) -> str | None:
    """The format that a Message asks for, in any case (components E24); None where it asks for no file."""
    if not isinstance(output_format, str) or not output_format.strip():
        return None
    named = output_format.strip().lower()
    return named if named in FORMATS else OTHERWISE


async def exported(ctx: NodeContext, output_format: str, text: str) -> dict[str, Any] | None:
    """Make and keep the file: {doc_id, format, file_name}; None if that failed.

    A second attempt makes the same file again.
    """
    try:
        data = await make_document(without_reasoning(text), output_format)
        file = await ctx.save_file(f"message.{output_format}", data, MIME_TYPES[output_format])
    except Exception as error:  # noqa: BLE001 (a missing extra, what a library stumbles over, a full disk: the answer stands)
        told = str(error).partition("\n")[0][:200]
        ctx.log.warning("message_file_not_made", format=output_format, error_type=type(error).__name__, error=told)
        return None
    doc_id = str(file["doc_id"])
    return {"doc_id": doc_id, "format": output_format, "file_name": f"{doc_id[:8]}.{output_format}"}
