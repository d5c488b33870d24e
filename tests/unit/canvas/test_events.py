"""Events as they look on the wire."""

from canvas import events


def test_thoughts_say_what_a_node_does_and_models_quote_the_question():
    assert events.thoughts_of("Begin", "hi") == ""
    assert events.thoughts_of("Switch", "hi") == "Choosing the way on."
    assert events.thoughts_of("TavilySearch", "hi") == "Running TavilySearch."
    assert events.thoughts_of("LLM", "hi") == "Working on an answer to: hi"
    assert events.thoughts_of("Agent", " ") == "Working on an answer."
    assert len(events.thoughts_of("Agent", "x" * 10_000)) < 250
