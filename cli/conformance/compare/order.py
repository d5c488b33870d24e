"""Whether two accounts of one run tell the same: the same events, in an order that the canvas allows.

`sequence`: nothing ran side by side, so the order is one. `partial_order`: free within a batch; what is not free
follows from the recording and the canvas together, as pairs "this before that":

- a node's start, its speech, the end of its turn, its finish;
- what a node waited for, before its start;
- a model node that spoke in a Message's turn, between the end of that turn and the Message's finish;
- a container's members before its finish; the start of the run before and its end after everything.

In both a Message may start as soon as a model node that speaks in its turn has started, before others it waits for
have finished; those are then due before its turn ends.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cli.conformance.compare.agreement import NOTHING, Mismatch, events_differ
from cli.conformance.compare.graph import Dependencies
from cli.conformance.compare.normalise import Event
from cli.conformance.compare.story import Key, Step, Story, end_of, first_piece, label, story_of

_MODEL_NODES = frozenset({"LLM", "Agent"})
_RUN_ENDS = frozenset({"workflow_finished", "user_inputs"})


@dataclass(frozen=True, slots=True)
class Before:
    """At least one of the first comes before the second."""

    any_of: tuple[Key, ...]
    then: Key


def accounts_differ(
    recorded: Sequence[Event],
    observed: Sequence[Event],
    dependencies: Dependencies,
    schedule: Sequence[Sequence[str]],
    *,
    in_sequence: bool,
    open_end: bool = False,
) -> Mismatch | None:
    """The first thing that one account tells differently; `open_end`: the observed one may go on longer."""
    told = story_of(_without_put_off(recorded, observed))
    seen = story_of(observed)
    openings = _early_openings(told, dependencies)
    if in_sequence:
        found = _sequences_differ(told, _with_openings_in_place(told, seen, openings), seen, open_end)
        rules = _speech_rules(told)
    else:
        found = _sets_differ(told, seen, open_end)
        rules = _rules(told, dependencies, schedule, openings)
    return found or _last_turn_differs(told, seen, open_end) or _first_broken(rules, told, seen)


def _without_put_off(recorded: Sequence[Event], observed: Sequence[Event]) -> list[Event]:
    """The recording without announcements of nodes that then did not run, unless we announce them too."""
    spare = Counter(event.node_id for event in observed if event.name == "node_started")
    spare.subtract(event.node_id for event in recorded if event.name == "node_started" and not event.put_off)
    kept: list[Event] = []
    for event in recorded:
        if event.put_off:
            spare[event.node_id] -= 1
        if not event.put_off or spare[event.node_id] >= 0:
            kept.append(event)
    return kept


def _early_openings(told: Story, dependencies: Dependencies) -> dict[Key, tuple[Key, ...]]:
    """Starts of Messages in whose turn model nodes spoke, with the starts of those nodes.

    Such a node was still open when the Message started.
    """
    openings: dict[Key, tuple[Key, ...]] = {}
    latest: dict[str, Step] = {}
    for step in told.steps:
        if step.event.name != "node_started":
            continue
        if step.event.data["component_type"] == "Message":
            speakers = [
                latest[node].key
                for node in sorted(dependencies.before.get(step.event.node_id, ()))
                if node in latest and latest[node].event.data["component_type"] in _MODEL_NODES
            ]
            held = tuple(
                key
                for key in speakers
                if key not in told.finish_of or told.position[told.finish_of[key]] > told.position[step.key]
            )
            if held:
                openings[step.key] = held
        latest[step.event.node_id] = step
    return openings


# -- one order -----------------------------------------------------------------------------------------------------


def _with_openings_in_place(told: Story, seen: Story, openings: dict[Key, tuple[Key, ...]]) -> list[Step]:
    """The observed steps, Messages that were allowed to start early moved to where the recording has them."""
    steps = list(seen.steps)
    previous: Key | None = None
    for step in told.steps:
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


def _sequences_differ(told: Story, steps: Sequence[Step], seen: Story, open_end: bool) -> Mismatch | None:
    turn = 0
    for number, (expected, got) in enumerate(zip_longest(told.steps, steps), start=1):
        if expected is None:
            return None if open_end else Mismatch(f"event {number}", NOTHING, _shown(got))
        if got is None or expected.key != got.key:
            return Mismatch(f"event {number}", _shown(expected), _shown(got))
        if expected.event.name == "message_end":
            found = _turns_differ(told, seen, turn)
            if found:
                return found
            turn += 1
        found = _steps_differ(expected, got)
        if found:
            return found
    return None


def _shown(step: Step | None) -> object:
    return NOTHING if step is None else label(step.key)


# -- order up to batches -------------------------------------------------------------------------------------------


def _sets_differ(told: Story, seen: Story, open_end: bool) -> Mismatch | None:
    """The same steps with the same data, and the same turns; in whatever order."""
    observed = {step.key: step for step in seen.steps}
    turn = 0
    for step in told.steps:
        if step.key not in observed:
            return Mismatch("events", _shown(step), NOTHING)
        if step.event.name == "message_end":
            found = _turns_differ(told, seen, turn)
            if found:
                return found
            turn += 1
        found = _steps_differ(step, observed[step.key])
        if found:
            return found
    extra = next((step for step in seen.steps if step.key not in told.position), None)
    return None if extra is None or open_end else Mismatch("events", NOTHING, _shown(extra))


def _rules(
    told: Story, dependencies: Dependencies, schedule: Sequence[Sequence[str]], openings: dict[Key, tuple[Key, ...]]
) -> Iterator[Before]:
    """What must come before what. Only what the recording itself keeps is a rule."""
    turn_of = {_owner_of(told, turn): turn for turn in range(len(told.turns))}
    batch_of = _batches(told, schedule)
    latest: dict[str, Key] = {}
    for step in told.steps:
        node = step.event.node_id
        finish = told.finish_of.get(step.key)
        if step.event.name == "node_started":
            if finish:
                yield Before((step.key,), finish)
            due = step.key
            if step.key in openings:
                yield Before(openings[step.key], step.key)
                end = end_of(turn_of[step.key]) if step.key in turn_of else None
                due = end or finish or step.key
                yield from _held_rules(told, openings[step.key], end, finish)
            for source in sorted(dependencies.before.get(node, ())):
                if source in latest and batch_of.get(latest[source]) != batch_of.get(step.key):
                    yield Before((_last_event_before(told, latest[source], step.key),), due)
            latest[node] = step.key
        elif step.event.name == "node_finished" and step.key in told.start_of:
            opened = told.position[told.start_of[step.key]]
            for member in sorted(dependencies.inside.get(node, ())):
                if member in latest and told.position[latest[member]] > opened:
                    yield Before((_last_event_before(told, latest[member], step.key),), step.key)
    if told.steps and told.steps[0].key[0] == "workflow_started":
        yield from (Before((told.steps[0].key,), step.key) for step in told.steps[1:])
    if told.steps and told.steps[-1].key[0] in _RUN_ENDS:
        yield from (Before((step.key,), told.steps[-1].key) for step in told.steps[:-1])
    yield from _speech_rules(told)


def _held_rules(told: Story, speakers: tuple[Key, ...], end: Key | None, finish: Key | None) -> Iterator[Before]:
    for speaker in speakers:
        released = told.finish_of.get(speaker)
        if released and end and told.position[end] < told.position[released]:
            yield Before((end,), released)
        if released and finish and told.position[released] < told.position[finish]:
            yield Before((released,), finish)


def _last_event_before(told: Story, start: Key, then: Key) -> Key:
    finish = told.finish_of.get(start)
    return finish if finish and told.position[finish] < told.position[then] else start


def _batches(told: Story, schedule: Sequence[Sequence[str]]) -> dict[Key, int]:
    """Which batch each start belongs to; starts that the schedule does not know belong to none they share."""
    remaining = [list(batch) for batch in schedule]
    batch_of: dict[Key, int] = {}
    current = 0
    for number, step in enumerate(told.steps, start=1):
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


def _speech_rules(told: Story) -> Iterator[Before]:
    """A turn stands between its owner's start and finish."""
    for turn in range(len(told.turns)):
        start = _owner_of(told, turn)
        if start is None:
            continue
        for point in (first_piece(turn), end_of(turn)):
            if point in told.position:
                yield Before((start,), point)
                if start in told.finish_of:
                    yield Before((point,), told.finish_of[start])


