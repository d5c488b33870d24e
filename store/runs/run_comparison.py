"""Two runs of a tenant side by side: which activations are the same, which differ and in what, which only one has.

Activations correspond by (node, scope, ordinal), also across versions. Values are compared in the database, by a digest
for each activation, so the values themselves stay there: outputs and inputs as JSON texts, without names that begin
with `_` (times and notes of the attempt), and the variables that the activation has written, as outputs. Of a value
that is in a file, the hash of its content and its size are compared. Of model calls, what was asked is compared: the
set of requests, so that a repeated one counts once, and only if both runs have stored theirs.

Rows are in canonical order of A; what only B has is sorted in by its own order key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntFlag
from typing import Any

from sqlalchemy import text

from canvas.ids import ActivationId, RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.json_codec import encode
from store.runs import model_calls
from store.runs.reused_activations import REUSED

MAX_ROWS = 500  # of a page
MAX_PROMPTS = 20  # calls of a step whose requests are compared in words
OUTCOME_MEMBERS = ("is", "to", "count", "inputs", "tips")  # members of a stored outcome that are compared


class StepDifference(IntFlag):
    """In what two activations differ. An attempt of a reused activation is one of another run and is not compared."""

    INPUTS = 1
    OUTPUTS = 2
    OUTCOME = 4
    ERROR = 8
    ATTEMPTS = 16
    ONLY_A = 32
    ONLY_B = 64
    STATUS = 128
    PROMPTS = 256


SAME, DIFFERS, IN_ONE = "same", "differs", StepDifference.ONLY_A | StepDifference.ONLY_B
FILTERS = (SAME, DIFFERS, "only_a", "only_b")


def _digest(column: str) -> str:
    """Return SQL for a digest of the public members of a column of node_values `v`; null if there are none.

    The digest is that of a JSON text without private members, with the files of large values in their place. Splitting
    an object takes longer than to hash its text, so a text that certainly has neither is hashed as it is.
    """
    file = f"(v.large -> '{column}' -> e.key)"
    written = f"cast(v.{column} as text)"  # json_each cannot read the character 0, which an edited output may contain
    return f"""
        md5(nullif(nullif(case when v.large is null and position('"_' in {written}) = 0
                and position('\\u0000' in {written}) = 0
            then {written} else (
                select '{{' || coalesce(string_agg(cast(to_json(e.key) as text) || ':' || case
                    when v.large is not null and json_typeof(e.value) = 'null' and {file} is not null
                    then 'file:' || split_part({file} ->> 0, '/', 3) || ':' || ({file} ->> 1)
                    else cast(e.value as text) end, ','), '') || '}}'
                from json_each(case when json_typeof(v.{column}) <> 'object' then '{{}}'
                    when position('\\u0000' in {written}) > 0
                    then cast(replace({written}, '\\u0000', '\\ufffd') as json)
                    else v.{column} end) e
                where left(e.key, 1) <> '_'
            ) end, '{{}}'), 'null'))
    """  # noqa: S608 (constants only)


def _side(number: int) -> str:
    """Return SQL for the activations of one of the runs, with digests of their values."""
    run_id = f"(cast(:run_ids as uuid[]))[{number}]"
    return f"""
        select a.id, a.node_id, a.scope, a.ordinal, a.order_key, a.status, a.attempt, a.outcome,
            v.inputs, v.outputs, x.written, c.asked
        from runs r join activations a on a.run_id = r.id
        left join (
            select activation_id, string_agg(node_id || inputs, ' ' order by node_id) as inputs,
                string_agg(node_id || outputs, ' ' order by node_id) as outputs
            from (
                select v.activation_id, v.node_id, {_digest("inputs")} as inputs, {_digest("outputs")} as outputs
                from node_values v where v.run_id = {run_id} offset 0
            ) digests
            group by activation_id
        ) v on v.activation_id = a.id
        left join (
            select x.activation_id, md5(string_agg(x.name || ':' || case
                when x.large is not null and (x.value is null or json_typeof(x.value) = 'null')
                then 'file:' || split_part(x.large -> 'value' ->> 0, '/', 3) || ':' || (x.large -> 'value' ->> 1)
                else cast(x.value as text) end, ',' order by x.name)) as written
            from variables x where x.run_id = {run_id} group by x.activation_id
        ) x on x.activation_id = a.id
        left join (
            select c.activation_id, md5(string_agg(distinct cast(c.request as text), ' '
                order by cast(c.request as text))) as asked
            from model_calls c where c.run_id = {run_id} and c.request is not null group by c.activation_id
        ) c on c.activation_id = a.id
        where r.id = {run_id} and r.tenant_id = :tenant_id and a.run_id = {run_id}
    """  # noqa: S608 (constants only)


def _outcome(side: str) -> str:
    """Return SQL for what of the outcome of a side is compared: its kind, and what it says to routing."""
    members = ", ".join(f"coalesce({side}.outcome ->> '{name}', '-')" for name in OUTCOME_MEMBERS)
    return f"concat_ws(' ', {members})"


_JOINED = f"""
    a as materialized ({_side(1)}), b as materialized ({_side(2)}), joined as materialized (
        select a.id as a_id, b.id as b_id, coalesce(a.node_id, b.node_id) as node_id,
            coalesce(a.order_key, b.order_key) as order_key, coalesce(a.id, b.id) as id,
            case when b.id is null then {StepDifference.ONLY_A:d} when a.id is null then {StepDifference.ONLY_B:d} else
                case when a.inputs is distinct from b.inputs then {StepDifference.INPUTS:d} else 0 end
                + case when (a.outputs, a.written) is distinct from (b.outputs, b.written)
                    then {StepDifference.OUTPUTS:d} else 0 end
                + case when cast(a.outcome as text) is not distinct from cast(b.outcome as text) then 0 else
                    case when {_outcome("a")} <> {_outcome("b")} then {StepDifference.OUTCOME:d} else 0 end
                    + case when coalesce(a.outcome ->> 'error', a.outcome ->> 'told')
                        is distinct from coalesce(b.outcome ->> 'error', b.outcome ->> 'told')
                        then {StepDifference.ERROR:d} else 0 end
                end
                + case when a.attempt <> b.attempt and not (a.outcome ->> '{REUSED}' is not null
                        or b.outcome ->> '{REUSED}' is not null)
                    then {StepDifference.ATTEMPTS:d} else 0 end
                + case when a.status <> b.status then {StepDifference.STATUS:d} else 0 end
                + case when a.asked <> b.asked then {StepDifference.PROMPTS:d} else 0 end
            end as what
        from a full join b on a.node_id = b.node_id and a.scope = b.scope and a.ordinal = b.ordinal
    )
