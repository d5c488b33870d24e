"""Runs of a past that nobody has lived through: rows in bulk, as a finished chain of nodes leaves them."""

from datetime import datetime
from uuid import UUID

import psycopg

NODES = 10  # activations of each run
AT_ONCE = 5_000  # runs a statement

IDS = """
    create temporary table past as
    select n, {uuid} as id, {uuid} as conversation_id, %(at)s + n * interval '1 ms' as made
    from generate_series(1, %(many)s) n
"""
UUID7 = """
    (lpad(to_hex(%(begins)s + n), 12, '0') || '7' || substr(md5(random()::text), 1, 3) || '8'
      || substr(md5(random()::text), 1, 15))::uuid
"""
CONVERSATIONS = """
    insert into conversations (id, tenant_id, canvas_id, version_id, last_run, messages, rounds, created_at, updated_at)
    select conversation_id, %(tenant)s, %(canvas)s, %(version)s, id, 2, 1, made, made
    from past where n between %(first)s and %(last)s
"""
RUNS = """
    insert into runs (id, tenant_id, canvas_id, version_id, conversation_id, message_id, status, engine, revision,
      last_event, state, request, base, usage, created_at, started_at, finished_at)
    select id, %(tenant)s, %(canvas)s, %(version)s, conversation_id, id, 'succeeded', 1, 12, 24, '{}',
      '{"query": "q", "inputs": null, "files": [], "options": {}}',
      '{"globals": {"sys.query": "q", "sys.conversation_turns": 1}, "values": {}, "files": [], "inputs": {}}',
      '{}', %(at)s, %(at)s, %(at)s
    from past where n between %(first)s and %(last)s
"""
ACTIVATIONS = """
    insert into activations (run_id, id, node_id, component, scope, ordinal, place, region, wave, trail, status,
      attempt, activated_rev, folded_rev, outcome, usage)
    select id, {node}, 'StringTransform:' || k, 'StringTransform', '', 0, int4send(k), '', k, '[]', 'done', 1, k, k + 1,
      '{{"is": "Finished"}}', '{{}}'
    from past, generate_series(1, %(nodes)s) k where n between %(first)s and %(last)s
"""
VALUES = """
    insert into node_values (run_id, activation_id, node_id, pass_of, item, place, region, outputs, names)
    select id, {node}, 'StringTransform:' || k, '', 0, int4send(k), '', '{{"result": "text of an ordinary length"}}',
      '{{result}}'
    from past, generate_series(1, %(nodes)s) k where n between %(first)s and %(last)s
"""
EVENTS = """
    insert into run_events (run_id, number, event, body)
    select id, k, 'node_finished', '{"inputs": {}, "outputs": {"result": "some text"}, "elapsed_time": 0.1}'
    from past, generate_series(1, 2 * %(nodes)s) k where n between %(first)s and %(last)s
"""
MESSAGES = """
    insert into conversation_messages (conversation_id, number, run_id, role, content, activation_id, node_id)
    select conversation_id, k, id, case k when 1 then 'user' else 'assistant' end, case k when 1 then '"q"'::json end,
      case k when 2 then {node} end, case k when 2 then 'StringTransform:' || %(nodes)s end
    from past, generate_series(1, 2) k where n between %(first)s and %(last)s
"""
NODE_ID = "md5(id::text || {k})::uuid"


def add(url: str, tenant: UUID, canvas: UUID, version: UUID, many: int, at: datetime) -> None:
    """Add finished runs of one turn, and their conversations, a millisecond apart from `at` on."""
    known = {"tenant": tenant, "canvas": canvas, "version": version, "at": at, "nodes": NODES}
    each = NODE_ID.format(k="k")
    statements = (
        CONVERSATIONS,
        RUNS,
        ACTIVATIONS.format(node=each),
        VALUES.format(node=each),
        EVENTS,
        MESSAGES.format(node=NODE_ID.format(k="%(nodes)s")),
    )
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        given = {"many": many, "at": at, "begins": int(at.timestamp() * 1000)}
        connection.execute(IDS.format(uuid=UUID7), given)  # pyright: ignore[reportArgumentType] (text of ours)
        for first in range(1, many + 1, AT_ONCE):
            for statement in statements:
                part = {**known, "first": first, "last": first + AT_ONCE - 1}
                connection.execute(statement, part)  # pyright: ignore[reportArgumentType] (text of ours)
        connection.execute("vacuum analyze")