def _owner_of(told: Story, turn: int) -> Key | None:
    """The start of the node whose turn it was.

    After `message_end` come the finishes of the model nodes that spoke in it and then the Message's own. A node that
    failed and has a default text says it itself: its own finish follows.
    """
    keys = [step.key for step in told.steps]
    if end_of(turn) not in told.position:
        return None
    finishes: list[Step] = []
    for step in told.steps[keys.index(end_of(turn)) + 1 :]:
        if step.event.name != "node_finished":
            break
        finishes.append(step)
    of_messages = [step for step in finishes if step.event.data["component_type"] == "Message"]
    owner = next(iter(of_messages or finishes), None)
    return told.start_of.get(owner.key) if owner else None


def _turns_differ(told: Story, seen: Story, turn: int) -> Mismatch | None:
    where = f"speech of turn {turn + 1}"
    ours = seen.turns[turn] if turn < len(seen.turns) else ()
    for expected, got in zip_longest(told.turns[turn], ours):
        if expected is None or got is None:
            return Mismatch(where, _said(expected), _said(got))
        found = events_differ(expected, got)
        if found:
            return Mismatch(where, _said(expected), _said(got))
    return None


def _last_turn_differs(told: Story, seen: Story, open_end: bool) -> Mismatch | None:
    """A last turn without an end, in either account."""
    if len(told.turns) and end_of(len(told.turns) - 1) not in told.position:
        return _turns_differ(told, seen, len(told.turns) - 1)
    if len(seen.turns) > len(told.turns) and not open_end:
        piece = next(iter(seen.turns[len(told.turns)]), None)
        return Mismatch(f"speech of turn {len(told.turns) + 1}", NOTHING, _said(piece))
    return None


def _said(event: Event | None) -> object:
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


def _first_broken(rules: Iterator[Before], told: Story, seen: Story) -> Mismatch | None:
    broken = [rule for rule in rules if _holds(rule, told) and not _holds(rule, seen)]
    if not broken:
        return None
    first = min(broken, key=lambda rule: told.position[rule.then])
    before = " or ".join(label(key) for key in first.any_of)
    return Mismatch("order of events", f"{before} before {label(first.then)}", "the other way round")


def _holds(rule: Before, story: Story) -> bool:
    then = story.position.get(rule.then)
    if then is None:
        return True
    known = [story.position[key] for key in rule.any_of if key in story.position]
    return not known or min(known) < then
