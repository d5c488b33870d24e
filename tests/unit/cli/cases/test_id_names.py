"""Names in place of ids, and back."""

from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from cli.cases.id_names import IdNames, file_name, step_name

RUN, OTHER = UUID("01a22270-e81b-7e77-9e0d-298e14be3dd4"), UUID("01a22270-e81b-7e77-9e0d-298e14be3dd5")


def names_of(**known: UUID) -> IdNames:
    names = IdNames()
    for name, each in known.items():
        names.add(name, each)
    return names


def test_known_id_is_named_in_texts_and_keys_with_and_without_hyphens():
    names = names_of(run=RUN)

    named = names.with_names({str(RUN): [f"a {RUN.hex}.", 5, None]})

    assert named == {"<easel:run~>": ["a <easel:run>.", 5, None]}


def test_unknown_id_and_longer_hexadecimal_text_stay():
    names = names_of(run=RUN)

    assert names.with_names([OTHER.hex, f"{RUN.hex}0"]) == [OTHER.hex, f"{RUN.hex}0"]


def test_name_without_an_id_stays():
    assert names_of(run=RUN).with_ids("<easel:agent> <easel:run>") == f"<easel:agent> {RUN.hex}"


def test_first_name_of_an_id_counts():
    names = names_of(run=RUN, session=RUN)

    assert names.with_names(RUN.hex) == "<easel:run>"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([RUN.hex, str(RUN), f"x{OTHER}y"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just(RUN.hex), inner),
    max_leaves=20,
)


@given(json_values)
def test_names_of_ids_lead_back_to_the_same_value(value: object):
    names = names_of(run=RUN, session=OTHER)

    assert names.with_ids(names.with_names(value)) == value


@given(st.text(), st.text(), st.integers(0, 99), st.text())
def test_names_of_steps_and_files_are_replaced_as_a_whole(node: str, scope: str, ordinal: int, file: str):
    step = step_name(node, scope, ordinal)
    names = IdNames()
    ids = {name: uuid4() for name in (step, file_name(step, "0:1", file))}
    for name, known in ids.items():
        names.add(name, known)

    for known in ids.values():
        assert names.with_ids(names.with_names(f"({known})")) == f"({known})"
