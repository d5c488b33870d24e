"""Images in a document: PNG and JPEG from `data:` URIs."""

import base64
import binascii
import io
import re
from dataclasses import dataclass, field

MAX_IMAGE_BYTES = 2 * 1024 * 1024  # bytes of one image
MAX_PIXELS = 16_000_000  # a small file can unpack to a huge image: 16 million pixels take 64 MB

_DATA = re.compile(r"data:image/(png|jpe?g);base64,", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EmbeddedImage:
    """An image with its size in pixels."""

    data: bytes = field(repr=False)
    width: int
    height: int
    description: str = ""


def read_data_uri(address: str, description: str) -> EmbeddedImage | None:
    """Return the image in a `data:` URI; None if it is not a PNG or JPEG, is damaged, or is too large."""
    start = _DATA.match(address)
    if start is None or len(address) > MAX_IMAGE_BYTES * 4 // 3 + 100:
        return None
    try:
        data = base64.b64decode(address[start.end() :], validate=True)
    except (binascii.Error, ValueError):
        return None
    size = _size(data)
    if size is None or size[0] * size[1] > MAX_PIXELS:
        return None
    return EmbeddedImage(data, *size, description)


def _size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of an image; None if it cannot be read to its end."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            if image.width * image.height <= MAX_PIXELS:
                image.load()
            return image.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # Pillow's errors for a damaged file
        return None
