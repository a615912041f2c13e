"""python -m deep_gemm sim run: any PTX on the simulator, its parameters from the command line."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_line import refuse, run, succeed

from deep_gemm import simulator
from deep_gemm._commands import sim

SCALE = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale(.param .u64 x, .param .f32 factor, .param .u64 y, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [x];
    ld.param.f32 %f1, [factor];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra done;
    mul.wide.s32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd5], %f3;
done:
    ret;
}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    (tmp_path / "scale.ptx").write_text(SCALE)
    return str(tmp_path / "scale.ptx")


def test_a_kernel_runs_and_its_tensors_are_saved(kernel, tmp_path) -> None:
    torch.save(torch.arange(70.0), tmp_path / "x.pt")
    out = str(tmp_path / "out.pt")
    arguments = [f"@{tmp_path / 'x.pt'}", "f32=0.5", "f32[70]=-1", "i32=0x45"]  # 69 of 70
    printed = succeed("sim", "run", kernel, "--grid", "3", "--save", out, "--args", *arguments)
    assert "hazards       none" in printed
    x, y = torch.load(out, weights_only=True)
    assert torch.equal(y, torch.cat([x[:69] / 2, torch.tensor([-1.0])]))


def test_hazards_are_told_and_set_the_status(kernel) -> None:
    status, printed = run(
        "--json", "sim", "run", kernel, "--grid", "3", "--args", "f32[70]", "f32=1", "f32[60]", "i32=70"
    )
    found = json.loads(printed)
    assert status == found["status"] == 1
    assert found["hazards"][0]["kind"] == "out of bounds"


def test_json_stands_alone_where_a_kernel_prints(tmp_path) -> None:
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k() { printf("said\\n"); }')
    call = [sys.executable, "-m", "deep_gemm", "sim", "run", str(tmp_path / "k.cu"), "--block", "1"]
    outcome = subprocess.run([*call, "--json"], capture_output=True, text=True, check=True)
    assert (json.loads(outcome.stdout)["status"], outcome.stderr) == (0, "said\n")
    assert subprocess.run(call, capture_output=True, text=True, check=True).stdout.startswith("said\n")


def test_a_timeline_is_told(kernel, tmp_path) -> None:
    text = SCALE.replace("done:\n", "done:\n    bar.sync 0;\n")
    (tmp_path / "synced.ptx").write_text(text)
    call = ("sim", "run", str(tmp_path / "synced.ptx"), "--timeline", "--args", "f32[32]", "f32=1", "f32[32]", "i32=32")
    events = json.loads(succeed("--json", *call))["timeline"]
    assert [(event["barrier"], event["event"], event["amount"], event["warp"]) for event in events] == [
        ("barrier 0", "arrive", 32, 0),
        ("barrier 0", "complete", 0, -1),
    ]
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "bar.sync" in line)
    assert f"warp 0, PTX line {line}" in succeed(*call)


def test_arguments_lie_where_kernels_read_them() -> None:
    tensor = torch.zeros(1)
    made = simulator.parameters(struct.pack("<f", 0.5), tensor, struct.pack("<i", -2), struct.pack("<q", 3))
    assert struct.unpack("<f4xQi4xq", made) == (0.5, tensor.data_ptr(), -2, 3)
    generator = torch.Generator().manual_seed(0)
    filled = sim.argument("bf16[2,3]=arange", generator)
    assert isinstance(filled, torch.Tensor)
    assert filled.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert filled.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("q=1",), "an argument must be like f32"),
        (("i32=many",), "'i32=many' must be a number that i32 can hold"),
        (("i32=0x1ffffffff",), "must be a number that i32 can hold"),
        (("f32[4]=up",), "a tensor is filled by random, arange or a number, got 'up'"),
    ],
)
def test_wrong_arguments_are_refused(kernel, arguments, said) -> None:
    assert said in refuse("sim", "run", kernel, "--args", *arguments)
