"""A run as one JSON document, `easel-run/1`: all that is stored about it, to be read without a server.

docs/http.md describes the shape ("A run as one file"). Each row is written once, and rows name each other by id: a
model call names the parts of its bodies by digest. Secrets of the canvas are masked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TextIO
from uuid import UUID

from canvas.budget import usage_json
from canvas.document.graph_view import graph_json
from canvas.errors import ValueGone
from canvas.graph.passwords import NO_PASSWORDS, PasswordMask
from canvas.ids import ActivationId, TenantId
from scheduler.coordinator.version_cache import VersionCache
from scheduler.views.activation_columns import to_object
from scheduler.views.call_views import attempt_json, call_json, tool_call_json
from scheduler.views.json_values import hex_of
from scheduler.views.value_previews import file_preview, preview
from store.agents import versions
from store.agents.version_titles import chosen_title
from store.db.transaction import Transaction
from store.monitoring import run_header
from store.primitives.ids import NO_ID
from store.primitives.json_codec import encode
from store.runs import activation_list, attempt_records, attempts, event_log, message_streams, model_calls
from store.runs import stored_contents as contents
from store.runs.activation_details import FileRef
from store.runs.activation_list import ActivationFilter, ActivationPage
from store.runs.event_log import LogFilter
from store.runs.passwords import load_mask
from store.runs.run_queries import RunSummary

FORMAT = "easel-run/1"
MAX_VALUE_BYTES = 1024 * 1024  # of a value's JSON, unless larger ones are requested
PAGE_SIZE = 500

MaskDocument = Callable[[RunSummary, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RunFile:
    """What writes the document of one run. `mask` replaces the secrets in a document of the run's agent."""

    tx: Transaction
    versions: VersionCache
    tenant_id: TenantId
    run: RunSummary
    mask: MaskDocument
    has_large: bool

    def write(self, out: TextIO) -> None:
        """Write the document. The transaction must read one snapshot (`USE_SNAPSHOT`)."""
        stored_version = versions.find(self.tx, self.tenant_id, self.run.canvas_id, self.run.version_id)
        compiled = self.versions.get(self.tx, self.run.version_id) if stored_version is not None else None
        document = compiled.document if compiled is not None else None
        passwords = NO_PASSWORDS
        if compiled is not None:
            passwords = load_mask(self.tx, compiled.canvas, self.tenant_id, self.run.id)
        out.write("{")
        for name, value in {
            "format": FORMAT,
            "exported_at": datetime.now(UTC).isoformat(),
            "run": _run_json(self.run, passwords) | self._titles(),
            "version": None
            if stored_version is None or document is None
            else {
                "id": stored_version.id.hex,
                "digest": stored_version.digest.hex(),
                "document": self.mask(self.run, document.raw),
            },
            "graph": graph_json(document) if document is not None else None,
        }.items():
            out.write(f'{"" if name == "format" else ","}\n"{name}":{encode(value)}')
        for name, rows in {
            "activations": self._activations(),
            "values": self._values(passwords),
            "variables": self._variables(passwords),
            "attempts": self._attempts(),
            "model_calls": self._model_calls(),
            "call_parts": self._call_parts(),
            "tool_calls": self._tool_calls(),
            "events": self._events(passwords),
            "message_streams": map(passwords.value, self._streams()),
        }.items():
            _write_list(out, name, rows)
        out.write("\n}\n")

    def _titles(self) -> dict[str, Any]:
        """Return the titles of the run's agent and version; null where they are gone."""
        header = run_header.load_header(self.tx, self.tenant_id, self.run.id)
        assert header is not None  # the snapshot has the run
        title = header.version_title
        return {
            "agent_title": header.agent_title,
            "version_title": chosen_title(title),
        }

    def _activations(self) -> Iterator[dict[str, Any]]:
        for page in self._pages():
            for row in page.rows:
                yield to_object(row, page.last_finished.get(row.id))

    def _values(self, passwords: PasswordMask) -> Iterator[dict[str, Any]]:
        for page in self._pages():
            for activation, node_id, inputs, outputs, large in contents.list_values(self.tx, self.run.id, _ids(page)):
                files = large or {}
                yield {
                    "activation_id": activation.hex,
                    "node_id": node_id,
                    "inputs": self._shorten(node_id, inputs or {}, files.get("inputs"), passwords),
                    "outputs": self._shorten(node_id, outputs or {}, files.get("outputs"), passwords),
                }

    def _variables(self, passwords: PasswordMask) -> Iterator[dict[str, Any]]:
        for page in self._pages():
            for activation, name, value, large in contents.list_variables(self.tx, self.run.id, _ids(page)):
                file = large["value"] if large else None
                shown = self._shorten(name, {name: value}, {name: file} if file is not None else None, passwords)
                yield {"activation_id": activation.hex, "name": name, "value": shown[name]}

    def _attempts(self) -> Iterator[dict[str, Any]]:
        after = NO_ID, 0
        while page := attempts.list_attempts(self.tx, self.tenant_id, self.run.id, after=after, limit=PAGE_SIZE):
            yield from map(attempt_json, page)
            after = page[-1].activation_id, page[-1].attempt

    def _model_calls(self) -> Iterator[dict[str, Any]]:
        after = NO_ID
        while page := model_calls.list_calls(self.tx, self.tenant_id, self.run.id, after=after, limit=PAGE_SIZE):
            for call in page:
                response = call.response.hex if call.response is not None else None
                yield {**call_json(call), "request": call.request, "response": response}
            after = page[-1].id

    def _call_parts(self) -> Iterator[dict[str, Any]]:
        for digest, body in contents.iterate_parts(self.tx, self.run.id, PAGE_SIZE):
            yield {"digest": digest.hex, "body": self._cut(body)}

    def _tool_calls(self) -> Iterator[dict[str, Any]]:
        after = NO_ID
        while page := attempt_records.list_calls_of_run(
            self.tx, self.tenant_id, self.run.id, after=after, limit=PAGE_SIZE
        ):
            yield from map(tool_call_json, page)
            after = page[-1].id

    def _events(self, passwords: PasswordMask) -> Iterator[dict[str, Any]]:
        after, has_more = 0, True
        while has_more:
            page = event_log.read_log(
                self.tx, self.tenant_id, self.run.id, LogFilter(after=after), limit=PAGE_SIZE, has_values=False
            )
            assert page is not None  # the snapshot has the run
            for event, details in page.events:
                after = event.number
                yield {
                    "number": event.number,
                    "event": event.name,
                    "activation_id": hex_of(event.activation),
                    "item": details.item,
                    "node_id": event.node_id,
                    "at": event.created_at.isoformat(),
                    "body": _mask_body(event.body, passwords),
                }
            has_more = page.has_more

    def _streams(self) -> Iterator[dict[str, Any]]:
        for stream in message_streams.list_opened(self.tx, self.run.id):
            yield {**asdict(stream), "id": stream.id.hex}

    # -- helpers ------------------------------------------------------------------------------------------------------
    def _pages(self) -> Iterator[ActivationPage]:
        """Yield the activations of the run, a page at a time, in the order of their ids."""
        after = None
        has_more = True
        while has_more:
            page = activation_list.read_page(
                self.tx, self.tenant_id, self.run.id, ActivationFilter(), after=after, limit=PAGE_SIZE
            )
            assert page is not None  # the snapshot has the run
            yield page
            has_more = page.has_more
            after = ActivationId(UUID(hex=page.rows[-1].id)) if page.rows else None

    def _shorten(
        self, node_id: str, values: Mapping[str, Any], files: Mapping[str, Any] | None, passwords: PasswordMask
    ) -> dict[str, Any]:
        """Return values by name: whole, cut, or why one could not be read."""
        shown = passwords.node_values(node_id, values)
        return {
            name: passwords.value(self._load(node_id, name, files[name]))
            if value is None and files and name in files
            else self._cut(value)
            for name, value in shown.items()
        }

    def _load(self, node_id: str, name: str, file: FileRef) -> Any:
        if not self.has_large and file[1] > MAX_VALUE_BYTES:
            return file_preview(file)
        try:
            return self.tx.large.load(node_id, {name: None}, {name: file})[name]
        except ValueGone as error:
            return {"$gone": True, "bytes": file[1], "error": error.message}

    def _cut(self, value: Any) -> Any:
        return value if self.has_large else preview(value, MAX_VALUE_BYTES)


