"""Hostile canvases and values: too deep, too many, cyclic, or with unusual names."""

import json
from contextlib import suppress
from time import process_time
from typing import Any

import pytest

from canvas.document import parsing, references
from canvas.errors import InvalidCanvas, UnresolvedReference
from canvas.graph.canvas import compile_canvas
from canvas.validation import check
from components.text.json_in_text import parse_repaired, read_json
from components.text.templates import templates
from providers.errors import classify

MAX_SECONDS = 15.0  # of computing


def node(component: str = "Message", *downstream: str, **params: Any) -> dict[str, Any]:
    return {"obj": {"component_name": component, "params": params}, "downstream": list(downstream), "upstream": []}


def nested(levels: int, value: Any = 1, key: str = "a") -> Any:
    for _ in range(levels):
        value = {key: value}
    return value


def canvas(**more: Any) -> dict[str, Any]:
    return {"components": {"begin": node("Begin", "Message:0"), "Message:0": node(content=["hi"])}, **more}


UNUSUAL_NAMES = (
    "__proto__", "constructor", "prototype", "__class__", "__init__", "__dict__", "toString", "hasOwnProperty",
    "a\r\nb", "a\x1b[2J", "\u202ea", "\u2028", "a@b", "{a}", "{{a}}", "{% a %}", "../../a", "'; DROP TABLE runs; --",
    "<script>", "a\ufdd0", "\ufeff", " ", "a" * 10_000, "begin ", "BEGIN", "sys.query", "env.KEY", "item", "-->",
)  # fmt: skip

