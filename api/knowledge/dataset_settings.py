"""Schemas of what RAGFlow's clients write into datasets and documents: fields, defaults and ranges.

Of `parser_config` some settings have an effect here (PARSER_FIELDS_WITH_EFFECT), and of the others none. All are
checked, stored and returned, and a reply warns about a value that would have an effect in RAGFlow (docs/http.md).
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from api.http.replies import parse_id
from api.http.schemas import number_or_text
from knowledge.bases.chunking import DEFAULTS

MAX_AVATAR_CHARS = 65_535
MAX_DESCRIPTION_CHARS = 65_535
MAX_PARSER_CHARS = 65_535  # of a `parser_config` as JSON
MAX_METADATA_CHARS = 64 * 1024  # of a document's metadata as JSON
MAX_NAME_BYTES = 255  # of a document's name in UTF-8
MAX_SHOWN_CHARS = 128  # of a refused value that a message repeats
IMAGE_TYPES = ("image/jpeg", "image/png")

PARSER_FIELDS_WITH_EFFECT = frozenset({"chunk_token_num", "overlapped_percent"})
SUMMARY_PROMPT = "Summarize what these passages have in common:\n{cluster_content}"

ChunkMethod = Literal[
    "naive", "book", "email", "laws", "manual", "one", "paper", "picture", "presentation", "qa", "table", "tag"
]
Permission = Literal["me", "team"]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)]
FilledText = Annotated[str, Field(min_length=1)]

_DATA_ADDRESS = re.compile(r"data:([^;,]*);base64,", re.ASCII)


def _check_avatar(avatar: str) -> str:
    """Return an avatar that is a picture as a data address, or "". Raises PydanticCustomError."""
    if not avatar:
        return avatar
    if "," not in avatar:
        raise PydanticCustomError(
            "avatar_prefix", "Missing MIME prefix. Expected format: data:<mime>;base64,<data>", {}
        )
    if not avatar.startswith("data:"):
        raise PydanticCustomError("avatar_prefix", "Invalid MIME prefix format. Must start with 'data:'", {})
    written = _DATA_ADDRESS.match(avatar)
    if written is None or written[1] not in IMAGE_TYPES:
        raise PydanticCustomError(
            "avatar_type", "Unsupported MIME type. Allowed: {types}", {"types": str(list(IMAGE_TYPES))}
        )
    return avatar


def _check_id(written: str) -> str:
    if parse_id(written) is None:
        raise PydanticCustomError("uuid_format", "Invalid UUID format", {})
    return written


def _check_ids(written: list[str]) -> list[str]:
    duplicates = [each for each, times in Counter(written).items() if times > 1]
    if duplicates:
        raise PydanticCustomError("duplicate_ids", "Duplicate ids: '{ids}'", {"ids": ", ".join(duplicates[:10])})
    return written


Avatar = Annotated[str, Field(max_length=MAX_AVATAR_CHARS), AfterValidator(_check_avatar)]
UuidText = Annotated[str, AfterValidator(_check_id)]


class StrictFields(BaseModel):
    """Fields of which unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RaptorFields(StrictFields):
    """The block `raptor`."""

    use_raptor: bool = False
    prompt: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = SUMMARY_PROMPT
    max_token: int = Field(default=256, strict=True, ge=1, le=2048)
    threshold: float = Field(default=0.1, ge=0, le=1)
    max_cluster: int = Field(default=64, strict=True, ge=1, le=1024)
    random_seed: int = Field(default=0, strict=True, ge=0)
    auto_disable_for_structured_data: bool | None = None
    scope: str | None = None
    ext: dict[str, Any] | None = None


class GraphFields(StrictFields):
    """The block `graphrag`."""

    use_graphrag: bool = False
    entity_types: list[str] = Field(default=["organization", "person", "geo", "event", "category"])
    method: Literal["light", "general"] = "light"
    community: bool = False
    resolution: bool = False
    ext: dict[str, Any] | None = None


class ParentChildFields(StrictFields):
    """The block `parent_child`."""

    use_parent_child: bool = False
    children_delimiter: FilledText = "\n"
    ext: dict[str, Any] | None = None


