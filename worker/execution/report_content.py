"""What a report stores: outcome, outputs, inputs, variables and usage of one attempt, as database rows.

`worker/execution/reporter.py` stores it. Values that a row cannot hold are replaced by a failure of the node.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import ExecutorError
from canvas.graph.canvas import NodeKind
from canvas.outcome import POSTPONED, ContainerExited, Failed, Finished, Outcome
from canvas.run_warnings import MODEL_ERRORS, WARNINGS, warnings_in
from canvas.state.run_state import ScopeKey, container_entry
from components.context import THINK_END, THINK_START
from store.db.database import Database
from store.primitives import outcome_codec
from store.runs.activations import Claim
from store.runs.reports import ReportPayload
from worker.context import outcomes
from worker.context.node_context import WorkerContext
from worker.context.output_limits import OutputLimits
from worker.context.usage_counts import usage_counts

log = structlog.get_logger()

LARGE_REPORT = 4 * 2**20
"""Characters from which a report is large: its transaction gets time by its size, and it is stored in a batch of its
own."""

TOLD = "told"  # the member of an outcome with an error that was taken as an answer
UNREADABLE = "Not shown: the passwords of the run, which it may contain, could not be read."

ATTEMPT_OUTPUTS = ("_ERROR", "_created_time", "_elapsed_time", "_spoken")
"""Outputs that describe one attempt. They are not carried over from an earlier execution of the node."""


@dataclass
class ReportBuilder:
    """Builds the report of one attempt."""

    claim: Claim
    database: Database
    limits: OutputLimits
    started: float = field(default_factory=time.monotonic)
    _size: int = 0  # characters of the values checked so far

    def build_or_fail(
        self, outcome: Outcome, context: WorkerContext | None, assigned: Mapping[str, Any]
    ) -> tuple[ReportPayload, bool]:
        """Return the report and True; if its values cannot be stored, a report of that failure and False."""
        calls = context.calls.take_all() if context is not None and context.calls is not None else None
        try:
            return replace(self.build(outcome, context, assigned), calls=calls), True
        except Exception as error:  # noqa: BLE001 (inspecting an output runs code of its class, which may raise anything)
            return replace(self.build_failure(error, context), calls=calls), False

    def build(self, outcome: Outcome, context: WorkerContext | None, assigned: Mapping[str, Any]) -> ReportPayload:
        """Return the report of an outcome; `assigned`: the variables that the node has set.

        `context` is None if the attempt ended before it had one. Raises NodeFailure for values that no row can hold.
        """
        usage, new_usage = self._usage(context)
        # another attempt, or an advance, writes its values
        if isinstance(outcome, Failed) and outcome.stores_no_values:
            may_have_streamed = outcome.is_unknown or outcome.is_over_budget or outcome.code == POSTPONED
            spoke = may_have_streamed and context is not None and context.stream.has_written
            column = outcome_codec.encode_outcome(
                outcome, error=None, restarts_text=False, has_written=spoke, used=new_usage
            )
            return ReportPayload(column, usage, [], [])
        outputs, stream, inputs = self._outputs(outcome, context), None, {}
        if context is not None:
            # may set `restarts_text`, which the outcome's column stores
            stream = context.stream.row(is_whole=not isinstance(outcome, Failed))
            inputs = context.inputs
        values = self._value_rows(outcome, outputs, inputs)
        column = outcome_codec.encode_outcome(
            outcome,
            error=outputs.get("_ERROR"),
            restarts_text=context is not None and context.stream.restarts_text and context.stream.is_message,
            has_written=context is not None and context.stream.has_written,
            warnings=context.warnings if context is not None else (),
        )
        column = _mask_texts(column, context)
        counts = _counts_beside_usage(outcome, context, column)
        if new_usage is not None:
            column["used"] = _add_counts(new_usage, counts)
        outcome_column = self._check(column)
        variables = [{**self._row_key(), "name": name, "value": self._check(value)} for name, value in assigned.items()]
        large, tenant_id = self.database.large, self.claim.tenant_id  # files are written when everything is checked
        stored_values = [large.values_row(tenant_id, row) for row in values]
        stored_variables = [large.variable_row(tenant_id, row) for row in variables]
        size = self._size_in_rows(stored_values, stored_variables) if self._size > LARGE_REPORT else 0
        usage = _add_counts(usage, counts)
        return ReportPayload(outcome_column, usage, stored_values, stored_variables, stream, size=size)

    def build_failure(self, error: Exception, context: WorkerContext | None) -> ReportPayload:
        """Return the report of an attempt whose values cannot be stored: the failure, its times and its usage."""
        log.warning("output_not_stored", error_type=type(error).__name__)
        reason = str(error) if isinstance(error, ExecutorError) else "An output cannot be stored."
        outcome = Failed(outcomes.sanitize_json(reason), "unstorable_output")
        usage, new_usage = self._usage(context)
        self._size = 0
        return ReportPayload(
            outcome=outcome_codec.encode_outcome(
                outcome, error=outcome.error, restarts_text=False, has_written=False, used=new_usage
            ),
            usage=usage,
            values=[self._values_row(self.claim.node_id, self.claim.scope, self._attempt_outputs(outcome), {})],
            variables=[],
        )

    # -- outputs and variables ----------------------------------------------------------------------------------
    def _outputs(self, outcome: Outcome, context: WorkerContext | None) -> dict[str, Any]:
        """Return the node's outputs: those of earlier executions, those of the outcome, and those of the attempt."""
        outputs: dict[str, Any] = {}
        if context is not None:
            earlier = context.variables.outputs(self.claim.node_id)
            outputs |= {name: value for name, value in earlier.items() if name not in ATTEMPT_OUTPUTS}
        outputs |= {**outcome.outputs, **self._attempt_outputs(outcome)}
        return outputs | _streamed_text(context, outputs) if context is not None else outputs

    def _attempt_outputs(self, outcome: Outcome) -> dict[str, Any]:
        """Return the outputs that every attempt has: its times in seconds, and its error if it failed."""
        times: dict[str, Any] = {"_created_time": time.time(), "_elapsed_time": time.monotonic() - self.started}
        return {**times, "_ERROR": outcome.error} if isinstance(outcome, Failed) else times

    def _value_rows(
        self, outcome: Outcome, outputs: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return rows of node_values: the node's, and for an exit from a container also the container's."""
        claim = self.claim
        rows = [self._values_row(claim.node_id, claim.scope, outputs, inputs)]
        if isinstance(outcome, ContainerExited) and outcome.container and claim.scope:
            rows.append(self._values_row(claim.scope[-1][0], claim.scope[:-1], outcome.container, {}))
        return rows

    def _values_row(
        self, node_id: str, scope: ScopeKey, outputs: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        checked = self._check(outputs)
        return {
            **self._row_key(),
            "node_id": node_id,
            "container_entry": container_entry(scope),
            "item": scope[-1][2] if scope else 0,
            "outputs": checked,
            "inputs": self._check(inputs),
            "names": list(checked),
        }

    def _row_key(self) -> dict[str, Any]:
        return {
            "run_id": self.claim.run_id,
            "activation_id": self.claim.id,
            "order_key": self.claim.order_key.key,
            "region": self.claim.order_key.region,
        }

    def _check(self, value: Any) -> Any:
        """Return a value as a JSON column can hold it. Raises NodeFailure if it is too large or nested too deep."""
        plain = outcomes.sanitize_json(value)
        self._size = self.limits.check_output(plain, self._size)
        return plain

    def _size_in_rows(self, values: Sequence[Mapping[str, Any]], variables: Sequence[Mapping[str, Any]]) -> int:
        """Return how many characters go into rows; 0 if they are not many. Values kept in files are not counted."""
        columns = [row[name] for row in values for name in ("outputs", "inputs")]
        size = 0
        for value in [*columns, *(row["value"] for row in variables)]:
            size = self.limits.check_output(value, size)
        return size if size > LARGE_REPORT else 0

    # -- usage --------------------------------------------------------------------------------------------------
    def _usage(self, context: WorkerContext | None) -> tuple[dict[str, int], dict[str, int] | None]:
        """Return the usage of all attempts so far, and how much of it this attempt adds to the run (None: all of it).

        Calls whose results this attempt only read from its journal may have been reported by an earlier attempt.
        """
        usage = usage_counts(context.usage) if context is not None else {}
        reported = self.claim.reported_usage
        if not reported:
            return usage, None
        recalled = usage_counts(context.recorded_usage) if context is not None else {}
        new = {name: count - min(recalled.get(name, 0), reported.get(name, 0)) for name, count in usage.items()}
        return _add_counts(reported, new), new


def _mask_texts(column: dict[str, Any], context: WorkerContext | None) -> dict[str, Any]:
    """Return the column of an outcome without passwords of the run in what is listed and logged of it."""
    shown = {name: column[name] for name in (TOLD, WARNINGS) if name in column}
    if context is None or not shown:
        return column
    try:
        return {**column, **{name: context.storage.passwords().value(each) for name, each in shown.items()}}
    except SQLAlchemyError:  # the report waits until the database is back, and its texts do not
        return {name: UNREADABLE if name == TOLD else each for name, each in column.items() if name != WARNINGS}


def _counts_beside_usage(outcome: Outcome, context: WorkerContext | None, column: Mapping[str, Any]) -> dict[str, int]:
    """Return what the run counts of an activation beside its usage: warnings, and model errors taken as an answer."""
    error = column.get(TOLD) if isinstance(outcome, Finished) else None
    is_model_error = error is not None and context is not None and context.node.kind is NodeKind.MODEL
    counts = {WARNINGS: len(warnings_in(column)), MODEL_ERRORS: int(is_model_error)}
    return {name: count for name, count in counts.items() if count}


def _add_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _streamed_text(context: WorkerContext, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what readers saw of a streaming model node, if it is not its content (an error after some text)."""
    if not context.stream.has_written or context.stream.is_message:
        return {}
    text = "".join(context.stream.parts)[len(context.opening) :]
    text = text.replace(THINK_START, "<think>").replace(THINK_END, "</think>")
    return {"_spoken": text} if text != outputs.get("content") else {}
