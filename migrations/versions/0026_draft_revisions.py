"""Number the changes of drafts, so that two editors do not overwrite each other.

A trigger counts them: it also sees what the previous release writes, and a save that changes nothing is no change.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("canvases", sa.Column("draft_revision", sa.BigInteger(), nullable=False, server_default=sa.text("1")))
    op.add_column("canvases", sa.Column("draft_token_id", sa.Uuid()))
    op.execute(
        "create function canvases_count_drafts() returns trigger language plpgsql as $$ begin"
        " new.draft_revision := old.draft_revision + 1; return new; end $$"
    )
    op.execute(
        "create trigger canvases_count_drafts before update of draft on canvases for each row"
        " when (cast(new.draft as text) is distinct from cast(old.draft as text))"
        " execute function canvases_count_drafts()"
    )
