"""Compare the events of a recorded and an observed run: the same events, in an order that the canvas allows.

`sequence`: nothing ran in parallel, so there is one order. `partial_order`: the order within a batch is free. The other
rules follow from the recording and the canvas together, as pairs "this before that":

- a node's start, its message stream, the end of that stream, its finish;
- the nodes that a node waits for, before its start;
- a model node that wrote into a Message's stream finishes between the end of that stream and the Message's finish;
- a container's members before its finish; the start of the run before everything, and its end after everything.

In both, a Message may start as soon as a model node that writes into its stream has started, before the other nodes
that it waits for have finished. Those must then finish before the stream ends.

In this module a "turn" is one message stream.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cli.conformance.compare.agreement import Mismatch, events_differ
from cli.conformance.compare.graph import Dependencies
from cli.conformance.compare.normalise import NormalisedEvent
from cli.conformance.compare.story import Key, Step, Story, build_story, end_of_text, label, start_of_text
from cli.shell.value_pairs import NOTHING

_MODEL_NODES = frozenset({"LLM", "Agent"})
_RUN_ENDS = frozenset({"workflow_finished", "user_inputs"})


@dataclass(frozen=True, slots=True)
class OrderRule:
    """A rule: at least one of `any_of` comes before `then`."""

    any_of: tuple[Key, ...]
    then: Key


def runs_differ(
    recorded: Sequence[NormalisedEvent],
    observed: Sequence[NormalisedEvent],
    dependencies: Dependencies,
    schedule: Sequence[Sequence[str]],
    *,
    in_sequence: bool,
    open_end: bool = False,
) -> Mismatch | None:
    """Return the first difference; `open_end`: the observed run may have further events."""
    baseline = build_story(_without_put_off(recorded, observed))
    seen = build_story(observed)
    openings = _early_openings(baseline, dependencies)
    if in_sequence:
        found = _sequences_differ(baseline, _with_openings_in_place(baseline, seen, openings), seen, open_end)
        rules = _stream_rules(baseline)
    else:
        found = _sets_differ(baseline, seen, open_end)
        rules = _rules(baseline, dependencies, schedule, openings)
    return found or _last_turn_differs(baseline, seen, open_end) or _first_broken(rules, baseline, seen)


def _without_put_off(recorded: Sequence[NormalisedEvent], observed: Sequence[NormalisedEvent]) -> list[NormalisedEvent]:
    """Return the recording without announcements of nodes that did not run then, unless they are observed too."""
    spare = Counter(event.node_id for event in observed if event.name == "node_started")
    spare.subtract(event.node_id for event in recorded if event.name == "node_started" and not event.put_off)
    compared: list[NormalisedEvent] = []
    for event in recorded:
        if event.put_off:
            spare[event.node_id] -= 1
        if not event.put_off or spare[event.node_id] >= 0:
            compared.append(event)
    return compared


def _early_openings(baseline: Story, dependencies: Dependencies) -> dict[Key, tuple[Key, ...]]:
    """Return the starts of Messages whose streams model nodes wrote, with the starts of those model nodes.

    Such a node was still running when the Message started.
    """
    openings: dict[Key, tuple[Key, ...]] = {}
    latest: dict[str, Step] = {}
    for step in baseline.steps:
        if step.event.name != "node_started":
            continue
        if step.event.data["component_type"] == "Message":
            speakers = [
                latest[node].key
                for node in sorted(dependencies.before.get(step.event.node_id, ()))
                if node in latest and latest[node].event.data["component_type"] in _MODEL_NODES
            ]
            still_open = tuple(
                key
                for key in speakers
                if key not in baseline.finish_of
                or baseline.position[baseline.finish_of[key]] > baseline.position[step.key]
            )
            if still_open:
                openings[step.key] = still_open
        latest[step.event.node_id] = step
    return openings


# -- one order -----------------------------------------------------------------------------------------------------


def _with_openings_in_place(baseline: Story, seen: Story, openings: dict[Key, tuple[Key, ...]]) -> list[Step]:
    """Return the observed steps, with Messages that may start early moved to their position in the recording."""
    steps = list(seen.steps)
    previous: Key | None = None
    for step in baseline.steps:
        speakers = openings.get(step.key, ())
        if previous and previous in seen.position and step.key in seen.position:
            start = seen.position[step.key]
            is_early = start < seen.position[previous]
            if is_early and any(seen.position.get(speaker, start) < start for speaker in speakers):
                moved = next(other for other in steps if other.key == step.key)
                steps.remove(moved)
                steps.insert(1 + next(i for i, other in enumerate(steps) if other.key == previous), moved)
        previous = step.key
    return steps


def _sequences_differ(baseline: Story, steps: Sequence[Step], seen: Story, open_end: bool) -> Mismatch | None:
    turn = 0
    for number, (expected, got) in enumerate(zip_longest(baseline.steps, steps), start=1):
        if expected is None:
            return None if open_end else Mismatch(f"event {number}", NOTHING, _step_label(got))
        if got is None or expected.key != got.key:
            return Mismatch(f"event {number}", _step_label(expected), _step_label(got))
        if expected.event.name == "message_end":
            found = _turns_differ(baseline, seen, turn)
            if found:
                return found
            turn += 1
        found = _steps_differ(expected, got)
        if found:
            return found
    return None


def _step_label(step: Step | None) -> object:
    return NOTHING if step is None else label(step.key)


# -- order up to batches -------------------------------------------------------------------------------------------


def _sets_differ(baseline: Story, seen: Story, open_end: bool) -> Mismatch | None:
    """Compare steps, their data and the turns, in any order."""
    observed = {step.key: step for step in seen.steps}
    turn = 0
    for step in baseline.steps:
        if step.key not in observed:
            return Mismatch("events", _step_label(step), NOTHING)
        if step.event.name == "message_end":
            found = _turns_differ(baseline, seen, turn)
            if found:
                return found
            turn += 1
        found = _steps_differ(step, observed[step.key])
        if found:
            return found
    extra = next((step for step in seen.steps if step.key not in baseline.position), None)
    return None if extra is None or open_end else Mismatch("events", NOTHING, _step_label(extra))


def _rules(
    baseline: Story, dependencies: Dependencies, schedule: Sequence[Sequence[str]], openings: dict[Key, tuple[Key, ...]]
) -> Iterator[OrderRule]:
    """Yield the rules of order. A rule that the recording breaks itself is ignored later."""
    turn_of = {_owner_of(baseline, turn): turn for turn in range(len(baseline.turns))}
    batch_of = _batches(baseline, schedule)
    latest: dict[str, Key] = {}
    for step in baseline.steps:
        node = step.event.node_id
        finish = baseline.finish_of.get(step.key)
        if step.event.name == "node_started":
            if finish:
                yield OrderRule((step.key,), finish)
            due = step.key
            if step.key in openings:
                yield OrderRule(openings[step.key], step.key)
                end = end_of_text(turn_of[step.key]) if step.key in turn_of else None
                due = end or finish or step.key
                yield from _early_start_rules(baseline, openings[step.key], end, finish)
            for source in sorted(dependencies.before.get(node, ())):
                if source in latest and batch_of.get(latest[source]) != batch_of.get(step.key):
                    yield OrderRule((_last_event_before(baseline, latest[source], step.key),), due)
            latest[node] = step.key
        elif step.event.name == "node_finished" and step.key in baseline.start_of:
            opened = baseline.position[baseline.start_of[step.key]]
            for member in sorted(dependencies.inside.get(node, ())):
                if member in latest and baseline.position[latest[member]] > opened:
                    yield OrderRule((_last_event_before(baseline, latest[member], step.key),), step.key)
    if baseline.steps and baseline.steps[0].key[0] == "workflow_started":
        yield from (OrderRule((baseline.steps[0].key,), step.key) for step in baseline.steps[1:])
    if baseline.steps and baseline.steps[-1].key[0] in _RUN_ENDS:
        yield from (OrderRule((step.key,), baseline.steps[-1].key) for step in baseline.steps[:-1])
    yield from _stream_rules(baseline)


def _early_start_rules(
    baseline: Story, speakers: tuple[Key, ...], end: Key | None, finish: Key | None
) -> Iterator[OrderRule]:
    for speaker in speakers:
        released = baseline.finish_of.get(speaker)
        if released and end and baseline.position[end] < baseline.position[released]:
            yield OrderRule((end,), released)
        if released and finish and baseline.position[released] < baseline.position[finish]:
            yield OrderRule((released,), finish)


def _last_event_before(baseline: Story, start: Key, then: Key) -> Key:
    finish = baseline.finish_of.get(start)
    return finish if finish and baseline.position[finish] < baseline.position[then] else start


def _batches(baseline: Story, schedule: Sequence[Sequence[str]]) -> dict[Key, int]:
    """Return the batch of each start; starts that are not in the schedule each get a batch of their own."""
    remaining = [list(batch) for batch in schedule]
    batch_of: dict[Key, int] = {}
    current = 0
    for number, step in enumerate(baseline.steps, start=1):
        if step.event.name != "node_started":
            continue
        batch_of[step.key] = -number
        for batch in (current, current + 1):
            if batch < len(remaining) and step.event.node_id in remaining[batch]:
                remaining[batch].remove(step.event.node_id)
                batch_of[step.key] = current = batch
                break
    return batch_of


# -- speech --------------------------------------------------------------------------------------------------------


def _stream_rules(baseline: Story) -> Iterator[OrderRule]:
    """Yield the rules that a turn lies between its owner's start and finish."""
    for turn in range(len(baseline.turns)):
        start = _owner_of(baseline, turn)
        if start is None:
            continue
        for point in (start_of_text(turn), end_of_text(turn)):
            if point in baseline.position:
                yield OrderRule((start,), point)
                if start in baseline.finish_of:
                    yield OrderRule((point,), baseline.finish_of[start])


