"""A function that refuses a statement whose write did not hit as many rows as its writer expects.

The function is created in the schema of the tables: both are found by the search path. An earlier release does not
call it.
"""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.execute("""
        create or replace function expect_rows(actual bigint, expected bigint, code text, problem text) returns int
        language plpgsql stable as $$
        begin
            if actual is distinct from expected then
                raise exception using errcode = code,
                    message = format('%s (rows expected: %s, found: %s)', problem, expected, actual);
            end if;
            return 0;
        end
        $$
    """)
