"""The cost of a hop beside the lower bound of its parts, as Markdown: `python -m bench.scripts.distance [TABLE...]`.

Tables: `hop` (what is sent and written, counted by proxies), `time` (processor time by process, and the lower bound),
`trips` (round trips that a hop waits for, measured with delayed proxies), `scale` (more workers on this machine),
`reach` (the capacity of one database, computed). `--flame FILE.svg` writes a flame graph of a worker and prints its
largest parts; it needs py-spy, and root or a kernel that allows tracing.

The script starts servers, scheduler, sweeper and workers in a folder that is removed at the end.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.hops.counted_hop import hop_table, time_table
from bench.hops.delayed_proxies import trips_table
from bench.hops.hops import HopBench, run_hop_bench
from bench.hops.profile import flame_table
from bench.hops.scaling import capacity_table, scale_table

TABLES: Mapping[str, Callable[[HopBench, int], Iterator[str]]] = {
    "hop": hop_table,
    "time": time_table,
    "trips": trips_table,
    "reach": capacity_table,
    "scale": scale_table,  # last, because it replaces the workers
}


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all of them by default")
    parser.add_argument("--runs", type=int, default=20, help="chains of one measurement; side by side, twice as many")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--flame", type=Path, metavar="FILE.svg", help="write a flame graph of a worker")
    options = parser.parse_args()
    if strange := set(options.tables) - set(TABLES):
        parser.error(f"unknown table {', '.join(sorted(strange))}. Use: {', '.join(TABLES)}")
    chosen = [name for name in TABLES if name in options.tables or not (options.tables or options.flame)]
    folder = Path(tempfile.mkdtemp(prefix="easel-distance-"))
    folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
    try:
        with run_hop_bench(folder) as stand:
            stand.start_workers(options.workers)
            if options.flame is not None:
                _print_lines(flame_table(stand, 2 * options.runs, options.flame))
            for name in chosen:
                _print_lines(TABLES[name](stand, options.runs))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _print_lines(lines: Iterator[str]) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201 (what this is for)
    print(flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
