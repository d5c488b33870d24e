"""The differences between a recorded run and its replay, by step.

Steps are the same if node, scope and visit are. Compared are: outcome, inputs, outputs, variables and text of a step,
what its models were asked, its tool calls and its events; and status, error and answer of the run. Times are not. Steps
that had not ended when the run did are left out. Of a run that was cancelled only the values of steps are compared that
have ended in both, because no replay cancels it at the very same moment.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.cases.case_file import CaseStep, RecordedCall, RunCase, is_cut
from cli.shell.value_pairs import NOTHING
from store.primitives.json_codec import encode

RUN = "the run"


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """One difference: the step, or RUN; a path in it; and the values of the recording and of the replay there."""

    step: str
    path: str
    recorded: Any
    replayed: Any


def compare(recorded: RunCase, replayed: RunCase) -> list[ReplayDifference]:
    """Return all differences: those of steps in the order of the recording, then those of the run."""
    return [*_steps_differ(recorded, replayed), *_results_differ(recorded, replayed)]


def _steps_differ(recorded: RunCase, replayed: RunCase) -> Iterator[ReplayDifference]:
    is_cancelled = recorded.result.status == "cancelled"
    found = {step.key: step for step in replayed.steps if step.has_ended}
    events, other_events = _events_by_step(recorded), _events_by_step(replayed)
    for step in recorded.steps:
        if not step.has_ended or _is_cancelled(step):
            found.pop(step.key, None)
            continue
        other = found.pop(step.key, None)
        if is_cancelled and (other is None or _is_cancelled(other)):
            continue
        if other is None:
            yield ReplayDifference(step.label, "step", step.status, NOTHING)
            continue
        for difference in _members_differ(step, other):
            yield ReplayDifference(step.label, *difference)
        if not is_cancelled:
            for difference in values_differ(events.get(step.key, []), other_events.get(step.key, []), "events"):
                yield ReplayDifference(step.label, *difference)
        if not step.as_recorded:
            for difference in _calls_differ(recorded, step.model_calls, replayed, other.model_calls):
                yield ReplayDifference(step.label, *difference)
    for step in found.values():
        if not _is_cancelled(step):
            yield ReplayDifference(step.label, "step", NOTHING, step.status)


Found = tuple[str, Any, Any]


def _members_differ(step: CaseStep, other: CaseStep) -> Iterator[Found]:
    for name in ("status", "outcome", "inputs", "outputs", "container", "variables", "text"):
        yield from values_differ(getattr(step, name), getattr(other, name), name)
    calls = [call.model_dump(mode="json") for call in step.tool_calls]
    yield from values_differ(calls, [call.model_dump(mode="json") for call in other.tool_calls], "tool_calls")


def _events_by_step(case: RunCase) -> dict[tuple[str, str, int] | None, list[dict[str, Any]]]:
    """Return the events of each step in order, by what identifies it; under None those of the run itself."""
    found: dict[tuple[str, str, int] | None, list[dict[str, Any]]] = {}
    for event in case.result.events:
        key = case.steps[event.step].key if event.step is not None else None
        found.setdefault(key, []).append({"event": event.event, "node": event.node, "body": event.body})
    return found


def _calls_differ(
    recorded: RunCase, calls: Sequence[RecordedCall], replayed: RunCase, others: Sequence[RecordedCall]
) -> Iterator[Found]:
    """Compare the calls with the same journal key in their order."""
    left = list(others)
    for number, call in enumerate(calls, 1):
        path = f"model call {number}"
        other = next((each for each in left if each.key == call.key), None)
        if other is None:
            yield path, "made", NOTHING
            continue
        left.remove(other)
        yield from values_differ(call.model, other.model, f"{path} model")
        yield from values_differ(call.params, other.params, f"{path} params")
        messages = [recorded.parts.get(part) for part in call.messages]
        yield from values_differ(messages, [replayed.parts.get(part) for part in other.messages], f"{path} messages")
        tools = recorded.parts.get(call.tools) if call.tools else None
        yield from values_differ(tools, replayed.parts.get(other.tools) if other.tools else None, f"{path} tools")
    for other in left:
        if other.status != "cancelled":
            yield "model call", NOTHING, [replayed.parts.get(part) for part in other.messages]


def _results_differ(recorded: RunCase, replayed: RunCase) -> Iterator[ReplayDifference]:
    expected, got = recorded.result, replayed.result
    is_cancelled = expected.status == "cancelled"
    for name in ("status", "error") if is_cancelled else ("status", "error", "answer"):
        for found in values_differ(_plain(getattr(expected, name)), _plain(getattr(got, name)), name):
            yield ReplayDifference(RUN, *found)
    own, other = _events_by_step(recorded).get(None, []), _events_by_step(replayed).get(None, [])
    for found in () if is_cancelled else values_differ(own, other, "events"):
        yield ReplayDifference(RUN, *found)


def _plain(value: Any) -> Any:
    return [list(each) for each in value] if isinstance(value, tuple) else value


def _is_cancelled(step: CaseStep) -> bool:
    return (step.outcome or {}).get("code") == "cancelled"


def values_differ(recorded: Any, replayed: Any, path: str) -> Iterator[Found]:
    """Yield the differences of two JSON values. A cut value is compared by its hash."""
    if is_cut(recorded):
        data = encode(replayed).encode()
        if recorded["sha256"] != hashlib.sha256(data).hexdigest():
            yield path, recorded, replayed
        return
    match recorded, replayed:
        case Mapping(), Mapping():
            for name in {**recorded, **replayed}:
                yield from values_differ(recorded.get(name, NOTHING), replayed.get(name, NOTHING), f"{path}.{name}")
        case list() | tuple(), list() | tuple():
            for number in range(max(len(recorded), len(replayed))):
                one = recorded[number] if number < len(recorded) else NOTHING
                other = replayed[number] if number < len(replayed) else NOTHING
                yield from values_differ(one, other, f"{path}[{number}]")
        case _ if type(recorded) is type(replayed) and recorded == replayed:
            return
        case (int() | float(), int() | float()) if not isinstance(recorded, bool) and recorded == replayed:
            return
        case _:
            yield path, recorded, replayed
