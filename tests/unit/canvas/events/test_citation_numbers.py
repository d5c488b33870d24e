"""Display numbers of evidence."""

from hypothesis import given
from hypothesis import strategies as st

from canvas.events.citation_numbers import EXTEND_AFTER, NUMBERS, assign_numbers, preferred_number


def test_a_chunk_gets_the_number_that_follows_from_its_id():
    assert preferred_number("29584016") == 373
    assert assign_numbers(["29584016", "83676664"], {}) == {"29584016": 373, "83676664": 194}


def test_the_first_chunk_keeps_a_number_that_another_one_wants():
    first, second = _twins()

    assert assign_numbers([second], {first: preferred_number(first)}) == {
        second: (preferred_number(first) + 1) % NUMBERS
    }


def test_the_number_after_the_last_is_the_first_until_there_is_a_crowd():
    last = next(name for at in range(5000) if preferred_number(name := f"chunk {at}") == NUMBERS - 1)
    others = {f"other {number}": number for number in range(1, EXTEND_AFTER - 1)}

    assert assign_numbers([last], {**others, "holder": NUMBERS - 1}) == {last: 0}
    assert assign_numbers([last], {**others, "holder": NUMBERS - 1, "one more": 450}) == {last: NUMBERS}


def test_a_crowd_gets_higher_numbers_instead_of_shared_ones():
    crowd = [f"chunk {at}" for at in range(EXTEND_AFTER + 300)]

    numbers = assign_numbers(crowd, {})

    assert len(set(numbers.values())) == len(crowd)
    assert max(numbers.values()) >= NUMBERS


@given(st.lists(st.text(max_size=8), max_size=40), st.lists(st.text(max_size=8), max_size=40))
def test_no_number_is_given_twice_and_none_ever_changes(first: list[str], later: list[str]):
    taken = assign_numbers(first, {})

    new = assign_numbers(later, taken)

    assert not new.keys() & taken.keys()
    assert set(first) | set(later) == taken.keys() | new.keys()
    numbers = [*taken.values(), *new.values()]
    assert len(set(numbers)) == len(numbers)


def _twins() -> tuple[str, str]:
    """Two ids that want the same number."""
    seen: dict[int, str] = {}
    for at in range(2000):
        chunk_id = f"chunk {at}"
        other = seen.setdefault(preferred_number(chunk_id), chunk_id)
        if other != chunk_id:
            return other, chunk_id
    raise AssertionError("unreachable")
