"""Templates that try to escape from their sandbox, or to use all time and memory."""

import asyncio
from collections.abc import Iterator
from time import process_time

import pytest

from canvas.errors import NodeFailure
from components.text.templates import jinja, templates
from components.text.templates.jinja import RenderFailed, TemplateTooCostly
from providers.isolation.limited_process import ProcessPool
from tests.limited_work import render

MAX_SECONDS = 10.0  # of computing; a template within its budget takes less than one

# Paths from a value to the interpreter. Each fails or renders nothing of it.
ESCAPES = (
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ ''|attr('__cla' ~ 'ss__') }}",
    "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
    "{{ ''|attr(['__', 'class', '__']|join) }}",
    "{{ [['']]|map('first')|map(attribute='__class__')|list }}",
    "{{ [{}]|map(attribute='__class__.__mro__')|list }}",
    "{{ [{}]|groupby('__class__') }}",
    "{{ [{}]|sort(attribute='__class__') }}",
    "{{ [{}]|sum(attribute='__class__') }}",
    "{{ [{}]|unique(attribute='__class__')|list }}",
    "{{ [{}]|selectattr('__class__')|list }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(cycler) }}",
    "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "{{ ('{0.__class__}'|attr('format'))(1) }}",
    "{{ ('{0.__class__}'|safe).format(1) }}",
    "{{ ('{0.__class__}'|e).format(1) }}",
    "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
    "{% set f = '{0.__class__}'|attr('format') %}{{ f(1) }}",
    "{{ ['{0.__class__}']|map('format', 1)|list }}",
    "{{ ['{0.__class__}'.format]|map('string')|list }}{{ ('%(__class__)s'|format(a=1)) }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ (cycler|attr('__init__')).__globals__ }}",
    "{{ dict.mro() }}",
    "{{ range.__class__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}{{ m.__init__ }}",
    "{% for i in [1] %}{{ loop.__init__.__globals__ }}{{ loop._iterator.gi_frame }}{% endfor %}",
    "{{ ([1]|map('string')).gi_frame.f_back }}",
    "{{ nobody.__init__.__globals__ }}",
    "{{ nobody._undefined_exception }}",
    "{{ lipsum.__globals__ }}",
    "{{ get_flashed_messages.__globals__ }}",
    "{{ config.items() }}",
    "{{ url_for.__globals__ }}",
    "{{ request.application.__globals__ }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% from 'os' import system %}{{ system('id') }}",
    "{% extends '/etc/passwd' %}",
)
LEAKS = ("<class", "__globals__", "root:", "__builtins__", "<module", "mappingproxy", "<frame", "jinja2.")

