"""References: their syntax in texts, paths into values, and assignments to paths."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import references
from canvas.document.references import Ref
from canvas.errors import NodeFailure

TEXTS = st.text(alphabet="{} ab.@:_-sysenv.itemindexresult\t\n", max_size=80)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


def with_references_replaced(text: str, *, with_aliases: bool = False) -> str:
    """Return the text with every reference replaced by `Q`."""
    parts: list[str] = []
    end = 0
    for found in references.find(text, with_aliases=with_aliases):
        parts += [text[end : found.start], "Q"]
        end = found.end
    return "".join((*parts, text[end:]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a {sys.query} b", "a Q b"),
        ("a {{sys.query}} b", "a Q b"),
        ("{{{sys.query}}}", "Q"),
        ("{ {sys.query} }", "Q"),
        ("{{ sys.query }}", "Q"),
        ("{ sys.query }", "Q"),
        ("{{sys.query}", "{Q"),
        ("{sys.query}}", "Q}"),
        ('{"a": {sys.query}}', '{"a": Q}'),
        ("{sys.query}{env.x}", "QQ"),
        ("{Agent:0@content.items.0}", "Q"),
        ("{a@b}  {c@d}", "Q  Q"),
    ],
)
def test_balanced_braces_belong_to_the_reference_and_everything_else_stays_text(text: str, expected: str):
    assert with_references_replaced(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("{x}", "{a-b@c}", "{a@b@c}", "{env.a-b}", "{sys.x@y}", "{}", "{item}"),
        *("{{ sys_query | upper }}", "{{ sys.query | upper }}", "{% for i in range(3) %}{{ i }}{% endfor %}"),
    ],
)
def test_find_returns_nothing_for_text_that_is_not_exactly_a_reference(text: str):
    assert references.find(text) == []


def test_reference_has_a_node_an_output_and_a_path():
    [found] = references.find("see {{ Agent:0@structured.items.0 }}")

    assert found.ref == Ref("Agent:0", "structured", ("items", "0"))
    assert found.expression == "Agent:0@structured.items.0" == found.ref.expression


def test_reference_to_a_global_has_no_path():
    [found] = references.find("{env.user.name}")

    assert found.ref == Ref(None, "env.user.name")


def test_aliases_are_found_in_any_case_and_only_on_request():
    text = "{item} of {{ INDEX }}: {result} {sys.query}"

    with_all_aliases = references.find(text, with_aliases=True)

    assert [found.ref.root for found in with_all_aliases] == ["item", "index", "result", "sys.query"]
    assert [found.ref.root for found in references.find(text)] == ["sys.query"]
    assert with_references_replaced(text, with_aliases=True) == "Q of Q: Q Q"


@given(TEXTS, st.booleans())
def test_find_never_raises_and_its_matches_never_overlap(text: str, with_aliases: bool):
    end = 0
    for found in references.find(text, with_aliases=with_aliases):
        assert end <= found.start < found.end
        assert text[found.start : found.end].strip("{} \t") == found.expression
        assert text[found.start : found.end].count("{") == text[found.start : found.end].count("}")
        end = found.end


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("sys.query", Ref(None, "sys.query")),
        ("{sys.query}", Ref(None, "sys.query")),
        ("{{ begin@x.y }}", Ref("begin", "x", ("y",))),
        ("begin@x", Ref("begin", "x")),
        ("Loop:1@Zähler", Ref("Loop:1", "Zähler")),
        ("{sys.query} ", None),
        (" sys.query", None),
        ("hello", None),
        ("{a@b}{c@d}", None),
        ("a@b@c", None),
        ("@b", None),
        ("a@", None),
        ("{}", None),
        ("", None),
    ],
)
def test_parse_accepts_a_reference_with_or_without_braces(text: str, ref: Ref | None):
    assert references.parse(text) == ref


def test_parse_reference_accepts_any_text_and_splits_at_the_first_at_sign():
    assert references.parse_reference("{ StringTransform:0@a@b.c }") == Ref("StringTransform:0", "a@b", ("c",))
    assert references.parse_reference("anything") == Ref(None, "anything")


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"a": [1, 2, 3]}, "a.-1", 3),
        ([1, 2], "5", None),
        ([1, 2], "-2", 1),
        ([1, 2], "-3", None),
        ([1, 2], "x", None),
        ('{"a": [true]}', "a.0", True),
        ("not json", "a", None),
        ('{"a": NaN}', "a", None),
        ("[" * 100_000, "0", None),
        (None, "a", None),
        (7, "a", None),
        ({"0": "zero"}, "0", "zero"),
    ],
)
def test_get_path_follows_keys_and_indexes_and_returns_none_for_missing_ones(
    value: object, path: str, expected: object
):
    assert references.get_path(value, path.split(".")) == expected


@given(JSON, st.lists(st.sampled_from(["a", "b", "0", "-1", "99", "", "x y"]), max_size=5))
def test_get_path_never_raises(value: object, path: list[str]):
    references.get_path(value, path)


def test_assign_path_creates_missing_levels_and_replaces_values_that_are_not_objects():
    current = {"a": 5, "keep": [1]}

    assigned = references.assign_path(current, ("a", "b", "c"), "q")

    assert assigned == {"a": {"b": {"c": "q"}}, "keep": [1]}
    assert current == {"a": 5, "keep": [1]}


@given(
    st.dictionaries(st.sampled_from("abc"), JSON, max_size=3),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
    st.integers() | st.booleans() | st.none(),
)
def test_get_path_returns_the_value_that_was_assigned_at_the_path(
    current: dict[str, object], path: list[str], value: object
):
    assert references.get_path(references.assign_path(current, path, value), path) == value


@pytest.mark.parametrize("root", ["text", [1], 3, True])
def test_assign_path_fails_inside_a_value_that_is_not_an_object(root: object):
    with pytest.raises(NodeFailure):
        references.assign_path(root, ("a",), 1)


@pytest.mark.parametrize("root", [None, "", [], 0, {}])
def test_assign_path_into_an_empty_value_creates_an_object(root: object):
    assert references.assign_path(root, ("a",), 1) == {"a": 1}


def test_names_are_collected_from_texts_and_bare_strings_at_any_depth_but_not_from_keys():
    params = {
        "content": ["{Agent:0@content} at {sys.date}, {item}", {"cpn_id": "Switch:1@next.0"}],
        "variable": "env.count",
        "{begin@key}": 1,
        "number": 4,
    }

    names = references.names_in(params)

    assert names.nodes == {("Agent:0", "content"), ("Switch:1", "next")}
    assert names.globals == {"sys.date", "env.count"}
    assert names.aliases == {"item"}


MANY = 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "{" * MANY,
        "}" * MANY,
        "{ " * (MANY // 2),
        "{" * (MANY // 2) + "a@b" + "}" * (MANY // 2),
        "{ " * (MANY // 4) + "a@b" + " }" * (MANY // 4),
        "{a@" + "b" * MANY,
        "{a@b" + " " * MANY,
        "{" + "a" * MANY,
        "{item" * (MANY // 5),
    ],
    ids=["open", "close", "blanks", "balanced", "balanced blanks", "long output", "long blank", "long node", "items"],
)
def test_names_in_reads_hostile_texts_of_a_megabyte_within_five_seconds(text: str):
    began = time.process_time()

    references.names_in([text])

    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("{a@items[0].name}", Ref("a", "items", ("0", "name"))),
        ("{{ a@items[0] }}", Ref("a", "items", ("0",))),
        ("{a@rows[-1][2]}", Ref("a", "rows", ("-1", "2"))),
        ("{a@x.rows[1].y.z[3]}", Ref("a", "x", ("rows", "1", "y", "z", "3"))),
    ],
)
def test_an_index_in_brackets_is_a_step_of_a_path(text: str, ref: Ref):
    [found] = references.find(f"I say {text}!")

    assert found.ref == ref
    assert references.parse(text) == references.parse(text.strip("{ }")) == ref
    assert references.get_path({"items": [{"name": "Ann"}]}, references.parse_reference("a@v[0]").path) is None
    assert references.get_path([["x"]], references.parse_reference("a@v[0][0]").path) == "x"


@pytest.mark.parametrize("text", ["{a@x[y]}", "{a@x[]}", "{a@x[0}", "{a@[0]}", "{a@x[1.5]}", "{item[0]}"])
def test_text_with_other_brackets_is_not_a_reference(text: str):
    assert references.find(text, with_aliases=True) == []
