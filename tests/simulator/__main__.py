"""Schedules from the command line (`make simulate`): one seed with its trace, or many on all cores.

python -m tests.simulator --seed 123456
python -m tests.simulator --number 100000
"""

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter

from tests.simulator.schedule import Schedule, patched_modules

CHUNK_SIZE = 250


def main() -> int:
    """Run the command; return 0 if every invariant held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator")
    parser.add_argument("--seed", type=int, help="replay this schedule, with a trace of its steps")
    parser.add_argument("--number", type=int, default=100_000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    return replay(options.seed) if options.seed is not None else run_many(options.first, options.number, options.jobs)


def replay(seed: int) -> int:
    """Run one schedule and print its trace."""
    schedule = Schedule(seed, is_traced=True)
    problem: BaseException | None = None
    with patched_modules():
        try:
            schedule.run()
        except Exception as error:  # the trace is printed first
            problem = error
    for line in schedule.simulation.trace_lines or ():
        print_line(line)
    if problem is None:
        simulation = schedule.simulation
        print_line(f"seed {seed}: everything held, {simulation.steps} steps, {simulation.now:.1f} s of its time")
        return 0
    traceback.print_exception(problem, file=sys.stdout)
    return 1


def run_many(first: int, number: int, jobs: int) -> int:
    """Run many schedules; print the counts of faults and one line per failure."""
    began, counts, broken = time.monotonic(), Counter[str](), 0
    chunks = [(seed, min(CHUNK_SIZE, first + number - seed)) for seed in range(first, first + number, CHUNK_SIZE)]
    with multiprocessing.Pool(jobs) as pool:
        for faults, failures in pool.imap_unordered(chunk, chunks):
            counts += faults
            broken += len(failures)
            for line in failures:
                print_line(line)
    for fault, times in sorted(counts.items()):
        print_line(f"{times:>9}  {fault}")
    print_line(f"{number} schedules, {broken} broken, {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


def chunk(part: tuple[int, int]) -> tuple[Counter[str], list[str]]:
    """Run some schedules; return the counts of faults and one line per failed schedule."""
    first, number = part
    counts, failures = Counter[str](), list[str]()
    with patched_modules():
        for seed in range(first, first + number):
            schedule = Schedule(seed)
            try:
                schedule.run()
            except Exception as error:  # one failed seed does not stop the others
                failures.append(describe_failure(seed, error))
            counts += Counter(schedule.simulation.counts)
    return counts, failures


def describe_failure(seed: int, error: BaseException) -> str:
    """Describe a failure in one line, with the command that replays it."""
    return f"make simulate SEED={seed} replays: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def print_line(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
