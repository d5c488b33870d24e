"""Images in values: data URIs, wherever they stand in JSON (components 3.4)."""

from collections.abc import Iterator
from typing import Any

_IMAGE_TYPES = ("image_url", "input_image", "image")


def images_in(value: Any) -> list[str]:
    """Every image data URI in a value, in reading order. Of an object with `content` only that counts."""
    match value:
        case str():
            return [value.strip()] if is_image(value) else []
        case list():
            return [image for item in value for image in images_in(item)]
        case dict():
            inner = [value["content"]] if "content" in value else list(value.values())
            return [image for item in inner for image in images_in(item)]
        case _:
            return []


def without_images(value: Any) -> Any:
    """The value with its images taken out, and what they leave empty; None if nothing remains."""
    match value:
        case str():
            return None if is_image(value) else value
        case list():
            kept = [left for item in value for left in _remaining(item)]
            return kept if kept or not value else None
        case dict():
            if value.get("type") in _IMAGE_TYPES and images_in(value):
                return None
            members = {key: left for key, item in value.items() for left in _remaining(item)}
            return members if members or not value else None
        case _:
            return value


def is_image(text: str) -> bool:
    """Whether a text is an image."""
    return text.lstrip().startswith("data:image/")


def _remaining(item: Any) -> Iterator[Any]:
    """The item without its images, or nothing at all if it held nothing else."""
    left = without_images(item)
    if left is not None or item is None:
        yield left
