"""The random killer.

    python -m tests.faults.random_killer --runs 200 --seconds 120 --seed 7 [--servers] [--up] [--flush]

While runs of all kinds continue it kills processes of `easel up`, every one to six seconds; in the end all runs must
have the same result as without faults. Prints a table; exit code 1 if a guarantee is broken.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence

import redis

from tests.faults.easel_up import PROCESSES, SERVERS, EaselUp, easel_up
from tests.faults.load import Load
from tests.faults.outside import external_services
from tests.faults.table import Tally, table

RECOVERY_TIME = 90.0  # seconds within which all runs end after the last kill


def kill_at_random(
    up: EaselUp,
    load: Load,
    *,
    runs: int,
    seconds: float,
    seed: int,
    victims: tuple[str, ...] = PROCESSES,
    pauses: tuple[float, float] = (1.0, 6.0),
) -> tuple[Tally, list[str]]:
    """Kill processes for some seconds while runs continue; return a tally and a line per problem."""
    rng = random.Random(seed)
    posting = load.start(runs, seconds * 0.6)
    kills = 0
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        time.sleep(min(remaining, rng.uniform(*pauses)))
        victim = rng.choice(victims)
        kills += disturb(up, victim)
        log_progress(f"{seconds - (end - time.monotonic()):6.1f} s  {victim}  {load.open_runs} runs are open")
    posting.join(RECOVERY_TIME)
    deadline = time.monotonic() + RECOVERY_TIME
    while load.open_runs and time.monotonic() < deadline:
        time.sleep(0.2)
    load.stop()
    tally, wrong = load.tally()
    tally.kills = kills
    return tally, wrong


def disturb(up: EaselUp, victim: str) -> bool:
    """Inject one fault; return False if its victim does not exist."""
    if victim == "flush":
        try:
            with redis.Redis.from_url(up.redis_url(), socket_timeout=2) as client:
                client.flushall()
        except (redis.RedisError, ValueError, OSError):
            return False
        return True
    if victim == "up":
        up.kill_all()
        up.start()
        return True
    return up.kill(victim)


def log_progress(*lines: str) -> None:
    """Write lines of progress to stderr."""
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the arguments of the command line."""
    parser = argparse.ArgumentParser(description="Kill processes of `easel up` at random while runs continue.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0, help="for how long to kill")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--servers", action="store_true", help="kill the embedded servers, too")
    parser.add_argument("--up", action="store_true", help="kill `easel up` itself, too, and start it anew")
    parser.add_argument("--flush", action="store_true", help="empty Redis now and then")
    parser.add_argument("--only", help="victims by name, separated by commas; none: kill nothing")
    parser.add_argument("--continue-locally-for", default="0s", help="EASEL_CONTINUE_LOCALLY_FOR of all workers")
    return parser.parse_args(arguments)


def run_killer(options: argparse.Namespace) -> tuple[Tally, list[str]]:
    """Start `easel up` and the external services, and kill at random; problems are logged."""
    victims = (*PROCESSES, *(SERVERS if options.servers else ()), *(("up",) if options.up else ()))
    victims += ("flush",) if options.flush else ()
    if options.only is not None:
        victims = tuple(filter(None, options.only.split(","))) or ("nobody",)
    settings = {"EASEL_CONTINUE_LOCALLY_FOR": options.continue_locally_for}
    with external_services() as external, easel_up(external, **settings) as up:
        load = Load(up, external)
        load.record_undisturbed_runs()
        tally, wrong = kill_at_random(
            up, load, runs=options.runs, seconds=options.seconds, seed=options.seed, victims=victims
        )
        if wrong:
            log_progress(*wrong, up.log_tail(40))
    return tally, wrong


def main() -> int:
    """Run the random killer; return the exit code."""
    options = parse_options()
    tally, _ = run_killer(options)
    sys.stdout.write(table({f"seed {options.seed}": tally}) + "\n")
    return 0 if tally.is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
