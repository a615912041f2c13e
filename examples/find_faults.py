"""Five small kernels, each with one fault that numbers seldom show, and what the simulator says of each.

    python -m examples.find_faults [NAME ...]

The kernels are examples/faults/*.cu. Each is run as it is, and again with its fault mended (FIXED=1), which must be
free of hazards and right under every schedule.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from deep_gemm import simulator

FAULTS = Path(__file__).parent / "faults"
KINDS = {
    "missing_barrier": "race",
    "unwaited_copy": "read in flight",
    "missing_fence": "proxy fence",
    "early_refill": "overwrite",
    "wrong_count": "deadlock",
}


def run(name: str, fixed: bool, schedule: str) -> tuple[simulator.Report, bool]:
    """The report, and whether the numbers are right."""
    source = f"#define FIXED {int(fixed)}\n#line 1\n{(FAULTS / name).with_suffix('.cu').read_text()}"
    given, out = torch.arange(64.0), torch.zeros(64)
    report = simulator.run(
        simulator.compile_cuda(source, name=f"{name}.cu"),
        block=[64],
        params=simulator.parameters(given, out),
        tensors=[out],
        inputs=[given],
        schedule=schedule,
        hazards="report",
        timeline=True,
    )
    wanted = {
        "missing_barrier": given[torch.arange(64) % 32],
        "early_refill": given.view(2, 32).flip(1).flatten(),
        "wrong_count": given.flip(0),
    }
    return report, torch.equal(out, wanted.get(name, given))


def main(names: list[str]) -> None:
    for name in names or KINDS:
        report, right = run(name, False, "eager")
        print(f"{name}: {'right' if right else 'wrong'} numbers this time, {len(report.hazards)} hazards, the first:")
        print(report.hazards[0] if report.hazards else "none")
        if [hazard.kind for hazard in report.hazards][:1] != [KINDS[name]]:
            raise SystemExit(f"{KINDS[name]!r} was to be found")
        mended = report
        for schedule in simulator.SCHEDULES:
            mended, right = run(name, True, schedule)
            if mended.hazards or not right:
                raise SystemExit(f"{name} is mended, but {schedule} finds: {mended.hazards or 'wrong numbers'}")
        if mended.timeline:
            print("\nMended, at its barriers:")
            print("\n".join(mended.timeline_text().splitlines()[:7]))
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
