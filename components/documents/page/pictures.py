"""Pictures in a text: PNG and JPEG images that a `data:` URI carries along."""

import base64
import binascii
import io
import re
from dataclasses import dataclass, field

LARGEST = 2 * 1024 * 1024  # bytes of one picture
MOST_PIXELS = 16_000_000  # a small file can unfold into a huge picture: 16 million take 64 MB

_DATA = re.compile(r"data:image/(png|jpe?g);base64,", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its size in pixels."""

    data: bytes = field(repr=False)
    width: int
    height: int
    description: str = ""


def embedded(address: str, description: str) -> Picture | None:
    """The picture that a `data:` URI holds; None if it is no PNG or JPEG, broken or too large."""
    start = _DATA.match(address)
    if start is None or len(address) > LARGEST * 4 // 3 + 100:
        return None
    try:
        data = base64.b64decode(address[start.end() :], validate=True)
    except (binascii.Error, ValueError):
        return None
    size = _size(data)
    if size is None or size[0] * size[1] > MOST_PIXELS:
        return None
    return Picture(data, *size, description)


def _size(data: bytes) -> tuple[int, int] | None:
    """Width and height of an image that can be read to its end."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            if image.width * image.height <= MOST_PIXELS:
                image.load()
            return image.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # what Pillow says of a broken file
        return None
