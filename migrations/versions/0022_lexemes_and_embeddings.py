"""Store words and vectors of chunks and messages in types of the server: `tsvector`, and `real[]` without pgvector.

`store/maintenance/vectors.py` turns the column into `halfvec` where the server has pgvector. Rows of before are
converted by workers (`store/knowledge/former_rows.py`); their former columns stay for processes of the previous release
and are dropped by a later revision. That release finds new chunks by nothing: their former columns are empty.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, REAL, TSVECTOR

revision = "0022"
down_revision = "0021"


def prepare(connection: sa.Connection) -> Sequence[str]:
    """Build the index of chunks by base beside the traffic."""
    return ["create index if not exists ix_knowledge_chunks_base_id on knowledge_chunks (base_id)"]


def upgrade() -> None:
    for table in ("knowledge_chunks", "memory_messages"):
        op.add_column(table, sa.Column("lexemes", TSVECTOR()))
        op.add_column(table, sa.Column("embedding", ARRAY(REAL())))
        op.alter_column(table, "words", server_default=sa.text("'\\x'::bytea"))
        # in the row, so that a scan reads no second table
        op.execute(f"alter table {table} alter column lexemes set storage main")
        op.execute(f"alter table {table} set (toast_tuple_target = 4080)")
    op.execute("create index if not exists ix_knowledge_chunks_base_id on knowledge_chunks (base_id)")
    for table, keys in (
        ("knowledge_chunks", ["document_id", "position"]),
        ("memory_messages", ["memory_id", "number"]),
    ):
        op.create_index(f"ix_{table}_former", table, keys, postgresql_where=sa.text("lexemes is null"))
    op.add_column("knowledge_bases", sa.Column("index_due", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("knowledge_bases", sa.Column("index_until", sa.DateTime(timezone=True)))
    op.add_column("knowledge_bases", sa.Column("indexed_chunks", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("knowledge_bases", sa.Column("index_dimensions", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_knowledge_bases_index_due", "knowledge_bases", ["id"], postgresql_where=sa.text("index_due"))
    op.create_table(
        "knowledge_base_words",
        sa.Column("base_id", sa.Uuid(), nullable=False),
        sa.Column("word", sa.Text(), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("base_id", "word", name="pk_knowledge_base_words"),
        sa.ForeignKeyConstraint(
            ["base_id"],
            ["knowledge_bases.id"],
            ondelete="CASCADE",
            name="fk_knowledge_base_words_base_id_knowledge_bases",
        ),
    )
