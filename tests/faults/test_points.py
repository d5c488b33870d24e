"""Processes that stop at the worst moment: some cells of the matrix that `make faults` carries out as a whole."""

import pytest

from tests.faults.cluster import Cluster
from tests.faults.matrix import Cell, run_cell, sample

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

SEED = 5


@pytest.mark.parametrize("cell", sample(5, SEED), ids=str)
def test_whoever_stops_wherever_all_runs_end_as_if_nothing_had_happened(module_cluster: Cluster, cell: Cell):
    tally, wrong = run_cell(module_cluster, cell, SEED)

    assert not wrong, "\n".join(wrong)
    assert tally.is_kept
    assert tally.started == tally.ended
