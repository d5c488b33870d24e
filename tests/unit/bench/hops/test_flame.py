"""Shares and flame graphs from samples."""

from pathlib import Path
from xml.etree import ElementTree

from bench.hops import flame

ROOT = Path("/srv/easel")
LINES = (
    "run (threading.py);execute (/srv/easel/worker/tasks.py);send (/v/lib/python3.11/site-packages/redis/client.py) 6",
    "run (threading.py);execute (/srv/easel/worker/tasks.py);fold (/srv/easel/scheduler/coordinator/coordinator.py) 3",
    "run (threading.py);execute (/srv/easel/worker/tasks.py);dumps (/usr/lib/python3.11/json/__init__.py) 1",
    "process 7:celery",
)


def test_files_are_named_relative_to_the_root_or_their_package():
    stacks = flame.parse_stacks(LINES, ROOT)

    assert {stack[-1] for stack in stacks} == {
        "send (redis/client.py)",
        "fold (scheduler/coordinator/coordinator.py)",
        "dumps (python/json/__init__.py)",
    }
    assert sum(stacks.values()) == 10


def test_shares_by_package_use_the_running_frame():
    stacks = flame.parse_stacks(LINES, ROOT)

    assert flame.shares_by_package(stacks) == [("redis", 0.6), ("scheduler", 0.3), ("python", 0.1)]


def test_share_of_a_function_includes_its_callees():
    stacks = flame.parse_stacks(LINES, ROOT)

    assert dict(flame.shares_by_function(stacks)) == {
        "execute (worker/tasks.py)": 1.0,
        "fold (scheduler/coordinator/coordinator.py)": 0.3,
    }


def test_a_function_that_calls_itself_is_counted_once():
    stacks = flame.parse_stacks(
        ["walk (/srv/easel/canvas/graph/canvas.py);walk (/srv/easel/canvas/graph/canvas.py) 4"], ROOT
    )

    assert flame.shares_by_function(stacks) == [("walk (canvas/graph/canvas.py)", 1.0)]


def test_flame_graph_is_well_formed_and_omits_frames_that_are_too_narrow():
    stacks = flame.parse_stacks(
        [*LINES, "run (threading.py);<lambda> (/srv/easel/worker/threads/event_loop.py) 9990"], ROOT
    )

    picture = ElementTree.fromstring(flame.flame_graph(stacks, "a <worker>"))

    titles = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert [text.partition(":")[0] for text in titles] == [
        "all",
        "run (threading.py)",
        "<lambda> (worker/threads/event_loop.py)",
    ]


def test_flame_graph_without_samples_is_well_formed():
    ElementTree.fromstring(flame.flame_graph(flame.parse_stacks([], ROOT), "nothing"))
