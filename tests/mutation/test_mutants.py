"""The mutants of `make mutants`: their positions are correct, and a test could notice each of them."""

import ast

import pytest

pytest.importorskip("cosmic_ray", reason="the extra `mutants` is not installed")

from tests.mutation.mutants import SQL_AND, SQL_EDGE, mutants_of
from tests.mutation.selection import lines_to_run

SOURCE = '''"""Text with 1 < 2 in it."""

SIZE: int | None = 3
CLAIM = text("""
    update jobs set attempt = 1 where status = 'ready' and due <= now()
""")


def is_due(at: int, now: int) -> bool:
    log.info("asked", late=at < now)
    if at < 0:
        raise ValueError("negative", at > 0)
    return at <= now and True
'''


def changed(operator: str) -> list[str]:
    """Return the lines that an operator's mutants change, after the change."""
    found: list[str] = []
    for mutant in mutants_of("jobs.py", SOURCE):
        if mutant.operator == operator:
            new = mutant.applied(SOURCE)
            ast.parse(new)
            old_lines, new_lines = SOURCE.splitlines(), new.splitlines()
            (at,) = [at for at, line in enumerate(old_lines) if new_lines[at] != line]
            assert at + 1 == mutant.line
            found.append(new_lines[at].strip())
    return found


def test_comparison_is_changed_at_its_edge_but_not_in_log_lines_and_errors():
    assert changed("core/ReplaceComparisonOperator_Lt_LtE") == ["if at <= 0:"]


def test_number_is_changed_in_code_but_not_in_constants_and_docstrings():
    assert changed("core/NumberReplacer") == ["if at < 1:", "if at < -1:"]


def test_condition_of_a_statement_in_sql_is_changed():
    assert changed(SQL_AND) == ["update jobs set attempt = 1 where status = 'ready' or due <= now()"]
    assert changed(SQL_EDGE) == ["update jobs set attempt = 1 where status = 'ready' and due < now()"]


MODULE = """
SIZE = 3
CLAIM = text("update jobs set attempt = 1")
BOTH = CLAIM + OTHER

def claim():
    run(BOTH)

def count():
    return 7
"""


@pytest.mark.parametrize(
    ("line", "expected"), [(10, [{10}]), (3, [{7}, {7, 10}]), (4, [{7}, {7, 10}]), (2, [set(), {7, 10}])]
)
def test_change_outside_of_functions_is_tested_by_what_runs_the_functions_that_use_it(
    line: int, expected: list[set[int]]
):
    assert list(lines_to_run(MODULE, line)) == expected
