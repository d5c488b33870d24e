"""How far a hop is from what its parts must cost, as Markdown: `python -m bench.scripts.distance [TABLE...]`.

Tables: `hop` (what is sent and written, counted on the wire), `time` (processor time by process, and the floor under
it), `trips` (round trips that a hop waits for: the wires are made slower, and the hop is timed again), `scale` (more
workers on this machine), `reach` (what one database carries, by arithmetic). `--flame FILE.svg` draws where a worker
spends its time and prints the top of it; it needs py-spy, and root or a kernel that lets us look.

Servers, scheduler, sweeper and workers are started for it in a folder that is removed at the end.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.hops.counted_hop import hop_table, time_table
from bench.hops.hops import Stand, stand_on
from bench.hops.profile import flame_table
from bench.hops.scaling import reach_table, scale_table
from bench.hops.slower_wires import trips_table

TABLES: Mapping[str, Callable[[Stand, int], Iterator[str]]] = {
    "hop": hop_table,
    "time": time_table,
    "trips": trips_table,
    "reach": reach_table,
    "scale": scale_table,  # the last one: it replaces the workers
}


def main() -> None:
    """Measure, and print a table after another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all of them by default")
    parser.add_argument("--runs", type=int, default=20, help="chains of one measurement; side by side, twice as many")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--flame", type=Path, metavar="FILE.svg", help="draw where a worker spends its time")
    wanted = parser.parse_args()
    if strange := set(wanted.tables) - set(TABLES):
        parser.error(f"there is no table {', '.join(sorted(strange))}: {', '.join(TABLES)}")
    chosen = [name for name in TABLES if name in wanted.tables or not (wanted.tables or wanted.flame)]
    folder = Path(tempfile.mkdtemp(prefix="easel-distance-"))
    folder.chmod(0o711)  # PostgreSQL of a root user runs as somebody else
    try:
        with stand_on(folder) as stand:
            stand.start_workers(wanted.workers)
            if wanted.flame is not None:
                _print(flame_table(stand, 2 * wanted.runs, wanted.flame))
            for name in chosen:
                _print(TABLES[name](stand, wanted.runs))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201 (what this is for)
    print(flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
