"""Display numbers of citations."""

from hypothesis import given
from hypothesis import strategies as st

from canvas.events.citation_numbers import EXTEND_AFTER, NUMBERS, assign_numbers, preferred_number


def test_chunk_gets_the_preferred_number_of_its_id():
    assert preferred_number("29584016") == 373
    assert assign_numbers(["29584016", "83676664"], {}) == {"29584016": 373, "83676664": 194}


def test_second_chunk_with_the_same_preferred_number_gets_the_next_number():
    first, second = _ids_with_equal_preferred_number()

    assert assign_numbers([second], {first: preferred_number(first)}) == {
        second: (preferred_number(first) + 1) % NUMBERS
    }


def test_numbers_wrap_around_until_many_are_in_use():
    last = next(name for at in range(5000) if preferred_number(name := f"chunk {at}") == NUMBERS - 1)
    others = {f"other {number}": number for number in range(1, EXTEND_AFTER - 1)}

    assert assign_numbers([last], {**others, "holder": NUMBERS - 1}) == {last: 0}
    assert assign_numbers([last], {**others, "holder": NUMBERS - 1, "one more": 450}) == {last: NUMBERS}


def test_many_chunks_get_higher_numbers_instead_of_shared_ones():
    chunk_ids = [f"chunk {at}" for at in range(EXTEND_AFTER + 300)]

    numbers = assign_numbers(chunk_ids, {})

    assert len(set(numbers.values())) == len(chunk_ids)
    assert max(numbers.values()) >= NUMBERS


@given(st.lists(st.text(max_size=8), max_size=40), st.lists(st.text(max_size=8), max_size=40))
def test_numbers_of_chunks_are_unique_and_never_change(first: list[str], later: list[str]):
    assigned = assign_numbers(first, {})

    new = assign_numbers(later, assigned)

    assert not new.keys() & assigned.keys()
    assert set(first) | set(later) == assigned.keys() | new.keys()
    numbers = [*assigned.values(), *new.values()]
    assert len(set(numbers)) == len(numbers)


def _ids_with_equal_preferred_number() -> tuple[str, str]:
    """Return two ids with the same preferred number."""
    seen: dict[int, str] = {}
    for at in range(2000):
        chunk_id = f"chunk {at}"
        other = seen.setdefault(preferred_number(chunk_id), chunk_id)
        if other != chunk_id:
            return other, chunk_id
    raise AssertionError("unreachable")
