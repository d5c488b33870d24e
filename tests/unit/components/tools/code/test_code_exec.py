import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import ToolError
from canvas.outcome import Failed, Finished
from components.nodes.agent.tool_set import ToolEntry, tool_function
from components.tools.code.code_exec import CODE_EXEC, NO_SANDBOX, CodeExecParams, execute
from components.tools.framework.tool_node import tool_component
from providers.interfaces import ProducedFile, Program, ProgramResult, Services
from tests.fakes import FakeContext, FakeHttp, no_network, run

STORED = {
    "script": "def main(a): return a",
    "arguments": {"a": "begin@a"},
    "outputs": {"result": {"type": "Any", "value": ""}},
}


class Sandbox:
    """Returns the same result for every program, and records the programs."""

    def __init__(self, result: ProgramResult | ToolError, *, repeatable: bool = True) -> None:
        self._result = result
        self.is_repeatable = repeatable
        self.programs: list[Program] = []

    async def run(self, program: Program) -> ProgramResult:
        self.programs.append(program)
        if isinstance(self._result, ToolError):
            raise self._result
        return self._result


def sandbox_returning(value: Any, **result: Any) -> Sandbox:
    return Sandbox(ProgramResult(value=value, has_value=True, **result))


def context(sandbox: Sandbox | None, **known: Any) -> FakeContext:
    known.setdefault("values", {"begin": {"a": "x"}})
    return FakeContext(services=Services(FakeHttp(no_network), sandbox=sandbox), **known)


def on_node(sandbox: Sandbox | None, ctx: FakeContext | None = None, **params: Any) -> Finished | Failed:
    outcome = run(tool_component(CODE_EXEC), {**STORED, **params}, ctx or context(sandbox))
    assert isinstance(outcome, Finished | Failed)
    return outcome


def outputs(sandbox: Sandbox, **params: Any) -> Mapping[str, Any]:
    outcome = on_node(sandbox, **params)
    assert isinstance(outcome, Finished), outcome
    return outcome.outputs


def error(sandbox: Sandbox | None, **params: Any) -> str:
    outcome = on_node(sandbox, **params)
    assert isinstance(outcome, Failed), outcome
    return outcome.error


def test_return_value_of_main_is_the_nodes_output_and_text():
    found = outputs(sandbox_returning({"result": "xy"}), outputs={"result": {"type": "Object"}})

    assert found == {
        "result": {"result": "xy"},
        "raw_result": {"result": "xy"},
        "actual_type": "Object",
        "content": '{\n  "result": "xy"\n}',
        "attachments": [],
        "_ARTIFACTS": None,
        "_ATTACHMENT_CONTENT": "",
    }


def test_a_value_of_another_type_is_an_error_that_shows_the_value():
    params = CodeExecParams.model_validate({**STORED, "outputs": {"result": {"type": "String"}}})

    with pytest.raises(ToolError) as failed:
        asyncio.run(execute(params, {}, context(sandbox_returning(3))))

    assert str(failed.value) == "CodeExec contract mismatch at value: expected type String, got Number"
    details = failed.value.details["outputs"]
    assert (details["result"], details["raw_result"], details["actual_type"], details["content"]) == (
        None,
        3,
        "Number",
        "3",
    )


