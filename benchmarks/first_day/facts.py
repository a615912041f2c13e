"""What the machine is: device, driver, limits, compilers, and what the library makes of it.

python benchmarks/first_day/facts.py --out results      # results/facts.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from machine import describe

import deep_gemm
from deep_gemm._extension import C

QUERY = "name,driver_version,compute_cap,memory.total,power.limit,clocks.max.sm,clocks.max.memory,persistence_mode"


def output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    return done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    facts = {name: value for name, value in C.device_facts(device.type == "cpu", device.index or 0).items()}
    document = {
        "what": "facts",
        "machine": describe(arguments.commit),
        "device": facts,
        "target": deep_gemm.get_target(device),
        "nvidia_smi": output("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv"),
        "doctor": output(sys.executable, "-m", "deep_gemm", "doctor"),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "facts.json").write_text(json.dumps(document, indent=1, default=str))
    print(json.dumps(document, indent=1, default=str))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