class ParserFields(StrictFields):
    """How documents are read and split: RAGFlow's `parser_config`, with the tokens of an overlap as a percentage."""

    chunk_token_num: int = Field(default=DEFAULTS["chunk_token_num"], strict=True, ge=1, le=2048)
    overlapped_percent: int = Field(default=DEFAULTS["overlapped_percent"], strict=True, ge=0, le=50)
    delimiter: FilledText = "\n"
    layout_recognize: str = "DeepDOC"
    html4excel: bool = False
    auto_keywords: int = Field(default=0, strict=True, ge=0, le=32)
    auto_questions: int = Field(default=0, strict=True, ge=0, le=10)
    topn_tags: int = Field(default=3, strict=True, ge=1, le=10)
    tag_kb_ids: list[str] = Field(default=[])
    filename_embd_weight: float | None = Field(default=0.1, ge=0, le=1)
    task_page_size: int | None = Field(default=None, strict=True, ge=1)
    pages: list[list[int]] | None = None
    children_delimiter: FilledText | None = None
    enable_children: bool | None = None
    toc_extraction: bool | None = None
    table_context_size: int | None = Field(default=None, strict=True, ge=0)
    image_context_size: int | None = Field(default=None, strict=True, ge=0)
    image_table_context_window: int | None = Field(default=None, strict=True, ge=0)
    llm_id: str | None = None
    enable_metadata: bool | None = None
    metadata: list[Any] | dict[str, Any] | None = None
    built_in_metadata: list[Any] | None = None
    raptor: RaptorFields = RaptorFields()
    graphrag: GraphFields = GraphFields()
    parent_child: ParentChildFields = ParentChildFields()
    ext: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_size(self) -> "ParserFields":
        size = len(json.dumps(self.model_dump(exclude_unset=True)))
        if size > MAX_PARSER_CHARS:
            message = "Parser config exceeds size limit (max {most} characters). Current size: {size}"
            raise PydanticCustomError("too_large", message, {"most": f"{MAX_PARSER_CHARS:,}", "size": f"{size:,}"})
        return self


class MetadataField(StrictFields):
    """A key that RAGFlow would have a model find in each document."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255)]
    type: Literal["string", "number", "list", "time"] = "string"
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    examples: list[Any] | None = None
    restrict_values: bool = False


class MetadataConfig(StrictFields):
    """Which metadata RAGFlow would have a model find: `auto_metadata_config`."""

    enabled: bool = False
    fields: list[MetadataField] = Field(default=[])


class DatasetFields(StrictFields):
    """What a new base may have, and what may be changed."""

    avatar: Avatar | None = None
    description: Description | None = None
    language: str = Field(default="English", max_length=32)
    embedding_model: str | None = Field(default=None, max_length=255)
    permission: Permission = "me"
    chunk_method: ChunkMethod = "naive"
    parse_type: int | None = Field(default=None, strict=True, ge=1, le=64)
    pipeline_id: UuidText | None = None
    parser_config: ParserFields | None = None
    auto_metadata_config: MetadataConfig | None = None
    ext: dict[str, Any] | None = None


class NewDatasetBody(DatasetFields):
    """A new base. Its embedding model is by default the tenant's first one; without any, searches match words only."""

    name: Name


class ChangedDatasetBody(DatasetFields):
    """Changes of a base."""

    name: Name = ""
    pagerank: int = Field(default=0, strict=True, ge=0, le=100)
    connectors: list[Any] = Field(default=[])


class DeletedDatasetsBody(StrictFields):
    """Which bases to delete: `ids`, or all with `delete_all`. Without either, none."""

    ids: Annotated[list[UuidText], AfterValidator(_check_ids)] | None = None
    delete_all: bool = False


