"""A small case, for tests of its file and of comparisons."""

from typing import Any

from cli.cases.case_file import CaseResult, CaseStart, CaseStep, Recorded, RecordedCall, RecordedEvent, RunCase

STARTED, ENDED = "node_started", "node_finished"


def a_step(node: str, content: Any = "hello", **more: Any) -> CaseStep:
    """Return a step that has ended with this content."""
    values = {"component": node.partition(":")[0], "status": "done", "outcome": {"is": "Finished"}, **more}
    return CaseStep(node=node, outputs={"content": content}, **values)


def a_case(*steps: CaseStep, **more: Any) -> RunCase:
    """Return a case with these steps, each with two events."""
    events = [
        RecordedEvent(event=event, node=step.node, step=number)
        for number, step in enumerate(steps)
        for event in (STARTED, ENDED)
    ]
    result = CaseResult(status="succeeded", answer=(("Message:0", "hello"),), events=tuple(events))
    values: dict[str, Any] = {
        "name": "greeting",
        "recorded": Recorded(seed="a seed"),
        "document": {"components": {}},
        "start": CaseStart(query="hi", baseline={"globals": {"sys.query": "hi"}}),
        "steps": steps,
        "result": result,
        **more,
    }
    return RunCase(**values)


def a_call(text: str, **more: Any) -> RecordedCall:
    """Return a call of a model with one message, the part with this name."""
    return RecordedCall(model="m", messages=(text,), **more)
