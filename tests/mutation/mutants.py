"""Mutants: small changes of meaning in the product's code, made by cosmic-ray's operators and by two of our own.

Only changes that a reader could call plausible are made: a comparison at its edge, a condition that is left out or
turned round, a flag, a sum, a small number. Nothing is changed that no test could notice: docstrings, annotations, log
lines, texts of errors.
"""

import ast
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

TARGETS: Mapping[str, tuple[int, Sequence[str]]] = {
    "canvas": (25, ["canvas/**/*.py"]),
    "scheduler": (20, ["scheduler/**/*.py"]),
    "store": (25, ["store/**/*.py"]),
    "worker": (20, ["worker/**/*.py"]),
    "guards": (
        10,
        [
            "providers/http/*.py", "providers/address_policy.py", "providers/models/billing/*.py",
            "providers/models/limits/rate_limited_wire.py",
            "components/tools/sql/read_only_rules.py", "api/http/*.py", "api/requests/*.py", "api/webhooks/security.py",
        ],
    ),
}  # fmt: skip
"""What is mutated, and how many of a hundred mutants fall on it."""

COMPARISONS = {"Eq": ["NotEq"], "NotEq": ["Eq"], "Lt": ["LtE", "GtE"], "LtE": ["Lt", "Gt"], "Gt": ["GtE", "LtE"],
               "GtE": ["Gt", "Lt"], "Is": ["IsNot"], "IsNot": ["Is"]}  # fmt: skip
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{old}_{new}" for old, news in COMPARISONS.items() for new in news),
    "core/ReplaceBinaryOperator_Add_Sub",
    "core/ReplaceBinaryOperator_Sub_Add",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/AddNot",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ZeroIterationForLoop",
    "core/NumberReplacer",
)
SQL_AND, SQL_EDGE = "sql/and_to_or", "sql/edge"
LARGEST_NUMBER = 9  # larger ones are sizes and times, of which a little more is no other meaning

_SQL = re.compile(r"\b(select|update|delete|insert)\b.*\bwhere\b", re.IGNORECASE | re.DOTALL)
_SQL_CHANGES = (
    (SQL_AND, re.compile(r"(?<=\s)and(?=\s)"), "or"),
    (SQL_EDGE, re.compile(r"(?<=\s)(<=?|>=?)(?=\s)"), None),
)
_EDGES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: its line, and which occurrence of the operator it changes."""

    path: str
    operator: str
    occurrence: int
    line: int

    @property
    def name(self) -> str:
        """Short and unique within one commit."""
        return f"{self.path}:{self.line} {self.operator.rpartition('/')[2]}#{self.occurrence}"

    def applied(self, source: str) -> str:
        """Return the file's text with the change."""
        if self.operator in (SQL_AND, SQL_EDGE):
            start, end, new = list(_sql_positions(source, self.operator))[self.occurrence]
            return source[:start] + new + source[end:]
        changed = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        assert changed is not None, f"no such position: {self.name}"
        return str(changed)


def draw(root: Path, number: int, seed: int) -> list[Mutant]:
    """Draw `number` mutants of the tree at `root`, spread over the targets; the same for the same tree and seed."""
    rng = random.Random(seed)
    drawn: list[Mutant] = []
    for share, patterns in TARGETS.values():
        paths = sorted({found for pattern in patterns for found in root.glob(pattern)})
        known = [mutant for path in paths for mutant in mutants_of(path.relative_to(root).as_posix(), path.read_text())]
        drawn += rng.sample(known, min(len(known), round(number * share / 100)))
    return drawn


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    mutable = _MutablePositions(source)
    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator, occurrence = get_operator(name)(), 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                if mutable.at(line, column, name):
                    yield Mutant(path, name, occurrence, line)
                occurrence += 1
    for name in (SQL_AND, SQL_EDGE):
        for occurrence, (start, _, _) in enumerate(_sql_positions(source, name)):
            yield Mutant(path, name, occurrence, source.count("\n", 0, start) + 1)


def _sql_positions(source: str, operator: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, replacement) of an operator's positions in the SQL texts of a file."""
    starts = _line_starts(source)
    for node in ast.walk(ast.parse(source)):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "text" and node.args
        ):
            continue
        first = node.args[0]
        assert first.end_lineno is not None and first.end_col_offset is not None  # noqa: PT018
        begin, end = starts[first.lineno - 1] + first.col_offset, starts[first.end_lineno - 1] + first.end_col_offset
        if not _SQL.search(source[begin:end]):
            continue
        for name, pattern, new in _SQL_CHANGES:
            if name == operator:
                for match in pattern.finditer(source, begin, end):
                    yield match.start(), match.end(), new or _EDGES[match[0]]


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


class _MutablePositions:
    """The positions of a file that may be mutated."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        self._lines = source.splitlines()
        self._excluded = sorted(_spans(tree))
        self._starts = [begin for begin, _ in self._excluded]

    def at(self, line: int, column: int, operator: str) -> bool:
        position = (line, column)
        upto = bisect_right(self._starts, position)
        if any(end > position for _, end in self._excluded[:upto]):
            return False
        if operator == "core/NumberReplacer":
            number = re.match(r"\d+(?![\w.])", self._lines[line - 1][column:])
            is_constant = re.match(r"[A-Z_]+(: [^=]+)? = ", self._lines[line - 1])
            return number is not None and int(number[0]) <= LARGEST_NUMBER and not is_constant
        return True


def _spans(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield (begin, end) of code whose change no test could notice."""
    for node in ast.walk(tree):
        excluded: list[ast.AST | None] = []
        match node:
            case ast.Assert() | ast.Raise() | ast.Import() | ast.ImportFrom():
                excluded = [node]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
                excluded = [node]
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                excluded = [annotation]
            case (
                ast.FunctionDef(returns=returns, decorator_list=decorators)
                | ast.AsyncFunctionDef(returns=returns, decorator_list=decorators)
            ):
                excluded = [returns, *decorators]
            case ast.ClassDef(decorator_list=decorators):
                excluded = [*decorators]
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                excluded = [node]
            case _:
                pass
        for each in excluded:
            if each is not None and hasattr(each, "lineno"):
                yield (each.lineno, each.col_offset), (each.end_lineno, each.end_col_offset)  # pyright: ignore
