"""The Redis script of the rate limiter, with a simulated clock."""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import providers

SCRIPT = (Path(providers.__file__).parent / "models" / "limits" / "rate_limiter.lua").read_text()
MINUTE = 60_000  # milliseconds
NAMES = ("state", "queue", "due", "log", "cost", "slots", "tags")


@dataclass
class Account:
    """The rate limiter of one account; the test sets `now`."""

    redis: redis.Redis
    requests: int = 0
    tokens: int = 0
    concurrency: int = 0
    now: float = 1_000_000_000.0
    granted: list[tuple[float, int, str]] = field(default_factory=list)  # when, tokens, ticket

    def __post_init__(self) -> None:
        self._script: Any = self.redis.register_script(SCRIPT)
        self.redis.flushdb()

    def ask(self, ticket: str, *, tokens: int = 0, tenant: str = "one") -> int:
        """Return the milliseconds to wait; 0: the request was granted and reserves the tokens."""
        limits = self.requests, self.tokens, self.concurrency
        wait = self._call("ask", *limits, ticket, f"pass of {ticket}", tenant, tokens, 1, 30_000)
        if wait == 0:
            self.granted.append((self.now, tokens + 1, ticket))
        return wait

    def settle(self, ticket: str, total: int, *, prompt: int = 0, refused: bool = False, pause: float = 0) -> None:
        self._call("settle", f"pass of {ticket}", self.tokens, total, prompt, 1000, int(refused), pause * 1000)

    def forget(self, ticket: str) -> None:
        self._call("forget", ticket, f"pass of {ticket}")

    def renew(self, ticket: str) -> None:
        self._call("renew", f"pass of {ticket}", 30_000)

    def _call(self, verb: str, *args: Any) -> int:
        keys = [f"pace:{name}" for name in NAMES]
        return self._script(keys, [verb, self.now, MINUTE, *args])

    def play(
        self,
        tickets: list[str],
        *,
        until: float,
        tokens: Callable[[str], int] = lambda _: 0,
        late: Callable[[], int] = lambda: 0,
    ) -> None:
        """Request a permit for every ticket at once, and again after each wait, or `late` milliseconds later."""
        started = self.now
        queue = [(self.now, number, ticket) for number, ticket in enumerate(tickets)]
        heapq.heapify(queue)
        while queue and queue[0][0] < started + until:
            self.now, number, ticket = heapq.heappop(queue)
            wait = self.ask(ticket, tokens=tokens(ticket))
            if wait:
                heapq.heappush(queue, (self.now + wait + late(), number, ticket))

    def most_in_window(self, window: float) -> tuple[int, int]:
        """Return the largest number of requests and of tokens in any window."""
        inside, requests, tokens, spent = deque[tuple[float, int]](), 0, 0, 0
        for at, cost, _ in self.granted:
            inside.append((at, cost))
            spent += cost
            while inside[0][0] <= at - window:
                spent -= inside.popleft()[1]
            requests, tokens = max(requests, len(inside)), max(tokens, spent)
        return requests, tokens


@pytest.fixture(scope="module")
def client(services: Any) -> Iterator[redis.Redis]:
    from tests.services import emptied_redis

    with redis.Redis.from_url(emptied_redis(services.redis_url)) as client:
        yield client


def test_rate_limiter_grants_a_request_of_an_idle_account_at_once(client: redis.Redis):
    account = Account(client, requests=60, tokens=10_000, concurrency=2)

    assert account.ask("a", tokens=100) == 0


def test_rate_limiter_grants_the_full_request_limit_of_a_minute_and_no_more(client: redis.Redis):
    account = Account(client, requests=60)

    account.play([str(number) for number in range(400)], until=5 * MINUTE)

    first = account.granted[0][0]
    later = [at for at, _, _ in account.granted if first + MINUTE <= at < first + 5 * MINUTE]
    assert account.most_in_window(MINUTE)[0] <= 60
    assert len(later) >= 0.97 * 4 * 60


def test_requests_are_spread_over_the_minute(client: redis.Redis):
    account = Account(client, requests=60)

    account.play([str(number) for number in range(100)], until=MINUTE)

    assert account.most_in_window(1000)[0] <= 2
    assert account.most_in_window(10_000)[0] <= 12


def test_requests_are_granted_in_the_order_of_their_arrival(client: redis.Redis):
    account = Account(client, requests=60)

    account.play([f"{number:03}" for number in range(50)], until=2 * MINUTE)

    assert [ticket for _, _, ticket in account.granted] == sorted(ticket for _, _, ticket in account.granted)


def test_requests_of_tenants_that_share_an_account_alternate(client: redis.Redis):
    account = Account(client, requests=60)
    account.ask("first")
    tickets = [("many", f"m{number}") for number in range(10)] + [("few", f"f{number}") for number in range(2)]
    waits = {ticket: account.ask(ticket, tenant=tenant) for tenant, ticket in tickets}

    later = {ticket: account.ask(ticket, tenant=tenant) for tenant, ticket in tickets}

    assert sorted(waits, key=waits.__getitem__)[0] == "m0"
    assert later["f1"] < later["m3"] < later["m9"]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    requests=st.sampled_from((0, 3, 20, 60, 300)),
    tokens=st.sampled_from((0, 500, 5_000, 100_000)),
)
def test_no_time_window_exceeds_the_rate_limit(client: redis.Redis, seed: int, requests: int, tokens: int):
    rng = random.Random(seed)
    account = Account(client, requests=requests, tokens=tokens)
    sizes = {f"{number}": rng.randint(1, 450) for number in range(100)}

    account.play(
        list(sizes),
        until=3 * MINUTE if requests or tokens else 1,
        tokens=sizes.__getitem__,
        late=lambda: rng.choice((0, 0, 10, 900, 4_000, 20_000)),
    )

    most_requests, most_tokens = account.most_in_window(MINUTE)
    assert not requests or most_requests <= requests
    assert not tokens or most_tokens <= tokens


