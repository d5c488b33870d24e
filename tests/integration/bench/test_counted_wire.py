"""Wires count what real servers are asked, change nothing, and take their time if told to."""

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
def laid() -> Iterator[CountingProxies]:
    with run_proxies() as laid:
        yield laid


def plain(url: str) -> str:
    return url.replace("+psycopg", "")


def test_single_and_pipelined_statements_are_distinguished(laid: CountingProxies, module_database_url: str):
    wire = laid.open(module_database_url, PostgresObserver)
    with psycopg.connect(plain(wire.proxied_url(module_database_url)), autocommit=True) as connection:
        before = laid.read(wire)
        for sql in STEP:
            connection.execute(sql)
        one_by_one = laid.read(wire) - before
        before = laid.read(wire)
        with connection.pipeline():
            for sql in STEP:
                connection.execute(sql)
        in_a_pipeline = laid.read(wire) - before

    assert (one_by_one.round_trips, in_a_pipeline.round_trips) == (3, 1)
    assert (one_by_one.transactions, in_a_pipeline.transactions) == (1, 1)
    assert one_by_one.statements == Counter({"begin": 1, "select runs": 1, "commit": 1})
    assert in_a_pipeline.statements == one_by_one.statements


def test_commands_are_counted_as_the_server_counts_them(laid: CountingProxies, redis_url: str):
    wire = laid.open(redis_url, RedisObserver)
    with redis.Redis.from_url(wire.proxied_url(redis_url)) as client:
        client.ping()
        before = laid.read(wire)
        with client.pipeline(transaction=True) as pipeline:
            pipeline.set("a", "b" * 300)
            pipeline.get("a")
            answers = pipeline.execute()
        passed = laid.read(wire) - before
        client.set("a", "b" * 300_000)
        long = client.get("a")
        larger = laid.read(wire) - before - passed

    assert answers == [True, b"b" * 300]
    assert passed.statements == Counter({"multi": 1, "set": 1, "get": 1, "exec": 1})
    assert passed.round_trips == 1
    assert long == b"b" * 300_000
    assert larger.statements == Counter({"set": 1, "get": 1})
    assert larger.bytes_received > 300_000


def test_delayed_proxy_adds_its_delay_to_each_round_trip(laid: CountingProxies, redis_url: str):
    wire = laid.open(redis_url, RedisObserver)
    with redis.Redis.from_url(wire.proxied_url(redis_url)) as client:
        client.ping()
        wire.delay = 0.02
        began = time.monotonic()
        client.ping()
        client.ping()
        took = time.monotonic() - began

    assert took >= 0.08


def test_delayed_data_arrive_in_order_when_the_delay_ends(laid: CountingProxies, redis_url: str):
    wire = laid.open(redis_url, RedisObserver)
    wire.delay = 0.01
    with redis.Redis.from_url(wire.proxied_url(redis_url)) as client, client.pipeline(transaction=False) as pipeline:
        for number in range(2000):
            pipeline.rpush("numbers", f"{number:0200}")
        wire.delay = 0.0
        pipeline.execute()
        kept = client.lrange("numbers", 0, -1)

    assert kept == [f"{number:0200}".encode() for number in range(2000)]


def test_closing_the_proxies_closes_their_connections(redis_url: str):
    with run_proxies() as laid:
        wire = laid.open(redis_url, RedisObserver)
        client = redis.Redis.from_url(wire.proxied_url(redis_url), retry=None)
        client.ping()

    with pytest.raises(redis.RedisError):
        client.ping()
    client.close()
