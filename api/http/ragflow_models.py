"""The objects in `data` of RAGFlow's replies, for the OpenAPI document (api/http/openapi.py).

The replies themselves are made where the routes are. `tests/integration/api/test_ragflow_models.py` holds them against
these models.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(description="Milliseconds since 1970")]
Json = dict[str, Any]


class RagflowObject(BaseModel):
    """An object of RAGFlow's API."""

    model_config = ConfigDict(extra="forbid")


class Changed(RagflowObject):
    """When an object was created and changed."""

    create_time: Milliseconds
    create_date: str | None
    update_time: Milliseconds
    update_date: str | None


class AgentItem(RagflowObject):
    """An agent in a list."""

    id: str
    avatar: str | None
    title: str
    description: str | None
    permission: str
    tenant_id: str
    nickname: str
    tenant_avatar: None
    update_time: Milliseconds
    create_time: Milliseconds
    canvas_type: str
    canvas_category: str
    tags: str
    release_time: Milliseconds | None
    type: str


class AgentPage(RagflowObject):
    """A page of agents."""

    canvas: list[AgentItem]
    total: int


class AgentObject(Changed):
    """An agent with its draft."""

    id: str
    avatar: str | None
    title: str
    dsl: Json
    description: str | None
    permission: str
    user_id: str
    nickname: str
    tenant_avatar: None
    canvas_type: str
    canvas_category: str
    tags: str
    release: bool
    last_publish_time: Milliseconds | None
    warnings: list[Json] = Field(default_factory=list[Json], description="Of a new agent: what is left to fill in")


class UpdatedAgent(RagflowObject):
    """When an agent was changed, and what is left to fill in."""

    update_time: Milliseconds
    warnings: list[Json]


class VersionItem(Changed):
    """A version without its document."""

    id: str
    user_canvas_id: str
    title: str
    description: str | None
    release: bool
    warnings: list[Json] = Field(default_factory=list[Json], description="Of a published version")


class VersionObject(VersionItem):
    """A version with its document."""

    dsl: Json


class TagCount(RagflowObject):
    """A tag and how many agents have it."""

    tag: str
    count: int


class FileDescriptor(RagflowObject):
    """A stored file, ready for `files` and file inputs of a turn."""

    id: str
    name: str
    size: int
    extension: str
    mime_type: str
    created_by: str
    created_at: float
    preview_url: None


class SessionObject(Changed):
    """A conversation with an agent."""

    id: str
    agent_id: str = ""
    dialog_id: str = Field(default="", description="The agent, in the reply about one session")
    name: str
    user_id: str
    exp_user_id: str
    source: str
    message: list[Json]
    round: int
    tokens: int
    duration: float
    thumb_up: int
    errors: str
    version_title: str
    dsl: Json = Field(default_factory=dict[str, Any])
    reference: list[Json] = Field(default_factory=list[Json])


class DatasetObject(Changed):
    """A knowledge base."""

    id: str
    name: str
    avatar: str | None
    description: str | None
    language: str
    embedding_model: str | None
    chunk_method: str
    parser_config: Json
    permission: str
    pagerank: int
    connectors: list[Any]
    status: str
    tenant_id: str
    created_by: str
    document_count: int
    chunk_count: int
    token_num: int
    similarity_threshold: float
    vector_similarity_weight: float
    auto_metadata_config: Json | None = None


class DocumentObject(Changed):
    """A document of a knowledge base."""

    id: str
    dataset_id: str
    name: str
    location: str
    size: int
    type: str
    suffix: str
    source_type: str
    chunk_method: str
    parser_config: Json
    meta_fields: Json
    chunk_count: int
    token_count: int
    run: str
    progress: float
    progress_msg: str
    process_begin_at: str | None
    process_duration: float
    status: str
    enabled: bool
    created_by: str


class DocumentPage(RagflowObject):
    """A page of documents."""

    docs: list[DocumentObject]
    total: int