def _check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata of texts, numbers and lists of these. Raises PydanticCustomError for other values."""
    for value in metadata.values():
        if isinstance(value, list):
            wrong = next((each for each in value if not isinstance(each, str | int | float)), None)
            if wrong is not None or None in value:
                message = "The type is not supported in list: {value}"
                raise PydanticCustomError("metadata_type", message, {"value": str(value)[:MAX_SHOWN_CHARS]})
        elif not isinstance(value, str | int | float):
            message = "The type is not supported: {value}"
            raise PydanticCustomError("metadata_type", message, {"value": str(value)[:MAX_SHOWN_CHARS]})
    if len(json.dumps(metadata)) > MAX_METADATA_CHARS:
        raise PydanticCustomError("too_large", "Metadata exceeds {most} characters", {"most": MAX_METADATA_CHARS})
    return metadata


Metadata = Annotated[dict[str, Any], AfterValidator(_check_metadata)]


def _check_document_name(name: str) -> str:
    if not name.strip():
        raise PydanticCustomError("name", "File name can't be empty.", {})
    if len(name.encode()) > MAX_NAME_BYTES:
        raise PydanticCustomError("name", "File name must be 255 bytes or less.", {})
    return name


class ChangedDocumentBody(StrictFields):
    """Changes of a document. `meta_fields` replaces its metadata; `status` is `enabled` as "1" or "0"."""

    name: Annotated[str, AfterValidator(_check_document_name)] = ""
    meta_fields: Metadata = Field(default={})
    chunk_method: ChunkMethod = "naive"
    parser_config: ParserFields = ParserFields()
    enabled: bool = True
    status: Annotated[Literal["0", "1", 0, 1], number_or_text(0, 1)] = "1"


class NewDocumentBody(StrictFields):
    """A document without content."""

    name: str


class DocumentMetadataConfig(StrictFields):
    """Which metadata RAGFlow would have a model find in one document."""

    metadata: list[MetadataField] | dict[str, Any]
    built_in_metadata: list[Any] | None = None


class MetadataSelector(StrictFields):
    """Which documents a change of metadata is for: all by default, else those that both fields name."""

    document_ids: list[str] | None = None
    metadata_condition: dict[str, Any] | None = None


class MetadataUpdate(StrictFields):
    """A value to set. With `match`, only where a document has this value; in a list, this entry is replaced."""

    key: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    value: Any
    match: Any = None


class MetadataDeletion(StrictFields):
    """A key to delete; with `value`, only this value, or this entry of a list."""

    key: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    value: Any = None


class MetadataChangesBody(StrictFields):
    """Changes of the metadata of many documents: deletions come before updates."""

    selector: MetadataSelector = MetadataSelector()
    updates: list[MetadataUpdate] = Field(default=[])
    deletes: list[MetadataDeletion] = Field(default=[])


class NewMetadata(StrictFields):
    """The metadata of one document."""

    meta_fields: Metadata


class DeletedDocumentsBody(StrictFields):
    """Which documents to delete: `ids`, or all with `delete_all`."""

    ids: Annotated[list[str], AfterValidator(_check_ids)] | None = None
    delete_all: bool = False


# -- stored settings --------------------------------------------------------------------------------------------------

SETTINGS = (
    "avatar", "permission", "chunk_method", "pagerank", "connectors", "parse_type", "pipeline_id",
    "auto_metadata_config", "ext",
)  # fmt: skip
"""Fields of a dataset that are stored together, since no statement reads them."""

_WITHOUT_EFFECT: Mapping[str, Any] = {
    "permission": "me", "chunk_method": "naive", "pagerank": 0, "connectors": [], "parse_type": None,
    "pipeline_id": None, "ext": None,
}  # fmt: skip
"""Fields of datasets and documents without an effect here, each with the value that needs none."""

_BLOCKS = ("raptor", "graphrag", "parent_child")


def written_settings(fields: StrictFields) -> dict[str, Any]:
    """Return the fields of SETTINGS that a body has, as they are stored."""
    dumped = fields.model_dump(exclude_unset=True)
    return {name: dumped[name] for name in SETTINGS if name in dumped}


def written_parser(fields: ParserFields | None, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `parser_config` of a body to be stored; blocks include their stored fields."""
    if fields is None:
        return {}
    written = fields.model_dump(exclude_unset=True)
    blocks = {name: {**(stored.get(name) or {}), **written[name]} for name in _BLOCKS if name in written}
    return {**written, **blocks}


def complete_parser(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored `parser_config` with the defaults of what it lacks, and without fields that are unset."""
    complete = {**_PARSER_DEFAULTS, **stored}
    blocks = {name: {**_PARSER_DEFAULTS[name], **(stored.get(name) or {})} for name in _BLOCKS}
    return {name: value for name, value in {**complete, **blocks}.items() if value is not None}


def effect_warnings(written: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return `{"warnings": [...]}` about written fields without an effect here; {} if there are none."""
    names = list(_without_effect(written))
    return {"warnings": [f"`{name}` has no effect here." for name in names]} if names else {}


def _without_effect(written: Mapping[str, Any]) -> Iterator[str]:
    for name, value in written.items():
        if name in _WITHOUT_EFFECT and value != _WITHOUT_EFFECT[name]:
            yield name
    if (written.get("auto_metadata_config") or {}).get("enabled"):
        yield "auto_metadata_config"
    parser = written.get("parser_config") or {}
    complete = complete_parser(parser)
    for name in parser:
        if name not in PARSER_FIELDS_WITH_EFFECT and complete.get(name) != _PARSER_DEFAULTS.get(name):
            yield f"parser_config.{name}"


_PARSER_DEFAULTS: Mapping[str, Any] = ParserFields().model_dump(exclude_none=True)
