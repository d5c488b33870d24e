"""Activations that a run takes over from its source run: their outcome and values, without executing them.

The rows name what may be taken over, by the ids that the activations will have. When an advance makes one of them
ready, `take_over` stores it as reported in the same transaction: the outcome, values and text of its source, copied by
the server; large values stay in their files. No task message is sent, and the next advance applies it like any report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.ids import ActivationId, RunId
from canvas.outcome import Failed
from store.db.transaction import Transaction
from store.primitives import outcome_codec
from store.primitives.json_codec import encode

SOURCE_GONE = "source_gone"
REUSED = "reused"  # member of the outcome of an activation that was taken over

PUT = text("""
    insert into reused_activations (run_id, activation_id, source_activation, outputs)
    select :new_run, r.activation_id, r.source_activation, cast(r.outputs as json)
    from unnest(cast(:ids as uuid[]), cast(:sources as uuid[]), cast(:outputs as text[]))
      as r(activation_id, source_activation, outputs)
""")
READY = text("""
    select a.id, r.source_activation, r.outputs, s.id as found, s.outcome
    from activations a
    join reused_activations r on r.run_id = a.run_id and r.activation_id = a.id
    left join activations s on s.run_id = :source_run and s.id = r.source_activation
    where a.run_id = :new_run and a.status = 'ready' and a.attempt = 0
""")
TAKE_OVER = text("""
    update activations a set status = 'reported', attempt = 1, outcome = cast(t.outcome as json), usage = '{}',
        started_at = now(), finished_at = now()
    from unnest(cast(:ids as uuid[]), cast(:outcomes as text[])) as t(id, outcome)
    where a.run_id = :new_run and a.id = t.id
""")
_TAKEN = """
    unnest(cast(:ids as uuid[]), cast(:sources as uuid[])) as t(id, source)
    join activations a on a.run_id = :new_run and a.id = t.id
"""
COPY_VALUES = text(f"""
    insert into node_values (run_id, activation_id, node_id, container_entry, item, order_key, region, outputs, inputs,
        names, large)
    select :new_run, t.id, v.node_id, v.container_entry, v.item, a.order_key, a.region, v.outputs, v.inputs, v.names,
        v.large
    from {_TAKEN} join node_values v on v.run_id = :source_run and v.activation_id = t.source
""")  # noqa: S608 (constants only)
COPY_VARIABLES = text(f"""
    insert into variables (run_id, activation_id, name, order_key, region, value, large)
    select :new_run, t.id, v.name, a.order_key, a.region, v.value, v.large
    from {_TAKEN} join variables v on v.run_id = :source_run and v.activation_id = t.source
""")  # noqa: S608 (constants only)
COPY_STREAMS = text(f"""
    insert into turns (run_id, id, node_id, retained_length, text)
    select :new_run, t.id, s.node_id, length(s.text), s.text
    from {_TAKEN} join turns s on s.run_id = :source_run and s.id = t.source
    on conflict (run_id, id) do update set retained_length = excluded.retained_length, text = excluded.text
""")  # noqa: S608 (constants only)
COPY_DOCUMENTS = text("""
    insert into cited_documents (run_id, message_id, activation_id, finding, name, document)
    select :new_run, r.message_id, t.id, d.finding, d.name, d.document
    from unnest(cast(:ids as uuid[]), cast(:sources as uuid[])) as t(id, source)
    join runs r on r.id = :new_run
    join cited_documents d on d.run_id = :source_run and d.activation_id = t.source
    on conflict do nothing
""")
COPY_CITATIONS = text("""
    insert into citations (run_id, message_id, number, chunk_id, chunk)
    select :new_run, :message_id, c.number, c.chunk_id, c.chunk from citations c
    where c.run_id = :source_run and c.message_id = :source_message
