"""Texts that a single call would read for minutes, and keep everybody else from computing meanwhile."""

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from canvas.document import component_names
from components.context import THINK_END, THINK_START
from components.nodes.data.string_transform import string_transform
from components.nodes.flow.message import message
from components.text.extraction.page_text import extract_page_text
from components.text.splitting import replace_words, split_at
from providers.models.chat.echo import echo_answer
from providers.models.text.context_window import count_tokens
from tests.fakes import FakeContext, run

MOST_SECONDS = 10.0  # of computing; each takes a fraction of one on a machine that has nothing else to do
LONG = 200_000


def edge_with_long_ids() -> None:
    """Ids of a megabyte: the end of an edge is looked for in the edge's own id."""
    name = "Generate:"
    ends = (name * (LONG // 9) + "b", name * (LONG // 9) + "c")
    edge = {"id": name * LONG, "source": ends[0], "target": ends[1]}
    components = {end: {"obj": {"component_name": "Generate", "params": {}}} for end in ends}
    component_names.rename_components({"components": components, "graph": {"nodes": [], "edges": [edge]}})


def split(text: str, delimiters: list[str]) -> None:
    params = {"method": "split", "split_ref": "env.t", "delimiters": delimiters}
    run(string_transform, params, FakeContext(globals={"env.t": text}))


def said(text: str) -> None:
    run(message, {"content": ["{env.t}"]}, FakeContext(globals={"env.t": text}))


def asked(text: str) -> None:
    """What the built-in model looks for in a question to a Categorize."""
    system = "Categories:\n- a\n- b\n" + "JSON schema:\n" * (LONG // 20)
    echo_answer([{"role": "system", "content": system}, {"role": "user", "content": text}])


WORK: dict[str, Callable[[], Any]] = {
    "one delimiter the beginning of the next": lambda: split("a" * LONG, ["a" * n + "b" for n in range(1, 440)]),
    "899 delimiters": lambda: split("a" * LONG, ["a" * (n // 9 + 1) + "b" * (n % 9 + 1) for n in range(899)]),
    "20,000 delimiters": lambda: split("0" * LONG, [f"{number:05}x" for number in range(16_000)]),
    "long delimiters": lambda: split_at("a" * LONG, ["a" * 40_000 + "b", "a" * 40_000 + "c"]),
    "many marks": lambda: replace_words("mark_1" * (LONG // 6), {f"mark_{number}_": "x" for number in range(8_000)}),
    "thoughts that never end": lambda: said(f"a{THINK_START}" * (LONG // 2)),
    "thoughts": lambda: said(f"a{THINK_START}b{THINK_END}" * (LONG // 4)),
    "quoted turns": lambda: asked('USER: "' * (LONG // 7)),
    "quotes and blanks": lambda: asked('USER: "' + '" ' * (LONG // 2) + "x"),
    "ids of edges": edge_with_long_ids,
    "punctuation": lambda: count_tokens("{" * 10 * LONG),
    "small page": lambda: extract_page_text("<p " + "a=<" * 5_000),
}


@pytest.mark.parametrize("name", WORK)
def test_no_text_is_read_for_long(name: str):
    began = process_time()

    WORK[name]()

    assert process_time() - began < MOST_SECONDS
