"""What a person says about nodes that nobody knows to have acted (canvas/graph/uncertain_outcomes.py), found among a
turn's answers.

Each such node asks under the name of its own: `Browser:0.outcome` is "happened" or "again", `Browser:0.outputs` what it
has brought. Its bare id speaks for all items in which it asks, `*` for everything that is asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from canvas.budget import budget_stop
from canvas.errors import InvalidRequest
from canvas.graph.canvas import Canvas
from canvas.graph.uncertain_outcomes import AGAIN, ALL_QUESTIONS, HAPPENED, OUTCOME, OUTPUTS, label
from canvas.state.run_state import scope_key


@dataclass(frozen=True, slots=True)
class OutcomeResolutions:
    """Which activations are to be done again, and what those have brought that have happened."""

    again: frozenset[UUID] = frozenset()
    happened: Mapping[UUID, Mapping[str, Any]] = field(default_factory=dict[UUID, Mapping[str, Any]])

    def __bool__(self) -> bool:
        return bool(self.again or self.happened)


@dataclass(frozen=True, slots=True)
class ParsedAnswers:
    """A person's answers, taken apart: the verdicts, the canvas's own forms that are open, and what is for these."""

    verdicts: OutcomeResolutions
    forms: Mapping[str, Any]  # of the run's row, those that the canvas itself asks
    inputs: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Question:
    activation: UUID
    node_id: str
    label: str

    def is_meant(self, name: str) -> bool:
        return name in (self.label, self.node_id, ALL_QUESTIONS)


def parse_answers(
    canvas: Canvas, forms: Mapping[str, Any], inputs: Mapping[str, Any] | None, query: Any
) -> ParsedAnswers:
    """A turn's answers to the open forms of a run's row.

    Raises InvalidRequest for a verdict about what does not ask, or one that is neither "happened" nor "again".
    """
    own = {activation: form for activation, form in forms.items() if canvas.node(form[0]).kind.asks}
    asked = [
        _Question(UUID(activation), form[0], label(form[0], scope_key(form[2])))
        for activation, form in forms.items()
        if activation not in own
    ]
    fields = {name for form in own.values() for name in form[3]}
    told = {name: value for name, value in (inputs or {}).items() if _is_about(name, fields)}
    if not inputs and isinstance(query, str) and len(asked) == 1 and not fields:
        told = _spoken(query)
    left = {name: value for name, value in (inputs or {}).items() if name not in told}
    return ParsedAnswers(_verdicts(asked, told), own, left or None)


def retry_budget_stopped(answered: ParsedAnswers, forms: Mapping[str, Any]) -> ParsedAnswers:
    """The same, and every node goes on that a budget has stopped, unless the person has told what has come of it."""
    stopped = {UUID(activation) for activation, form in forms.items() if budget_stop(form[3]) is not None}
    again = answered.verdicts.again | (stopped - answered.verdicts.happened.keys())
    return replace(answered, verdicts=replace(answered.verdicts, again=again))


def _is_about(name: str, fields: Iterable[str]) -> bool:
    return name.endswith((OUTCOME, OUTPUTS)) and name not in fields


def _spoken(query: str) -> dict[str, Any]:
    """A single question may be answered in a word."""
    word = query.strip().lower()
    return {ALL_QUESTIONS + OUTCOME: word} if word in (HAPPENED, AGAIN) else {}


def _verdicts(asked: Sequence[_Question], told: Mapping[str, Any]) -> OutcomeResolutions:
    said: dict[UUID, str] = {}
    outputs: dict[UUID, Mapping[str, Any]] = {}
    for name, answer in sorted(told.items(), key=lambda item: _breadth(item[0], asked)):
        about, _, what = name.rpartition(".")
        meant = [question.activation for question in asked if question.is_meant(about)]
        if not meant:
            names = ", ".join(question.label for question in asked) or "none"
            raise InvalidRequest(f'Nothing is asked about "{about}". Questions are open about: {names}.', field=name)
        value = answer.get("value") if isinstance(answer, Mapping) and "value" in answer else answer
        if f".{what}" == OUTPUTS:
            outputs |= dict.fromkeys(meant, _outputs(name, value))
        elif value in (HAPPENED, AGAIN):
            said |= dict.fromkeys(meant, value)
        elif value not in (None, ""):
            raise InvalidRequest(f'"{name}" is {value!r}. Answer "{HAPPENED}" or "{AGAIN}".', field=name)
    return OutcomeResolutions(
        frozenset(activation for activation, word in said.items() if word == AGAIN),
        {activation: outputs.get(activation, {}) for activation, word in said.items() if word == HAPPENED},
    )


def _breadth(name: str, asked: Sequence[_Question]) -> int:
    """How many questions an answer is about, those of more first: what is said of one item counts more."""
    return -sum(question.is_meant(name.rpartition(".")[0]) for question in asked)


def _outputs(name: str, value: Any) -> Mapping[str, Any]:
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise InvalidRequest(f'"{name}" must be an object: the node\'s outputs by name.', field=name)
    return {str(output): brought for output, brought in value.items() if not str(output).startswith("_")}
