"""Run the tests beside processes that keep the machine busy: `python -m tests.loaded [ARGUMENTS OF PYTEST]`.

    --busy N     how many busy processes (8)
    --times N    how often the tests run (3)

A test that fails only here waits for time to pass instead of a fact, or has too short a deadline.
The exit code is the highest of all runs.
"""

import argparse
import multiprocessing
import subprocess
import sys


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.loaded")
    parser.add_argument("--busy", type=int, default=8)
    parser.add_argument("--times", type=int, default=3)
    options, arguments = parser.parse_known_args()
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(options.busy)]
    for process in busy:
        process.start()
    command = [sys.executable, "-m", "pytest", "-q", *(arguments or ["-n", "3"])]
    try:
        return max(subprocess.run(command, check=False).returncode for _ in range(options.times))
    finally:
        for process in busy:
            process.kill()


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    sys.exit(main())