""")
EDIT_OUTPUTS = text("""
    update node_values v set outputs = cast(:outputs as json), names = :names, large = cast(:large as json)
    from activations a
    where v.run_id = :new_run and v.activation_id = :id and a.run_id = v.run_id and a.id = v.activation_id
      and v.node_id = a.node_id
    returning v.node_id
""")
READ_OUTPUTS = text("""
    select v.outputs, v.large from node_values v
    join activations a on a.run_id = v.run_id and a.id = v.activation_id and a.node_id = v.node_id
    where v.run_id = :new_run and v.activation_id = :id
""")
EDIT_STREAM = text("""
    update turns set text = :content, retained_length = length(:content) where run_id = :new_run and id = :id
""")


@dataclass(frozen=True, slots=True)
class ReusedActivation:
    """An activation to take over; `outputs` replace those of the source, name by name."""

    id: ActivationId
    source: ActivationId
    outputs: Mapping[str, Any] | None = None


def put(tx: Transaction, run_id: RunId, reused: Sequence[ReusedActivation]) -> None:
    """Store what a new run takes over from its source."""
    if reused:
        tx.send(
            PUT,
            new_run=run_id,
            ids=[each.id for each in reused],
            sources=[each.source for each in reused],
            outputs=[encode(each.outputs) if each.outputs else None for each in reused],
        )


def copy_citations(tx: Transaction, run_id: RunId, message_id: UUID, source_run: RunId, source_message: UUID) -> None:
    """Copy the citations of the source's turn, so that answers cite them by the same numbers."""
    tx.send(COPY_CITATIONS, new_run=run_id, message_id=message_id, source_run=source_run, source_message=source_message)


def take_over(tx: Transaction, run_id: RunId, source_run: RunId) -> frozenset[ActivationId]:
    """Store as reported what this transaction has made ready and the run takes over; return the ids.

    If the source is gone, its activations fail with an error that says so.
    """
    ready = tx.rows(READY, new_run=run_id, source_run=source_run)
    if not ready:
        return frozenset()
    ids = [row.id for row in ready]
    sources = [row.source_activation for row in ready]
    outcomes = [encode(_outcome(row.outcome, source_run)) for row in ready]
    tx.send(TAKE_OVER, new_run=run_id, ids=ids, outcomes=outcomes)
    for copy in (COPY_VALUES, COPY_VARIABLES, COPY_STREAMS, COPY_DOCUMENTS):
        tx.send(copy, new_run=run_id, source_run=source_run, ids=ids, sources=sources)
    for row in ready:
        if row.outputs:
            _edit(tx, run_id, row.id, row.outputs)
    return frozenset(ids)


def _outcome(stored: Mapping[str, Any] | None, source_run: RunId) -> Mapping[str, Any]:
    """Return the outcome of a source as that of its copy, which uses nothing and has written no text of its own."""
    if stored is None:
        failed = Failed(f"The run {source_run.hex}, whose steps this run reuses, is not there any more.", SOURCE_GONE)
        return outcome_codec.encode_outcome(failed, error=failed.error, restarts_text=False, has_written=False, used={})
    return {
        **{name: value for name, value in stored.items() if name not in ("retake", "spoke")},
        "used": {},
        REUSED: True,
    }


def _edit(tx: Transaction, run_id: RunId, activation_id: ActivationId, edited: Mapping[str, Any]) -> None:
    row = tx.one_or_none(READ_OUTPUTS, new_run=run_id, id=activation_id)
    if row is None:
        return
    outputs = {**row["outputs"], **edited}
    large = dict(row["large"] or {})
    large["outputs"] = {name: file for name, file in (large.get("outputs") or {}).items() if name not in edited}
    kept = {column: files for column, files in large.items() if files}
    tx.send(
        EDIT_OUTPUTS,
        new_run=run_id,
        id=activation_id,
        outputs=encode(outputs),
        names=list(outputs),
        large=encode(kept) if kept else None,
    )
    if isinstance(edited.get("content"), str):
        tx.send(EDIT_STREAM, new_run=run_id, id=activation_id, content=edited["content"])