# Short templates with much work. Each is refused as too costly, or is cheap after all.
_DOUBLED = "{% set ns = namespace(a=START, b=START) %}{% for i in range(60) %}{% set ns.a = GROW %}{% set ns.b = "
_TWICE = _DOUBLED.replace("START", "[1]").replace("GROW", "[ns.a, ns.a]") + "[ns.b, ns.b] %}{% endfor %}"
_PAIRS = _DOUBLED.replace("START", "(1,)").replace("GROW", "(ns.a, ns.a)") + "(ns.b, ns.b) %}{% endfor %}"
_MANY = "{% for i in range(99999) %}WORK{% endfor %}"
_LONG = "{% set x = 'ab' * 200000 %}{% set y = 'ab' * 200000 %}{% set l = range(99999)|list %}"
BOMBS = (
    "{{ 'a' * 10**9 }}",
    "{{ [0] * 10**9 }}",
    "{{ 2 ** 10**9 }}",
    "{{ 'a'|center(10**9) }}",
    "{{ 'a'.zfill(10**9) }}",
    "{{ '%*d' % (10**9, 1) }}",
    "{{ '{:{w}}'.format(1, w=10**9) }}",
    "{{ [1]|tojson(indent=10**9) }}",
    "{{ ('\t' * 1000).expandtabs(10**7) }}",
    "{{ ('a ' * 1000)|wordwrap(1, wrapstring='b' * 100000) }}",
    "{{ (range(99999)|list)|batch(1, 'x')|list|batch(1)|list|batch(1)|list }}" * 40,
    _MANY.replace("WORK", _MANY),
    _MANY.replace("WORK", "{% set n = range(99999)|sum %}"),
    _MANY.replace("WORK", "{% set n = range(99999)|map('string')|list %}"),
    _MANY.replace("WORK", "{% set n = 99998 in range(99999)|list %}"),
    "{% set d = dict(a=1) %}" + _MANY.replace("WORK", "{% set n = dict(d, **{i|string: i}).values()|sum %}"),
    _LONG + _MANY.replace("WORK", "{% if x == y %}{% endif %}"),
    _LONG + _MANY.replace("WORK", "{% if 'aab' in x %}{% endif %}"),
    _LONG + _MANY.replace("WORK", "{% if 'aab' is in x %}{% endif %}"),
    _LONG + _MANY.replace("WORK", "{% set n = x[:300000] %}"),
    _LONG + _MANY.replace("WORK", "{% set n = l[1:] %}"),
    _LONG + _MANY.replace("WORK", "{% set n = l.count(1) %}"),
    _LONG + _MANY.replace("WORK", "{% set n = x.find('aab') %}"),
    "{% set n = 10 ** 200000 %}" + _MANY.replace("WORK", "{% set m = n // 7 %}"),
    "{% set n = 10 ** 200000 %}" + _MANY.replace("WORK", "{% set m = n - 1 %}"),
    _TWICE + "{% if ns.a == ns.b %}{% endif %}",
    _TWICE + "{% if ns.a in [ns.b] %}{% endif %}",
    _TWICE + "{% if ns.a is eq ns.b %}{% endif %}",
    _TWICE + "{{ ns.a.index(ns.b) }}",
    _TWICE + "{{ ns.a }}",
    _TWICE + "{{ ns.a|pprint }}",
    _TWICE + "{{ ns.a|tojson }}",
    _PAIRS + "{{ {ns.a: 1} }}",
    _PAIRS + "{% set d = {} %}{{ d[ns.a] }}",
    _PAIRS + "{{ {}.get(ns.a) }}",
    _PAIRS + "{{ [ns.a]|unique|list }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "{% set s = 'aaaaaaaa' %}" + "{% set s = s ~ s %}" * 60 + "{{ s }}",
    "{% set x %}" * 60 + "a" + "{% endset %}{{ x }}{{ x }}" * 60,
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "{{ " + "-" * 30000 + "1 }}",
    "{{ " + "not " * 20000 + "1 }}",
    "{{ 1" + "+1" * 20000 + " }}",
    "{{ x" + ".a" * 20000 + " }}",
    "{{ " + "9" * 5000 + " }}",
    "{{ " + "[" * 400 + "]" * 400 + " }}",
    "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "{% raw %}" * 10000,
    "{#" * 30000,
    "{{" * 30000,
    "{% for a in " * 2000,
    "{{ '" + "\\" * 50001 + " }}",
    "{{ a }}" * 14_000,
    "{{a|e}}" * 14_000,
    "{%if a%}b{%endif%}" * 5_500,
    "{%set a=1%}" * 9_000,
    "{%macro m()%}{%endmacro%}" * 4_000,
    "{{ [" + "1," * 48_000 + "1]|length }}",
    "{{ {" + "1:1," * 24_000 + "1:1}|length }}",
    "{{ f(" + "1," * 48_000 + "1) }}",
)


