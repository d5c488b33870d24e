"""Observation of PostgreSQL's protocol: split at any byte, statement by statement and in a pipeline."""

import struct
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.measuring.postgres_protocol import TLS_REQUEST, PostgresObserver, statement_label
from bench.measuring.tally import Tally


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(code: int) -> bytes:
    return struct.pack("!ii", 8, code)


START = startup(196608)
READY, BUSY = message(b"Z", b"I"), message(b"Z", b"T")


def done(tag: str) -> bytes:
    return message(b"C", tag.encode() + b"\0")


def execute(sql: str, name: bytes = b"") -> bytes:
    """Return the messages that prepare, bind and execute a statement."""
    prepared = message(b"P", name + b"\0" + sql.encode() + b"\0\0\0")
    return prepared + execute_prepared(name)


def execute_prepared(name: bytes) -> bytes:
    return message(b"B", b"\0" + name + b"\0rest") + message(b"D", b"P\0") + message(b"E", b"\0\0\0\0\0")


def observe(*exchanges: tuple[str, bytes]) -> Tally:
    """Return the counts of exchanges, given as (sender, data), on an open connection."""
    tally = Tally()
    observer = PostgresObserver(tally)
    observer.on_request(START)
    observer.on_response(READY)
    before = tally.copy()
    for sender, data in exchanges:
        (observer.on_request if sender == "client" else observer.on_response)(data)
    return tally - before


def test_statements_one_by_one_are_a_round_trip_each():
    tally = observe(
        ("client", execute("BEGIN") + message(b"S")),
        ("server", done("BEGIN") + BUSY),
        ("client", execute("UPDATE activations SET status = 'x'") + message(b"S")),
        ("server", done("UPDATE 1") + BUSY),
        ("client", execute("COMMIT") + message(b"S")),
        ("server", done("COMMIT") + READY),
    )

    assert tally.round_trips == 3
    assert tally.transactions == 1
    assert tally.statements == Counter({"begin": 1, "update activations": 1, "commit": 1})


def test_a_pipeline_is_one_round_trip_and_one_transaction():
    pipeline = execute("BEGIN") + execute("INSERT INTO runs VALUES ($1)") + execute("COMMIT") + message(b"S")

    tally = observe(("client", pipeline), ("server", done("BEGIN") + done("INSERT 0 1") + done("COMMIT") + READY))

    assert tally.round_trips == 1
    assert tally.transactions == 1
    assert sum(tally.statements.values()) == 3


def test_a_statement_without_begin_is_a_transaction():
    tally = observe(("client", message(b"Q", b"select 1\0")), ("server", done("SELECT 1") + READY))

    assert tally.transactions == 1


def test_prepared_statement_is_recognised_by_its_name_later():
    tally = observe(
        ("client", execute("SELECT * FROM scopes", b"s1") + message(b"S")),
        ("server", done("SELECT 1") + READY),
        ("client", execute_prepared(b"s1") + message(b"S")),
        ("server", done("SELECT 1") + READY),
    )

    assert tally.statements == Counter({"select scopes": 2})


def test_response_in_several_parts_is_one_round_trip():
    tally = observe(
        ("client", message(b"Q", b"select 1\0")),
        ("server", done("SELECT 1")[:3]),
        ("server", done("SELECT 1")[3:] + READY),
    )

    assert tally.round_trips == 1
    assert tally.transactions == 1


def test_refused_tls_request_is_not_counted_as_a_message():
    tally = Tally()
    observer = PostgresObserver(tally)

    observer.on_request(startup(TLS_REQUEST))
    observer.on_response(b"N")
    observer.on_request(START + message(b"Q", b"select 1\0"))
    observer.on_response(done("SELECT 1") + READY)

    assert tally.statements == Counter({"select": 1})
    assert tally.transactions == 1


def test_tls_traffic_is_counted_in_bytes_and_round_trips_only():
    tally = Tally()
    observer = PostgresObserver(tally)

    observer.on_request(startup(TLS_REQUEST))
    observer.on_response(b"S")
    observer.on_request(b"secret")
    observer.on_response(b"secrets")

    assert (tally.round_trips, tally.bytes_sent, tally.bytes_received) == (2, 14, 8)
    assert tally.statements == Counter()


@settings(max_examples=30)
@given(st.lists(st.integers(1, 40), max_size=30))
def test_counts_do_not_depend_on_how_data_are_split(sizes: list[int]):
    requests = START + execute("BEGIN") + execute("DELETE FROM scopes") + execute("COMMIT") + message(b"S")
    responses = READY + done("BEGIN") + done("DELETE 3") + done("COMMIT") + READY
    tally = Tally()
    observer = PostgresObserver(tally)

    for data, receive in ((requests, observer.on_request), (responses, observer.on_response)):
        rest = data
        for size in sizes:
            receive(rest[:size])
            rest = rest[size:]
        receive(rest)

    assert tally.statements == Counter({"begin": 1, "delete scopes": 1, "commit": 1})
    assert tally.transactions == 1
    assert tally.bytes_sent == len(requests)


@pytest.mark.parametrize(
    ("sql", "label"),
    [
        ("SELECT runs.id FROM runs WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED", "select runs, locked"),
        (
            "with w0 as (UPDATE runs SET x=$1 FROM (SELECT 1 FROM runs FOR NO KEY UPDATE SKIP LOCKED) AS a RETURNING 1)"
            ", w1 as (INSERT INTO scopes (key) VALUES ($2) ON CONFLICT (key) DO UPDATE SET key = excluded.key),"
            " w2 as (insert into scopes (key) values ($3)) select (select ln(count(*)) from w0)",
            "update runs + insert scopes",
        ),
        ("INSERT INTO run_events (run_id) VALUES ($1) ON CONFLICT DO UPDATE SET x = 1", "insert run_events"),
        ("with due as (select id from runs for update skip locked) update activations set x", "update activations"),
        ("SELECT * FROM unnest($1) AS w JOIN LATERAL (SELECT 1 FROM node_values) AS v ON true", "select node_values"),
        ("update activations_p2026w47 a set x from activations_p2026w47 o", "update activations"),
        ("delete from scopes where run_id = $1", "delete scopes"),
        ("-- why\nselect 1", "select"),
        ("BEGIN", "begin"),
        ("set local synchronous_commit = off", "set"),
        ("", "nothing"),
    ],
)
def test_statement_label_is_short(sql: str, label: str):
    assert statement_label(sql) == label
