from typing import Any

import pytest

from components.nodes.agent.artifacts import artifact_links

PICTURE = {"name": "p.png", "url": "/a/p.png", "mime_type": "image/png"}
TABLE = {"name": "d.csv", "url": "/a/d.csv", "mime_type": "text/csv"}


@pytest.mark.parametrize(
    ("answer", "artifacts", "links"),
    [
        ("Done.", [], ""),
        ("Done.", [PICTURE, TABLE], "\n\n![p.png](/a/p.png)\n\n[Download d.csv](/a/d.csv)"),
        ("See ![p.png](/a/p.png)", [PICTURE, TABLE], "\n\n[Download d.csv](/a/d.csv)"),
        ("See ![](/a/p.png)", [PICTURE], ""),
        ("See [p](/a/p.png)", [PICTURE], "\n\n![p.png](/a/p.png)"),
        ("", [TABLE, TABLE], "[Download d.csv](/a/d.csv)"),
        ("Done.", [{}, {"name": "nowhere"}, {"url": "/x"}], "\n\n[Download ](/x)"),
    ],
)
def test_files_that_the_answer_does_not_show_are_linked_after_it(
    answer: str, artifacts: list[dict[str, Any]], links: str
):
    assert artifact_links(answer, artifacts) == links
