"""Links to files that components produced."""

from urllib.parse import urlencode


def links_to_file(doc_id: str, extension: str, mime_type: str) -> dict[str, str]:
    """Return `preview_url` and `download_url` of a produced file, as paths of our HTTP API."""
    address = f"/api/v1/agents/attachments/{doc_id}"
    query = urlencode({"ext": extension, "mime_type": mime_type})
    return {"preview_url": f"{address}/preview?{query}", "download_url": f"{address}/download?{query}"}
