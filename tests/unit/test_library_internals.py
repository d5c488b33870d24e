"""The internals of libraries that our modules rely on, though their makers do not promise them.

If a test fails, a new version of a library has moved or changed an internal, and the message names the file of ours
that relies on it. Adapt that file before the bound of the version in pyproject.toml is raised.
tests/unit/worker/fastpath/test_celery_contract.py checks what worker/fastpath/inline_tasks.py needs of Celery beyond
names.
"""

import ast
import importlib
import inspect
import tomllib
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]

# file of ours, module of the library, name in it, and the parameters that we pass or override (None: no function)
INTERNALS = [
    ("worker/fastpath/admission.py", "celery.worker.state", "reserved_requests", None),
    ("worker/fastpath/admission.py", "celery.worker.state", "active_requests", None),
    ("worker/fastpath/inline_tasks.py", "celery.concurrency.base", "apply_target", ("target", "args", "kwargs")),
    ("worker/fastpath/inline_tasks.py", "celery.worker.state", "task_reserved", ("request",)),
    ("worker/celery_requests.py", "celery.worker.state", "revoked", None),
    ("worker/celery_requests.py", "celery.worker.request", "Request.revoked", ("self",)),
    ("worker/celery_requests.py", "celery.worker.request", "Request.terminate", ("self", "pool", "signal")),
    ("scheduler/messaging/consumer.py", "celery.worker.consumer", "Consumer.create_task_handler", ("self",)),
    ("scheduler/messaging/consumer.py", "celery.worker.consumer", "Consumer.on_unknown_message", ("self", "body")),
    ("scheduler/messaging/consumer.py", "celery.worker.consumer", "Consumer.on_unknown_task", ("self", "body")),
    ("scheduler/messaging/consumer.py", "celery.worker.consumer", "Consumer.on_invalid_task", ("self", "body")),
    ("scheduler/messaging/consumer.py", "celery.worker.consumer", "Consumer.on_decode_error", ("self", "message")),
    ("scheduler/messaging/consumer.py", "celery.worker.state", "should_stop", None),
    ("scheduler/messaging/consumer.py", "celery.worker.state", "should_terminate", None),
    ("scheduler/messaging/pool_controls.py", "celery.worker.control", "pool_grow", ("state", "n")),
    ("scheduler/messaging/pool_controls.py", "celery.worker.control", "pool_shrink", ("state", "n")),
    ("scheduler/messaging/pool_controls.py", "celery.worker.control", "nok", ("value",)),
    ("scheduler/celery_startup.py", "celery.apps.worker", "safe_say", ("msg",)),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.redis", "Channel._brpop_start", ("self", "timeout")),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.redis", "Channel._brpop_read", ("self",)),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.redis", "Channel._receive_one", ("self", "c")),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.redis", "Channel._flush_brpop_reauth", ("self",)),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.redis", "Channel._q_for_pri", ("self", "queue", "pri")),
    (
        "scheduler/messaging/redis_transport.py", "kombu.transport.redis", "Channel._do_restore_message",
        ("self", "payload", "exchange", "routing_key", "pipe", "leftmost"),
    ),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.redis", "QoS.restore_unacked", ("self", "client")),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.redis", "Transport._deliver", ("self", "message")),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.virtual", "QoS.append", ("self", "message")),
    ("scheduler/messaging/redis_transport.py", "kombu.transport.virtual", "QoS.can_consume_max_estimate", ("self",)),
    ("scheduler/messaging/amqp_transport.py", "kombu.transport.pyamqp", "Channel.queue_declare", ("self", "queue")),
    ("store/db/pipeline.py", "psycopg.generators", "fetch_many", ("pgconn",)),
    ("store/db/pipeline.py", "psycopg.adapt", "Transformer.load_rows", ("self", "row0", "row1", "make_row")),
    ("components/text/json_in_text.py", "json_repair.json_parser", "JSONParser.get_char_at", ("self", "count")),
    ("components/text/json_in_text.py", "json_repair.json_parser", "JSONParser.scroll_whitespaces", ("self", "idx")),
    (
        "components/text/json_in_text.py", "json_repair.json_parser", "JSONParser.skip_to_character",
        ("self", "character", "idx"),
    ),
    (
        "components/text/json_in_text.py", "json_repair.json_parser", "JSONParser.parenthesized_is_explicit_tuple",
        ("self",),
    ),
    (
        "components/text/json_in_text.py", "json_repair.json_parser",
        "JSONParser.top_level_parenthesized_can_start_value", ("self",),
    ),
    ("providers/models/billing/price_updates.py", "genai_prices.types", "_providers_from_raw", None),
    ("api/http/http1_protocol.py", "uvicorn.protocols.http.h11_impl", "H11Protocol.handle_events", ("self",)),
    ("api/http/http1_protocol.py", "uvicorn.protocols.http.h11_impl", "H11Protocol.data_received", ("self", "data")),
]  # fmt: skip
BOUND_TO_A_MINOR = ("celery", "kombu", "psycopg", "json-repair", "genai-prices", "h11")


@pytest.mark.parametrize(("file", "module", "name", "parameters"), INTERNALS, ids=lambda value: str(value)[:60])
def test_internal_of_a_library_is_where_our_module_expects_it(
    file: str, module: str, name: str, parameters: tuple[str, ...] | None
):
    relies = f"{file} relies on {module}.{name}, which this version of the library"

    try:
        found: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    except (AttributeError, ImportError) as error:
        pytest.fail(f"{relies} does not have: {error}")

    if parameters is not None:
        names = tuple(inspect.signature(found).parameters)
        assert names[: len(parameters)] == parameters, f"{relies} gives the parameters {names}"


def test_every_file_that_calls_a_private_method_of_a_base_class_is_listed():
    files = {
        str(path.relative_to(ROOT))
        for package in ("api", "components", "knowledge", "providers", "scheduler", "store", "worker")
        for path in (ROOT / package).rglob("*.py")
        if any(_is_private_super_call(node) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    }

    assert files
    assert files <= {file for file, *_ in INTERNALS}


def _is_private_super_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "super"
    )


@pytest.mark.parametrize("name", BOUND_TO_A_MINOR)
def test_library_whose_internals_are_used_is_bound_below_its_next_minor_version(name: str):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (requirement,) = [each for each in map(Requirement, project["dependencies"]) if each.name == name]
    floor = max(Version(each.version) for each in requirement.specifier if each.operator in (">=", "~="))

    assert requirement.specifier.contains(floor)
    assert not requirement.specifier.contains(Version(f"{floor.major}.{floor.minor + 1}.0"))
