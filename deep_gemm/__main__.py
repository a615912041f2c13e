"""Command line: `python -m deep_gemm [COMMAND]`.

Without a command: say what was found (GPU, driver, compiler, cache), then run one FP8 GEMM and check it.
"""

from __future__ import annotations

import os
import sys

from deep_gemm._commands.demo import demo
from deep_gemm._commands.doctor import doctor
from deep_gemm._commands.output import Output
from deep_gemm._commands.parser import parse_arguments


def main() -> int:
    arguments = parse_arguments(__doc__)
    output = Output(arguments.command or "demo", getattr(arguments, "json", False))
    if arguments.command is None:
        return output.finish(demo(output) if doctor(output) else 1)
    try:
        return output.finish(int(arguments.run(arguments, output)))
    except BrokenPipeError:  # see below
        raise
    except (RuntimeError, ValueError, OSError) as error:  # what the library says to its caller
        print(f"python -m deep_gemm {arguments.command}: {error}", file=sys.stderr)
        output.facts["error"] = str(error)
        return output.finish(1)


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\npython -m deep_gemm: interrupted", file=sys.stderr)
        status = 130  # as shells report it: 128 and the signal's number
    except BrokenPipeError:  # the reader, as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        status = 0
    raise SystemExit(status)
