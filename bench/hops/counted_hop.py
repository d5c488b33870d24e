"""Tables about a hop: what it sends and writes, its processor time by process, and its lower bound."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.hops.floor import COMMIT, TASK, measure_floor
from bench.hops.hops import SERVERS, HopBench, HopMeasurement
from bench.measuring.cells import format_number, table_row
from bench.measuring.tally import Tally

MIN_COUNT = 0.02  # counts per hop below this are left out
PROCESSES = {
    "worker": "workers", "scheduler": "scheduler", "sweeper": "sweeper", "PostgreSQL": "PostgreSQL", "Valkey": "Redis",
}  # fmt: skip


def hop_table(stand: HopBench, runs: int) -> Iterator[str]:
    """Yield the counts per hop, of one run alone and of many side by side, without the traffic of idle processes."""
    alone, together = stand.measure_chains(runs, 1), stand.measure_chains(4 * runs, 2 * runs)
    both = (alone, together)
    yield f"{alone.hops} hops of one run after another, and {together.hops} of {2 * runs} runs side by side."
    yield ""
    yield "| a hop | one run alone | many side by side |"
    yield "|---|---:|---:|"
    for server in SERVERS:
        for label, value in _TRAFFIC_FIGURES[server]:
            yield table_row(f"{server}: {label}", *(value(passed.tally("worker", server)) for passed in both))
    yield table_row("PostgreSQL: transactions that write", *(it.transactions for it in both))
    yield table_row("PostgreSQL: bytes of log", *(it.wal for it in both))
    yield table_row("by scheduler and sweeper: round trips", *(_other_round_trips(passed) for passed in both))
    for server, what in (("PostgreSQL", "statement"), ("Redis", "command")):
        found = [passed.tally("worker", server).statements for passed in both]
        yield ""
        yield f"| {server}: {what} | one run alone | many side by side |"
        yield "|---|---:|---:|"
        for name in sorted(found[0], key=lambda name: (-round(found[0][name], 1), name)):
            if max(counted[name] for counted in found) >= MIN_COUNT:
                yield table_row(f"`{name}`", *(counted[name] for counted in found))


_TRAFFIC_FIGURES: Mapping[str, Sequence[tuple[str, Callable[[Tally], float]]]] = {
    "PostgreSQL": (
        ("round trips", lambda it: it.round_trips),
        ("statements", lambda it: float(sum(it.statements.values()))),
        ("transactions", lambda it: it.transactions),
        ("messages of its protocol", lambda it: it.messages),
        ("bytes to it", lambda it: it.bytes_sent),
        ("bytes from it", lambda it: it.bytes_received),
    ),
    "Redis": (
        ("round trips", lambda it: it.round_trips),
        ("commands", lambda it: float(sum(it.statements.values()))),
        ("bytes to it", lambda it: it.bytes_sent),
        ("bytes from it", lambda it: it.bytes_received),
    ),
}


def _other_round_trips(passed: HopMeasurement) -> float:
    return sum(passed.tally(role, server).round_trips for role in ("scheduler", "sweeper") for server in SERVERS)


def time_table(stand: HopBench, runs: int) -> Iterator[str]:
    """Yield the processor time by process, the lower bound of a hop's parts, and the rest of a hop above it."""
    alone, together = stand.measure_chains(runs, 1), stand.measure_chains(4 * runs, 2 * runs)
    parts = {part.name: part for part in measure_floor(stand.servers, stand.folder)}
    yield "| ms of processor a hop | one run alone | many side by side |"
    yield "|---|---:|---:|"
    for who, label in PROCESSES.items():
        yield table_row(label, alone.cpu_ms(who), together.cpu_ms(who))
    yield table_row("all", *(sum(passed.cpu_ms(who) for who in PROCESSES) for passed in (alone, together)))
    yield table_row("hops a second", alone.hops_per_second, together.hops_per_second)
    yield ""
    yield "| floor, each by itself | ms | ms of processor, client | ms of processor, server |"
    yield "|---|---:|---:|---:|"
    for part in parts.values():
        yield table_row(part.name, part.ms, part.client_ms, part.server_ms)
    hop = statistics.median(alone.hop_ms)
    task, commit = parts[TASK].ms, parts[COMMIT].ms
    yield ""
    yield "| a hop of one run alone | ms | share |"
    yield "|---|---:|---:|"
    for label, ms in (("p50", hop), ("a bare Celery task that sends the next", task), ("one commit to disk", commit),
                     ("left above this floor", hop - task - commit)):  # fmt: skip
        yield f"| {label} | {format_number(ms)} | {ms / hop:.0%} |"