def test_a_node_whose_value_is_of_another_type_fails_and_still_shows_it():
    outcome = on_node(sandbox_returning(3), outputs={"result": {"type": "String"}})

    assert isinstance(outcome, Failed)
    assert outcome.error == "CodeExec contract mismatch at value: expected type String, got Number"
    assert outcome.outputs == {
        "result": None,
        "raw_result": 3,
        "actual_type": "Number",
        "content": "3",
        "attachments": [],
        "_ARTIFACTS": None,
        "_ATTACHMENT_CONTENT": "",
    }


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (ProgramResult(stdout='{"a": 1}\n'), {"a": 1}),
        (ProgramResult(stdout="plain\n", stderr="a warning"), "plain"),
        (ProgramResult(), ""),
        (ProgramResult(value=None, has_value=True, stderr="a warning", exit_code=1), None),
        (ProgramResult(value=float("nan"), has_value=True), None),
    ],
)
def test_successful_program_has_a_value(result: ProgramResult, value: Any):
    assert outputs(Sandbox(result))["result"] == value


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ProgramResult(stderr="Line 1: Import: os", exit_code=-999), "Line 1: Import: os"),
        (ProgramResult(stderr="Execution timeout", exit_code=-124), "Execution timeout"),
        (ProgramResult(stderr="said with code 0"), "said with code 0"),
        (ProgramResult(stdout="half done", stderr="Traceback\nboom", exit_code=1), "Traceback\nboom"),
        (ProgramResult(stdout="half done", exit_code=3), "The program ended with exit code 3."),
        (ProgramResult(stderr="x" * 5000, exit_code=1), "x" * 4000),
    ],
)
def test_failed_program_fails_the_node_with_its_stderr(result: ProgramResult, text: str):
    outcome = on_node(Sandbox(result))

    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.outputs) == (text, {"result": None})


def test_sandbox_error_fails_the_node_and_is_not_retried():
    sandbox = Sandbox(ToolError("Execution timed out after 30 seconds", retryable=True))

    assert error(sandbox, max_retries=3) == "Execution timed out after 30 seconds"
    assert len(sandbox.programs) == 1


def test_missing_sandbox_fails_the_node():
    assert error(None) == NO_SANDBOX


@pytest.mark.parametrize("value", [True, None, 0, "", [1], {"k": "é"}])
def test_arguments_keep_their_types(value: Any):
    sandbox = sandbox_returning(1)

    on_node(sandbox, context(sandbox, values={"begin": {"a": value}}), arguments={"a": "{begin@a}", "b": ""})

    assert sandbox.programs[0].arguments == {"a": value, "b": None}


def test_arguments_of_a_call_override_references_even_if_falsy():
    sandbox = sandbox_returning(1)
    params = CodeExecParams.model_validate(STORED)

    asyncio.run(CODE_EXEC.run(params, {"lang": "python", "script": "s", "a": 0}, context(sandbox)))

    assert (sandbox.programs[0].arguments, sandbox.programs[0].script) == ({"a": 0}, "s")


def test_an_unknown_reference_fails_the_node():
    assert error(sandbox_returning(1), arguments={"a": "nowhere@a"}) == "Can't find variable: 'nowhere@a'"


def test_braces_in_a_script_are_not_resolved():
    sandbox = sandbox_returning(1)
    script = 'import sys\ndef main(a): return f"{sys.version} {a}"'

    on_node(sandbox, script=script)

    assert sandbox.programs[0].script == script


@pytest.mark.parametrize(
    ("lang", "language"),
    [("python", "python"), ("python3", "python"), ("javascript", "nodejs"), ("nodejs", "nodejs")],
)
def test_language_aliases_are_normalized_for_the_sandbox(lang: str, language: str):
    sandbox = sandbox_returning(1)

    on_node(sandbox, lang=lang)

    assert sandbox.programs[0].language == language


def test_program_has_the_time_limit_of_the_node_and_a_key_of_its_activation():
    sandbox = sandbox_returning(1)
    ctx = context(sandbox, limits={"CodeExec": 7.0}, node_id="CodeExec:C", visit=2, scope_item=1)

    on_node(sandbox, ctx)

    assert (sandbox.programs[0].timeout, sandbox.programs[0].key) == (7.0, "run-1:CodeExec:C:1:2")