def _owner_of(baseline: Story, turn: int) -> Key | None:
    """Return the start of the node that owns the turn.

    After `message_end`, the model nodes that wrote into it finish, and then the Message itself. A node that failed and
    has a default text streams it itself: then its own finish follows.
    """
    keys = [step.key for step in baseline.steps]
    if end_of_text(turn) not in baseline.position:
        return None
    finishes: list[Step] = []
    for step in baseline.steps[keys.index(end_of_text(turn)) + 1 :]:
        if step.event.name != "node_finished":
            break
        finishes.append(step)
    of_messages = [step for step in finishes if step.event.data["component_type"] == "Message"]
    owner = next(iter(of_messages or finishes), None)
    return baseline.start_of.get(owner.key) if owner else None


def _turns_differ(baseline: Story, seen: Story, turn: int) -> Mismatch | None:
    where = f"speech of turn {turn + 1}"
    ours = seen.turns[turn] if turn < len(seen.turns) else ()
    for expected, got in zip_longest(baseline.turns[turn], ours):
        if expected is None or got is None:
            return Mismatch(where, _text_of(expected), _text_of(got))
        found = events_differ(expected, got)
        if found:
            return Mismatch(where, _text_of(expected), _text_of(got))
    return None


def _last_turn_differs(baseline: Story, seen: Story, open_end: bool) -> Mismatch | None:
    """Compare a last turn without an end, in either run."""
    if len(baseline.turns) and end_of_text(len(baseline.turns) - 1) not in baseline.position:
        return _turns_differ(baseline, seen, len(baseline.turns) - 1)
    if len(seen.turns) > len(baseline.turns) and not open_end:
        delta = next(iter(seen.turns[len(baseline.turns)]), None)
        return Mismatch(f"speech of turn {len(baseline.turns) + 1}", NOTHING, _text_of(delta))
    return None


def _text_of(event: NormalisedEvent | None) -> object:
    if event is None:
        return NOTHING
    return event.data["content"] or next(key for key in event.data if key != "content")


# -- both ----------------------------------------------------------------------------------------------------------


def _steps_differ(expected: Step, got: Step) -> Mismatch | None:
    found = events_differ(expected.event, got.event)
    if found is None:
        return None
    path = f"{label(expected.key)}: {found.path}" if found.path else label(expected.key)
    return Mismatch(path, found.expected, found.got)


def _first_broken(rules: Iterator[OrderRule], baseline: Story, seen: Story) -> Mismatch | None:
    broken = [rule for rule in rules if _holds(rule, baseline) and not _holds(rule, seen)]
    if not broken:
        return None
    first = min(broken, key=lambda rule: baseline.position[rule.then])
    before = " or ".join(label(key) for key in first.any_of)
    return Mismatch("order of events", f"{before} before {label(first.then)}", "the other way round")


def _holds(rule: OrderRule, story: Story) -> bool:
    then = story.position.get(rule.then)
    if then is None:
        return True
    known = [story.position[key] for key in rule.any_of if key in story.position]
    return not known or min(known) < then
