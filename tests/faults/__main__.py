"""`python -m tests.faults`: the whole matrix, a thousand runs and FLUSHALL, and the random killer; prints a table.

Exit code 1 if a guarantee is broken. `--cells TEXT` selects the cells whose names contain the text; `--seed N` repeats
a run; `--continue-locally-for 5s` turns local continuation on, which is off by default.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable

from tests import services
from tests.faults import flushed, random_killer
from tests.faults.cluster import SHORT_LEASES, Cluster, cluster_on
from tests.faults.matrix import CELLS, run_cell
from tests.faults.table import Tally, table

KILLED = (("processes", ()), ("processes and servers", ("--servers", "--up", "--flush")))


def main() -> int:
    """Run the fault tests; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Inject faults, and report what was lost."
    )
    parser.add_argument("--cells", default="", help="only those with this in their name")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--continue-locally-for", default="0s", help="EASEL_CONTINUE_LOCALLY_FOR of all workers")
    parser.add_argument("--only", choices=("matrix", "flushall", "chaos"), help="one of the three parts")
    options = parser.parse_args()
    parts = {
        "matrix": lambda: whole_matrix(options.cells, options.seed, options.continue_locally_for),
        "flushall": lambda: flushed.measure(options.continue_locally_for),
        "chaos": lambda: run_random_killer(options.seed, options.continue_locally_for),
    }
    rows: dict[str, Tally] = {}
    for name, part in parts.items():
        if options.only in (None, name):
            rows |= part()
    sys.stdout.write(f"{table(rows)}\nseed {options.seed}\n")
    return 0 if all(tally.is_ok for tally in rows.values()) else 1


def whole_matrix(cells: str, seed: int, continue_locally_for: str) -> dict[str, Tally]:
    """Run every cell, one after another, on servers of their own."""
    rows: dict[str, Tally] = {}
    with services.shared_folder() as home, services.running(home) as servers:
        template = services.migrated_template(servers.database_url, home)
        with services.fresh_database(servers.database_url, template) as database_url:
            redis_url = services.emptied_redis(servers.redis_url, "faults")
            folder = home / "cluster"
            folder.mkdir()
            settings = {**SHORT_LEASES, "EASEL_CONTINUE_LOCALLY_FOR": continue_locally_for}
            with cluster_on(database_url, redis_url, folder, **settings) as cluster:
                for cell in CELLS:
                    if cells in str(cell):
                        rows[str(cell)] = _run_cell(lambda cell=cell: run_cell(cluster, cell, seed), cluster, str(cell))
    return rows


def run_random_killer(seed: int, continue_locally_for: str) -> dict[str, Tally]:
    """Run the random killer, first on processes only."""
    rows: dict[str, Tally] = {}
    for kind, options in KILLED:
        arguments = ["--seed", str(seed), "--continue-locally-for", continue_locally_for, *options]
        tally, _ = random_killer.run_killer(random_killer.parse_options(arguments))
        rows[f"random: {kind}"] = tally
    return rows


def _run_cell(cell: Callable[[], tuple[Tally, list[str]]], cluster: Cluster, name: str) -> Tally:
    """Run a cell; return its tally. A cell that does not end in time has lost its runs."""
    began = time.monotonic()
    try:
        tally, wrong = cell()
    except AssertionError as error:
        statuses = cluster.statuses
        tally, wrong = Tally(sum(statuses.values())), [str(error)]
        tally.lost = max(1, tally.started - statuses.get("succeeded", 0))
    random_killer.log_progress(f"{time.monotonic() - began:6.1f} s  {name}", *wrong)
    return tally


if __name__ == "__main__":
    sys.exit(main())
