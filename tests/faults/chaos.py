"""The random killer: `python -m tests.faults.chaos --runs 200 --seconds 120 --seed 7 [--servers] [--up] [--flush]`.

While runs of all kinds go on it kills what belongs to `easel up`, every one to six seconds; in the end everything must
be as if nothing had happened. Says what it found as a table; exit code 1 if a promise is broken.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence

import redis

from tests.faults.easel_up import PROCESSES, SERVERS, EaselUp, easel_up
from tests.faults.load import Load
from tests.faults.outside import outside
from tests.faults.table import Tally, table

AFTERWARDS = 90.0  # seconds within which all runs end once nobody kills any more


def chaos(
    up: EaselUp,
    load: Load,
    *,
    runs: int,
    seconds: float,
    seed: int,
    victims: tuple[str, ...] = PROCESSES,
    pauses: tuple[float, float] = (1.0, 6.0),
) -> tuple[Tally, list[str]]:
    """Disturb runs for so long; what came of them, and what was wrong."""
    chance = random.Random(seed)
    posting = load.begin(runs, seconds * 0.6)
    kills = 0
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, chance.uniform(*pauses)))
        victim = chance.choice(victims)
        kills += disturb(up, victim)
        tell(f"{seconds - (end - time.monotonic()):6.1f} s  {victim}  {load.open} runs go on")
    posting.join(AFTERWARDS)
    give_up = time.monotonic() + AFTERWARDS
    while load.open and time.monotonic() < give_up:
        time.sleep(0.2)
    load.end()
    tally, wrong = load.tally()
    tally.kills = kills
    return tally, wrong


def disturb(up: EaselUp, victim: str) -> bool:
    """Do one bad thing; False if the victim was not there."""
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


def tell(*lines: str) -> None:
    """What a person may want to see meanwhile."""
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What is wanted."""
    parser = argparse.ArgumentParser(description="Kill processes of `easel up` at random while runs go on.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0, help="for how long to kill")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--servers", action="store_true", help="kill the embedded servers, too")
    parser.add_argument("--up", action="store_true", help="kill `easel up` itself, too, and start it anew")
    parser.add_argument("--flush", action="store_true", help="empty Redis now and then")
    parser.add_argument("--only", help="victims by name, separated by commas; none: kill nothing")
    return parser.parse_args(arguments)


def on_its_own(wanted: argparse.Namespace) -> tuple[Tally, list[str]]:
    """Start `easel up` and the world outside, and kill at random; what was found is told on the way, too."""
    victims = (*PROCESSES, *(SERVERS if wanted.servers else ()), *(("up",) if wanted.up else ()))
    victims += ("flush",) if wanted.flush else ()
    if wanted.only is not None:
        victims = tuple(filter(None, wanted.only.split(","))) or ("nobody",)
    with outside() as world, easel_up(world) as up:
        load = Load(up, world)
        load.learn()
        tally, wrong = chaos(up, load, runs=wanted.runs, seconds=wanted.seconds, seed=wanted.seed, victims=victims)
        if wrong:
            tell(*wrong, up.told(40))
    return tally, wrong


def main() -> int:
    """Kill at random, and tell."""
    wanted = options()
    tally, _ = on_its_own(wanted)
    sys.stdout.write(table({f"seed {wanted.seed}": tally}) + "\n")
    return 0 if tally.is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
