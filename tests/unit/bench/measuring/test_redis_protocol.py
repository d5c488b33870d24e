"""Observation of Redis' protocol, split at any byte."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.measuring.redis_protocol import RedisObserver
from bench.measuring.tally import Tally


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def test_commands_of_a_pipeline_are_one_round_trip():
    tally = Tally()
    observer = RedisObserver(tally)

    observer.on_request(command(b"MULTI") + command(b"ZADD", b"unacked", b"1", b"x\r\n$9") + command(b"EXEC"))
    observer.on_response(b"+OK\r\n+QUEUED\r\n*1\r\n:1\r\n")
    observer.on_request(command(b"brpop", b"nodes", b"1"))

    assert tally.statements == Counter({"multi": 1, "zadd": 1, "exec": 1, "brpop": 1})
    assert tally.round_trips == 2


def test_unsolicited_server_data_are_not_a_round_trip():
    tally = Tally()
    observer = RedisObserver(tally)

    observer.on_request(command(b"subscribe", b"here"))
    for _ in range(3):
        observer.on_response(b"*3\r\n$7\r\nmessage\r\n$4\r\nhere\r\n$1\r\nx\r\n")

    assert tally.round_trips == 1


def test_inline_command_is_counted():
    tally = Tally()

    RedisObserver(tally).on_request(b"PING\r\n")

    assert tally.statements == Counter({"ping": 1})


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=4), st.lists(st.integers(1, 9), max_size=20))
def test_counts_do_not_depend_on_how_data_are_split(words: list[bytes], sizes: list[int]):
    requests = command(b"SET", *words) + command(b"PING")
    tally = Tally()
    observer = RedisObserver(tally)

    rest = requests
    for size in sizes:
        observer.on_request(rest[:size])
        rest = rest[size:]
    observer.on_request(rest)

    assert tally.statements == Counter({"set": 1, "ping": 1})
    assert tally.bytes_sent == len(requests)
