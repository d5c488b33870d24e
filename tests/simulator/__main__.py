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

from tests.simulator.schedule import Schedule, playing

AT_A_TIME = 250


def main() -> int:
    """0 if everything held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator")
    parser.add_argument("--seed", type=int, help="replay this schedule, with a trace of its steps")
    parser.add_argument("--number", type=int, default=100_000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    return replay(given.seed) if given.seed is not None else many(given.first, given.number, given.jobs)


def replay(seed: int) -> int:
    """One schedule, step by step."""
    schedule = Schedule(seed, is_traced=True)
    problem: BaseException | None = None
    with playing():
        try:
            schedule.play()
        except Exception as error:  # whatever it is, the trace comes first
            problem = error
    for line in schedule.world.told or ():
        say(line)
    if problem is None:
        say(f"seed {seed}: everything held, {schedule.world.steps} steps, {schedule.world.now:.1f} s of its time")
        return 0
    traceback.print_exception(problem, file=sys.stdout)
    return 1


def many(first: int, number: int, jobs: int) -> int:
    """Many schedules; faults are counted, failures told in a line each."""
    began, counts, broken = time.monotonic(), Counter[str](), 0
    chunks = [(seed, min(AT_A_TIME, first + number - seed)) for seed in range(first, first + number, AT_A_TIME)]
    with multiprocessing.Pool(jobs) as pool:
        for found, told in pool.imap_unordered(chunk, chunks):
            counts += found
            broken += len(told)
            for line in told:
                say(line)
    for fault, times in sorted(counts.items()):
        say(f"{times:>9}  {fault}")
    say(f"{number} schedules, {broken} broken, {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


def chunk(part: tuple[int, int]) -> tuple[Counter[str], list[str]]:
    """Some schedules; how often which fault came, and a line for each schedule that broke."""
    first, number = part
    counts, told = Counter[str](), list[str]()
    with playing():
        for seed in range(first, first + number):
            schedule = Schedule(seed)
            try:
                schedule.play()
            except Exception as error:  # the next seed is played whatever this one found
                told.append(story(seed, error))
            counts += Counter(schedule.world.counts)
    return counts, told


def story(seed: int, error: BaseException) -> str:
    """A failure in one line, with how to see it again."""
    return f"make simulate SEED={seed} replays: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def say(line: str) -> None:
    """A line of output."""
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
