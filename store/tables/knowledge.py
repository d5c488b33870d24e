"""The tables of knowledge bases: a base has documents, and a document has chunks.

Metadata is `jsonb`: the order of its keys is never shown, and PostgreSQL may be queried for it. Words are a `tsvector`
of our own lexemes, vectors a `halfvec` of pgvector, or `real[]` on a server without it
(docs/decisions/0060-knowledge-bases-on-pgvector.md).
"""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, LargeBinary, Table, Text, Uuid, func
from sqlalchemy import text as literal
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR
from sqlalchemy.types import NullType

from store.tables.runs import created_timestamp, metadata, timestamp

knowledge_bases = Table(
    "knowledge_bases",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("language", Text, nullable=False, server_default="English"),
    Column("embedding_model", Text, nullable=False, server_default=""),  # "": searched by words only
    Column("parser", JSONB, nullable=False),  # fields of `parser_config`, of which defaults may be absent
    # further settings of RAGFlow's datasets: {avatar, permission, chunk_method, pagerank, ...}; unset ones are absent
    Column("settings", JSONB, nullable=False, server_default=literal("'{}'::jsonb")),
    # incremented whenever a search may find other chunks; read by processes of the previous release only
    Column("revision", BigInteger, nullable=False, server_default="0"),
    # indexes of a large base (store/knowledge/chunk_indexes.py)
    Column("index_due", Boolean, nullable=False, server_default=literal("false")),  # a worker is to build or renew them
    timestamp("index_until"),  # until when a worker that builds them has to itself
    Column("indexed_chunks", BigInteger, nullable=False, server_default="0"),  # when they were built; 0: there are none
    Column("index_dimensions", Integer, nullable=False, server_default="0"),  # numbers of a vector; 0: words only
    created_timestamp("created_at"),
    created_timestamp("updated_at"),
    Index("uq_knowledge_bases_name", "tenant_id", func.lower(literal("name")), unique=True),
    Index("ix_knowledge_bases_index_due", "id", postgresql_where=literal("index_due")),
)

knowledge_base_words = Table(
    "knowledge_base_words",  # the common words of a large base, and how many chunks have them
    metadata,
    Column("base_id", Uuid, ForeignKey("knowledge_bases.id", ondelete="CASCADE"), primary_key=True),
    Column("word", Text, primary_key=True),
    Column("chunks", Integer, nullable=False),
)

knowledge_documents = Table(
    "knowledge_documents",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("base_id", Uuid, ForeignKey("knowledge_bases.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("mime_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),  # bytes
    Column("sha256", LargeBinary, nullable=False),  # names its content in the file storage
    Column("metadata", JSONB, nullable=False, server_default=literal("'{}'::jsonb")),
    # further settings of RAGFlow's documents: {chunk_method}; unset ones are absent
    Column("settings", JSONB, nullable=False, server_default=literal("'{}'::jsonb")),
    Column("parser", JSONB),  # its own fields of `parser_config`; null: those of the base
    Column("enabled", Boolean, nullable=False, server_default=literal("true")),  # false: no search finds it
    Column("status", Text, nullable=False, server_default="uploaded"),  # uploaded | pending | done | failed
    timestamp("started_at"),  # when it was last set to pending
    timestamp("ended_at"),  # when its reading ended; with the status `uploaded`: when it was stopped
    Column("error", Text, nullable=False, server_default=""),
    # incremented whenever its chunks are created anew
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("chunks", Integer, nullable=False, server_default="0"),  # stored so far
    Column("written_chunks", Integer, nullable=False, server_default="0"),  # those of them that people wrote
    Column("last_written", Integer, nullable=False, server_default="0"),  # number of the latest one
    Column("expected", Integer, nullable=False, server_default="0"),  # chunks in all; 0: not known yet
    Column("read_pages", Integer, nullable=False, server_default="0"),  # pages of an image or scan that a model read
    Column("tokens", BigInteger, nullable=False, server_default="0"),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("lease_id", Uuid),
    timestamp("lease_until"),  # if lease_id is null: when it may be tried next
    created_timestamp("created_at"),
    created_timestamp("updated_at"),
    Index("uq_knowledge_documents_name", "base_id", "name", unique=True),
    Index("ix_knowledge_documents_content", "base_id", "sha256"),
    Index("ix_knowledge_documents_pending", "updated_at", postgresql_where=literal("status = 'pending'")),
)

knowledge_chunks = Table(
    "knowledge_chunks",
    metadata,
    Column("document_id", Uuid, ForeignKey("knowledge_documents.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("base_id", Uuid, nullable=False),
    Column("text", Text, nullable=False),
    Column("lexemes", TSVECTOR),  # null: a row of before, which waits for its conversion
    Column("embedding", NullType),  # of length 1; null if the base has no embedding model
    Column("available", Boolean, nullable=False, server_default=literal("true")),  # false: no search finds it
    # what people wrote beside the text: {important_keywords, questions, tag_kwd, tag_feas, positions}
    Column("details", JSONB),
    Column("image", LargeBinary),  # PNG, JPEG, GIF or WebP
    # of the previous release, dropped by a later revision
    Column("words", LargeBinary, nullable=False, server_default=literal("'\\x'::bytea")),
    Column("vector", LargeBinary),
    Index("ix_knowledge_chunks_base_id", "base_id"),
    Index("ix_knowledge_chunks_former", "document_id", "position", postgresql_where=literal("lexemes is null")),
)
