"""CodeExec: run a program of the author or the model in a sandbox.

DSL: `lang` (`python`, `javascript`), `script` with a function `main`, `arguments` {name: reference}, `outputs` with one
output of the node's own and its type. The return value of `main` becomes that output, `raw_result`, and as text
`content`; files that the program writes into `artifacts/` are stored (`_ARTIFACTS`, `attachments`).

A program is never run twice without being asked to: `max_retries` is ignored and the result is recorded. If the worker
is lost while the program runs, the outcome is unknown, unless the sandbox guarantees that the program had no effect
outside (docs/tools.md, row T13).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.code import output_contract, output_files
from components.tools.code.output_contract import OutputContract
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import not_empty, one_of
from providers.interfaces import Program, ProgramResult, Sandbox
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.sanitizer import clean

LANGUAGES: Mapping[str, str] = {
    "python": "python",
    "python3": "python",
    "nodejs": "nodejs",
    "javascript": "nodejs",
}
"""The spellings that authors and models use, each with the sandbox's name of the language."""

NO_SANDBOX = (
    "No sandbox is configured to run code. Set EASEL_SANDBOX on the workers, for example EASEL_SANDBOX=local, "
    "and start them again."
)
MAX_ERROR_LENGTH = 4000  # characters; of a longer stderr, the end is kept
DEFAULT_SCRIPT = 'def main(arg1: str, arg2: str) -> dict:\n    return {"result": arg1 + arg2}\n'
_RESULT_KEY = "code:done"
_MAX_PRINTED = 16_000  # characters of a program's output that a model gets beside its result
_MAIN_RETURNS = "It defines `main`, without parameters, which returns a JSON value"


def _default_outputs() -> dict[str, Any]:
    return {"result": {"value": "", "type": "object"}, "attachments": {"value": [], "type": "Array<String>"}}


class CodeExecParams(ToolParams):
    fields_with_null: ClassVar[tuple[str, ...]] = ("script",)

    lang: Annotated[str, one_of("Support languages", tuple(LANGUAGES))] = "python"
    script: Annotated[Any, not_empty("Script")] = DEFAULT_SCRIPT
    arguments: Any = Field(default_factory=dict[str, Any])
    outputs: Any = Field(default_factory=_default_outputs)

    @property
    def extra_arguments(self) -> tuple[str, ...]:
        """The program's arguments; a value in the call goes before the author's reference."""
        return tuple(map(str, self.arguments)) if isinstance(self.arguments, Mapping) else ()


