"""The bytes that model calls take in the database, as Markdown: `python -m bench.scripts.model_calls`.

An Agent asks a scripted model in so many rounds. Each round adds 1 KB of arguments and a tool result to the messages,
and each call sends all of them. The table compares what a call takes, with indexes, to its request and answer as JSON.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from sqlalchemy import text

from bench.fixtures.growth_engine import CanvasVersion, GrowthEngine, component_node, growth_engine
from store.primitives.encryption import EncryptionKey
from store.primitives.json_codec import encode
from store.runs import model_calls
from store.tenants import model_accounts
from store.tenants.model_accounts import AccountRow

ROUNDS = (0, 5, 10, 20)
RUNS = 40
CHARACTERS = 1000  # of the arguments of a round
BYTES = text("""
    select coalesce(sum(pg_total_relation_size(inhrelid)), 0) from pg_inherits where inhparent = to_regclass(:table)
""")


def main() -> None:
    """Measure, and print the table."""
    print("| rounds | calls of a run | rows: bytes a call | parts: bytes a call | together | as JSON |")  # noqa: T201
    print("|---:|---:|---:|---:|---:|---:|")  # noqa: T201
    with growth_engine() as growth, tempfile.TemporaryDirectory(prefix="easel-calls-") as folder:
        for rounds in ROUNDS:
            print(_row(growth, Path(folder), rounds))  # noqa: T201


def _row(growth: GrowthEngine, folder: Path, rounds: int) -> str:
    version = _agent(growth, folder, rounds)
    growth.run_to_end(version)
    rows, parts = _bytes(growth, "model_calls"), _bytes(growth, "call_parts")
    run_ids = [growth.run_to_end(version) for _ in range(RUNS)]
    rows, parts = _bytes(growth, "model_calls") - rows, _bytes(growth, "call_parts") - parts
    with growth.database.transaction() as tx:
        calls = model_calls.list_calls(tx, growth.tenant, run_ids[-1])
        bodies = [model_calls.load_bodies(tx, run_ids[-1], call) for call in calls]
    number = RUNS * len(calls)
    whole = sum(len(encode([body.request, body.response])) for body in bodies) / len(calls)
    figures = (rounds, len(calls), rows / number, parts / number, (rows + parts) / number, whole)
    return f"| {' | '.join(f'{figure:,.0f}' for figure in figures)} |"


def _agent(growth: GrowthEngine, folder: Path, rounds: int) -> CanvasVersion:
    calls = [{"name": "search", "arguments": {"query": _text(number)}} for number in range(rounds)]
    rules: list[Any] = [*({"tool_calls": [call], "times": 1} for call in calls), {"reply": _text(rounds), "times": 1}]
    file = folder / "rules.json"
    file.write_text(json.dumps(rules * (1 + RUNS)), encoding="utf-8")  # one after the other
    with growth.database.transaction() as tx:
        account = AccountRow("Easel", extra={"rules": str(file)})
        model_accounts.put_account(tx, growth.tenant, account, EncryptionKey.from_secret("no key is sealed with it"))
    helper = {"component_name": "Agent", "name": "Helper", "params": {"llm_id": "scripted"}}
    agent = {
        "llm_id": "scripted",
        "sys_prompt": _text(-1),
        "prompts": [{"role": "user", "content": "{sys.query}"}],
        "tools": [helper],
        "max_rounds": rounds + 1,
    }
    return growth.create_version(
        {"begin": component_node("Begin", {}, "Agent:0"), "Agent:0": component_node("Agent", agent)}
    )


def _text(number: int) -> str:
    """Return a text that is like no other of the run."""
    words = (f"w{(number + 7) * 7919 * index % 99_991}" for index in range(1, CHARACTERS))
    return " ".join(words)[:CHARACTERS]


def _bytes(growth: GrowthEngine, table: str) -> int:
    with growth.database.transaction() as tx:
        return int(tx.scalar(BYTES, table=table))


if __name__ == "__main__":
    main()
