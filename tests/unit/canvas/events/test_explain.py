"""Why a run does not move, in one sentence."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.events.explain import (
    BlockingRun,
    Explanation,
    OpenActivation,
    WaitFacts,
    WaitsFor,
    explain,
    explanation_json,
)
from canvas.state.run_state import RULES_VERSION, ActivationStatus, RunStatus
from tests.builders import RUN_ID, canvas_of

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CANVAS = canvas_of("begin -> search, form -> say")
OTHER = UUID(int=7)


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def one(status: ActivationStatus, node: str = "search", **more: Any) -> OpenActivation:
    """An activation that was decided a minute ago."""
    given: dict[str, Any] = {
        "component": "Retrieval", "scope": "", "attempt": 1, "strikes": 0, "worker": "host:12",
        "lease_until": NOON + timedelta(seconds=7), "not_before": ago(60), "hinted_at": ago(60), "created_at": ago(60),
        "started_at": ago(50), "finished_at": ago(5),
    }  # fmt: skip
    return OpenActivation(id=UUID(int=1), node_id=node, status=status, **{**given, **more})


def run(*alive: OpenActivation, status: RunStatus = RunStatus.RUNNING, **more: Any) -> WaitFacts:
    """A run in a deployment that is well: sweeper and workers are there."""
    given: dict[str, Any] = {
        "rules_version": RULES_VERSION, "cancel_request": None, "error": "", "created_at": ago(120),
        "finished_at": None,
        "expires_at": None, "last_probe_at": ago(1), "swept_since": ago(900), "swept_at": ago(0.5),
    }  # fmt: skip
    given["counts"] = Counter(activation.status for activation in alive)
    return WaitFacts(RUN_ID, status, now=NOON, open_activations=alive, **{**given, **more})


def explained(facts: WaitFacts, limit: float = 600) -> Explanation:
    return explain(facts, CANVAS, lambda _: limit)


@pytest.mark.parametrize(
    ("facts", "kind", "sentence"),
    [
        (run(status=RunStatus.SUCCEEDED), "over", "The run has succeeded."),
        (run(status=RunStatus.CANCELLED), "over", "The run was cancelled."),
        (run(status=RunStatus.FAILED, error="No\nway."), "over", "The run has failed: No way."),
        (
            run(status=RunStatus.QUEUED, blocking_run=BlockingRun(OTHER, RunStatus.WAITING)),
            "session",
            f"It is queued behind run {OTHER.hex} of its session, which is waiting.",
        ),
        (
            run(status=RunStatus.QUEUED, blocking_run=BlockingRun(RUN_ID, RunStatus.QUEUED)),
            "session",
            "It is the next run of its session, and the sweeper starts it within 10 s.",
        ),
        (
            run(one(ActivationStatus.RUNNING, attempt=2)),
            "work",
            "search has been running for 50 s, of the 600 s that it may take: attempt 2, worker host:12.",
        ),
        (
            run(one(ActivationStatus.RUNNING), status=RunStatus.STOPPING, cancel_request="cancel"),
            "letting_go",
            "The run is being cancelled, and search has not stopped yet in worker host:12.",
        ),
        (
            run(one(ActivationStatus.RUNNING, lease_until=ago(3))),
            "silent_lease",
            "The lease of worker host:12 on search expired 3 s ago; "
            "the sweeper gives the work to another worker within 1 s.",
        ),
        (
            run(one(ActivationStatus.RUNNING, lease_until=ago(3)), swept_since=ago(2)),
            "silent_lease",
            "The lease of worker host:12 on search expired 3 s ago; "
            "the sweeper gives the work to another worker within 5 s.",
        ),
        (
            run(one(ActivationStatus.REPORTED)),
            "report",
            "search has reported, and the sweeper advances the run within 2 s if no other process does.",
        ),
        (
            run(one(ActivationStatus.REPORTED), swept_at=ago(300)),
            "report",
            "search has reported, and no sweeper has run for 5 min. Start one with `easel sweeper`: it advances "
            "the run.",
        ),
        (
            run(one(ActivationStatus.READY, hinted_at=ago(1))),
            "worker",
            "search is ready, and waits in the queue for a free worker.",
        ),
        (
            run(one(ActivationStatus.READY)),
            "worker",
            "search is ready, and its task message was lost: the sweeper sends it again within a second.",
        ),
        (
            run(one(ActivationStatus.READY, hinted_at=None)),
            "worker",
            "search is ready, and the sweeper sends its task message within a second.",
        ),
        (
            run(one(ActivationStatus.READY), last_probe_at=ago(80)),
            "worker",
            "search is ready, and no worker has received anything from the queue for 80 s.",
        ),
        (
            run(one(ActivationStatus.READY), last_probe_at=None),
            "worker",
            "search is ready, and no worker has ever received a task message: start one.",
        ),
        (
            run(one(ActivationStatus.READY, hinted_at=ago(1), strikes=2)),
            "worker",
            "search is ready, and waits in the queue for a free worker; its workers were lost 2 times, and it "
            "fails after one more.",
        ),
        (
            run(one(ActivationStatus.READY, not_before=NOON + timedelta(seconds=8))),
            "time",
            "search is due in 8 s.",
        ),
        (
            run(one(ActivationStatus.QUEUED), max_running=4),
            "place",
            "search waits for one of the 4 slots of the run, which are all in use.",
        ),
        (
            run(
                one(ActivationStatus.WAITING, "form", finished_at=ago(7300)),
                status=RunStatus.WAITING,
                forms={UUID(int=1): ({"name": {}, "age": {}}, "Who?")},
                expires_at=NOON + timedelta(days=1),
            ),
            "person",
            "A person must answer form (name, age). The form was shown 2 h ago; "
            "without an answer the run fails on 2026-11-21 at 12:00:00 UTC.",
        ),
        (
            run(one(ActivationStatus.READY), rules_version=RULES_VERSION + 1),
            "newer_rules",
            f"It was started under newer routing rules ({RULES_VERSION + 1}) than this release knows "
            f"({RULES_VERSION}): "
            "a scheduler or worker of the newer release must continue it.",
        ),
        (
            run(counts={ActivationStatus.OPEN: 1}),
            "nobody",
            "Nothing will continue it, which is a bug in Easel: the run is running, and its open activations "
            "are: 1 open. "
            "Report this with the rows of the run, then cancel it.",
        ),
    ],
)  # fmt: skip
def test_each_thing_that_a_run_may_wait_for_has_its_sentence(facts: WaitFacts, kind: str, sentence: str):
    found = explained(facts)

    assert (found.wait.kind.value, found.wait.sentence) == (kind, sentence)


def test_what_works_comes_before_what_waits_and_the_rest_is_told_besides():
    facts = run(
        one(ActivationStatus.WAITING, "form"),
        one(ActivationStatus.QUEUED),
        one(ActivationStatus.READY, hinted_at=ago(1)),
        one(ActivationStatus.RUNNING),
    )

    found = explained(facts)

    assert found.wait.kind is WaitsFor.WORK
    assert [wait.kind for wait in found.also] == [WaitsFor.WORKER, WaitsFor.RUN_SLOT, WaitsFor.PERSON]


def test_of_two_at_work_the_one_that_works_longest_is_named():
    facts = run(
        one(ActivationStatus.RUNNING, started_at=ago(5)), one(ActivationStatus.RUNNING, "say", started_at=ago(40))
    )

    assert explained(facts).wait.sentence.startswith("say has been running for 40 s")


def test_a_node_is_named_as_its_author_named_it_with_its_scope():
    canvas = canvas_of("begin -> search", search={"component": "Retrieval"})
    named = replace(canvas, nodes=tuple(replace(node, name=f"My {node.id}") for node in canvas.nodes))

    found = explain(run(one(ActivationStatus.RUNNING, scope="Iteration:A#0.3")), named, lambda _: inf)

    assert found.wait.sentence == (
        '"My search" (search) in Iteration:A#0.3 has been running for 50 s: attempt 1, worker host:12.'
    )


def test_a_run_that_waits_while_no_form_is_open_is_a_bug():
    found = explained(run(status=RunStatus.WAITING))

    assert found.wait.kind is WaitsFor.NOTHING
    assert "its open activations are: none" in found.wait.sentence


def test_machines_get_the_same_with_ids_and_times():
    found = explanation_json(
        explained(run(one(ActivationStatus.RUNNING), one(ActivationStatus.REPORTED, "say"))), CANVAS
    )

    assert {name: value for name, value in found.items() if name not in ("sentence", "also")} == {
        "run_id": RUN_ID.hex,
        "status": "running",
        "waits_for": "work",
        "owner": "worker host:12",
        "since": "2026-11-20T11:59:10+00:00",
        "until": "2026-11-20T12:09:10+00:00",
        "node": "search",
        "node_name": None,
        "activation_id": UUID(int=1).hex,
        "scope": "",
        "detail": {"attempt": 1, "strikes": 0, "lease_until": "2026-11-20T12:00:07+00:00"},
    }
    assert [also["waits_for"] for also in found["also"]] == ["report"]


moments = st.integers(-100, 100_000).map(ago)
activations = st.builds(
    OpenActivation,
    id=st.uuids(),
    node_id=st.sampled_from(["search", "form", "gone"]),
    component=st.sampled_from(["LLM", "Begin"]),
    scope=st.sampled_from(["", "Iteration:A#0.3"]),
    status=st.sampled_from(
        [
            ActivationStatus.RUNNING,
            ActivationStatus.REPORTED,
            ActivationStatus.READY,
            ActivationStatus.QUEUED,
            ActivationStatus.WAITING,
        ]
    ),
    attempt=st.integers(0, 3),
    strikes=st.integers(0, 3),
    worker=st.none() | st.just("host:1"),
    lease_until=st.none() | moments,
    not_before=moments,
    hinted_at=st.none() | moments,
    created_at=moments,
    started_at=st.none() | moments,
    finished_at=st.none() | moments,
)
states = st.builds(
    WaitFacts,
    run_id=st.just(RUN_ID),
    status=st.sampled_from(RunStatus),
    rules_version=st.integers(1, RULES_VERSION + 1),
    cancel_request=st.none() | st.just("cancel"),
    error=st.sampled_from(["", "No\nway."]),
    created_at=moments,
    finished_at=st.none() | moments,
    expires_at=st.none() | moments,
    now=st.just(NOON),
    open_activations=st.lists(activations, max_size=6, unique_by=lambda activation: activation.id),
    blocking_run=st.none() | st.builds(BlockingRun, run_id=st.uuids(), status=st.sampled_from(RunStatus)),
    last_probe_at=st.none() | moments,
    swept_since=st.none() | moments,
    swept_at=st.none() | moments,
)


@settings(max_examples=30)
@given(states, st.sampled_from([3.0, inf]))
def test_every_state_of_a_run_gives_one_sentence_and_leaves_nothing_out(facts: WaitFacts, limit: float):
    found = explained(facts, limit)

    sentence = found.wait.sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    if not facts.status.is_over and facts.status is not RunStatus.QUEUED:
        of = [wait.of for wait in (found.wait, *found.also) if wait.of is not None]
        assert Counter(of) == Counter(facts.open_activations)
    assert (found.wait.kind is WaitsFor.OVER) == facts.status.is_over
    assert explanation_json(found, CANVAS)["sentence"] == sentence
