"""Texts of events as clients receive them."""

from canvas.events import run_events


def test_thoughts_describe_the_node_and_quote_the_query_for_models():
    assert run_events.thoughts_of("Begin", "hi") == ""
    assert run_events.thoughts_of("Switch", "hi") == "Choosing the way on."
    assert run_events.thoughts_of("TavilySearch", "hi") == "Running TavilySearch."
    assert run_events.thoughts_of("LLM", "hi") == "Working on an answer to: hi"
    assert run_events.thoughts_of("Agent", " ") == "Working on an answer."
    assert len(run_events.thoughts_of("Agent", "x" * 10_000)) < 250