REFUSED = {
    "deep params": canvas(components={"begin": node("Begin", deep=nested(5000))}),
    "deep globals": canvas(globals=nested(5000)),
    "deep text": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "huge number": '{"components": {"begin": ' + "9" * 4000 + "}}",
    "endless number": "9" * 1_000_000,
    "no number": '{"components": {"begin": NaN}}',
    "infinity": '{"components": {}, "globals": {"sys.query": 1e999}}',
    "half a pair": canvas(globals={"a": "\ud800"}),
    "nul": canvas(globals={"a": "\x00"}),
    "nul in a key": canvas(globals={"a\x00": 1}),
    "no object": "[]",
    "no components": {"components": 7},
    "many nodes": canvas(components={f"n{n}": node() for n in range(parsing.MAX_NODES + 1)}),
    "many edges": canvas(components={f"n{n}": node("Message", *(f"n{m}" for m in range(300))) for n in range(300)}),
    "not json": "{'components': __import__('os').system('id')}",
    "yaml": "!!python/object/apply:os.system ['id']",
    "pickle": b"\x80\x04cos\nsystem\n.",
    "too many bytes": " " * (parsing.MAX_BYTES + 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_canvas_that_cannot_be_stored_is_refused_with_invalid_canvas(name: str):
    began = process_time()

    with pytest.raises(InvalidCanvas):
        parsing.parse(REFUSED[name])

    assert process_time() - began < MAX_SECONDS


@pytest.mark.parametrize("name", UNUSUAL_NAMES, ids=ascii)
def test_unusual_name_is_parsed_as_a_plain_name(name: str):
    """As a node, a parameter, a global and an output: it is parsed, checked and compiled, or refused."""
    document_json = canvas(globals={name: 1}, variables={name: {"type": "string", "value": "v"}})
    document_json["components"][name] = node(
        "Message", name, "Message:0", **{name: f"{{{name}@{name}}}", "content": [name]}
    )

    document = parsing.parse(json.dumps(document_json))
    with suppress(InvalidCanvas):
        check.check(document)
        compile_canvas(document)

    assert parsing.dump(document)["globals"][name] in (1, "v")
    assert name in parsing.dump(document)["components"]


def test_large_canvas_of_cycles_compiles_in_bounded_time():
    number = 1500
    cycle = {f"n{n}": node("Message", f"n{(n + 1) % number}", f"n{(n * 7) % number}") for n in range(number)}
    began = process_time()

    compile_canvas(parsing.parse(canvas(components={"begin": node("Begin", "n0"), **cycle})))

    assert process_time() - began < MAX_SECONDS


@pytest.mark.parametrize("length", [1, 2, 500])
def test_canvas_with_a_cycle_of_parents_is_refused(length: int):
    ring = {f"I:{n}": {**node("Iteration"), "parent_id": f"I:{(n + 1) % length}"} for n in range(length)}

    with pytest.raises(InvalidCanvas):
        compile_canvas(parsing.parse(canvas(components={"begin": node("Begin"), **ring})))


PATHS = (
    "__class__", "__class__.__mro__", "__init__.__globals__", "a.__class__", "0.__class__", "items", "keys", "get",
    "constructor.prototype", "__proto__", "a.b.c.d.e" * 2000, ".", "..", "-1.__class__", "9" * 5000, "a" * 100_000,
)  # fmt: skip


@pytest.mark.parametrize("value", [{"a": 1}, [1], "text", '{"a": 1}', 7, None, True, 1.5, "[" * 100_000, "9" * 10_000])
def test_reference_path_never_reaches_python_attributes(value: Any):
    for path in PATHS:
        assert references.get_path(value, tuple(path.split("."))) is None


@pytest.mark.parametrize(
    "text",
    [
        "{" * 100_000, "{" * 50_000 + "sys.query" + "}" * 50_000, "{ " * 50_000, "{sys." * 50_000, "{a@" * 50_000,
        "{{" * 50_000 + "}}" * 50_000, "{%" * 50_000, "{sys.query" * 50_000, "{a:b@c.d" * 20_000, "@" * 100_000,
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_text_full_of_braces_is_parsed_in_bounded_time(text: str):
    def lookup(expression: str) -> Any:
        raise UnresolvedReference(expression)

    began = process_time()

    references.find(text, with_aliases=True)
    templates.looks_like_jinja(text)
    references.parse(text)
    with suppress(UnresolvedReference):  # some texts contain a reference
        templates.format_text(text, lookup)

    assert process_time() - began < MAX_SECONDS


@pytest.mark.parametrize("fragment", ["{", "{ ", "{input", "{ input ", "a@", "{a@", "a:", "{a@b."])
def test_canvas_full_of_braces_compiles_in_bounded_time(fragment: str):
    text = fragment * (500_000 // len(fragment))
    referencing = {"LLM:0": node("LLM", "Message:0", prompt=text), "Message:0": node(content=[text])}
    nodes = {"begin": node("Begin", "LLM:0"), **referencing}
    began = process_time()

    with suppress(InvalidCanvas):
        compile_canvas(parsing.parse(canvas(components=nodes, globals={"sys.query": text})))

    assert process_time() - began < MAX_SECONDS


def test_error_text_of_many_blanks_is_classified_in_bounded_time():
    began = process_time()

    classify(" " * 200_000)

    assert process_time() - began < MAX_SECONDS


def test_reference_in_an_inserted_value_is_not_resolved():
    """`{sys.query}` contains `{env.KEY}`, which stays text."""
    values = {"sys.query": "{env.KEY}{sys.query}{{env.KEY}}", "env.KEY": "s3cret"}

    assert templates.format_text("{sys.query}", values.__getitem__) == values["sys.query"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000, '{"a":' * 20_000, "```json" * 20_000, '"' * 20_000, "<think>" * 20_000, "[[]," * 5_000,
        '{"a"' * 50_000, "{a:b," * 50_000, '["a" "b", "c' * 20_000, '{"a":"b, "c":"d, ' * 20_000, "{“a“:" * 50_000,
        "(" * 200_000, "(()" * 100_000, '{"k": "' + 'x, y: "' * 50_000, "[" + '"a" b ' * 50_000,
    ],
    ids=lambda text: text[:9],
)  # fmt: skip
def test_malformed_json_of_a_model_is_parsed_in_bounded_time(text: str):
    began = process_time()

    parse_repaired(text)
    read_json(text)

    assert process_time() - began < MAX_SECONDS