"""  # noqa: S608 (constants only)
COMPARE = text(f"""
    with {_JOINED}, totals as (
        select count(*) filter (where what = 0) as same,
            count(*) filter (where what <> 0 and what & {IN_ONE:d} = 0) as differs,
            count(*) filter (where what = {StepDifference.ONLY_A:d}) as only_a,
            count(*) filter (where what = {StepDifference.ONLY_B:d}) as only_b
        from joined
    ), first as (
        select a_id as first_a, b_id as first_b, what as first_what from joined where what <> 0
        order by order_key, id limit 1
    ), page as (
        select a_id, b_id, what, order_key, id from joined
        where (cast(:node_id as text) is null or node_id = :node_id)
            and case cast(:only as text) when '{SAME}' then what = 0 when '{DIFFERS}' then what <> 0
                when 'only_a' then what = {StepDifference.ONLY_A:d} when 'only_b' then what = {StepDifference.ONLY_B:d}
                else true end
            and (cast(:after as uuid) is null
                or (order_key, id) > (select order_key, id from joined where a_id = :after or b_id = :after
                    order by order_key, id limit 1))
        order by order_key, id limit :most
    )
    select totals.*, first.*, page.a_id, page.b_id, page.what
    from totals left join first on true left join page on true
    order by page.order_key, page.id