def test_files_are_stored_linked_and_described():
    files = (
        ProducedFile("chart.png", b"\x89PNG", "image/png"),
        ProducedFile("d/data.CSV", b"a,b\n1,2", "text/csv"),
    )
    sandbox = sandbox_returning("done", files=files)
    ctx = context(sandbox)

    outcome = on_node(sandbox, ctx)

    found = outcome.outputs
    [chart, data] = found["_ARTIFACTS"]
    assert chart["url"].startswith("/api/v1/documents/artifact/")
    assert chart["url"].endswith(".png?session_id=run-1")
    assert (chart["name"], chart["mime_type"], chart["size"]) == ("chart.png", "image/png", 4)
    assert data["url"].endswith(".csv?session_id=run-1")
    assert found["attachments"] == [f"![chart.png]({chart['url']})", f"[Download d/data.CSV]({data['url']})"]
    attachment_text = (
        "attachment_count: 2\n\n"
        f"attachment1 (image): chart.png\nArtifact generated but parse failed. Download: {chart['url']}\n\n"
        "attachment2 (csv): d/data.CSV\na,b\n1,2"
    )
    assert found["_ATTACHMENT_CONTENT"] == attachment_text
    assert found["content"] == f"done\n\n{attachment_text}"
    assert {data for _, data, _ in ctx.saved.values()} == {b"\x89PNG", b"a,b\n1,2"}


def test_different_files_of_the_same_name_are_stored_separately():
    ctx = context(None)

    for data in (b"1", b"2", b"2"):
        ctx.services = Services(
            FakeHttp(no_network),
            sandbox=sandbox_returning(1, files=(ProducedFile("a.json", data, "application/json"),)),
        )
        on_node(None, ctx)

    assert sorted(data for _, data, _ in ctx.saved.values()) == [b"1", b"2"]


def test_finished_program_is_not_run_by_the_next_attempt():
    sandbox = Sandbox(ProgramResult(value=1, has_value=True), repeatable=False)
    ctx = context(sandbox)

    first = on_node(sandbox, ctx)
    second = on_node(sandbox, ctx)

    assert first == second
    assert len(sandbox.programs) == 1


def test_failed_program_is_not_run_by_the_next_attempt():
    sandbox = Sandbox(ProgramResult(stderr="boom", exit_code=1), repeatable=False)
    ctx = context(sandbox)

    assert on_node(sandbox, ctx) == on_node(sandbox, ctx)
    assert len(sandbox.programs) == 1


def test_program_is_unrepeatable_until_its_result_is_recorded():
    sandbox = Sandbox(ProgramResult(value=1, has_value=True), repeatable=False)
    ctx = context(sandbox)

    on_node(sandbox, ctx)
    on_node(sandbox, ctx)

    assert ctx.non_repeatable_work == ["done"]


def test_program_in_an_isolated_sandbox_may_be_repeated():
    sandbox = sandbox_returning(1)
    ctx = context(sandbox)

    on_node(sandbox, ctx)

    assert ctx.non_repeatable_work == []


def test_a_model_reads_all_outputs_but_the_internal_ones():
    params = CodeExecParams.model_validate({})

    done = asyncio.run(
        CODE_EXEC.run(params, {"lang": "python", "script": "def main(): return {}"}, context(sandbox_returning({})))
    )

    assert done.answer == {
        "result": {},
        "raw_result": {},
        "actual_type": "Object",
        "content": "{}",
        "attachments": [],
    }


def test_unknown_language_from_a_model_is_an_error():
    done = asyncio.run(
        CODE_EXEC.run(
            CodeExecParams.model_validate({}), {"lang": "cobol", "script": "s"}, context(sandbox_returning(1))
        )
    )

    assert done.answer.startswith("CodeExec error: Language cobol is not supported.")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"lang": "ruby"}, "Support languages ruby is not supported, it should be in"),
        ({"script": " "}, "Script does not support empty value."),
    ],
)
def test_invalid_parameters_are_refused_when_the_canvas_is_loaded(params: Mapping[str, Any], text: str):
    with pytest.raises(ValidationError, match=text):
        CodeExecParams.model_validate(params)


def test_outputs_without_a_contract_fail_the_node_before_the_program_runs():
    sandbox = sandbox_returning(1)

    assert error(sandbox, outputs={}) == "CodeExec contract must contain exactly one business output, got 0"
    assert sandbox.programs == []


