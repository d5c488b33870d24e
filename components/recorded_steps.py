"""The steps of a recorded run, for a replay: what each gets from the recording instead of the outside world.

A step that only computes runs again. A step that asks models runs again with the recorded answers, and reads the
results of its tool calls as if an earlier attempt had made them. Every other step reports what was recorded of it, and
nothing is sent. A step that the recording does not have, and that would reach outside, fails with NOT_RECORDED.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from canvas.errors import NodeFailure
from canvas.ids import ActivationId
from canvas.outcome import Outcome
from canvas.run_warnings import Notice
from components.base import Component, Params
from components.context import THINK_END, THINK_START, NodeContext
from providers.models.recording.replayed_model import RecordedAnswers
from providers.models.types.chat import Usage

ASKING_MODELS = frozenset({"agent", "categorize", "deepresearch", "llm"})
"""Components that reach outside only by calls of models and tools, which recordings have one by one."""
NOT_RECORDED = "The recording has no result of this step, and a replay reaches nothing outside."


class StepNotRecorded(NodeFailure):
    """A replay has come to a step that would reach outside and that its recording does not have."""

    code = "not_recorded"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What a step gets. With `answers` its own code runs, with `outcome` it reports that one, with neither it computes.

    `text`: what it wrote to the user, if that is not its content. `journal`: results of tool calls by journal key.
    `chunks` and `documents`: what it cited. `gate`: the step begins when it is set; None: at once.
    """

    answers: RecordedAnswers | None = None
    outcome: Outcome | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    text: str | None = None
    usage: Usage = field(default_factory=Usage)
    warnings: Sequence[Notice] = ()
    journal: Mapping[str, Any] = field(default_factory=dict[str, Any])
    chunks: Sequence[Mapping[str, Any]] = ()
    documents: Sequence[Mapping[str, Any]] = ()
    gate: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class RunRecording:
    """The recording that one run replays. `seed` stands in for the run's id where a choice depends on it."""

    seed: str
    steps: Mapping[ActivationId, RecordedStep]
    others: RecordedStep = field(default_factory=RecordedStep)  # what steps get that the recording does not have

    def step(self, activation_id: ActivationId) -> RecordedStep:
        """Return what an activation gets."""
        return self.steps.get(activation_id, self.others)

    def component_of(self, activation_id: ActivationId, component: Component[Any]) -> Component[Any]:
        """Return what an activation executes: the component, or what reports the recorded outcome.

        Raises StepNotRecorded.
        """
        step = self.step(activation_id)
        if step.outcome is not None:
            return _reporting(component, step, step.outcome)
        if step.answers is None and not computes_alone(component):
            raise StepNotRecorded(NOT_RECORDED)
        return component


def computes_alone(component: Component[Any]) -> bool:
    """Return whether a component's code can run in a replay without anything from the recording."""
    return component.effect == "pure" or component.name == "Message"


def _reporting(component: Component[Any], step: RecordedStep, outcome: Outcome) -> Component[Any]:
    """Return a component that writes the recorded text and reports the recorded outcome."""

    async def report(_: Params, ctx: NodeContext) -> Outcome:
        for name, value in step.inputs.items():
            ctx.note_input(name, value)
        for warning in step.warnings:
            ctx.warn(warning.code, warning.message)
        ctx.add_usage(step.usage)
        text = step.text
        if text is None and ctx.is_streaming:
            content = getattr(outcome, "outputs", {}).get("content")
            text = content.replace("<think>", THINK_START).replace("</think>", THINK_END) if content else None
        if text:
            await ctx.write(text)
        return outcome

    return replace(component, params=Params, run=report, effect="pure", effect_for=None, needed_seconds=None)
