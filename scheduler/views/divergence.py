"""In what two corresponding activations differ: as a bit set, and as a sentence for people.

LLM:Reply (item 3) has another output: content is "Hi" in A and "Hello" in B.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from canvas.outcome import Routed
from canvas.state.run_state import scope_key
from store.primitives.json_codec import encode
from store.primitives.outcome_codec import STORED_NAMES
from store.runs.run_comparison import (
    OUTCOME_MEMBERS,
    ComparedStep,
    StepDifference,
    StepPair,
    StepValues,
    ValueFile,
)

MAX_QUOTE = 80  # characters of a value in a sentence
NOTHING = StepValues({}, {}, {})

_NOUNS: Mapping[StepDifference, str] = {
    StepDifference.OUTCOME: "outcome",
    StepDifference.ERROR: "error",
    StepDifference.OUTPUTS: "outputs",
    StepDifference.INPUTS: "inputs",
    StepDifference.PROMPTS: "prompts",
    StepDifference.STATUS: "status",
    StepDifference.ATTEMPTS: "attempts",
}
"""What two activations may differ in, the most telling first."""


def find_difference(
    a: ComparedStep | None, b: ComparedStep | None, values_a: StepValues, values_b: StepValues
) -> StepDifference:
    """Return in what two activations differ, as the database finds it for all of them."""
    if a is None or b is None:
        return StepDifference.ONLY_B if a is None else StepDifference.ONLY_A
    checks = {
        StepDifference.INPUTS: not is_same(values_a.inputs, values_b.inputs),
        StepDifference.OUTPUTS: not is_same(values_a.outputs, values_b.outputs)
        or not is_same(values_a.variables, values_b.variables),
        StepDifference.OUTCOME: any(not is_same(a.outcome.get(name), b.outcome.get(name)) for name in OUTCOME_MEMBERS),
        StepDifference.ERROR: a.error != b.error,
        StepDifference.ATTEMPTS: a.attempt != b.attempt and not (a.is_reused or b.is_reused),
        StepDifference.STATUS: a.status != b.status,
        StepDifference.PROMPTS: bool(values_a.prompts and values_b.prompts)
        and not is_same(values_a.prompts, values_b.prompts),
    }
    return StepDifference(sum(bit for bit, is_different in checks.items() if is_different))


def is_same(a: Any, b: Any) -> bool:
    """Return whether two stored values, or two objects of such values, have the same JSON text."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(is_same(a[name], b[name]) for name in a)
    if isinstance(a, ValueFile) or isinstance(b, ValueFile):
        return a == b
    return encode(a) == encode(b)


def describe_step(step: ComparedStep) -> str:
    """Return the node of an activation, with its item and its round: `LLM:Reply (item 3)`."""
    return describe_place(step.node_id, step.scope, step.ordinal)


def describe_place(node_id: str, scope: str, ordinal: int) -> str:
    """Return a node with its item (`3.1` in nested containers) and, in a cycle, its round, both from 1."""
    items = ".".join(str(item + 1) for _, _, item in scope_key(scope))
    where = [f"item {items}"] if items else []
    where += [f"round {ordinal + 1}"] if ordinal else []
    return f"{node_id} ({', '.join(where)})" if where else node_id


def describe_bits(what: StepDifference) -> str:
    """Return a bit set in words: `outputs, inputs`."""
    if what in (StepDifference.ONLY_A, StepDifference.ONLY_B):
        return "only in A" if what is StepDifference.ONLY_A else "only in B"
    return ", ".join(noun for bit, noun in _NOUNS.items() if bit in what) or "same"


def explain_divergence(
    pair: StepPair, values_a: StepValues, values_b: StepValues, name_of: Callable[[str], str]
) -> str:
    """Return a sentence about the activations of a pair that differ. `name_of`: the display name of a node's id."""
    subject = describe_step(pair.either)
    a, b = pair.a, pair.b
    if a is None or b is None:
        return f"{subject} has run only in {'A' if b is None else 'B'}."
    bits = [bit for bit in _NOUNS if bit in pair.what]
    if not bits:
        return f"{subject} is the same in both."
    clauses: Mapping[StepDifference, Callable[[], str]] = {
        StepDifference.OUTCOME: lambda: _outcomes(a, b, name_of),
        StepDifference.ERROR: lambda: _errors(a.error, b.error),
        StepDifference.OUTPUTS: lambda: _values("another output", values_a, values_b, ("outputs", "variables")),
        StepDifference.INPUTS: lambda: _values("another input", values_a, values_b, ("inputs",)),
        StepDifference.PROMPTS: lambda: _values("another prompt", values_a, values_b, ("prompts",)),
        StepDifference.STATUS: lambda: f"is {a.status} in A and {b.status} in B",
        StepDifference.ATTEMPTS: lambda: f"took {_attempts(a.attempt)} in A and {_attempts(b.attempt)} in B",
    }
    rest = [_NOUNS[bit] for bit in bits[1:]]
    verb = "differs" if rest in (["outcome"], ["error"], ["status"]) else "differ"
    also = f" Its {' and '.join(rest)} {verb} too." if rest else ""
    return f"{subject} {clauses[bits[0]]()}.{also}"


def _outcomes(a: ComparedStep, b: ComparedStep, name_of: Callable[[str], str]) -> str:
    chosen_a, chosen_b = _targets(a, name_of), _targets(b, name_of)
    if chosen_a is not None and chosen_b is not None:
        return f"chose {chosen_a} in A and {chosen_b} in B"
    kind_a, kind_b = a.outcome.get("is"), b.outcome.get("is")
    if kind_a == kind_b:
        return "has other details of its outcome"
    return f"ended as {kind_a or 'nothing yet'} in A and {kind_b or 'nothing yet'} in B"


def _targets(step: ComparedStep, name_of: Callable[[str], str]) -> str | None:
    """Return the names of the nodes that a router has chosen; None for any other outcome."""
    if step.outcome.get("is") != STORED_NAMES[Routed]:
        return None
    return ", ".join(name_of(node) for node in step.outcome.get("to") or ()) or "nothing"


def _errors(a: str | None, b: str | None) -> str:
    if a is None or b is None:
        return f"failed only in {'A' if b is None else 'B'}: {quote(a or b)}"
    return f"failed with {quote(a)} in A and with {quote(b)} in B"


def _values(subject: str, a: StepValues, b: StepValues, columns: tuple[str, ...]) -> str:
    """Return the clause about the first value that differs."""
    for column in columns:
        values_a: Mapping[str, Any] = getattr(a, column)
        values_b: Mapping[str, Any] = getattr(b, column)
        for name in dict.fromkeys([*values_a, *values_b]):
            if name not in values_a or name not in values_b:
                side, value = ("A", values_a[name]) if name in values_a else ("B", values_b[name])
                return f"has {subject}: {name} is {quote(value)} in {side} and missing in {'B' if side == 'A' else 'A'}"
            if not is_same(values_a[name], values_b[name]):
                return f"has {subject}: {name} is {quote(values_a[name])} in A and {quote(values_b[name])} in B"
    return f"has {subject}"


def quote(value: Any) -> str:
    """Return a value as JSON on one line, cut after MAX_QUOTE characters."""
    if isinstance(value, ValueFile):
        return f"a value of {value.size:,} bytes"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_QUOTE else f"{text[: MAX_QUOTE - 1]}…"


def _attempts(number: int) -> str:
    return "1 attempt" if number == 1 else f"{number} attempts"
