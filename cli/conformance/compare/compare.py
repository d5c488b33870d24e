"""Compare a recorded case with its result here, and return the first difference.

The runner executes a case and returns `ObservedCase`, with an `ObservedRun` for each run, or a `Refusal` if the
document was not
accepted. These are raw observations; this module normalises them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.conformance.cases import Case, RecordedRun
from cli.conformance.compare.agreement import (
    NOTHING,
    Mismatch,
    differ,
    errors_differ,
    globals_differ,
    histories_differ,
    outputs_differ,
)
from cli.conformance.compare.graph import dependencies_of
from cli.conformance.compare.normalise import normalise, normalise_events
from cli.conformance.compare.order import runs_differ
from cli.conformance.compare.requests import find_unmatched

_RETRIES_COUNTED_DIFFERENTLY = "E12"


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """The observations of one run.

    `events` are {event, data} as sent; `outputs` of every node of the canvas at the end, by id; `globals`, `history`
    ([role, content] pairs) and `path` as they would be stored; `waiting` the data of the `user_inputs` event the run
    stopped with; `reference` the references of this turn, if any.
    """

    error: str
    events: Sequence[Mapping[str, Any]]
    answer: str
    outputs: Mapping[str, Mapping[str, Any]]
    globals: Mapping[str, Any]
    history: Sequence[Any]
    waiting: Mapping[str, Any] | None = None
    reference: Mapping[str, Any] | None = None
    path: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ObservedCase:
    """The observations of a case: its runs in order, and the requests that it sent.

    `llm_requests` are {model, messages, tools, params} of all runs in any order, the provider layer's retries included;
    `http_requests` are (method, path with query). None: not recorded, so not compared.
    """

    runs: Sequence[ObservedRun]
    llm_requests: Sequence[Mapping[str, Any]] | None = None
    http_requests: Sequence[Sequence[str]] | None = None
    http_base: str = field(default="")  # of the fixture server; replaced by its placeholder


@dataclass(frozen=True, slots=True)
class Refusal:
    """The document was refused when it was loaded or published."""

    message: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a case and its recording. `run` counts from 1; None: the whole case."""

    run: int | None
    where: str
    expected: Any
    got: Any


def compare(case: Case, seen: ObservedCase | Refusal) -> Difference | None:
    """Return the first difference from the recording, or None."""
    if case.match == "load_error":
        return None if isinstance(seen, Refusal) else Difference(None, "loading", "a refusal", "accepted")
    if isinstance(seen, Refusal):
        return Difference(None, "loading", "accepted", f"refused: {seen.message}")
    dependencies = dependencies_of(case.document)
    for number, recorded in enumerate(case.expect.runs, start=1):
        if number > len(seen.runs):
            return Difference(number, "run", "played", NOTHING)
        observed = seen.runs[number - 1]
        found = (
            _errors(recorded, observed)
            or runs_differ(
                normalise_events(recorded.events),
                normalise_events(observed.events, seen.http_base),
                dependencies,
                recorded.schedule,
                in_sequence=case.match == "sequence",
                open_end=recorded.raised is not None,
            )
            or _results(recorded, observed, seen.http_base)
        )
        if found:
            return Difference(number, found.path, found.expected, found.got)
    return _model_requests(case, seen) or _http_requests(case, seen)


def _errors(recorded: RecordedRun, observed: ObservedRun) -> Mismatch | None:
    if recorded.raised is not None:
        return None if observed.error else Mismatch("error", str(recorded.raised.get("message") or "any"), NOTHING)
    return errors_differ(recorded.error, observed.error)


def _results(recorded: RecordedRun, observed: ObservedRun, http_base: str) -> Mismatch | None:
    """Compare the results of a run: answer, open form, outputs, variables, history, references."""
    answer: str = normalise(observed.answer, http_base)
    return (
        _prefix_path("answer", differ(recorded.answer, answer))
        or _prefix_path("waiting", differ(recorded.waiting, _plain_form(observed.waiting, http_base)))
        or _prefix_path("outputs", _all_outputs_differ(recorded, normalise(observed.outputs, http_base)))
        or _prefix_path("globals", globals_differ(recorded.globals, normalise(observed.globals, http_base)))
        or _prefix_path("history", histories_differ(recorded.history, normalise(observed.history, http_base)))
        or _prefix_path("reference", _references_differ(recorded, normalise(observed.reference, http_base)))
    )


def _plain_form(waiting: Mapping[str, Any] | None, http_base: str) -> Any:
    """Return an open form like a recorded one, which has no `forms`."""
    return None if waiting is None else normalise({key: waiting[key] for key in waiting if key != "forms"}, http_base)


def _all_outputs_differ(recorded: RecordedRun, got: Mapping[str, Any]) -> Mismatch | None:
    for node, outputs in recorded.outputs.items():
        ours = got.get(node, NOTHING)
        if recorded.raised is not None and isinstance(ours, Mapping):  # here the node failed, and its `_ERROR` says so
            ours = {**ours, "_ERROR": outputs.get("_ERROR")}
        found = outputs_differ(outputs, ours, node)
        if found:
            return found
    extra = next((node for node in got if node not in recorded.outputs), None)
    return None if extra is None else Mismatch(extra, NOTHING, got[extra])


def _references_differ(recorded: RecordedRun, got: Any) -> Mismatch | None:
    return None if recorded.reference is None or got is None else differ(recorded.reference, got)


def _model_requests(case: Case, seen: ObservedCase) -> Difference | None:
    if seen.llm_requests is None:
        return None
    recorded = [request for run in case.expect.runs for request in run.llm_requests]
    missing, new = find_unmatched(
        recorded,
        normalise(seen.llm_requests, seen.http_base),
        is_count_free=_RETRIES_COUNTED_DIFFERENTLY in case.deviations,
    )
    if missing is None and new is None:
        return None
    return Difference(None, "llm_requests", missing or NOTHING, new or NOTHING)


def _http_requests(case: Case, seen: ObservedCase) -> Difference | None:
    if seen.http_requests is None:
        return None
    recorded = sorted(list(call) for call in case.expect.http_requests)
    found = differ(recorded, sorted(list(call) for call in seen.http_requests))
    return Difference(None, f"http_requests{found.path}", found.expected, found.got) if found else None


def _prefix_path(name: str, found: Mismatch | None) -> Mismatch | None:
    if found is None:
        return None
    separator = "." if found.path and not found.path.startswith("[") else ""
    return Mismatch(f"{name}{separator}{found.path}", found.expected, found.got)