# Deeply nested values: functions that recurse over them in C can crash the interpreter.
_LEVELS = "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(4000) %}" + "".join(
    f"{{% set ns.{name} = {'(' * 40}ns.{name}{',)' * 40} %}}" for name in "ab"
)
_DEEP = _LEVELS + "{% endfor %}"
_LAZY = "{% set ns = namespace(a=[1]) %}{% for i in range(90000) %}{% set ns.a = GROW %}{% endfor %}{{ ns.a|first }}"
DEEP = (
    *(
        _DEEP + use
        for use in (
            "{{ {ns.a: 1}|length }}",
            "{% set d = {} %}{{ d[ns.a] }}",
            "{{ {}.get(ns.a) }}",
            "{{ {}.get(ns) }}{{ {}.get([ns.a]) }}",
            "{{ [ns.a]|unique|list|length }}",
            "{{ ([ns.a]|map('first')|unique|list)|length }}",
            "{{ [{'x': ns.a}]|unique(attribute='x')|list|length }}",
            "{{ [ns]|unique(attribute='a')|list|length }}",
            "{{ [[ns]]|map('unique', attribute='a')|map('list')|list|length }}",
            "{{ [cycler(ns.a)]|unique(attribute='current')|list|length }}",
            "{{ [joiner(ns.a)]|unique(attribute='sep')|list|length }}",
            "{% for x in [1, ns.a] %}{{ [loop]|unique(attribute='nextitem')|list|length }}{% endfor %}",
            "{% for x in [ns.a, 1] %}{{ [loop]|unique(attribute='previtem')|list|length }}{% endfor %}",
            "{% for x in [ns.a, ns.b] %}{{ loop.changed(x) }}{% endfor %}",
            "{{ [ns.a, ns.b]|groupby(0)|length }}",
            "{{ [ns]|groupby('a')|length }}",
            "{{ [ns.a, ns.b]|sort|length }}",
            "{{ [ns, ns]|sort(attribute='a')|length }}",
            "{{ [ns.a, ns.b]|min|length }}{{ [ns, ns]|max(attribute='a') }}",
            "{{ {1: ns.a}|dictsort(by='value') }}{{ {1: ns.a}|dictsort }}",
            "{{ ns.a == ns.b }}",
            "{{ ns.a < ns.b }}",
            "{{ ns.a in [ns.b] }}",
            "{{ ns.a is eq ns.b }}{{ ns.a is in [ns.b] }}",
            "{{ [ns.a].index(ns.b) }}{{ (ns.a,).count(ns.b) }}",
            "{{ [ns.a]|map('string')|list|length }}",
            "{{ dict([(ns.a, 1)])|length }}",
            "{{ dict([ns.a]|map('list')) }}",
            "{{ 'x'.translate({ns.a: 1}) }}",
            "{{ ns.a }}{{ ns.a ~ 'x' }}{{ '%s' % ns.a }}{{ '%s'|format(ns.a) }}{{ '{}'.format(ns.a) }}",
            "{{ ns.a|string|length }}{{ ns.a|tojson }}{{ ns.a|pprint }}{{ ns.a|urlencode }}{{ ns.a|xmlattr }}",
            "{{ [ns.a]|random }}{{ ns }}{{ [ns]|tojson }}{{ [ns]|string }}",
            "{{ [ns.a]|sum(start=()) }}{{ [ns.a]|join }}{{ ns.a|flatten }}",
            "x",
        )
    ),
    *(
        _LAZY.replace("GROW", grow)
        for grow in (
            "ns.a|map('upper')",
            "ns.a|select",
            "ns.a|reject('none')",
            "ns.a|batch(1)",
            "ns.a|slice(1)",
            "ns.a|unique",
            "ns.a|reverse",
            "ns.a|selectattr('x')",
            "[ns.a]|map('first')",
            "[namespace(x=ns.a)]|map(attribute='x')|map('first')",
            "[cycler(ns.a)]|map(attribute='current')|map('first')",
            "[joiner(ns.a)]|map(attribute='sep')|map('first')",
            "{1: ns.a}.values()",
            "{1: ns.a}|items",
            "cycler(ns.a)",
            "namespace(a=ns.a)",
            "joiner(ns.a)",
            "[ns.a]",
            "(ns.a,).count",
            "{1: ns.a}.get",
            "cycler(ns.a).next",
            "{1: ns.a}.missing",
        )
    ),
    "{% set ns = namespace(a=[1]) %}{% for i in range(40000) %}{% for x in [ns.a, 1] %}"
    "{% set ns.a = [loop]|map(attribute='previtem')|map('first') %}{% endfor %}{% endfor %}{{ ns.a|first }}",
)


