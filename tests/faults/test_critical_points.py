"""Processes that stop at a critical point: a sample of the matrix that `make faults` runs completely."""

import pytest

from tests.faults.cluster import Cluster
from tests.faults.matrix import Cell, run_cell, sample

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

SEED = 5


CELLS = sample(5, SEED)


@pytest.mark.parametrize(
    "cell", [*CELLS[:1], *(pytest.param(cell, marks=pytest.mark.long) for cell in CELLS[1:])], ids=str
)
def test_runs_succeed_when_a_process_is_killed_or_stopped_at_any_point(module_cluster: Cluster, cell: Cell):
    tally, wrong = run_cell(module_cluster, cell, SEED)

    assert not wrong, "\n".join(wrong)
    assert tally.is_ok
    assert tally.started == tally.ended