class ChunkObject(BaseModel):
    """A chunk of a document."""

    id: str
    content: str
    document_id: str
    docnm_kwd: str
    dataset_id: str
    important_keywords: list[str]
    questions: list[str]
    tag_kwd: list[str]
    tag_feas: Json
    image_id: str
    doc_type_kwd: str
    positions: list[Any]
    available: bool


class ChunkPage(RagflowObject):
    """A page of chunks, and their document."""

    chunks: list[ChunkObject]
    doc: DocumentObject
    total: int


class AddedChunk(RagflowObject):
    """The chunk that was added."""

    chunk: ChunkObject


class DeletedCount(RagflowObject):
    """How many were deleted."""

    deleted: int


class FoundChunks(BaseModel):
    """What a search has found."""

    chunks: list[Json]
    doc_aggs: list[Json]
    total: int


class MemoryObject(Changed):
    """A memory."""

    id: str
    name: str
    avatar: str | None
    description: str | None
    tenant_id: str
    memory_type: list[str]
    storage_type: str
    embd_id: str | None
    llm_id: str | None
    permissions: str
    memory_size: int
    memory_used: int
    forgetting_policy: str
    temperature: float
    system_prompt: str
    user_prompt: str
    owner_name: str = ""


class MemoryPage(RagflowObject):
    """A page of memories."""

    memory_list: list[MemoryObject]
    total_count: int


class MemoryMessageObject(RagflowObject):
    """A message of a memory."""

    message_id: int
    message_type: str
    source_id: int | None
    memory_id: str
    user_id: str
    agent_id: str
    session_id: str
    valid_at: str
    invalid_at: str | None
    forget_at: str | None
    status: bool
    content: str = ""
    similarity: float = 0.0


class McpServerObject(Changed):
    """An MCP server that agents may call."""

    id: str
    name: str
    description: str
    url: str
    server_type: str
    headers: Json
    variables: Json
    timeout: float
    allowed_tools: list[str] | None


DATA: dict[str, Any] = {
    "list_agents": AgentPage,
    "create_agent": AgentObject,
    "get_agent": AgentObject,
    "update_agent": UpdatedAgent,
    "patch_agent": UpdatedAgent,
    "delete_agent": bool,
    "list_tags": list[TagCount],
    "set_tags": bool,
    "list_templates": list[Json],
    "list_prompts": dict[str, str],
    "list_versions": list[VersionItem],
    "get_version": VersionObject,
    "publish": VersionItem,
    "create_version": VersionItem,
    "delete_version": bool,
    "reset_draft": Json,
    "input_form": dict[str, Json],
    "upload_files": FileDescriptor | list[FileDescriptor],
    "create_session": SessionObject,
    "list_sessions": list[SessionObject],
    "get_session": SessionObject,
    "delete_session": int,
    "list_datasets": list[DatasetObject],
    "create_knowledge_bases": DatasetObject,
    "read": DatasetObject,
    "change_datasets": DatasetObject,
    "delete_datasets": DeletedCount,
    "list_documents": DocumentPage,
    "upload_knowledge_bases": list[DocumentObject],
    "patch_change": DocumentObject,
    "change_documents": DocumentObject,
    "delete_documents": DeletedCount,
    "list_chunks": ChunkPage,
    "add_chunk": AddedChunk,
    "retrieve": FoundChunks,
    "list_memories": MemoryPage,
    "create_memories": MemoryObject,
    "change_memories": MemoryObject,
    "config_memories": MemoryObject,
    "recent": list[MemoryMessageObject],
    "search": list[MemoryMessageObject],
    "add_server": McpServerObject,
    "get_server": McpServerObject,
    "change_server": McpServerObject,
    "patch_server": McpServerObject,
    "cancel_agent": bool,
    "cancel_task": bool,
    "change_task": bool,
    "cancel_session": bool,
}
"""Operation -> the type of `data`. Operations of RAGFlow's paths that are not here have any value there."""