def _mask_body(body: Mapping[str, Any], passwords: PasswordMask) -> Mapping[str, Any]:
    if not passwords:
        return body
    return {
        name: passwords.answers(member) if name == "inputs" else passwords.value(member)
        for name, member in body.items()
    }


def _run_json(run: RunSummary, passwords: PasswordMask) -> dict[str, Any]:
    """Return the run itself, without options of its request that only workers need."""
    request = {name: run.request.get(name) for name in ("query", "inputs", "files", "user_id")}
    return {
        "id": run.id.hex,
        "external_id": run.external_id,
        "agent_id": run.canvas_id.hex,
        "version_id": run.version_id.hex,
        "session_id": run.conversation_id.hex,
        "status": run.status,
        "error": run.error or None,
        "request": _mask_body(request, passwords),
        "usage": usage_json(run.usage),
        "created_at": run.created_at.isoformat(),
        "started_at": run.started_at.isoformat() if run.started_at is not None else None,
        "finished_at": run.finished_at.isoformat() if run.finished_at is not None else None,
        "origin": run.origin,
    }


def _write_list(out: TextIO, name: str, rows: Iterable[Any]) -> None:
    """Write a member of the document whose value is a list, a row on each line."""
    out.write(f',\n"{name}":[')
    for number, row in enumerate(rows):
        out.write(f"{',' if number else ''}\n{encode(row)}")
    out.write("]")


def _ids(page: ActivationPage) -> list[str]:
    return [row.id for row in page.rows]
