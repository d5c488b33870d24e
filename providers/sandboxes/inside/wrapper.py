"""The wrapper of a Python program on a remote machine: runs `main` and prints the result.

The whole text is sent with the program in it (`providers/sandboxes/remote_program.py` fills in `JOB`). It runs in the
Python of that machine and does not import Easel:

    JOB = base64 of {"mark", "script", "arguments", "ends", "files"}

The result is one line on standard output, after a mark that is unique to the run. `ends`: the process ends with the
program; False for an interpreter that other programs share. `files`: limits for the files of `artifacts/` that are sent
with the result; null: no files are sent.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import linecache
import os
import stat
import sys
import traceback
import types
from typing import Any

JOB = ""
_NAME = "main.py"


def run() -> None:
    """Run the program of the job and print its result."""
    job = json.loads(base64.b64decode(JOB))
    os.makedirs("artifacts", exist_ok=True)
    try:
        value = json.loads(json.dumps(_call_main(job["script"], job["arguments"])), parse_constant=lambda _: None)
    except SystemExit as end:
        _exit(job, end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException as error:  # noqa: BLE001 (every error of the code is printed and ends the program)
        _print_traceback(error)
        _exit(job, 1)
    else:
        result = {"present": True, "value": value, "type": "json"}
        if job["files"]:
            result.update(_collect_files(job["files"]))
        sys.stdout.flush()
        line = job["mark"] + base64.b64encode(json.dumps(result).encode()).decode() + "\n"
        sys.stdout.write(line)
        _exit(job, 0)


def _call_main(script: str, arguments: dict[str, Any]) -> Any:
    module = types.ModuleType("main")
    module.__file__ = _NAME
    sys.modules["main"] = module
    linecache.cache[_NAME] = (len(script), None, script.splitlines(keepends=True), _NAME)
    exec(compile(script, _NAME, "exec"), vars(module))  # noqa: S102 (running the program is the purpose of this file)
    if not callable(getattr(module, "main", None)):
        raise NameError("The script does not define a function main.")
    value = module.main(**arguments)
    return asyncio.run(_await_value(value)) if inspect.isawaitable(value) else value


async def _await_value(value: Any) -> Any:
    return await value


def _print_traceback(error: BaseException) -> None:
    """Print the traceback, starting at the script's own lines."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != _NAME:
        place = place.tb_next
    traceback.print_exception(type(error), error, place)


def _collect_files(limits: dict[str, Any]) -> dict[str, Any]:
    """Return regular files of supported types within the limits, and the other files by name and reason."""
    files: list[dict[str, str]] = []
    skipped: list[dict[str, str]] = []
    free = limits["room"]
    for folder, folders, names in os.walk("artifacts"):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, "artifacts")
            status = os.lstat(path)
            reason = ""
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                reason = limits["not_plain"]
            elif os.path.splitext(name)[1].lower() not in limits["kinds"]:
                reason = limits["other_kind"]
            elif status.st_size > min(limits["largest"], free) or len(files) == limits["most"]:
                reason = limits["no_room"]
            if not reason:
                with open(path, "rb") as file:
                    data = file.read(limits["largest"])
                free -= len(data)
                files.append({"name": shown, "content_b64": base64.b64encode(data).decode()})
            elif len(skipped) < limits["most_skipped"]:
                skipped.append({"name": shown, "reason": reason})
    return {"files": files, "skipped": skipped}


def _exit(job: dict[str, Any], code: int) -> None:
    """Exit at once, without threads and exit handlers of the code; in a shared interpreter only raise a failure."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if job["ends"]:
        os._exit(code & 0xFF)
    if code:
        raise RuntimeError(f"The program ended with exit code {code}.")


if JOB:
    run()
