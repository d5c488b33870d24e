"""Values of activations as replies show them: whole if they are small, else a preview of their beginning."""

from typing import Any

from store.primitives.json_codec import encode
from store.runs.activation_details import FileRef, StoredValues

MAX_SHOWN_BYTES = 16 * 1024  # of a value's JSON

HIDDEN_OUTPUTS = frozenset({"_spoken"})
"""Outputs that only routing needs."""


def values_json(stored: StoredValues) -> dict[str, Any]:
    """Return values by name, those above 16 KiB as previews."""
    return {
        name: file_preview(stored.files[name]) if name in stored.files else preview(value)
        for name, value in stored.values.items()
        if name not in HIDDEN_OUTPUTS
    }


def preview(value: Any, most: int = MAX_SHOWN_BYTES) -> Any:
    """Return a value, or the preview of one whose JSON has more than `most` bytes.

    The preview of a text is its beginning; of another value, the beginning of its JSON, of 16 KiB each. `bytes` is what
    the route of the whole value delivers.
    """
    text = encode(value)
    if len(text) <= most and len(text.encode()) <= most:
        return value
    whole = (value if isinstance(value, str) else text).encode()
    beginning = whole[:MAX_SHOWN_BYTES].decode(errors="ignore")
    return {"$preview": beginning, "bytes": len(whole), "type": "text" if isinstance(value, str) else "json"}


def file_preview(file: FileRef) -> dict[str, Any]:
    """Return the preview of a value in the file storage, which is not read for it. `bytes` is the size of its JSON."""
    return {"$preview": "", "bytes": file[1], "type": "file"}
