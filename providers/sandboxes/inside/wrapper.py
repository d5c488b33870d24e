"""What stands around a program on a machine that is not ours: it runs `main` and says what came of it.

The whole text goes there with the program in it (`providers/sandboxes/remote_program.py` fills in `TOLD`), runs in
whatever Python is there, and knows nothing of Easel:

    TOLD = base64 of {"mark", "script", "arguments", "ends", "files"}

The result is one line on standard output, behind a mark that no other run has. `ends`: the process ends with the
program; an interpreter that is shared is left alone. `files`: how many files of `artifacts/` go along, and how large.
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

TOLD = ""
_NAME = "main.py"


def run() -> None:
    told = json.loads(base64.b64decode(TOLD))
    os.makedirs("artifacts", exist_ok=True)
    try:
        value = json.loads(json.dumps(_value(told["script"], told["arguments"])), parse_constant=lambda _: None)
    except SystemExit as end:
        _end(told, end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException as error:  # noqa: BLE001 (whatever the code raises is told, and is the end of it)
        _tell(error)
        _end(told, 1)
    else:
        said = {"present": True, "value": value, "type": "json"}
        if told["files"]:
            said.update(_files(told["files"]))
        sys.stdout.flush()
        line = told["mark"] + base64.b64encode(json.dumps(said).encode()).decode() + "\n"
        sys.stdout.write(line)
        _end(told, 0)


def _value(script: str, arguments: dict[str, Any]) -> Any:
    module = types.ModuleType("main")
    module.__file__ = _NAME
    sys.modules["main"] = module
    linecache.cache[_NAME] = (len(script), None, script.splitlines(keepends=True), _NAME)
    exec(compile(script, _NAME, "exec"), vars(module))  # noqa: S102 (this is the place where it is to be run)
    if not callable(getattr(module, "main", None)):
        raise NameError("The script does not define a function main.")
    value = module.main(**arguments)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _tell(error: BaseException) -> None:
    """The traceback from the script's own lines on."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != _NAME:
        place = place.tb_next
    traceback.print_exception(type(error), error, place)


def _files(limits: dict[str, Any]) -> dict[str, Any]:
    """Plain files with a kind that is taken, as far as there is room; the rest by name and reason."""
    taken: list[dict[str, str]] = []
    skipped: list[dict[str, str]] = []
    room = limits["room"]
    for folder, folders, names in os.walk("artifacts"):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, "artifacts")
            found = os.lstat(path)
            reason = ""
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                reason = limits["not_plain"]
            elif os.path.splitext(name)[1].lower() not in limits["kinds"]:
                reason = limits["other_kind"]
            elif found.st_size > min(limits["largest"], room) or len(taken) == limits["most"]:
                reason = limits["no_room"]
            if not reason:
                with open(path, "rb") as file:
                    data = file.read(limits["largest"])
                room -= len(data)
                taken.append({"name": shown, "content_b64": base64.b64encode(data).decode()})
            elif len(skipped) < limits["most_skipped"]:
                skipped.append({"name": shown, "reason": reason})
    return {"files": taken, "skipped": skipped}


def _end(told: dict[str, Any], code: int) -> None:
    """The end, whatever threads or exit handlers the code has left; where others go on, only a word of failure."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if told["ends"]:
        os._exit(code & 0xFF)
    if code:
        raise RuntimeError(f"The program ended with exit code {code}.")


if TOLD:
    run()