""")  # noqa: S608 (constants only)
_step_columns = (
    "id", "node_id", "component", "scope", "ordinal", "status", "attempt", "outcome", "usage", "started_at",
    "finished_at",
)  # fmt: skip
STEPS = text(f"""
    select {", ".join(f"a.{name}" for name in _step_columns)}
    from runs r join activations a on a.run_id = r.id
    where r.id = :run_id and r.tenant_id = :tenant_id and a.run_id = :run_id and a.id = any(cast(:ids as uuid[]))
""")  # noqa: S608 (constants only)
VALUES = text("""
    select v.node_id, v.inputs, v.outputs, v.large
    from runs r join node_values v on v.run_id = r.id
    where r.id = :run_id and r.tenant_id = :tenant_id and v.run_id = :run_id and v.activation_id = :id
    order by v.node_id
""")
VARIABLES = text("""
    select x.name, x.value, x.large
    from runs r join variables x on x.run_id = r.id
    where r.id = :run_id and r.tenant_id = :tenant_id and x.run_id = :run_id and x.activation_id = :id
    order by x.name
""")
COUNT = text("""
    select count(*) from runs r join activations a on a.run_id = r.id
    where r.id = :run_id and r.tenant_id = :tenant_id and a.run_id = :run_id
""")
SET_PLANNER = text("""
    select set_config('work_mem', '32MB', true), set_config('enable_nestloop', 'off', true)
""")
"""Where most runs are short, the server expects one step of each run, and nested loops over a long one take minutes."""


@dataclass(frozen=True, slots=True)
class ComparedStep:
    """An activation of one of the runs, without values."""

    id: ActivationId
    node_id: str
    component: str
    scope: str
    ordinal: int
    status: str
    attempt: int
    outcome: Mapping[str, Any]  # {} as long as nothing was reported
    usage: Mapping[str, int]
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def error(self) -> str | None:
        """The error of the report, if it has one."""
        return self.outcome.get("error") or self.outcome.get("told")

    @property
    def is_reused(self) -> bool:
        """Whether a fork has taken it over from its source."""
        return bool(self.outcome.get(REUSED))

    @property
    def milliseconds(self) -> int | None:
        """How long its last attempt took; None if it has not ended."""
        if self.started_at is None or self.finished_at is None or self.finished_at < self.started_at:
            return None
        return round((self.finished_at - self.started_at).total_seconds() * 1000)


@dataclass(frozen=True, slots=True)
class StepPair:
    """Corresponding activations of A and B; None where a run has none."""

    what: StepDifference
    a: ComparedStep | None
    b: ComparedStep | None

    @property
    def either(self) -> ComparedStep:
        """That of A, or of B if A has none."""
        found = self.a or self.b
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A page of pairs, and what all pairs amount to. `first`: the first pair in canonical order that differs."""

    totals: Mapping[str, int]  # same, differs, only_a, only_b
    first: StepPair | None
    pairs: Sequence[StepPair]
    has_more: bool