def test_call_may_pass_declared_arguments_only():
    sandbox = sandbox_returning(1)
    function = tool_function(ToolEntry("Code", "Code", CodeExecParams.model_validate(STORED), CODE_EXEC), 0)
    ctx = FakeContext(values={"begin": {"a": "the author's"}}, services=Services(FakeHttp(no_network), sandbox=sandbox))

    async def work(**arguments: Any) -> None:
        await function.call({"lang": "python", "script": "def main(a): return a", **arguments}, ctx)

    for arguments in ({"a": 0, "b": 1}, {"a": None}, {}):
        asyncio.run(work(**arguments))

    assert [program.arguments for program in sandbox.programs] == [{"a": 0}, *[{"a": "the author's"}] * 2]


# -- as an Agent's tool -----------------------------------------------------------------------------------------------
def call_as_model(sandbox: Any, ctx: FakeContext | None = None, **params: Any) -> Any:
    """Call the tool as a model does, with these parameters of the author; return the answer."""
    function = tool_function(ToolEntry("Code", "Code", CodeExecParams.model_validate(params), CODE_EXEC), 0)
    arguments = {"lang": "python", "script": "def main(): ..."}
    return asyncio.run(function.call(arguments, ctx or context(sandbox))).answer


def script_description(**params: Any) -> str:
    function = tool_function(ToolEntry("Code", "Code", CodeExecParams.model_validate(params), CODE_EXEC), 0)
    return function.schema["function"]["parameters"]["properties"]["script"]["description"]


DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "nothing stored": {},
    "the defaults stored": {"outputs": {"result": {"type": "object", "value": ""}, "attachments": {"value": []}}},
    "the defaults stored as types are named": {"outputs": {"result": {"type": "Object", "value": None}}},
}


@pytest.mark.parametrize("params", DEFAULTS.values(), ids=DEFAULTS)
@pytest.mark.parametrize("value", [42, "text", [1], None, True, {"a": 1}])
def test_program_of_a_model_may_return_any_json_value_without_a_declared_type(params: Any, value: Any):
    answer = call_as_model(sandbox_returning(value), **params)

    assert (answer["result"], answer["raw_result"]) == (value, value)
    assert "error" not in answer


def test_printed_output_of_a_models_program_is_returned():
    answer = call_as_model(sandbox_returning(None, stdout="the sum is 3\n"))

    assert (answer["result"], answer["printed"]) == (None, "the sum is 3")


def test_model_gets_the_value_and_the_contract_error():
    answer = call_as_model(sandbox_returning(3, stdout="three"), outputs={"total": {"type": "String"}})

    assert answer == {
        "error": "CodeExec contract mismatch at value: expected type String, got Number",
        "total": None,
        "raw_result": 3,
        "actual_type": "Number",
        "content": "3",
        "attachments": [],
        "printed": "three",
    }


def test_model_gets_the_output_of_a_failed_program():
    answer = call_as_model(Sandbox(ProgramResult(stdout="half done\n", stderr="Traceback\nboom", exit_code=1)))

    assert answer == {"error": "CodeExec error: Traceback\nboom", "printed": "half done"}


def test_model_gets_the_recorded_result_of_another_attempt():
    sandbox = Sandbox(ProgramResult(value=1, has_value=True, stdout="one"), repeatable=False)
    ctx = context(sandbox)

    first, second = call_as_model(sandbox, ctx), call_as_model(sandbox, ctx)

    assert first == second
    assert (first["printed"], len(sandbox.programs)) == ("one", 1)


def test_model_gets_the_end_of_long_output():
    answer = call_as_model(sandbox_returning(1, stdout="x" * 100_000 + "end"))

    assert answer["printed"].endswith("xend")
    assert len(answer["printed"]) < 20_000


def test_schema_names_the_type_that_the_author_declares():
    assert script_description(outputs={"total": {"type": "array<number>"}}).endswith(
        "a JSON value of type Array<Number>."
    )
    assert script_description().endswith("returns a JSON value.")
    assert script_description(outputs={}).endswith("returns a JSON value.")


def test_default_output_type_is_enforced_for_a_node():
    assert error(sandbox_returning(42), outputs={"result": {"type": "object", "value": ""}}) == (
        "CodeExec contract mismatch at value: expected type Object, got Number"
    )


def test_error_without_a_sandbox_names_the_setting():
    assert "EASEL_SANDBOX=local" in error(None)
    assert "admin panel" not in error(None)
