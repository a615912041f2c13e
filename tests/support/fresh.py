"""Runs Python code in fresh processes: the runtime reads its settings once in a process, so tests of them need many.

Importing torch takes seconds, so one server process imports everything, reads no setting, and forks a child for each
piece of code. Every test that uses it thereby also shows that the runtime works in a process forked after import.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLES = ("DG_", "CUDA_HOME", "CUDA_PATH")  # what may decide how the runtime behaves, and is not inherited


@dataclass
class Outcome:
    status: int  # 0: the code ran to its end; -9: killed by signal 9
    result: Any  # what the code left in `result`
    stderr: str  # and what was printed


@dataclass
class Running:
    """A process that was started: `wait` for its outcome, or kill it by its `pid`."""

    pid: int
    folder: Path
    server: Server

    def wait(self) -> Outcome:
        status = self.server.ask({"wait": self.pid})["status"]
        result = self.folder / "result"
        outcome = Outcome(
            status,
            json.loads(result.read_text()) if result.exists() else None,
            (self.folder / "stderr").read_text(),
        )
        shutil.rmtree(self.folder)
        return outcome


@dataclass
class Server:
    process: subprocess.Popen = field(init=False)

    def __post_init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
        environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # tvm_ffi asks torch for GPUs, which starts CUDA otherwise
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # finds what this process finds
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        atexit.register(self.process.stdin.close)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, code: str, environment: dict[str, str | None]) -> Running:
        folder = Path(tempfile.mkdtemp(prefix="fresh-"))
        return Running(self.ask({"code": code, "environment": environment, "folder": str(folder)})["pid"], folder, self)


_server: Server | None = None


def start(code: str, **environment: Any) -> Running:
    """Start code in a new process. `C`, `jit`, `torch`, `os` and `HOPPER_TARGET` are there; an environment value of
    None unsets it. It has the kernel cache of this process, unless its environment names another."""
    global _server
    _server = _server or Server()
    environment = {"DG_JIT_CACHE_DIR": os.environ.get("DG_JIT_CACHE_DIR"), **environment}
    return _server.start(code, {name: None if value is None else str(value) for name, value in environment.items()})


def run(code: str, **environment: Any) -> Outcome:
    """Run code in a new process to its end."""
    return start(code, **environment).wait()


def check(code: str, **environment: Any) -> Outcome:
    """Run code that must not fail."""
    outcome = run(code, **environment)
    assert outcome.status == 0, outcome.stderr
    return outcome


def program(path: Path, *arguments: str, **environment: Any) -> str:
    """What `python PATH ARGUMENTS` prints, which must not fail."""
    code = f"""
import runpy, sys
sys.argv = {[str(path), *arguments]!r}
sys.path.insert(0, {str(path.parent)!r})
runpy.run_path({str(path)!r}, run_name="__main__")
"""
    return check(code, **environment).stderr


def copied_package(target: Path) -> str:
    """Code that makes the runtime use a copy of the device headers."""
    return f"""
import shutil
shutil.copytree(jit.__file__.replace("jit.py", "include"), {str(target / "include")!r})
from deep_gemm._nvrtc import nvrtc_directories
C.initialize({str(target)!r}, nvrtc_directories())
"""


def _child(request: dict[str, Any], names: dict[str, Any]) -> None:
    status = 1
    try:
        folder = Path(request["folder"])
        log = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT, 0o666)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)  # the server's own output is the protocol
        os.dup2(log, 2)
        for name, value in request["environment"].items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        scope = dict(names)
        exec(compile(request["code"], "<fresh>", "exec"), scope)
        if "result" in scope:
            (folder / "result").write_text(json.dumps(scope["result"]))
        status = 0
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _serve() -> None:
    import torch

    from deep_gemm import jit
    from deep_gemm._extension import C
    from deep_gemm._targets import HOPPER_TARGET

    names = {"C": C, "jit": jit, "torch": torch, "os": os, "HOPPER_TARGET": HOPPER_TARGET}
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = {"status": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
        else:
            pid = os.fork()
            if pid == 0:
                _child(request, names)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
