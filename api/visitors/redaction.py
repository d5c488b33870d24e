"""What visitors of a share see of a run: the functions that build replies about runs pass them through a Redaction.

A share hides kinds of data (`Hide`). Texts flow from one kind into others, so each place names all kinds whose data it
may have, and is empty if one of them is hidden: a node's inputs may quote the request and the outputs of other nodes,
an error may quote any value. What is left of such a place says that it is there, when and where, and not what.

Fields are listed here by name. A field that is not listed is left out for visitors, so that a new field stays hidden
until it is listed. Names of workers and accounts, and ids of other runs and of the session, are never
shown: a share opens one run.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from api.requests.auth import RequestPrincipal
from canvas.budget import budget_stop
from canvas.events import run_events
from canvas.events.explain import WaitsFor
from canvas.run_warnings import has_model_error
from canvas.state.run_state import RunStatus
from store.db.transaction import Transaction
from store.runs import run_queries
from store.runs.activation_list import ActivationListRow
from store.runs.container_items import ItemRow
from store.runs.run_queries import RunSummary
from store.tenants.run_shares import Hide

Rule = frozenset[Hide] | None
"""The kinds of data that a place may have. None: visitors do not see it, whatever their share hides."""
SHOWN: Rule = frozenset()
NEVER: Rule = None

REQUEST: Rule = frozenset({Hide.INPUTS, Hide.TALK})
NODE_INPUTS: Rule = frozenset({Hide.INPUTS, Hide.OUTPUTS, Hide.TALK})
OUTPUTS: Rule = frozenset({Hide.OUTPUTS, Hide.TALK})
VARIABLES = NODE_INPUTS
ANSWER = OUTPUTS
FORM = NODE_INPUTS
BODIES: Rule = frozenset({Hide.INPUTS, Hide.OUTPUTS, Hide.TALK, Hide.PROMPTS})
TOOLS = BODIES
ERRORS: Rule = frozenset({Hide.INPUTS, Hide.OUTPUTS, Hide.TALK, Hide.PROMPTS, Hide.ERRORS})
ERROR_TEXTS: Rule = frozenset({Hide.ERRORS})
"""The rule of other texts that an error may be repeated in."""
COST: Rule = frozenset({Hide.COST})

ERROR_OUTPUTS = ("_ERROR", "_SUPPRESSED_ERROR")
"""Outputs that contain an error; the other outputs beside one of them may repeat it."""
ERROR_MARK = "**ERROR**"
"""What begins a text that is the error of a model."""
_ASKING = frozenset({"Begin", "UserFillUp", "Answer"})
"""Components whose outputs are what a person has entered."""
_WITHOUT_DATA = frozenset({"name", "type", "options", "optional", "key"})
"""What stays of a field of a form whose data is hidden."""

_EVERYWHERE = dict.fromkeys(
    ("id", "activation_id", "attempt", "round", "status", "started_at", "ended_at", "elapsed_ms", "code"), SHOWN
)
RUN: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "id", "agent_id", "version_id", "message_id", "status", "has_model_error", "last_event", "created_at",
            "started_at", "finished_at", "elapsed_ms", "activation_count", "activations_truncated", "activations_cut",
            "activations_total", "now", "revision", "rules_version", "agent_title", "version_title", "version_number",
            "version_digest", "expires_at", "counts", "handled_failures", "may", "model_calls", "critical",
            # these have rules of their own, below
            "nodes", "waits", "waiting", "first_failure", "activations", "request",
        ),
        SHOWN,
    ),
    "external_id": REQUEST,
    "first_request": REQUEST,
    "answer": ANSWER,
    "usage": COST,
    "budget": COST,
    "budget_exceeded": COST,
    "error": ERRORS,
    "warnings": ERRORS,
    **dict.fromkeys(
        ("session_id", "origin", "forks", "previous_run", "conversation_name", "draft_digest", "shares"), NEVER
    ),
}  # fmt: skip
ACTIVATION: Mapping[str, Rule] = {
    **_EVERYWHERE,
    **dict.fromkeys(
        (
            "now", "revision", "node_id", "name", "component", "scope", "ordinal", "order_key", "outcome",
            "crash_count", "created_at", "not_before", "enqueued_at", "finished_at", "lease_until", "effect",
            "routed_to", "count", "stream", "cancel_requested", "item_path", "explain", "reads", "siblings", "events",
            "cut",
            # these have rules of their own, below
            "attempts", "model_calls", "tool_calls",
        ),
        SHOWN,
    ),
    "calls": COST,
    "tokens_in": COST,
    "tokens_out": COST,
    "cost": COST,
    "error": ERRORS,
    "answers": REQUEST,
    "journal": TOOLS,
    "inputs": NODE_INPUTS,
    "outputs": OUTPUTS,
    "variables": VARIABLES,
    "worker": NEVER,
    "outcome_details": NEVER,
}  # fmt: skip
STEP: Mapping[str, Rule] = {
    **_EVERYWHERE,
    **dict.fromkeys(
        (
            "node_id", "name", "component", "item", "ordinal", "reused", "outcome", "created_at", "finished_at",
            "activations",
        ),
        SHOWN,
    ),
    "error": ERRORS,
    "warnings": ERRORS,
    "usage": COST,
}  # fmt: skip
ATTEMPT: Mapping[str, Rule] = {
    **_EVERYWHERE,
    **dict.fromkeys(("ready_at", "end_reason", "next_attempt_at", "crash_count"), SHOWN),
    "error": ERRORS,
    "usage": COST,
    "worker": NEVER,
}
MODEL_CALL: Mapping[str, Rule] = {
    **_EVERYWHERE,
    **dict.fromkeys(("now", "kind", "model", "tries", "waited_ms", "bodies", "first_token_at"), SHOWN),
    "error": ERRORS,
    "usage": COST,
    "request": BODIES,
    "response": BODIES,
    "account": NEVER,
}
TOOL_CALL: Mapping[str, Rule] = {
    **_EVERYWHERE,
    **dict.fromkeys(("node_id", "ordinal", "path", "tool_name", "failed", "replayed"), SHOWN),
    "arguments": TOOLS,
    "result": TOOLS,
}
ENVELOPE: Mapping[str, Rule] = {
    **_EVERYWHERE,
    **dict.fromkeys(
        (
            "event", "message_id", "created_at", "run_id", "data", "seq", "turn", "offset", "activation", "item", "at",
            "message", "failure",
        ),
        SHOWN,
    ),
    "task_id": NEVER,
    "session_id": NEVER,
}  # fmt: skip
EVENT_DATA: Mapping[str, Mapping[str, Rule]] = {
    run_events.WORKFLOW_STARTED: {"inputs": REQUEST},
    run_events.NODE_STARTED: {
        **dict.fromkeys(("created_at", "component_id", "component_name", "component_type"), SHOWN),
        "inputs": NODE_INPUTS,
        "thoughts": REQUEST,
    },
    run_events.NODE_FINISHED: {
        **dict.fromkeys(("created_at", "component_id", "component_name", "component_type", "elapsed_time"), SHOWN),
        "inputs": NODE_INPUTS,
        "outputs": OUTPUTS,
        "error": ERRORS,
    },
    run_events.MESSAGE: {
        **dict.fromkeys(("start_to_think", "end_to_think"), SHOWN),
        "content": ANSWER,
        "audio": ANSWER,
        "audio_binary": ANSWER,
    },
    run_events.MESSAGE_END: {
        "status": SHOWN,
        **dict.fromkeys(("reference", "attachment", "downloads"), ANSWER),
    },
    run_events.MESSAGE_RESET: dict.fromkeys(("turn", "epoch", "keep"), SHOWN),
    run_events.USER_INPUTS: dict.fromkeys(("inputs", "tips", "forms"), SHOWN),  # forms have a rule of their own
    run_events.WORKFLOW_FINISHED: {
        **dict.fromkeys(("elapsed_time", "created_at", "has_model_error"), SHOWN),
        "inputs": REQUEST,
        "outputs": ANSWER,
        "usage": COST,
    },
}
_SENTENCES: Mapping[str, str] = {
    WaitsFor.SESSION: "It waits for another run of its session.",
    WaitsFor.WORK: "A node is running.",
    WaitsFor.CANCELLATION: "The run is being cancelled, and a node has not stopped yet.",
    WaitsFor.EXPIRED_LEASE: "The worker of a node was lost, and another one will continue.",
    WaitsFor.REPORT: "A node has reported, and the run is about to continue.",
    WaitsFor.WORKER: "A node is ready, and waits for a free worker.",
    WaitsFor.TIME: "A node waits for a point in time.",
    WaitsFor.RUN_SLOT: "A node waits for one of the slots of the run, which are all in use.",
    WaitsFor.PERSON: "A person must answer a form.",
    WaitsFor.BUDGET: "A node waits for a higher budget.",
}
_ENDS: Mapping[str, str] = {
    RunStatus.SUCCEEDED: "The run has succeeded.",
    RunStatus.CANCELLED: "The run was cancelled.",
    RunStatus.FAILED: "The run has failed.",
}
_BY_MODEL = "by_model"
"""Members of a run's usage that name accounts."""
_ABOUT_BUDGETS = re.compile(r"budget|used up|limit tokens", re.IGNORECASE)
"""Words of the errors of canvas/budget.py, which have amounts."""
_NODE_COST = 2  # tokens and cost, at the end of the list of a node (api/runs/run_header.py)


