"""Uploaded files as a canvas sees them: images as data URIs, everything else as one block of text (engine 3.6)."""

import base64

from canvas.errors import NodeFailure

_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")


def block(name: str, text: str) -> str:
    """A file's text under its name."""
    return f"\n -----------------\nFile: {name}\nContent as following: \n{text}"


def image(mime_type: str, data: bytes) -> str:
    """An image as a data URI."""
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def file_text(name: str, mime_type: str, data: bytes) -> str:
    """What a file reads as. Raises NodeFailure for a type that has no text we can get at."""
    if "image" in mime_type:
        return image(mime_type, data)
    if not mime_type.startswith(_TEXT_TYPES) and not name.lower().endswith((".txt", ".md", ".csv", ".json")):
        raise NodeFailure(f'The file "{name}" ({mime_type}) cannot be read as text. Upload text or an image.')
    return block(name, data.decode("utf-8-sig", "replace"))