async def execute(params: CodeExecParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    contract = output_contract.contract_of(params.outputs)
    program = _program(params, arguments, ctx)
    sandbox = ctx.services.sandbox
    if sandbox is None:
        raise ToolError(NO_SANDBOX)
    if sandbox.is_repeatable:
        return _check_result(await _run_program(sandbox, program, contract, ctx), contract)
    recorded = await ctx.journal_get(_RESULT_KEY)
    if recorded is None:
        async with ctx.non_repeatable():
            recorded = await _run_program(sandbox, program, contract, ctx)
            await ctx.journal_put(_RESULT_KEY, recorded)  # before the result is used
    return _check_result(recorded, contract)


async def _run_program(
    sandbox: Sandbox, program: Program, contract: OutputContract, ctx: NodeContext
) -> Mapping[str, Any]:
    """Run the program; return {"outputs"} or {"error"}, and "printed" with its output beside the result."""
    printed = ""
    try:
        result = await sandbox.run(program)
        printed = clean(result.stdout).strip()
        outputs = await _outputs(result, contract, ctx)
    except ToolError as error:
        return {"error": error.message, "printed": printed}
    return {"outputs": outputs, "printed": printed if result.has_value else ""}


async def _outputs(result: ProgramResult, contract: OutputContract, ctx: NodeContext) -> dict[str, Any]:
    """Return all outputs of a run, the program's own under the contract's name. Raises ToolError if it failed."""
    value, kind, text = await in_untrusted_thread(_describe_value, result)
    stored = await output_files.store_files(result.files, ctx)
    return {
        contract.name: value,
        "raw_result": value,
        "actual_type": kind,
        "content": "\n\n".join(part for part in (text, stored.content) if part),
        "attachments": stored.links,
        "_ARTIFACTS": stored.artifacts or None,
        "_ATTACHMENT_CONTENT": stored.content,
    } | _skipped_files_output(result)


def _skipped_files_output(result: ProgramResult) -> dict[str, Any]:
    """Return the output that lists the skipped files; {} if there are none."""
    skipped = [{"name": clean(file.name), "reason": file.reason} for file in result.skipped]
    return {"_SKIPPED_ARTIFACTS": skipped} if skipped else {}


def _describe_value(result: ProgramResult) -> tuple[Any, str, str]:
    """Return a program's value, its type and its text. Raises ToolError with the program's stderr if it failed."""
    value = _program_value(result)
    return value, output_contract.type_of(value), output_contract.content_text(value)


def _program_value(result: ProgramResult) -> Any:
    if result.has_value:
        return output_contract.to_json_value(result.value)
    has_no_output = not result.files and not result.stdout.strip()
    if result.exit_code != 0 or (result.stderr.strip() and has_no_output):
        stderr = result.stderr.strip()[-MAX_ERROR_LENGTH:]
        raise ToolError(stderr or f"The program ended with exit code {result.exit_code}.")
    return output_contract.parse_printed(result.stdout)


def _check_result(recorded: Mapping[str, Any], contract: OutputContract) -> ToolResult:
    """Return the result if it fulfils the contract.

    Raises ToolError otherwise: the node gets the other outputs, and the model gets the value, the output and the error.
    """
    printed = _printed_output(recorded.get("printed") or "")  # records of older releases have none
    failure = recorded.get("error")
    if failure:
        answer = {"error": f"{CODE_EXEC.name} error: {failure}", **printed} if printed else None
        raise ToolError(failure, answer=answer)
    outputs: Mapping[str, Any] = recorded["outputs"]
    shown = {name: value for name, value in outputs.items() if not name.startswith("_")} | printed
    wrong = contract.find_mismatch(outputs[contract.name])
    if wrong:
        emptied = {contract.name: None}
        raise ToolError(wrong, outputs={**outputs, **emptied}, answer={"error": wrong, **shown, **emptied})
    return ToolResult(outputs, answer=shown)


def _printed_output(text: str) -> dict[str, str]:
    """Return what a program printed, for a model; of a long text the end."""
    shown = text if len(text) <= _MAX_PRINTED else f"[...]{text[-_MAX_PRINTED:]}"
    return {"printed": shown} if text else {}


def adapt_for_models(params: CodeExecParams) -> CodeExecParams:
    """Return the parameters for calls by a model.

    Outputs that still have their default type are turned into type Any, because the model writes the program and the
    default makes no promise about it.
    """
    name, declared = next(iter(_default_outputs().items()))
    own = {key: value for key, value in _own_outputs(params).items() if key not in output_contract.RESERVED}
    kind = own[name].get("type") if list(own) == [name] and isinstance(own[name], Mapping) else None
    if str(kind or "").strip().lower() != declared["type"]:
        return params
    return params.model_copy(
        update={"outputs": {**_own_outputs(params), name: {**own[name], "type": output_contract.ANY}}}
    )


def _own_outputs(params: CodeExecParams) -> Mapping[str, Any]:
    return params.outputs if isinstance(params.outputs, Mapping) else {}


def _schema_arguments(params: CodeExecParams) -> Mapping[str, Argument]:
    """Return the arguments for the schema; the description of `script` names the author's type, if there is one."""
    try:
        contract = output_contract.contract_of(params.outputs)
    except ToolError:  # every call reports the wrong contract
        return CODE_EXEC.arguments
    if contract.is_unrestricted:
        return CODE_EXEC.arguments
    script = CODE_EXEC.arguments["script"]
    described = f"The whole program. {_MAIN_RETURNS} of type {contract.type_name}."
    return {**CODE_EXEC.arguments, "script": replace(script, description=described)}


def _program(params: CodeExecParams, arguments: Mapping[str, Any], ctx: NodeContext) -> Program:
    """Return the program to run. Arguments in the call go before the author's references."""
    language = value_text(arguments.get("lang")) or params.lang
    if language.strip().lower() not in LANGUAGES:
        raise ToolError(f"Language {language} is not supported. Use one of {', '.join(LANGUAGES)}.")
    return Program(
        language=LANGUAGES[language.strip().lower()],
        script=value_text(arguments.get("script")) or value_text(params.script),
        arguments=_program_arguments(params, arguments, ctx),
        timeout=ctx.time_limit(CODE_EXEC.name),
        key=f"{ctx.run_id}:{ctx.node_id}:{ctx.scope_item}:{ctx.visit}",
    )


def _program_arguments(params: CodeExecParams, passed: Mapping[str, Any], ctx: NodeContext) -> dict[str, Any]:
    declared = params.arguments if isinstance(params.arguments, Mapping) else {}
    values: dict[str, Any] = {}
    for name, reference in declared.items():
        if name in passed and name not in CODE_EXEC.arguments:
            values[name] = passed[name]
        else:
            values[name] = ctx.lookup(str(reference)) if reference else None
        ctx.note_input(name, values[name])
    return values


CODE_EXEC = Tool(
    "CodeExec",
    "execute_code",
    CodeExecParams,
    description=(
        "Runs a program and returns what its function `main` returns. Use it to compute, to convert data or to draw "
        "charts: files that it writes into the folder `artifacts` are given to the user. What it prints is returned "
        "as well."
    ),
    arguments={
        "lang": Argument("string", "The program's language.", required=True, enum=("python", "javascript")),
        "script": Argument(
            "string",
            f"The whole program. {_MAIN_RETURNS}.",
            required=True,
        ),
    },
    call=execute,
    effect="keyed",
    empty_outputs=None,
    main_output="content",
    retries=0,
    adapt_for_models=adapt_for_models,
    schema_arguments=_schema_arguments,
    outputs=(
        "result",
        "raw_result",
        "actual_type",
        "content",
        "attachments",
        "_ARTIFACTS",
        "_ATTACHMENT_CONTENT",
    ),
)