# Values may be long, whatever the length of the template.
LONG = 600_000
VALUES = {
    "A": "a" * LONG, "T": "<>" * (LONG // 2), "C": "<!---->" * (LONG // 7), "B": "b" * (LONG // 2) + "a",
    "P": "ab" + "a" * (LONG // 2), "U": "".join(chr(0x4E00 + n % 20000) for n in range(LONG // 6)),
    "H": "a-" * (LONG // 2), "S": " " * LONG, "L": ",a" * (LONG // 2), "N": "\u00a0" * LONG, "X": "\x1f" * LONG,
    "Y": "\u00a0a" * (LONG // 2),
}  # fmt: skip
CALLS_ON_LONG_VALUES = (
    "T|striptags", "C|striptags", "(T|safe).striptags()", "A|wordwrap(1)", "H|wordwrap(9)", "S|wordwrap(9)",
    "N|wordwrap(1)", "X|wordwrap(1)", "Y|wordwrap(1)", "N|wordwrap(79)", "('a' ~ N ~ 'a')|wordwrap(1)",
    "[A]|pprint", "([[1]] * 200000)|pprint", "[[[[[[[[[[[[([[1]] * 60000)]]]]]]]]]]]]|pprint",
    "(10 ** 400000) // (10 ** 200000)", "(10 ** 400000) % (10 ** 200000)",
    "A.strip(B)", "A|trim(B)", "A.rstrip(B)", "A.rfind(P)", "A.rindex(P)", "A.rsplit(P)", "A.rpartition(P)",
    "A.encode().rfind(P.encode())", "A.encode().lstrip(B.encode())", "A.find(P)", "A.count(P)",
    "U.encode('punycode')", "U.encode(encoding='idna')", "U.encode('ascii', errors='namereplace')",
    "1|round(99999999, 'ceil')", "(1).to_bytes(900000000, 'big')", "'%900000000d'.encode() % 1",
    "([[0] * 10] * 50000)|sum(start=[])", "([(0,) * 10] * 50000)|sum(start=())",
    "'{:{w}}'.format(1, w='900000000')", "'{:{a}{b}}'.format(1, a=99, b=99999)", "'{:{w[0]}}'.format(1, w=[900000000])",
    "'{a:{w}}'.format_map({'a': 1, 'w': 900000000})", "('{:{w}}'|safe).format(1, w='900000000')",
    "('a' * 4000).translate({97: B})", "range(9999)|join(B)", "B.join(range(9999)|map('string'))",
    "range(9999)|map(attribute='x', default=B)|join", "('a' * 1000).encode().replace(''.encode(), B.encode())",
    "range(20000)|sort(attribute=L)", "range(20000)|map(attribute=L)|list", "range(20000)|groupby(L)",
)  # fmt: skip


def render_or_empty(source: str) -> str:
    """Render a template; return an empty text if rendering fails."""
    try:
        return jinja.render(source, {}, VALUES)
    except (RenderFailed, NodeFailure):
        return ""


@pytest.mark.parametrize("source", ESCAPES)
def test_template_cannot_reach_objects_beyond_its_values(source: str):
    text = render_or_empty(source)

    assert not any(word in text for word in LEAKS)


@pytest.mark.parametrize("source", BOMBS, ids=range(len(BOMBS)))
def test_costly_template_is_stopped_in_bounded_time(source: str):
    began = process_time()

    text = render_or_empty(source)

    assert process_time() - began < MAX_SECONDS
    assert len(text) <= jinja.BUDGET


@pytest.fixture(scope="module")
def child_process() -> Iterator[ProcessPool]:
    """A child process that a template may crash."""
    pool = ProcessPool(1)
    yield pool
    pool.close()


@pytest.mark.parametrize("source", DEEP, ids=range(len(DEEP)))
def test_deeply_nested_value_in_a_template_does_not_crash_its_process(source: str, child_process: ProcessPool):
    _, seconds = asyncio.run(child_process.run(render, source))

    assert seconds < MAX_SECONDS


@pytest.mark.parametrize("text", ["lorem ipsum " * 3000, "a\u00a0b " * 9000, "https://example.com/" + "a" * 2000])
def test_ordinary_text_is_wrapped_without_loss(text: str):
    wrapped = jinja.render("{{ T|wordwrap(79) }}", {}, {"T": text})

    assert "".join(wrapped.split()) == "".join(text.split())


@pytest.mark.parametrize("levels", [90, 200])
def test_template_value_is_refused_only_above_the_nesting_limit(levels: int):
    nesting = "{% set ns = namespace(a=1) %}{% for i in range(LEVELS) %}{% set ns.a = (ns.a,) %}{% endfor %}"
    source = nesting.replace("LEVELS", str(levels)) + "{{ [ns.a]|unique|list|length }}"

    if levels < jinja.MAX_LEVELS:
        assert jinja.render(source, {}, {}) == "1"
    else:
        with pytest.raises(TemplateTooCostly, match="levels"):
            jinja.render(source, {}, {})


@pytest.mark.parametrize("expression", CALLS_ON_LONG_VALUES)
def test_filter_call_on_a_long_value_ends_in_bounded_time(expression: str):
    began = process_time()

    render_or_empty(f"{{{{ ({expression})|string|length }}}}")

    assert process_time() - began < MAX_SECONDS


@pytest.mark.parametrize("source", [_TWICE + "{% if ns.a == ns.b %}{% endif %}", _PAIRS + "{{ {ns.a: 1} }}", BOMBS[11]])
def test_endless_template_is_refused_as_too_costly(source: str):
    with pytest.raises(TemplateTooCostly):
        jinja.render(source, {}, {})


def test_template_with_too_many_references_is_refused_and_a_long_text_is_not():
    names = [f"env.{number:x}" for number in range(9_000)]
    texts = dict.fromkeys(names, "v")

    with pytest.raises(TemplateTooCostly):
        templates.render("{{ 1 }}" + "".join(f"{{{name}}}" for name in names), texts)

    prose = "This is a sentence, and one more; it is (mostly) harmless. " * 1_500
    assert len(templates.render("{{ 1 }}" + prose + "{env.1}" * 200, texts)) == 1 + len(prose) + 200


@pytest.mark.parametrize(
    "value", ["{{ 7 * 7 }}", "{% raw %}", "{env.KEY}", "{sys.query}", "{{ ''.__class__ }}", "ref_0_"]
)
def test_template_syntax_in_a_value_is_not_rendered(value: str):
    """The value of a reference is inserted unchanged, beside Jinja and inside of it."""
    texts = {"sys.query": value}

    assert templates.render("{{ 1 + 1 }} {sys.query}", texts) == f"2 {value}"
    assert templates.render("{{ '{sys.query}' }}", texts) == value
    assert templates.fill("{sys.query}", texts) == value
