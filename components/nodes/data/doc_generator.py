"""DocGenerator: turn a Markdown text into a document and offer it for download.

DSL: `content` (Markdown with references), `output_format` (`pdf`, `docx`, `txt`, `markdown`, `html`), `filename`,
`header_text`, `footer_text`, `watermark_text`, `add_page_numbers`, `add_timestamp`, `font_size`,
`include_download_info_in_content`. An unresolved reference appears in the text as an error, and the document is made
nevertheless. A second attempt makes the same file, with the time of the first attempt.
"""

import base64
import hashlib
import json
import math
import re
from datetime import datetime
from typing import Any

from pydantic import Field, field_validator

from canvas.errors import NodeFailure, UnresolvedReference
from canvas.outcome import Finished
from components.base import Params, component
from components.context import NodeContext
from components.documents import EXTENSIONS, MIME_TYPES, Layout, make_document, without_reasoning
from components.produced_links import links_to_file
from components.text.templates import templates

FORMATS = ("pdf", "docx", "txt", "markdown", "html")
MIN_FONT_SIZE = 12
MAX_NAME_CHARS = 180  # characters, without the extension
INLINE_BYTES = 256 * 1024  # a larger file is not embedded in the output `download`

_NOT_IN_NAMES = re.compile(r'[\\/?#%*:|<>"\x00-\x1f\x7f-\x9f\ud800-\udfff]')
_BEGUN_KEY = "begun"  # journal key: when the first attempt began


class DocGeneratorParams(Params):
    default_outputs = ("doc_id", "filename", "mime_type", "size", "download")
    later_outputs = ()

    content: Any = Field(default="", validate_default=True)
    output_format: Any = "pdf"
    filename: Any = ""
    header_text: Any = ""
    footer_text: Any = ""
    watermark_text: Any = ""
    add_page_numbers: Any = True
    add_timestamp: Any = True
    font_size: Any = 12
    include_download_info_in_content: Any = False

    @field_validator("content")
    @classmethod
    def _is_not_empty(cls, content: Any) -> str:
        if not content:
            raise ValueError(f"[DocGenerator] Content {content!r} must not be empty.")
        return templates.value_text(content)

    @field_validator("output_format")
    @classmethod
    def _known_format(cls, output_format: Any) -> Any:
        if output_format not in FORMATS:
            raise ValueError(
                f"[DocGenerator] Output format {output_format!r} is not supported. Use one of {', '.join(FORMATS)}."
            )
        return output_format

    @field_validator("font_size")
    @classmethod
    def _is_valid_size(cls, size: Any) -> Any:
        is_number = isinstance(size, int | float) and not isinstance(size, bool) and math.isfinite(size)
        if not is_number or size < MIN_FONT_SIZE:
            raise ValueError(f"[DocGenerator] Font size {size!r} must be a number of {MIN_FONT_SIZE} or more.")
        return size


@component("DocGenerator", DocGeneratorParams, effect="idempotent")
async def doc_generator(params: DocGeneratorParams, ctx: NodeContext) -> Finished:
    text = _fill_references(params.content, ctx)
    ctx.note_input("content", text)
    begun = await _first_attempt_time(ctx)
    name = file_name(templates.value_text(params.filename), params.output_format) or _default_name(params, ctx, begun)
    mime_type = MIME_TYPES[params.output_format]
    try:
        data = await make_document(without_reasoning(text), params.output_format, _layout(params, begun))
        if not data:
            raise NodeFailure("the file is empty")
        saved = await ctx.save_file(name, data, mime_type)
    except NodeFailure as failure:
        raise NodeFailure(f"Document generation failed: {failure.message}", retryable=failure.retryable) from failure
    file = {key: saved[key] for key in ("doc_id", "filename", "mime_type", "size")}
    return Finished(outputs={**file, "download": json.dumps(_download(file, data, params), ensure_ascii=False)})


def file_name(authored: str, output_format: str) -> str:
    """Return the author's file name, fit for any file system and with the format's extension; "" if there is none."""
    if not authored:
        return ""
    name = _trim(_NOT_IN_NAMES.sub(" ", authored))
    base, dot, _ = name.rpartition(".")
    base = _trim(_trim(base if dot else name)[:MAX_NAME_CHARS])
    return f"{base or 'file'}.{EXTENSIONS[output_format]}"


def _trim(name: str) -> str:
    return " ".join(name.split()).strip(" .")


def _default_name(params: DocGeneratorParams, ctx: NodeContext, begun: datetime) -> str:
    number = hashlib.sha256(ctx.activation_id.encode()).hexdigest()[:8]
    return f"document_{begun:%Y%m%d_%H%M%S}_{number}.{EXTENSIONS[params.output_format]}"


def _fill_references(content: str, ctx: NodeContext) -> str:
    """Fill the references: null as empty, text unchanged, other values as JSON, an unresolved one as an error text."""
    texts: dict[str, str] = {}
    for found in templates.find_references([content]):
        if found.expression in texts:
            continue
        try:
            texts[found.expression] = templates.value_text(ctx.lookup(found.expression))
        except UnresolvedReference as missing:
            if not found.ref.is_alias:
                texts[found.expression] = f"[ERROR: {missing.message}]"
    return templates.fill(content, texts)


async def _first_attempt_time(ctx: NodeContext) -> datetime:
    """Return the time at which the first attempt began, to the second."""
    recorded = await ctx.journal_get(_BEGUN_KEY)
    if recorded is not None:
        return datetime.fromisoformat(recorded)
    now = datetime.now().astimezone().replace(microsecond=0)
    await ctx.journal_put(_BEGUN_KEY, now.isoformat())
    return now


def _layout(params: DocGeneratorParams, begun: datetime) -> Layout:
    return Layout(
        header=templates.value_text(params.header_text),
        footer=templates.value_text(params.footer_text),
        watermark=templates.value_text(params.watermark_text),
        page_numbers=bool(params.add_page_numbers),
        timestamp=f"Generated: {begun:%Y-%m-%d %H:%M:%S}" if params.add_timestamp else None,
        font_size=params.font_size,
    )


def _download(file: dict[str, Any], data: bytes, params: DocGeneratorParams) -> dict[str, Any]:
    """Return the output `download`, which a Message offers to its reader: the file's details and its links."""
    return {
        **file,
        **({"base64": base64.b64encode(data).decode()} if len(data) <= INLINE_BYTES else {}),
        **links_to_file(str(file["doc_id"]), params.output_format, str(file["mime_type"])),
        "include_download_info_in_content": bool(params.include_download_info_in_content),
    }
