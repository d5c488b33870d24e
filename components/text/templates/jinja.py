"""Jinja in a sandbox, with limits on time and memory.

The sandbox keeps templates away from Python. It does not keep them from `'a' * 10**9` or from nested loops, which would
block a thread and the interpreter's lock. So every step spends from a budget: items of a loop, characters read,
written, compared and multiplied. The cost of a step is estimated before it runs, and an operation that reads a value to
its end pays for the whole value: a list that contains another twice, forty levels deep, is short to write and endless
to compare. The extra costs of calls are in `components/text/templates/jinja_cost.py`. A lazy series pays item by item.

Values never become template text: `markers` are the names in the source that stand for values, and they are replaced in
the syntax tree.
"""

import re
import zlib
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from functools import wraps
from typing import Any, cast

from jinja2 import TemplateSyntaxError, nodes, pass_environment
from jinja2.environment import Template
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

from canvas.errors import NodeFailure
from components.text.splitting import WordSearch
from components.text.templates.jinja_cost import cost_per_item, extra_cost, max_width

BUDGET = 4_000_000  # characters read or written: well under a second, and far more than any useful text needs
ITEM_COST = 10  # the cost of a loop's item, or of a call, in characters
MAX_LEVELS = 100  # levels of nested values, or of filters in a chain
SOURCE_COST = 10  # the cost of compiling one character of source
TAG_COST = 1000  # the cost of compiling a tag, or a value in the source: Python's compiler holds the interpreter's lock
PART_COST = 150  # the cost of compiling an operand, an argument or an item
_EMPTY_BRACES = re.compile(r"\{\{[+-]?\s*+[+-]?\}\}")
_SEPARATORS = re.compile(r"[-,(\[|~+*/.:=<>]")


class TemplateTooCostly(NodeFailure):
    """Raised when a template needs more time or memory than the budget allows."""


class RenderFailed(Exception):
    """Raised when a template parses but fails to render; the caller falls back to plain substitution."""