@dataclass(frozen=True, slots=True)
class StepValues:
    """What an activation has read and written, by name, without names that begin with `_`.

    A value that another node shows (a container, from its last item) is named `result@Iteration:0`. A value in the file
    storage is a ValueFile. `prompts` is what its models were asked, by call and message; {} if it was not stored.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    variables: Mapping[str, Any]
    prompts: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ValueFile:
    """A value in the file storage: the hash of its compressed content, and the bytes of its JSON."""

    digest: str
    size: int


def compare(
    tx: Transaction,
    tenant_id: TenantId,
    a: RunId,
    b: RunId,
    *,
    only: str | None = None,
    node_id: str | None = None,
    after: ActivationId | None = None,
    limit: int = MAX_ROWS,
) -> RunComparison:
    """Return a page of the pairs of two runs: those of one node, or with one result (FILTERS), after an activation.

    `differs` as a filter includes what only one run has; as a total it does not. Totals and `first` are those of all
    pairs.
    """
    tx.send(SET_PLANNER)
    rows = tx.rows(
        COMPARE, run_ids=[a, b], tenant_id=tenant_id, node_id=node_id, only=only, after=after, most=limit + 1
    )
    head = rows[0]
    found = [(row.a_id, row.b_id, row.what) for row in rows if row.what is not None]
    first = (head.first_a, head.first_b, head.first_what) if head.first_what is not None else None
    return RunComparison(
        {name: getattr(head, name) for name in FILTERS},
        next(iter(_load_pairs(tx, tenant_id, a, b, [first])), None) if first else None,
        _load_pairs(tx, tenant_id, a, b, found[:limit]),
        len(found) > limit,
    )


def _load_pairs(
    tx: Transaction,
    tenant_id: TenantId,
    a: RunId,
    b: RunId,
    ids: Sequence[tuple[ActivationId | None, ActivationId | None, int]],
) -> list[StepPair]:
    of_a = tx.send(STEPS, run_id=a, tenant_id=tenant_id, ids=[each for each, _, _ in ids if each is not None])
    of_b = tx.send(STEPS, run_id=b, tenant_id=tenant_id, ids=[each for _, each, _ in ids if each is not None])
    in_a, in_b = ({row.id: _step(row) for row in found.rows()} for found in (of_a, of_b))
    pairs = [
        StepPair(StepDifference(what), in_a.get(a_id) if a_id else None, in_b.get(b_id) if b_id else None)
        for a_id, b_id, what in ids
    ]
    return [pair for pair in pairs if pair.a or pair.b]  # retention may have deleted a run meanwhile


def _step(row: Any) -> ComparedStep:
    fields: dict[str, Any] = {name: getattr(row, name) for name in _step_columns}
    fields |= {"outcome": row.outcome or {}, "usage": row.usage or {}}
    return ComparedStep(**fields)


def find_step(tx: Transaction, tenant_id: TenantId, run_id: RunId, activation_id: ActivationId) -> ComparedStep | None:
    """Return an activation of a tenant's run; None if the run has no such activation."""
    rows = tx.rows(STEPS, run_id=run_id, tenant_id=tenant_id, ids=[activation_id])
    return _step(rows[0]) if rows else None


def load_values(tx: Transaction, tenant_id: TenantId, run_id: RunId, step: ComparedStep) -> StepValues:
    """Return what an activation has read and written. Values in files are ValueFile and are not read."""
    values = tx.send(VALUES, run_id=run_id, tenant_id=tenant_id, id=step.id)
    variables = tx.send(VARIABLES, run_id=run_id, tenant_id=tenant_id, id=step.id)
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for row in values.rows():
        suffix = "" if row.node_id == step.node_id else f"@{row.node_id}"
        for column, found in (("inputs", inputs), ("outputs", outputs)):
            files = (row.large or {}).get(column) or {}
            for name, value in (getattr(row, column) or {}).items():
                if not name.startswith("_"):
                    found[f"{name}{suffix}"] = _value_or_file(value, files.get(name))
    written = {row.name: _value_or_file(row.value, (row.large or {}).get("value")) for row in variables.rows()}
    return StepValues(inputs, outputs, written, _load_prompts(tx, tenant_id, run_id, step.id))


def _load_prompts(tx: Transaction, tenant_id: TenantId, run_id: RunId, activation_id: ActivationId) -> dict[str, Any]:
    """Return what the first MAX_PROMPTS different calls of an activation have asked."""
    calls = model_calls.list_calls(tx, tenant_id, run_id, activation_id=activation_id)
    different = {encode(call.request): call for call in calls if call.request is not None}
    found: dict[str, Any] = {}
    for number, call in enumerate(list(different.values())[:MAX_PROMPTS], 1):
        request = model_calls.load_bodies(tx, run_id, call).request or {}
        asked: Sequence[Any] = request.get("messages") or request.get("texts") or ()
        for at, message in enumerate(asked, 1):
            role = f" ({message['role']})" if isinstance(message, Mapping) and "role" in message else ""
            found[f"call {number}, message {at}{role}"] = message
        found |= {f"call {number}, {name}": request[name] for name in ("tools", "params") if request.get(name)}
    return found


def _value_or_file(value: Any, file: Sequence[Any] | None) -> Any:
    return ValueFile(file[0].rsplit("/", 1)[-1], file[1]) if value is None and file else value


def count_steps(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> int:
    """Return the number of activations of a tenant's run."""
    return int(tx.scalar(COUNT, run_id=run_id, tenant_id=tenant_id))
