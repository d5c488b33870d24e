"""Text with references: how values are formatted, and which texts are Jinja templates."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import NodeFailure, UnresolvedReference
from components.text.templates import templates
from tests.fakes import FakeContext

CONTEXT = FakeContext(
    values={"begin": {"x": "X", "o": {"k": [1, "a"]}}},
    globals={"sys.query": "Bob", "env.l": [1, "a", {"k": 1}], "env.n": None, "env.f": 1.0, "env.t": True},
)
LITERAL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}"), max_size=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi {sys.query} !", "Hi Bob !"),
        ("{{sys.query}}{{ sys.query }}{{{sys.query}}}", "BobBobBob"),
        ("{env.l}", '[1, "a", {"k": 1}]'),
        ("{env.n}/{env.f}/{env.t}", "/1.0/true"),
        ("{begin@o.k.-1}{begin@o.k.9}{begin@nothing}", "a"),
        ("{not a ref} {sys.query and {}", "{not a ref} {sys.query and {}"),
    ],
)
def test_a_reference_becomes_the_text_of_its_value_and_blanks_stay(text: str, expected: str):
    assert templates.format_text(text, CONTEXT.lookup) == expected


@pytest.mark.parametrize(
    ("value", "written"), [([1, None, "b"], "1,None,b"), ({"a": 1}, '{"a": 1}'), (None, "null"), ("s", "s"), (2, "2")]
)
def test_tips_join_lists_and_spell_out_null(value: Any, written: str):
    assert templates.tips_text(value) == written


@pytest.mark.parametrize(("value", "written"), [(True, "True"), ([1], "[1]"), (None, ""), ("s", "s")])
def test_values_in_addresses_are_formatted_as_by_python(value: Any, written: str):
    assert templates.plain_text(value) == written


def test_unknown_global_in_a_text_is_an_error():
    with pytest.raises(UnresolvedReference, match=r"Can't find variable: 'env\.missing'"):
        templates.format_text("{env.missing}", CONTEXT.lookup)


def test_item_and_index_are_references_only_inside_an_iteration():
    inside = FakeContext(aliases={"item": {"n": 1}, "index": 0, "result": {"n": 1}})

    assert templates.format_text("{index}: {item}", inside.lookup) == '0: {"n": 1}'
    assert templates.format_text("{index}: {item}", CONTEXT.lookup) == "{index}: {item}"


@given(st.lists(st.tuples(LITERAL, st.text(max_size=30))))
def test_values_are_inserted_unchanged(parts: list[tuple[str, str]]):
    context = FakeContext(globals={f"env.v{number}": value for number, (_, value) in enumerate(parts)})
    text = "".join(f"{literal}{{env.v{number}}}" for number, (literal, _) in enumerate(parts))

    assert templates.format_text(text, context.lookup) == "".join(literal + value for literal, value in parts)


@given(st.text(max_size=60))
def test_any_text_without_references_survives_formatting(text: str):
    unknown = FakeContext()

    try:
        formatted = templates.format_text(text, unknown.lookup)
    except UnresolvedReference:
        return

    assert formatted == text


@pytest.mark.parametrize(
    ("text", "is_jinja"),
    [
        ("plain {sys.query}", False),
        ("{{sys.query}} and {{{sys.query}}}", False),
        ("{{ sys_query | upper }}", True),
        ("{{ {sys.query} | upper }}", True),
        ("{% if true %}\nx{% endif %}", True),
        ("{a: {b: 1}}", True),
        ("{%", False),
        ("{%}", False),
        ("%} {sys.query} {%", False),
        ("{%%}", True),
    ],
)
def test_braces_around_a_reference_alone_are_not_a_template(text: str, is_jinja: bool):
    assert templates.looks_like_jinja(text) is is_jinja


def test_text_full_of_unclosed_blocks_is_checked_for_jinja_quickly():
    assert not templates.looks_like_jinja("{%" * 100_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{sys.query}{{ sys_query|upper }}", "BobBOB"),
        ("{{ {sys.query} | upper }} / {{ {env.f} }}", "BOB / 1.0"),
        ("{% if {sys.query} == 'Bob' %}hi {sys.query}{% else %}who{% endif %}", "hi Bob"),
        ("{% filter upper %}{sys.query} sys_query{% endfilter %}", "BOB SYS_QUERY"),
        ("{{ 'to {sys.query}'|upper }}{% raw %}{{ {sys.query} }}{% endraw %}", "TO BOBBob"),
        ("{{ nobody }}{{ begin_x }}{begin@x}", "XX"),
    ],
)
def test_references_may_occur_anywhere_in_a_template(text: str, expected: str):
    texts = templates.resolve_texts([text], CONTEXT.lookup)

    assert templates.render(text, texts) == expected


@given(st.text(max_size=40))
def test_values_are_never_read_as_templates(value: str):
    assert templates.render("{% if true %}{sys.query}{% endif %}", {"sys.query": value}) == value


def test_template_that_fails_to_render_has_its_jinja_unchanged():
    assert templates.render("{{ a.b.c }} {sys.query}", {"sys.query": "Bob"}) == "{{ a.b.c }} Bob"


@pytest.mark.parametrize("text", ["{% if %}x{% endif %}", "{{ bad|nofilter }}", "{% for %}"])
def test_a_template_that_does_not_parse_fails_the_node(text: str):
    with pytest.raises(NodeFailure):
        templates.render(text, {})


def test_file_descriptors_are_removed_from_a_text():
    file = {"doc_id": "1", "filename": "a.pdf", "mime_type": "x", "size": 3}
    files: list[dict[str, Any]] = []

    texts = [templates.display_text(value, files) for value in (file, [file], json.dumps(file), [file, "no file"], [])]

    assert texts == ["", "", "", json.dumps([file, "no file"]), "[]"]
    assert files == [file, file, file]


def test_file_with_include_download_info_is_shown_without_that_flag():
    file = {"doc_id": "1", "filename": "a.pdf", "mime_type": "x"}
    files: list[dict[str, Any]] = []

    text = templates.display_text([file, {**file, "include_download_info_in_content": True}], files)

    assert json.loads(text) == files == [file, file]
