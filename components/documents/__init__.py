"""Documents made from Markdown: PDF, DOCX, HTML, plain text, normalised Markdown and Excel workbooks."""

from components.documents.cleaning import without_reasoning
from components.documents.page.layout import Layout
from components.documents.rendering import EXTENSIONS, MIME_TYPES, make_document, render

__all__ = ["EXTENSIONS", "MIME_TYPES", "Layout", "make_document", "render", "without_reasoning"]
