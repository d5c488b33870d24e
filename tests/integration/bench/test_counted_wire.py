"""The counting proxies count round trips, statements and bytes, change no data, and can add a delay."""

import time
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
import redis

from bench.measuring.counting_proxy import CountingProxies, run_proxies
from bench.measuring.postgres_protocol import PostgresObserver
from bench.measuring.redis_protocol import RedisObserver

STEP = ("begin", "select count(*) from runs", "commit")


@pytest.fixture
def proxies() -> Iterator[CountingProxies]:
    with run_proxies() as proxies:
        yield proxies


def libpq_url(url: str) -> str:
    return url.replace("+psycopg", "")


def test_single_and_pipelined_statements_are_distinguished(proxies: CountingProxies, module_database_url: str):
    wire = proxies.open(module_database_url, PostgresObserver)
    with psycopg.connect(libpq_url(wire.proxied_url(module_database_url)), autocommit=True) as connection:
        before = proxies.read(wire)
        for sql in STEP:
            connection.execute(sql)
        one_by_one = proxies.read(wire) - before
        before = proxies.read(wire)
        with connection.pipeline():
            for sql in STEP:
                connection.execute(sql)
        in_a_pipeline = proxies.read(wire) - before

    assert (one_by_one.round_trips, in_a_pipeline.round_trips) == (3, 1)
    assert (one_by_one.transactions, in_a_pipeline.transactions) == (1, 1)
    assert one_by_one.statements == Counter({"begin": 1, "select runs": 1, "commit": 1})
    assert in_a_pipeline.statements == one_by_one.statements


def test_commands_are_counted_as_the_server_counts_them(proxies: CountingProxies, redis_url: str):
    wire = proxies.open(redis_url, RedisObserver)
    with redis.Redis.from_url(wire.proxied_url(redis_url)) as client:
        client.ping()
        before = proxies.read(wire)
        with client.pipeline(transaction=True) as pipeline:
            pipeline.set("a", "b" * 300)
            pipeline.get("a")
            answers = pipeline.execute()
        counted = proxies.read(wire) - before
        client.set("a", "b" * 300_000)
        long = client.get("a")
        larger = proxies.read(wire) - before - counted

    assert answers == [True, b"b" * 300]
    assert counted.statements == Counter({"multi": 1, "set": 1, "get": 1, "exec": 1})
    assert counted.round_trips == 1
    assert long == b"b" * 300_000
    assert larger.statements == Counter({"set": 1, "get": 1})
    assert larger.bytes_received > 300_000


def test_delayed_proxy_adds_its_delay_to_each_round_trip(proxies: CountingProxies, redis_url: str):
    wire = proxies.open(redis_url, RedisObserver)
    with redis.Redis.from_url(wire.proxied_url(redis_url)) as client:
        client.ping()
        wire.delay = 0.02
        began = time.monotonic()
        client.ping()
        client.ping()
        elapsed = time.monotonic() - began

    assert elapsed >= 0.08


def test_delayed_data_arrive_in_order_when_the_delay_ends(proxies: CountingProxies, redis_url: str):
    wire = proxies.open(redis_url, RedisObserver)
    wire.delay = 0.01
    with redis.Redis.from_url(wire.proxied_url(redis_url)) as client, client.pipeline(transaction=False) as pipeline:
        for number in range(2000):
            pipeline.rpush("numbers", f"{number:0200}")
        wire.delay = 0.0
        pipeline.execute()
        stored = client.lrange("numbers", 0, -1)

    assert stored == [f"{number:0200}".encode() for number in range(2000)]


def test_closing_the_proxies_closes_their_connections(redis_url: str):
    with run_proxies() as proxies:
        wire = proxies.open(redis_url, RedisObserver)
        client = redis.Redis.from_url(wire.proxied_url(redis_url), retry=None)
        client.ping()

    with pytest.raises(redis.RedisError):
        client.ping()
    client.close()
