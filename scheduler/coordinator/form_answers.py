"""Parses a person's answers: to the canvas's own forms, and to questions about unknown outcomes.

A node with an unknown outcome (canvas/graph/uncertain_outcomes.py) asks what became of it. `Browser:0.outcome` answers
"happened" or "again", and `Browser:0.outputs` gives the outputs of a node that has happened. The node's id alone names
all items of a container in which it asks, and `*` names all questions of the run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from canvas.budget import budget_stop
from canvas.errors import InvalidRequest
from canvas.graph.canvas import Canvas
from canvas.graph.uncertain_outcomes import AGAIN, ALL_QUESTIONS, HAPPENED, OUTCOME, OUTPUTS, label
from canvas.ids import ActivationId
from canvas.state.run_state import scope_key


@dataclass(frozen=True, slots=True)
class OutcomeResolutions:
    """A person's answers about unknown outcomes: activations to repeat, and outputs of those that have happened."""

    again: frozenset[ActivationId] = frozenset()
    happened: Mapping[ActivationId, Mapping[str, Any]] = field(default_factory=dict[ActivationId, Mapping[str, Any]])

    def __bool__(self) -> bool:
        return bool(self.again or self.happened)


@dataclass(frozen=True, slots=True)
class ParsedAnswers:
    """A person's answers by what they answer."""

    resolutions: OutcomeResolutions
    forms: Mapping[str, Any]  # the open forms of the canvas itself, as the run's row has them
    inputs: Mapping[str, Any] | None  # the answers to these forms


@dataclass(frozen=True, slots=True)
class _Question:
    activation: ActivationId
    node_id: str
    label: str

    def is_named_by(self, name: str) -> bool:
        return name in (self.label, self.node_id, ALL_QUESTIONS)


def parse_answers(
    canvas: Canvas, forms: Mapping[str, Any], inputs: Mapping[str, Any] | None, query: Any
) -> ParsedAnswers:
    """Return a turn's answers to the open forms of a run's row.

    Raises InvalidRequest for an answer to a question that is not open, or one that is neither "happened" nor "again".
    """
    own = {activation: form for activation, form in forms.items() if canvas.node(form[0]).kind.waits_for_user}
    questions = [
        _Question(ActivationId(UUID(activation)), form[0], label(form[0], scope_key(form[2])))
        for activation, form in forms.items()
        if activation not in own
    ]
    fields = {name for form in own.values() for name in form[3]}
    resolutions = {name: value for name, value in (inputs or {}).items() if _is_resolution(name, fields)}
    if not inputs and isinstance(query, str) and len(questions) == 1 and not fields:
        resolutions = _parse_single_word(query)
    others = {name: value for name, value in (inputs or {}).items() if name not in resolutions}
    return ParsedAnswers(_parse_resolutions(questions, resolutions), own, others or None)


def retry_budget_stopped(answered: ParsedAnswers, forms: Mapping[str, Any]) -> ParsedAnswers:
    """Return the answers, with "again" for every node that a budget has stopped and that the answers do not name."""
    stopped = {ActivationId(UUID(activation)) for activation, form in forms.items() if budget_stop(form[3]) is not None}
    again = answered.resolutions.again | (stopped - answered.resolutions.happened.keys())
    return replace(answered, resolutions=replace(answered.resolutions, again=again))


def _is_resolution(name: str, fields: Iterable[str]) -> bool:
    return name.endswith((OUTCOME, OUTPUTS)) and name not in fields


def _parse_single_word(query: str) -> dict[str, Any]:
    """Return the answer to the only open question, if the message is just "happened" or "again"."""
    word = query.strip().lower()
    return {ALL_QUESTIONS + OUTCOME: word} if word in (HAPPENED, AGAIN) else {}


def _parse_resolutions(questions: Sequence[_Question], answers: Mapping[str, Any]) -> OutcomeResolutions:
    words: dict[ActivationId, str] = {}
    outputs: dict[ActivationId, Mapping[str, Any]] = {}
    for name, answer in sorted(answers.items(), key=lambda item: _breadth_key(item[0], questions)):
        about, _, what = name.rpartition(".")
        meant = [question.activation for question in questions if question.is_named_by(about)]
        if not meant:
            names = ", ".join(question.label for question in questions) or "none"
            raise InvalidRequest(f'Nothing is asked about "{about}". Questions are open about: {names}.', field=name)
        value = answer.get("value") if isinstance(answer, Mapping) and "value" in answer else answer
        if f".{what}" == OUTPUTS:
            outputs |= dict.fromkeys(meant, _parse_outputs(name, value))
        elif value in (HAPPENED, AGAIN):
            words |= dict.fromkeys(meant, value)
        elif value not in (None, ""):
            raise InvalidRequest(f'"{name}" is {value!r}. Answer "{HAPPENED}" or "{AGAIN}".', field=name)
    return OutcomeResolutions(
        frozenset(activation for activation, word in words.items() if word == AGAIN),
        {activation: outputs.get(activation, {}) for activation, word in words.items() if word == HAPPENED},
    )


def _breadth_key(name: str, questions: Sequence[_Question]) -> int:
    """Return a sort key: answers about more questions come first, so that one about a single item overrides them."""
    return -sum(question.is_named_by(name.rpartition(".")[0]) for question in questions)


def _parse_outputs(name: str, value: Any) -> Mapping[str, Any]:
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise InvalidRequest(f'"{name}" must be an object: the node\'s outputs by name.', field=name)
    return {str(output): brought for output, brought in value.items() if not str(output).startswith("_")}
