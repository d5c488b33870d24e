"""Images in values: data URIs at any place in JSON."""

from collections.abc import Iterator
from typing import Any

_IMAGE_TYPES = ("image_url", "input_image", "image")


def images_in(value: Any) -> list[str]:
    """Return every image data URI in a value, in reading order. Of an object with `content`, only that is searched."""
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
    """Return the value without its images and the containers that they leave empty; None if nothing remains."""
    match value:
        case str():
            return None if is_image(value) else value
        case list():
            items = [left for item in value for left in _remove_images(item)]
            return items if items or not value else None
        case dict():
            if value.get("type") in _IMAGE_TYPES and images_in(value):
                return None
            members = {key: left for key, item in value.items() for left in _remove_images(item)}
            return members if members or not value else None
        case _:
            return value


def is_image(text: str) -> bool:
    """Return whether a text is an image data URI."""
    return text.lstrip().startswith("data:image/")


def _remove_images(item: Any) -> Iterator[Any]:
    """Yield the item without its images; yield nothing if the item held nothing else."""
    left = without_images(item)
    if left is not None or item is None:
        yield left
