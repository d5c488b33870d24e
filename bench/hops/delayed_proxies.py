"""Round trips that a hop waits for, measured by delaying the proxies and timing the hops again."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import psycopg
import redis

from bench.hops.hops import SERVERS, HopBench
from bench.measuring.cells import format_number

DELAY = 0.005  # seconds of delay in each direction, enough to exceed a machine's noise


def trips_table(stand: HopBench, runs: int) -> Iterator[str]:
    """Yield the times of hops without and with delayed proxies, in turns; the difference gives the round trips.

    The first quartile is compared: other processes on this machine make hops slower and never faster.
    """
    slower: Mapping[str, Sequence[str]] = {
        "none": (), "PostgreSQL": ("PostgreSQL",), "Redis": ("Redis",), "both": SERVERS,
    }  # fmt: skip
    hops: dict[str, list[float]] = {which: [] for which in slower}
    for _ in range(max(2, runs // 2)):
        for which, servers in slower.items():
            _delay_proxies(stand, servers)
            hops[which] += stand.measure_chains(1, 1).hop_ms
    added = _measure_added_delay(stand)
    _delay_proxies(stand, ())
    found = {which: statistics.quantiles(each, n=4) for which, each in hops.items()}
    delays = " and ".join(f"{added[server]:.2f} ms to a round trip to {server}" for server in SERVERS)
    yield f"A slower wire adds {delays}; {len(hops['none'])} hops each."
    yield ""
    yield "| slower wire to | hop p25, ms | p50 | p75 | round trips a hop waits for |"
    yield "|---|---:|---:|---:|---:|"
    for which, quarters in found.items():
        each = statistics.mean(added[server] for server in slower[which] or SERVERS)
        trips = format_number((quarters[0] - found["none"][0]) / each) if slower[which] else ""
        yield f"| {which} | {' | '.join(map(format_number, quarters))} | {trips} |"


def _delay_proxies(stand: HopBench, servers: Sequence[str]) -> None:
    for (_, server), wire in stand.proxy_by_route.items():
        wire.delay = DELAY if server in servers else 0.0


def _measure_added_delay(stand: HopBench) -> Mapping[str, float]:
    """Return the milliseconds that a delayed proxy adds to a round trip, measured through it."""
    database_url = stand.proxy_by_route["worker", "PostgreSQL"].proxied_url(stand.servers.database_url)
    redis_url = stand.proxy_by_route["worker", "Redis"].proxied_url(stand.servers.redis_url)
    with (
        psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection,
        redis.Redis.from_url(redis_url) as client,
    ):
        asks: Mapping[str, Callable[[], object]] = {
            "PostgreSQL": lambda: connection.execute("select 1"),
            "Redis": client.ping,
        }
        took: dict[str, float] = {}
        for server, call in asks.items():
            each: list[float] = []
            for slower in ((), SERVERS):
                _delay_proxies(stand, slower)
                each.append(_first_quartile_ms(call))
            took[server] = each[1] - each[0]
    return took


def _first_quartile_ms(call: Callable[[], object]) -> float:
    took: list[float] = []
    for _ in range(60):
        began = time.perf_counter()
        call()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.quantiles(took, n=4)[0]