@dataclass(frozen=True, slots=True)
class Redaction:
    """What a caller sees of a run. `is_visitor`: the caller has a share, which hides these kinds of data."""

    is_visitor: bool = False
    hidden: frozenset[Hide] = frozenset()
    may_answer: bool = False

    @staticmethod
    def of(principal: RequestPrincipal, usage: Mapping[str, int] | None = None) -> "Redaction":
        """Return what a caller sees of a run with this usage, which matters for answers, outputs and model calls.

        Where errors are hidden and a model's error was used as an answer, answers and outputs are hidden with them.
        """
        share = principal.share
        if share is None:
            return ALL
        made = Redaction(True, share.hide, share.may_answer)
        return made.with_model_error() if has_model_error(usage or {}) else made

    def with_model_error(self) -> "Redaction":
        """Return the redaction of a run in which a model's error was used as an answer."""
        if Hide.ERRORS not in self.hidden:
            return self
        return replace(self, hidden=self.hidden | {Hide.OUTPUTS, Hide.TALK})

    def after(self, envelope: Mapping[str, Any]) -> "Redaction":
        """Return what a caller of an open stream sees of an event and those after it: it may have a model's error."""
        if not self.is_visitor or envelope.get("event") != run_events.NODE_FINISHED:
            return self
        outputs = envelope["data"].get("outputs") or {}
        return self.with_model_error() if any(outputs.get(name) for name in ERROR_OUTPUTS) else self

    def hides(self, rule: Rule) -> bool:
        """Return whether a place with this rule is empty for the caller."""
        return self.is_visitor and (rule is None or bool(rule & self.hidden))

    # -- a run --------------------------------------------------------------------------------------------------------
    def run(self, shown: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a run with its totals, as the routes of runs build it."""
        if not self.is_visitor:
            return shown
        made = self._pick(shown, RUN)
        for name, redact in (
            ("request", self._request),
            ("waits", self.explanation),
            ("waiting", self._forms),
            ("first_failure", self._failure),
        ):
            if made.get(name) is not None:
                made[name] = redact(made[name])
        if "nodes" in made:
            made["nodes"] = {
                node_id: self._without_cost(counts, _NODE_COST) for node_id, counts in made["nodes"].items()
            }
        if "activations" in made:
            made["activations"] = [self._step(step) for step in made["activations"]]
        if "answer" in made:
            made["answer"] = made["answer"] or ""
        if made.get("usage"):
            made["usage"] = {name: count for name, count in made["usage"].items() if not name.startswith(_BY_MODEL)}
        return {**made, "hidden": sorted(each.value for each in self.hidden)}

    def explanation(self, shown: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an explanation of what a run waits for."""
        if not self.is_visitor:
            return shown
        return {
            "run_id": shown["run_id"],
            "status": shown["status"],
            **self._wait(shown, shown["status"]),
            "also": [self._wait(wait, shown["status"]) for wait in shown["also"]],
        }

    def _wait(self, wait: Mapping[str, Any], status: str) -> dict[str, Any]:
        """Return a wait whose sentence quotes nothing; owners are other runs and workers."""
        kind = wait["waits_for"]
        detail = self._form(wait["detail"], "fields") if kind == WaitsFor.PERSON else {}
        places = _present(wait, ("waits_for", "since", "until", "node", "node_name", "activation_id", "scope"))
        sentence = _SENTENCES.get(kind) or _ENDS.get(status, "The run is open.")
        return {**places, "sentence": sentence, "owner": None, "detail": detail}

    def _request(self, shown: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: None if name == "user_id" or self.hides(REQUEST) else value for name, value in shown.items()}

    def _failure(self, shown: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**shown, "error": self.error(shown["error"]) or ""}

    def error(self, error: str | None) -> str | None:
        """Return the text of an error; None if it is hidden. Errors of budgets have amounts."""
        if error is None or self.hides(ERRORS):
            return None
        return None if self.hides(COST) and _ABOUT_BUDGETS.search(error) else error

    def _step(self, step: Mapping[str, Any]) -> Mapping[str, Any]:
        made = self._pick(step, STEP)
        made["activations"] = [self._step(inner) for inner in step["activations"]]
        return made

    # -- forms --------------------------------------------------------------------------------------------------------
    def _forms(self, forms: Mapping[str, Any]) -> Mapping[str, Any]:
        return {node: self._form(form, "inputs") for node, form in forms.items()}

    def _form(self, form: Mapping[str, Any], fields: str) -> dict[str, Any]:
        """Return a form with its fields under this name; where its data is hidden, what is needed to answer it."""
        shown: dict[str, Any] = {name: form[name] for name in (fields, "tips") if name in form}
        if budget_stop(form.get(fields) or {}) is not None:  # only the owner of the budget can answer it
            return {fields: {}, **({"tips": ""} if "tips" in form else {})}
        if self.hides(FORM):
            kept = {name: _shape(field) for name, field in (form.get(fields) or {}).items()} if self.may_answer else {}
            shown = {fields: kept, **({"tips": ""} if "tips" in form else {})}
        return shown

    # -- activations --------------------------------------------------------------------------------------------------
    def rows(self, rows: Sequence[ActivationListRow]) -> Sequence[ActivationListRow]:
        """Return activations of a list, before they become columns."""
        if not self.is_visitor:
            return rows
        return [
            row._replace(
                worker=None,
                error=self.error(row.error),
                usage=None if self.hides(COST) else row.usage,
            )
            for row in rows
        ]

    def items(self, rows: Sequence[ItemRow]) -> Sequence[ItemRow]:
        """Return the items of a container, before they become columns."""
        if not self.is_visitor:
            return rows
        return [
            row._replace(
                error=self.error(row.error),
                usage=None if self.hides(COST) else row.usage,
            )
            for row in rows
        ]

    def activation(self, shown: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return one activation with its values."""
        if not self.is_visitor:
            return shown
        made = self._pick(shown, ACTIVATION)
        if made.get("explain") is not None:
            made["explain"] = self.explanation(made["explain"])
        for name, redact in (
            ("attempts", self.attempt),
            ("model_calls", self.model_call),
            ("tool_calls", self.tool_call),
        ):
            if made.get(name):
                made[name] = [redact(each) for each in made[name]]
        if made.get("outputs") and self.hides_outputs(shown["component"], shown["outputs"]):
            made["outputs"] = {}
        return made

    def hides_outputs(self, component: str, outputs: Mapping[str, Any]) -> bool:
        """Return whether the outputs of an activation are hidden: also what people entered, and what repeats errors."""
        if self.hides(OUTPUTS) or (component in _ASKING and self.hides(REQUEST)):
            return True
        return self.hides(ERROR_TEXTS) and any(outputs.get(name) for name in ERROR_OUTPUTS)

    def attempt(self, shown: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an earlier attempt."""
        return self._pick(shown, ATTEMPT) if self.is_visitor else shown

    def model_call(self, shown: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a model call, with or without its bodies."""
        if not self.is_visitor:
            return shown
        made = self._pick(shown, MODEL_CALL)
        is_error = shown["status"] != "ok" and self.hides(ERROR_TEXTS)
        if self.hides(BODIES) or is_error:
            made |= {name: None for name in ("request", "response") if name in shown}
            made["bodies"] = "none" if shown["bodies"] == "none" else "hidden"
        return made

    def tool_call(self, shown: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a tool call; the result of one that failed is an error."""
        if not self.is_visitor:
            return shown
        made = self._pick(shown, TOOL_CALL)
        if shown["failed"] is not False and self.hides(ERROR_TEXTS):
            made["result"] = None
        return made

    # -- events -------------------------------------------------------------------------------------------------------
    def event(self, envelope: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an event of a stream or a list."""
        if not self.is_visitor:
            return envelope
        made = self._pick(envelope, ENVELOPE)
        if "event" not in envelope:  # the frame of a failed run
            return self._run_failed(made)
        data = envelope["data"] if isinstance(envelope["data"], Mapping) else {}
        made["data"] = self._event_data(envelope["event"], data)
        return made

    def _run_failed(self, made: dict[str, Any]) -> Mapping[str, Any]:
        failure = made.get("failure")
        if self.error(made["message"]) is None:
            made["message"] = "The run has failed."
            if failure is not None:
                made["failure"] = {**failure, "error": ""}
        return made

    def _event_data(self, name: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        made = self._pick(data, EVENT_DATA.get(name, {}))
        match name:
            case run_events.NODE_FINISHED if self.hides_outputs(data["component_type"], data.get("outputs") or {}):
                made["outputs"] = {}
            case run_events.MESSAGE:
                text = str(data.get("content") or "")
                is_error = ERROR_MARK in text and self.hides(ERROR_TEXTS)
                made["content"] = "" if is_error or self.hides(ANSWER) else text
            case run_events.USER_INPUTS:
                forms = self._forms(data.get("forms") or {})
                made = {**self._form(data, "inputs"), "forms": forms}
            case _:
                pass
        return made

    # -- helpers ------------------------------------------------------------------------------------------------------
    def _pick(self, shown: Mapping[str, Any], rules: Mapping[str, Rule]) -> dict[str, Any]:
        """Return the fields with rules; what is hidden becomes null, or an empty object or list."""
        made = {
            name: _empty(value) if self.hides(rules[name]) else value for name, value in shown.items() if name in rules
        }
        if isinstance(made.get("error"), str):
            made["error"] = self.error(made["error"])
        return made

    def _without_cost(self, counts: Sequence[Any], columns: int) -> list[Any]:
        return [*counts[:-columns], *[None] * columns] if self.hides(COST) else list(counts)


ALL = Redaction()
"""What callers of the tenant see: everything."""


def load_redaction(tx: Transaction, principal: RequestPrincipal) -> Redaction:
    """Return what a caller sees of the run that a share opens. Only for visitors it reads the run."""
    share = principal.share
    if share is None:
        return ALL
    run: RunSummary | None = run_queries.get_summary(tx, principal.tenant_id, share.run_id)
    return Redaction.of(principal, run.usage if run is not None else {})


def _present(shown: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: shown[name] for name in names if name in shown}


def _shape(field: Any) -> Any:
    return {name: value for name, value in field.items() if name in _WITHOUT_DATA} if isinstance(field, Mapping) else {}


def _empty(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {}
    return [] if isinstance(value, list | tuple) else None