def test_unused_part_of_a_token_reservation_is_released(client: redis.Redis):
    account = Account(client, tokens=1000)
    assert account.ask("large", tokens=800) == 0
    assert account.ask("next", tokens=500) > 30_000

    account.settle("large", 100, prompt=100)
    account.now += 6_000

    assert account.ask("next", tokens=500) == 0


def test_token_limit_is_used_almost_fully_if_answer_sizes_are_unknown(client: redis.Redis):
    """The vendor counts the real tokens of a call at its beginning and refuses a call that exceeds the limit."""
    rng = random.Random(7)
    account, vendor = Account(client, requests=10_000, tokens=100_000), deque[tuple[float, int]]()
    started, refused, used = account.now, 0, list[tuple[float, int]]()
    queue = [(account.now, number, 0) for number in range(700)]  # time, number, real tokens of a running call
    while queue and queue[0][0] < started + 4 * MINUTE:
        account.now, number, real = heapq.heappop(queue)
        if real:
            account.settle(f"{number}", real, prompt=700)
            continue
        wait = account.ask(f"{number}", tokens=700)
        if wait:
            heapq.heappush(queue, (account.now + wait, number, 0))
            continue
        real = 800 + rng.randint(200, 1800)  # the vendor counts more tokens than estimated
        while vendor and vendor[0][0] <= account.now - MINUTE:
            vendor.popleft()
        if sum(spent for _, spent in vendor) + real > 100_000:
            refused += 1
            account.settle(f"{number}", 0, refused=True)
            heapq.heappush(queue, (account.now + 5_000, number, 0))
            continue
        vendor.append((account.now, real))
        used.append((account.now, real))
        heapq.heappush(queue, (account.now + rng.randint(1_000, 8_000), number, real))

    later = [spent for at, spent in used if started + MINUTE <= at]
    assert sum(later) >= 0.92 * 3 * 100_000
    assert refused <= 0.02 * len(later)


def test_request_above_the_limit_of_a_minute_is_granted_when_the_account_is_idle(client: redis.Redis):
    account = Account(client, tokens=1000)
    assert account.ask("small", tokens=10) == 0

    wait = account.ask("huge", tokens=50_000)
    account.now += wait

    assert 0 < wait <= 1.02 * MINUTE
    assert account.ask("huge", tokens=50_000) == 0


def test_concurrency_limit_is_kept_and_a_settled_request_frees_a_slot(client: redis.Redis):
    account = Account(client, concurrency=2)

    waits = [account.ask(name) for name in "abc"]
    account.settle("a", 5)

    assert waits[:2] == [0, 0]
    assert waits[2] > 0
    assert account.ask("c") == 0


def test_slot_of_a_lost_worker_expires_and_a_renewed_slot_does_not(client: redis.Redis):
    account = Account(client, concurrency=2)
    assert [account.ask(name) for name in ("dead", "long")] == [0, 0]

    account.now += 20_000
    account.renew("long")
    account.now += 15_000

    assert account.ask("next") == 0
    assert account.ask("another") > 0


def test_refusal_delays_all_requests_as_long_as_the_vendor_asks_and_lowers_the_rate(client: redis.Redis):
    account = Account(client, requests=60)
    assert account.ask("refused") == 0

    account.settle("refused", 0, refused=True, pause=20)
    wait = account.ask("a")
    account.now += wait
    account.play([f"n{number}" for number in range(100)], until=MINUTE)

    assert 20_000 <= wait <= 21_000
    assert 52 <= account.most_in_window(MINUTE)[0] <= 60


def test_refusal_delays_an_account_for_two_minutes_at_most(client: redis.Redis):
    account = Account(client, requests=60)
    account.ask("refused")

    account.settle("refused", 0, refused=True, pause=86_400)

    assert MINUTE < account.ask("a") <= 2 * MINUTE


def test_rate_recovers_after_a_refusal(client: redis.Redis):
    account = Account(client, requests=60)
    account.ask("refused")
    account.settle("refused", 0, refused=True)
    account.now += 3 * MINUTE

    account.play([f"n{number}" for number in range(200)], until=2 * MINUTE)

    assert account.most_in_window(MINUTE)[0] >= 59


def test_abandoned_requests_do_not_delay_the_other_requests(client: redis.Redis):
    account = Account(client, requests=60)
    account.ask("first")
    for number in range(5):
        account.ask(f"gone{number}")
    wait = account.ask("here")

    account.now += 5_000 + 3_000

    assert 5_000 < wait < 7_000
    assert account.ask("here") == 0


def test_forgotten_request_shortens_the_wait_of_the_next_request(client: redis.Redis):
    account = Account(client, requests=60)
    account.ask("first")
    account.ask("gives up")
    before = account.ask("behind")

    account.forget("gives up")

    assert account.ask("behind") < before


def test_rate_limiter_starts_without_a_burst_after_redis_was_emptied(client: redis.Redis):
    account = Account(client, requests=60)
    account.play([f"a{number}" for number in range(200)], until=MINUTE)
    client.flushdb()

    account.play([f"b{number}" for number in range(200)], until=MINUTE)

    assert account.most_in_window(MINUTE)[0] <= 60 * 1.07
