"""Images and scanned pages as JPEG data URIs, for models with vision.

An image has one page, except a TIFF, which may be a fax or a scan of several pages. The pages of a PDF are rendered.
These functions parse untrusted files: call them in a limited process.
"""

import base64
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from components.text.extraction.file_kinds import (
    Kind,
    kind_of,
    library_missing,
    too_large,
    unreadable,
    wrap_parser_errors,
)

if TYPE_CHECKING:
    from types import ModuleType

    from PIL.Image import Image

LONGEST_SIDE = 2000  # pixels: a printed A4 page stays legible, and vendors scale larger images down
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")  # the decoders that may read untrusted bytes
_QUALITY = 85  # of the JPEG


def count_pages(name: str, mime_type: str, data: bytes) -> int:
    """Return how many pages an image or a PDF has. Raises FileUnreadable."""
    if kind_of(name, mime_type, data) is Kind.PDF:
        pdfium = _pdfium()
        with wrap_parser_errors(name, Kind.PDF), pdfium.PdfDocument(data) as pdf:
            return len(pdf)
    with wrap_parser_errors(name, Kind.IMAGE), _open(name, data) as picture:
        return _count_frames(picture)


def pages_as_images(name: str, mime_type: str, data: bytes, first: int, count: int) -> Sequence[str]:
    """Return pages as data URIs, `count` of them from the page `first` (0 is the first one). Raises FileUnreadable."""
    if kind_of(name, mime_type, data) is Kind.PDF:
        return list(_pdf_pages(name, data, first, count))
    with wrap_parser_errors(name, Kind.IMAGE), _open(name, data) as picture:
        return [_page_image(picture, at) for at in range(first, min(first + count, _count_frames(picture)))]


def _pdf_pages(name: str, data: bytes, first: int, count: int) -> Iterator[str]:
    pdfium = _pdfium()
    with wrap_parser_errors(name, Kind.PDF), pdfium.PdfDocument(data) as pdf:
        for at in range(first, min(first + count, len(pdf))):
            page = pdf[at]
            scale = LONGEST_SIDE / max(*page.get_size(), 1.0)
            yield _uri(page.render(scale=scale).to_pil())


def _page_image(picture: "Image", at: int) -> str:
    from PIL import ImageOps

    picture.seek(at)
    upright = ImageOps.exif_transpose(picture)
    upright.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return _uri(upright)


def _uri(picture: "Image") -> str:
    from PIL import Image

    if picture.mode in ("RGBA", "LA", "PA", "P"):  # show transparency as white
        foreground = picture.convert("RGBA")
        background = Image.new("RGBA", foreground.size, "white")
        picture = Image.alpha_composite(background, foreground)
    file = BytesIO()
    picture.convert("RGB").save(file, "JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def _count_frames(picture: "Image") -> int:
    """Return the number of pages of a TIFF; 1 for other formats, because only an animation's first frame is used."""
    return int(getattr(picture, "n_frames", 1)) if picture.format == "TIFF" else 1


def _open(name: str, data: bytes) -> "Image":
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise library_missing("docs", "Pictures") from error
    try:
        return Image.open(BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError as error:
        why = "is damaged, or in a format that cannot be shown to a model"
        raise unreadable(name, Kind.IMAGE, why, "Save it as PNG or JPEG, and upload that.") from error
    except Image.DecompressionBombError as error:
        raise too_large(name, Kind.IMAGE, "has more pixels than can be read") from error


def _pdfium() -> "ModuleType":
    try:
        import pypdfium2
    except ImportError as error:
        raise library_missing("docs", "Scanned PDF files") from error
    return pypdfium2
