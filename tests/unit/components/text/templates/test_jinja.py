"""Limits of an author's template: its cost, and the objects that it can access."""

import pytest

from canvas.errors import NodeFailure
from components.text.templates import jinja
from components.text.templates.jinja import RenderFailed, TemplateTooCostly


def rendered(source: str, **names: str) -> str:
    return jinja.render(source, {}, names)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for a in [1, 2] %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}", "1/2,2/2"),
        ("{{ x ~ 1 ~ 'a' }}{{ 7 % 3 }}{{ 2 ** 8 }}{{ '-' * 3 }}", "q1a1256---"),
        ("{{ 'a,b'.split(',') | join('; ') }}{{ 'ab' | replace('b', 'd') }}", "a; bad"),
        ("{% for n in [[1, [2]], 3] recursive %}{{ n if n is number else loop(n) }}{% endfor %}", "123"),
        ("{% macro twice(t) %}{{ t }}{{ t }}{% endmacro %}{{ twice(x) }}", "qq"),
        (
            "{{ 1700000000 | tojson }} {{ '%d' % 1700000000 }} {{ '{}'.format(1700000000) }}",
            " ".join(["1700000000"] * 3),
        ),
        ("{{ '%d' | format(1700000000) }}{{ 1700000000 | center(12) }}", "1700000000 1700000000 "),
        ("{{ [[1], [2, 3]] | sum(start=[]) }}{{ [(1,), (2,)] | sum(start=()) }}", "[1, 2, 3](1, 2)"),
        ("{{ [{'a': 2}, {'a': 3}] | sum(attribute='a') }}{{ [1, 2] | sum(start=4) }}", "57"),
        ("{{ 3.14159 | round(2) }}{{ '{:>{w}}'.format('a', w=3) }}{{ ('<{}>' | safe).format('<') }}", "3.14  a<&lt;>"),
        ("{{ '<b>x</b>' | striptags }}{{ ' a '.strip() }}{{ 'a.b'.rsplit('.', 1)[0] }}", "xaa"),
        ("{{ [1, 2] | map('string') | join('-') }}{{ 'é'.encode('utf-8') | length }}", "1-22"),
        ("{{ '%05.1f' | format(3.14) }}{{ '{:>4}'.format(x) }}{{ nobody }}", "003.1   q"),
    ],
)
def test_ordinary_templates_are_rendered(source: str, expected: str):
    assert rendered(source, x="q") == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{{ 10 ** (10 ** 9) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set s = 'aaaaaaaa' %}" + "{% set s = s ~ s %}" * 60 + "{{ s }}",
        "{% set s = 'aaaaaaaa' %}" + "{% set s = s + s %}" * 60 + "{{ s }}",
        "{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}",
        "{% set x %}{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}{% endset %}{{ x | length }}",
        "{% macro m() %}" + "x" * 9000 + "{% endmacro %}{% for i in range(9999) %}{{ m() }}{% endfor %}",
        "{{ 'a' | center(10**9) }}",
        "{{ 'a'.ljust(10**9) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
        "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
        "{{ 'x' * 5000000 }}",
        "x" * 5_000_000,
    ],
)
def test_template_that_needs_too_much_time_or_memory_is_refused(source: str):
    with pytest.raises(TemplateTooCostly):
        rendered(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ [].append(1) }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{% include 'other' %}",
        "{{ lipsum() }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_template_cannot_access_anything_but_its_values(source: str):
    with pytest.raises(RenderFailed):
        rendered(source)


@pytest.mark.parametrize("source", ["{% if %}", "{{ bad | nofilter }}", "{{" + "(" * 2000 + "1" + ")" * 2000 + "}}"])
def test_a_template_that_does_not_parse_is_refused(source: str):
    with pytest.raises(NodeFailure):
        rendered(source)


def test_a_random_choice_is_the_same_for_a_second_attempt():
    source = "{{ [1, 2, 3, 4, 5, 6] | random }}"

    assert rendered(source) == rendered(source)


@pytest.mark.parametrize("text", ["a{{}}b", "a{{ }}b", "a{{- -}}b", "{{}}a{{ 'b' }}", "a{% raw %}{% endraw %}{{ }}b"])
def test_empty_braces_render_as_nothing(text: str):
    assert rendered(text) == "ab"


def test_empty_braces_in_literal_text_are_unchanged():
    assert rendered("{% raw %}{{}}{% endraw %}{{ '{{}}' }}") == "{{}}{{}}"
