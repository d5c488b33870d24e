"""SQL that scores rows by their vectors and their words, and ranks them.

A statement is built of selects that score rows, each with the same columns: the row's keys, the cosine, and a column
for each word of the query that says whether the row has it. A select scores all rows of its part of the search, or the
candidates of an index. `rank` combines them.

The similarity by words is the weighted share of the query's words that a row has; a word weighs ln(2 + rows /
rows with it), one that is in no row ABSENT_WORD_WEIGHT. A query may have several wordings; the best one counts.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError

from canvas.errors import ToolError

ABSENT_WORD_WEIGHT = 0.35
ALL = 0  # the part whose rows are all scored

ERROR_OF_DIMENSIONS = (
    "cast('different vector dimensions ' || cardinality(r.embedding) || ' and ' "
    "|| cardinality(cast(:vector as real[])) as float8)"
)
"""SQL that fails with the message of pgvector, for servers without it."""


_OTHER_DIMENSIONS = re.compile(r"different \w+ dimensions (\d+) and (\d+)")


@dataclass(frozen=True, slots=True)
class Terms:
    """The words of a query, in one or more wordings, and its vector, scaled to length 1.

    `wordings` holds how many of `words` each wording has, in their order.
    """

    words: Sequence[str]
    wordings: Sequence[int]
    vector: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A row's keys, its similarity and the two parts of it, each from 0 to 1."""

    keys: tuple[Any, ...]
    similarity: float
    by_vector: float
    by_words: float


def word_parameters(words: Sequence[str], prefix: str) -> dict[str, str]:
    """Return the values of the parameters that `columns` names: each word as a tsquery."""
    return {f"{prefix}{at}": as_tsquery(word) for at, word in enumerate(words)}


def as_tsquery(word: str) -> str:
    """Return a word as the text of a tsquery, whatever characters it has."""
    quoted = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{quoted}'"


def cosine(terms: Terms, *, is_plain: bool) -> str:
    """Return the cosine of a row `r` and the query; vectors have length 1. `is_plain`: the column is `real[]`."""
    if terms.vector is None:
        return "0::float8"
    if not is_plain:
        product = "-(r.embedding <#> cast(cast(:vector as real[]) as halfvec))"
        return f"least(1, greatest(0, coalesce({product}, 0)))::float8"
    product = "(select sum(x * y) from unnest(r.embedding, cast(:vector as real[])) as pair (x, y))"
    return f"""case
        when r.embedding is null then 0
        when cardinality(r.embedding) = {len(terms.vector)} then least(1, greatest(0, {product}))
        else {ERROR_OF_DIMENSIONS}
    end::float8"""


def columns(keys: str, cosine: str, words: int, prefix: str, part: int = ALL) -> str:
    """Return the columns of a select that scores rows `r` of a part of the search: ALL of them, or candidates."""
    hits = [f"r.lexemes @@ cast(:{prefix}{at} as tsquery) as h{at}" for at in range(words)]
    return ", ".join([keys, f"{part} as part", f"{cosine} as cosine", *hits])


@dataclass(frozen=True, slots=True)
class KnownFrequency:
    """How many rows of some parts have a word. Candidates of these parts are not counted."""

    rows: int
    parts: Sequence[int]


def rank(
    scored: Sequence[str],
    keys: Sequence[str],
    order: str,
    terms: Terms,
    known: Mapping[int, KnownFrequency] | None = None,
) -> str:
    """Return the statement that ranks the rows of some selects.

    Its parameters are `by_vector` (the weight of the vector), `threshold`, `most` (rows) and `known_rows`: how many
    rows the parts have of which only candidates are scored. `known` has the frequency of words in such parts.
    """
    known = known or {}
    weights = [f"{_weight(at, known.get(at))} as w{at}" for at in range(len(terms.words))]
    key_columns = ", ".join(keys)
    similarity = "cast(:by_vector as float8) * cosine + (1 - cast(:by_vector as float8)) * by_words"
    return f"""
        with scored as materialized ({" union all ".join(f"({each})" for each in scored)}),
        totals as materialized (
            select count(*) filter (where part = {ALL}) + cast(:known_rows as float8) as in_all from scored
        ),
        weights as materialized (select {", ".join(weights) or "1 as none"} from totals),
        shares as (select {key_columns}, cosine, {_by_words(terms)} as by_words from scored cross join weights),
        compared as (select {key_columns}, {similarity} as similarity, cosine, by_words from shares)
        select {key_columns}, similarity, cosine, by_words from compared where similarity >= cast(:threshold as float8)
        order by similarity desc, {order} limit :most
    """  # noqa: S608 (built of this module's own text)


def _weight(word: int, known: KnownFrequency | None) -> str:
    counted = f"h{word} and part not in ({', '.join(map(str, known.parts))})" if known else f"h{word}"
    found = f"((select count(*) from scored where {counted}) + {known.rows if known else 0})"  # noqa: S608
    return f"case when {found} > 0 then ln(2 + in_all / {found}::float8) else {ABSENT_WORD_WEIGHT} end"


def _by_words(terms: Terms) -> str:
    shares, first = list[str](), 0
    for count in terms.wordings:
        words = range(first, first + count)
        if count:
            has = " + ".join(f"case when h{at} then w{at} else 0 end" for at in words)
            shares.append(f"({has}) / ({' + '.join(f'w{at}' for at in words)})")
        first += count
    return f"greatest({', '.join(shares)})::float8" if shares else "0::float8"


@contextmanager
def dimension_errors(terms: Terms) -> Generator[None]:
    """Convert the server's error about vectors of several lengths to ToolError."""
    try:
        yield
    except DBAPIError as error:
        if found := _OTHER_DIMENSIONS.search(str(error.orig)):
            raise ToolError(
                f"The embedding model now returns vectors of {len(terms.vector or ())} numbers, and stored vectors "
                f"have {found[1]}. Parse the documents again, or restore the previous model."
            ) from error
        raise