def render(source: str, markers: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Render a template. Each key of `markers` stands for its value wherever it occurs in `source`.

    `names` are further variables for expressions. Raises NodeFailure for a text that does not parse, TemplateTooCostly
    if the budget is spent, and RenderFailed for any other error.
    """
    environment = _Environment()
    try:
        environment.text_length = len(source)
        environment.spend(_compile_cost(source))
        tree = _parse(environment, source)
        _CostInstrumenter(markers, environment.spend).visit(tree)
        template = Template.from_code(environment, environment.compile(tree), {**environment.globals})
    except TemplateSyntaxError as error:
        raise NodeFailure(error.message or "The template does not parse.", line=error.lineno) from error
    except ValueError as error:  # Python raises it for an integer of very many digits
        raise NodeFailure(f"The template does not parse: {error}") from error
    except (RecursionError, SyntaxError) as error:  # raised by Jinja's compiler, or by Python's for Jinja's output
        raise NodeFailure("The template is nested too deeply.") from error
    try:
        return template.render({**names, **markers})
    except NodeFailure:
        raise
    except Exception as error:  # the author's template code may raise anything
        raise RenderFailed(str(error)) from error


def _compile_cost(source: str) -> int:
    """Return the cost of compiling a source: by its length, its tags, and the separators in its expressions."""
    tags = source.count("{{") + source.count("{%")
    return SOURCE_COST * len(source) + TAG_COST * tags + PART_COST * len(_SEPARATORS.findall(source))


def _parse(environment: "_Environment", source: str) -> nodes.Template:
    """Parse a template. Empty braces are not an error: they are removed."""
    try:
        return environment.parse(source)
    except TemplateSyntaxError:
        without_empty = _EMPTY_BRACES.sub("", source)
        if without_empty == source:
            raise
        return environment.parse(without_empty)


class _Environment(ImmutableSandboxedEnvironment):
    """The environment of one rendering: the sandbox with a budget."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(autoescape=False, finalize=self._charge_value)
        self.left = BUDGET
        self.text_length = 0
        self.filters = {name: self._guard(name, call) for name, call in FILTERS.items()}
        self.filters["easel_counted"] = self._count_items
        self.filters["easel_joined"] = self._join_items
        self.filters["easel_weighed"] = self._charge_value
        self.tests = {name: self._guard(name, call) for name, call in JINJA_TESTS.items()}
        del self.globals["lipsum"]

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise TemplateTooCostly("The template needs too much time or memory. Make its loops or texts smaller.")

    def weigh(self, value: Any) -> int:
        """Return about how many characters a value has as text, stopping at the budget. Raises for a deep value."""
        return len(value) if type(value) is str else self._measure(value)[0]

    def _measure(self, value: Any) -> tuple[int, int]:
        """Return a value's weight and its number of levels.

        Hashing a tuple and freeing a chain of series recurse in C without a limit, which kills the process if the value
        is deep enough. So every value that a template reads, looks up or compares is measured here first.
        """
        total = levels = deepest = 0
        level: list[Any] = [value]
        while level:
            below: list[Any] = []
            for each in level:
                match each:
                    case str() | bytes() as text:
                        total += len(text)
                    case int() as number:
                        total += 1 + number.bit_length() // 3
                    case _LazySeries():
                        total += 1
                        deepest = max(deepest, levels + each.levels)
                    case range() as numbers:
                        total += 1 + len(numbers)
                    case _:
                        parts = _parts(each)
                        total += 1 + sum(map(len, parts))
                        if total <= self.left:
                            for part in parts:
                                below.extend(part)
                if total > self.left:
                    return total, deepest
            levels += bool(below)
            deepest = max(deepest, levels)
            if deepest > MAX_LEVELS:
                raise TemplateTooCostly(
                    f"The template makes values of more than {MAX_LEVELS} levels. Make them flatter."
                )
            level = below
        return total, deepest

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        self.spend(ITEM_COST)
        if isinstance(__obj, Macro | LoopContext):
            self.spend(self.text_length)  # the body may write the whole template text again
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        levels = self._pay(name, args if owner is None else (owner, *args), kwargs)
        metered = (self._meter(value, _separator_length(owner)) for value in args)
        return _wrap_series(super().call(__context, __obj, *metered, **kwargs), levels)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.spend(self.weigh(argument))  # the lookup reads the whole argument
        found = super().getitem(obj, argument)
        if not isinstance(obj, str | list | tuple | dict):  # a filter by attribute has not paid for these contents yet
            self.spend(self.weigh(found))
        return found

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        heavy = self.weigh(left) + self.weigh(right)
        match operator:
            case "*" if isinstance(left, int) and not isinstance(right, int):
                heavy *= abs(left)
            case "*" if isinstance(right, int) and not isinstance(left, int):
                heavy *= abs(right)
            case "**" if isinstance(left, int) and isinstance(right, int):
                heavy *= 1 + abs(right)
            case "%" if isinstance(left, str):
                heavy += max_width(left, right)
            case "%" if isinstance(left, bytes):
                heavy += max_width(left.decode("latin-1"), right)
            case _:
                pass
        self.spend(heavy)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        formatting = super().wrap_str_format(value)
        if formatting is None:
            return None
        pattern = value.__self__
        formatter = _escape_formatter(self, pattern) if isinstance(pattern, Markup) else _Formatter(self)

        def paid(*args: Any, **kwargs: Any) -> Any:
            self._pay("", (pattern, *args), kwargs)
            if value.__name__ == "format_map":
                args, kwargs = (), dict(args[0])
            return type(pattern)(formatter.vformat(pattern, args, kwargs))

        return paid

    def _pay(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Pay for reading the arguments and for the call's extra cost; return the arguments' number of levels."""
        values = [*args, *kwargs.values()]
        measured = [self._measure(value) for value in values]
        weights = [weight for weight, _ in measured]
        levels = max((levels for _, levels in measured), default=0)
        self.spend(sum(weights) + extra_cost(name, values, weights, levels))
        return levels

    def _guard(self, name: str, call: Any) -> Any:
        own = 1 if hasattr(call, "jinja_pass_arg") else 0  # Jinja may pass its environment as the first argument

        @wraps(call)
        def call_with_budget(*args: Any, **kwargs: Any) -> Any:
            values = args[own:]
            self.spend(ITEM_COST)
            levels = self._pay(name, values, kwargs)
            each = cost_per_item(name, [*values, *kwargs.values()])
            return _wrap_series(call(*args[:own], *(self._meter(value, each) for value in values), **kwargs), levels)

        return call_with_budget

    def _meter(self, value: Any, each: int) -> Any:
        """Return the value; a lazy series is wrapped, so that each item pays when it is read."""
        if not isinstance(value, Iterator) or isinstance(value, LoopContext):
            return value
        return _LazySeries(self._charge_items(value, each), value.levels if isinstance(value, _LazySeries) else 0)

    def _charge_items(self, items: Iterator[Any], each: int) -> Iterator[Any]:
        for item in items:
            self.spend(1 + each + self.weigh(item))
            yield item

    def _count_items(self, items: Iterable[Any], text: int) -> Iterator[Any]:
        """Yield the items of a loop, and pay for each the `text` characters that the body writes itself."""
        for item in items:
            self.spend(ITEM_COST + text)
            yield item

    def _join_items(self, items: list[Any]) -> str:
        self.spend(self.weigh(items))
        return "".join(str(item) for item in items)

    def _charge_value(self, value: Any) -> Any:
        self.spend(self.weigh(value))
        return value


class _LazySeries(Iterator[Any]):
    """A lazy series of items from a filter. `levels` counts the filters of a chain."""

    def __init__(self, items: Iterator[Any], levels: int) -> None:
        self._items = items
        self.levels = levels

    def __next__(self) -> Any:
        return next(self._items)


def _wrap_series(value: Any, levels: int) -> Any:
    """Return the result of a call; a lazy series gets one level more than the call's arguments."""
    is_series = isinstance(value, Iterator) and not isinstance(value, LoopContext | _LazySeries)
    return _LazySeries(value, levels + 1) if is_series else value


def _parts(value: Any) -> Sequence[Collection[Any]]:
    """Return the contents of a value that a template can reach."""
    match value:
        case dict():
            return (value.keys(), value.values())
        case list() | tuple() | set() | frozenset() | KeysView() | ValuesView() | ItemsView():
            return (value,)
        case Namespace():
            return (object.__getattribute__(value, "_Namespace__attrs").values(),)
        case LoopContext():
            return ([getattr(value, name) for name in ("_before", "_current", "_after")],)
        case Cycler():
            return (value.items,)
        case Joiner():
            return ((value.sep,),)
        case _:
            return ()


class _CostInstrumenter(NodeTransformer):
    """Replaces markers by values in the syntax tree, and makes loops, comparisons and concatenations pay."""

    def __init__(self, markers: Mapping[str, str], spend: Callable[[int], None]) -> None:
        self.markers = WordSearch(list(markers))
        self.spend = spend

    def visit_TemplateData(self, node: nodes.TemplateData) -> Any:
        return [
            nodes.Name(part, "load", lineno=node.lineno) if is_marker else nodes.TemplateData(part, lineno=node.lineno)
            for is_marker, part in self._split_markers(node.data)
        ]

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        if not isinstance(node.value, str):
            return node
        parts: list[nodes.Expr] = [
            nodes.Name(part, "load", lineno=node.lineno) if is_marker else nodes.Const(part, lineno=node.lineno)
            for is_marker, part in self._split_markers(node.value)
        ]
        return (
            node if len(parts) < 2 and not any(isinstance(part, nodes.Name) for part in parts) else _join(parts, node)
        )

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _join(node.nodes, node)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        cost = nodes.Const(text, lineno=node.lineno)
        node.iter = nodes.Filter(node.iter, "easel_counted", [cost], [], None, None, lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _charge(node.expr)
        for operand in node.ops:
            operand.expr = _charge(operand.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _charge(node.key)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):  # a slice copies
            node.node = _charge(node.node)
        return node

    def _split_markers(self, text: str) -> Iterator[tuple[bool, str]]:
        """Yield the parts of a text in order: (whether it is a marker, part)."""
        position = 0
        for start, marker in self.markers.find_all(text):
            if start > position:
                yield False, text[position:start]
            self.spend(TAG_COST)
            yield True, marker
            position = start + len(marker)
        if position < len(text):
            yield False, text[position:]


def _charge(value: nodes.Expr) -> nodes.Expr:
    """Return the expression, wrapped so that it pays for its whole value; a constant has been paid for."""
    if isinstance(value, nodes.Const):
        return value
    return nodes.Filter(value, "easel_weighed", [], [], None, None, lineno=value.lineno)


def _join(parts: list[nodes.Expr], at: nodes.Node) -> nodes.Filter:
    items = nodes.List(parts, lineno=at.lineno)
    return nodes.Filter(items, "easel_joined", [], [], None, None, lineno=at.lineno)


def _separator_length(owner: Any) -> int:
    """Return the length of the separator that `join` writes: its receiver, if that is a text."""
    return len(owner) if isinstance(owner, str | bytes) else 0


class _Formatter(SandboxedFormatter):
    """Pays for every width once it is known, because several arguments may make up a width."""

    def format_field(self, value: Any, format_spec: str) -> str:
        cast(_Environment, self._env).spend(max_width(format_spec, ()))
        return super().format_field(value, format_spec)


class _EscapeFormatter(SandboxedEscapeFormatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        cast(_Environment, self._env).spend(max_width(format_spec, ()))
        return super().format_field(value, format_spec)


def _escape_formatter(environment: _Environment, pattern: Markup) -> _EscapeFormatter:
    return _EscapeFormatter(environment, escape=pattern.escape)


@pass_environment
def _sum(environment: Any, items: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
    """Implement the filter `sum`, concatenating lists without a copy at each step."""
    found = items if attribute is None else map(make_attrgetter(environment, attribute), items)
    if isinstance(start, list | tuple):
        return type(start)([*start, *(inner for item in found for inner in _require_same_type(start, item))])
    return sum(found, start)


def _require_same_type(start: Any, item: Any) -> Any:
    """Return the item if it has the type of `start`. Raises TypeError otherwise, like `+`."""
    if not isinstance(item, type(start)):
        raise TypeError(f"a {type(item).__name__} cannot be added to a {type(start).__name__}")
    return item


def _choose(items: Any) -> Any:
    """Implement the filter `random` repeatably: the same items give the same choice in every attempt."""
    choices = list(items)
    return choices[zlib.crc32(repr(choices).encode(errors="replace")) % len(choices)] if choices else ""


FILTERS: dict[str, Any] = {name: call for name, call in JINJA_FILTERS.items() if name not in ("urlize", "random")}
FILTERS["random"] = _choose
FILTERS["sum"] = _sum
