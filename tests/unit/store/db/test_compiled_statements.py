"""Combination of several writes into one statement, in which each keeps its values."""

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import JSON, Column, Integer, MetaData, Table, Text, bindparam, insert, literal_column, text, update

from store.db.compiled_statements import Write, combine_writes

things = Table("things", MetaData(), Column("id", Integer), Column("said", Text), Column("more", JSON))
PUT = insert(things)
SAY = text("update things set said = :said where id = :id or other_id = :id returning 1")
HIDE = (
    update(things)
    .where(things.c.id == bindparam("of_thing"))
    .values(said=bindparam("new_said"))
    .returning(literal_column("1"))
)

ONE, SOME = "expect_rows(count(*), 1, 'A')", "expect_rows(count(*), 2, 'B')"


def test_single_write_without_checks_is_the_statement_itself():
    one = combine_writes([Write(PUT, {"id": 1, "said": "one"})])

    assert one.sql == b"INSERT INTO things (id, said) VALUES ($1::INTEGER, $2::VARCHAR)"
    assert one.values([Write(PUT, {"id": 1, "said": "one"})]) == [1, "one"]


def test_combined_writes_have_consecutive_placeholders_and_checks_select_from_their_rows():
    writes = [
        Write(SAY, {"said": "a", "id": 1}, ONE),
        Write(PUT, {"id": 2, "more": [None]}),
        Write(HIDE, {"of_thing": 3, "new_said": "c"}, SOME),
    ]
    combined = combine_writes(writes)

    assert combined.sql == (
        b"with w0 as (update things set said = $1 where id = $2 or other_id = $2 returning 1), "
        b"w1 as (INSERT INTO things (id, more) VALUES ($3::INTEGER, $4::JSON)), "
        b"w2 as (UPDATE things SET said=$5::VARCHAR WHERE things.id = $6::INTEGER RETURNING 1) "
        b"select (select expect_rows(count(*), 1, 'A') from w0), (select expect_rows(count(*), 2, 'B') from w2)"
    )
    assert combined.values(writes) == ["a", 1, 2, "[null]", "c", 3]


@given(st.lists(st.tuples(st.sampled_from(["say", "put", "hide"]), st.integers(1, 99), st.text()), min_size=2))
def test_combined_writes_have_as_many_placeholders_as_values(parts: list[tuple[str, int, str]]):
    known = {
        "say": lambda number, said: Write(SAY, {"id": number, "said": said}, ONE),
        "put": lambda number, said: Write(PUT, {"id": number, "said": said}),
        "hide": lambda number, said: Write(HIDE, {"of_thing": number, "new_said": said}),
    }
    writes = [known[kind](number, said) for kind, number, said in parts]
    combined = combine_writes(writes)
    values = combined.values(writes)

    assert sorted(map(str, values)) == sorted(str(each) for _, *both in parts for each in both)
    assert f"${len(values)}".encode() in combined.sql
    assert f"${len(values) + 1}".encode() not in combined.sql
    assert combine_writes(writes) is combined
