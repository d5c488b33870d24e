"""The tables of memories: a memory has messages, both the saved ones and those extracted from them.

Words and vectors are stored as in knowledge bases (`store/tables/knowledge.py`).
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    func,
)
from sqlalchemy import text as literal
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.types import NullType

from store.tables.runs import created_timestamp, metadata, timestamp

memories = Table(
    "memories",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("types", Integer, nullable=False),  # bits: raw 1, semantic 2, episodic 4, procedural 8
    Column("embedding_model", Text, nullable=False, server_default=""),  # "": searched by words only
    Column("chat_model", Text, nullable=False, server_default=""),  # extracts messages
    Column("temperature", Float, nullable=False, server_default="0.5"),
    Column("system_prompt", Text, nullable=False, server_default=""),  # "": built from the types
    Column("user_prompt", Text, nullable=False, server_default=""),
    Column("most_bytes", BigInteger, nullable=False),  # limit of texts and vectors together
    Column("policy", Text, nullable=False, server_default="FIFO"),  # which messages are removed when it is full
    Column("permissions", Text, nullable=False, server_default="me"),  # me | team
    Column("avatar", Text, nullable=False, server_default=""),  # a picture as a data address
    Column("bytes", BigInteger, nullable=False, server_default="0"),  # used now
    Column("last_number", BigInteger, nullable=False, server_default="0"),  # of the latest message
    created_timestamp("created_at"),
    created_timestamp("updated_at"),
    Index("uq_memories_name", "tenant_id", func.lower(literal("name")), unique=True),
)

memory_messages = Table(
    "memory_messages",
    metadata,
    Column("memory_id", Uuid, ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant_id", Uuid, nullable=False),
    Column("type", Integer, nullable=False),  # one of the bits of memories.types
    Column("source", BigInteger, nullable=False, server_default="0"),  # number of the message it was extracted from
    Column("key", Text),  # of a saved message: a second save under the same key changes nothing
    Column("user_id", Text, nullable=False, server_default=""),
    Column("agent_id", Text, nullable=False, server_default=""),
    Column("session_id", Text, nullable=False, server_default=""),
    Column("content", Text, nullable=False),
    Column("lexemes", TSVECTOR),  # null: a row of before, which waits for its conversion
    Column("embedding", NullType),  # of length 1
    # of the previous release, dropped by a later revision
    Column("words", LargeBinary, nullable=False, server_default=literal("'\\x'::bytea")),
    Column("vector", LargeBinary),
    Column("size", Integer, nullable=False),  # bytes that count towards the memory's limit
    created_timestamp("valid_at"),
    timestamp("invalid_at"),
    timestamp("forget_at"),
    Column("is_enabled", Boolean, nullable=False, server_default=literal("true")),
    Column("extraction", Text, nullable=False, server_default="none"),  # none | pending | done | failed
    Column("error", Text, nullable=False, server_default=""),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("lease_id", Uuid),
    timestamp("lease_until"),  # if lease_id is null: when it may be tried next
    created_timestamp("created_at"),
    Index("uq_memory_messages_key", "memory_id", "key", unique=True),
    Index("ix_memory_messages_source", "memory_id", "source"),
    Index("ix_memory_messages_former", "memory_id", "number", postgresql_where=literal("lexemes is null")),
    Index("ix_memory_messages_pending", "created_at", postgresql_where=literal("extraction = 'pending'")),
)
