"""`set_target` and DG_TARGET: kernels of an older GPU on a newer one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import fresh
import pytest
import torch
from fake_driver import ROOT, archs, lines_of

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import HOPPER_SMS

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


@needs_compiler
def test_an_older_target_by_the_environment_is_ptx_for_the_driver() -> None:
    lines = lines_of("product()\nsay(deep_gemm.get_target('cuda:0'))", "9.0", DG_TARGET="sm_80")
    assert lines[-1] == "here sm_80"
    loads = [line for line in lines if line.startswith("load")]
    assert {line.split(" on ")[0] for line in loads} == {"load compute_80"}
    assert archs(lines) == {"sm80"}
    launches = [line for line in lines if line.startswith("launch ")]
    assert launches
    assert not any("dependent" in line or "cluster" in line for line in launches)


@needs_compiler
@pytest.mark.parametrize("newer_gpu", [True, False])
def test_a_gpu_that_stands_in_finds_what_was_precompiled_for_newer_gpus(newer_gpu, tmp_path) -> None:
    code = f"""
tensors = [fp8(64, 256), torch.ones(2, 64).T, fp8(128, 256), torch.ones(1, 2), torch.zeros(64, 128).bfloat16()]
def call(m):
    a, sfa, b, sfb, d = tensors
    deep_gemm.fp8_gemm_nt((a[:m], sfa[:m]), (b, sfb), d[:m])
done = deep_gemm.precompile(call, 64, target="sm_80", num_sms={HOPPER_SMS}, newer_gpu={newer_gpu})
assert not any(result.error for result in done)
before = deep_gemm.jit.statistics()["compiled"]
product()
say(deep_gemm.jit.statistics()["compiled"] - before)
"""
    lines = lines_of(code, "9.0", DG_TARGET="sm_80", DG_JIT_CACHE_DIR=str(tmp_path))
    assert lines[-1] == f"here {0 if newer_gpu else 1}"


@needs_compiler
def test_line_numbers_come_into_the_drivers_ptx_only_when_asked_for() -> None:
    lines = lines_of("product()", "9.0", DG_TARGET="sm_80", DG_JIT_WITH_LINEINFO="1")
    assert any(line.startswith("load compute_80 with lines") for line in lines)


@needs_compiler
def test_calls_follow_the_target_and_find_their_kernels_again() -> None:
    code = """
for target in ("sm_80", None, "sm_80", None):
    deep_gemm.set_target(target, "cuda:0")
    say(deep_gemm.get_target("cuda:0"))
    for _ in range(3): product()
"""
    lines = lines_of(code, "9.0")
    of_each: list[list[str]] = []
    for line in lines:
        if line.startswith("here "):
            of_each.append([])
        of_each[-1].append(line)
    assert [lines[0] for lines in of_each] == ["here sm_80", "here sm_90a"] * 2
    assert [archs(lines) for lines in of_each] == [{"sm80"}, {"sm90"}, set(), set()]
    launches = [[line for line in lines if line.startswith("launch ")] for lines in of_each]
    assert launches[0] == launches[2] != launches[1] == launches[3]


@needs_compiler
def test_a_target_of_one_gpu_leaves_the_other_alone() -> None:
    code = """
deep_gemm.set_target("sm_80", "cuda:1")
product(0); product(1)
say(deep_gemm.get_target("cuda:0"), deep_gemm.get_target("cuda:1"))
"""
    lines = lines_of(code, "9.0 9.0")
    assert lines[-1] == "here sm_90a sm_80"
    loads = {line.split(",")[0] for line in lines if line.startswith("load")}
    assert loads == {"load on context 0", "load compute_80 on context 1"}


@needs_compiler
def test_a_gpu_of_a_family_may_have_the_target_of_its_own() -> None:
    code = """
for index, target in ((0, "sm_100a"), (1, "sm_103a"), (1, "sm_100a")):
    say(rejection(lambda: deep_gemm.set_target(target, f"cuda:{index}")))
    a, b, d = (pose_as_cuda(torch.zeros(64, 64).bfloat16(), index) for _ in range(3))
    deep_gemm.bf16_gemm_nt(a, b, d)
    say(deep_gemm.get_target(f"cuda:{index}"))
"""
    lines = lines_of(code, "10.0 10.3")
    said = [line.removeprefix("here ") for line in lines if line.startswith("here ")]
    assert said[:4] == ["nothing refused", "sm_100a", "nothing refused", "sm_103a"]
    assert said[4:] == ["code for sm_100a runs on no other GPU, and Fake 1 is sm_100f", "sm_103a"]
    assert not any(line.startswith("load compute") for line in lines)


REFUSALS = [  # on a Hopper, then a Blackwell
    (0, "sm_100f", "code for sm_100f runs on no other GPU, and Fake 0 is sm_90a"),
    (1, "sm_90a", "code for sm_90a runs on no other GPU, and Fake 1 is sm_100f"),
    (0, "sm_120", "code for sm_120 does not run on Fake 0, which is sm_90a: a chosen target must be an older one"),
    (0, "sm_75", r"there are kernels for sm_80, .* and sm_103a, not for sm_75"),
    (1, "Hopper", r"there are kernels for sm_80, .* and sm_103a, not for Hopper"),
]


@needs_compiler
def test_a_target_that_a_gpu_cannot_run_is_refused_and_changes_nothing() -> None:
    code = """
targets = lambda: [deep_gemm.get_target(device) for device in ("cuda:0", "cuda:1", "cpu")]
before = targets()
for index, target in CALLS:
    say(rejection(lambda: deep_gemm.set_target(target, f"cuda:{index}")))
    say(rejection(lambda: deep_gemm.set_target(target)))
    say(before == targets())
""".replace("CALLS", repr([refused[:2] for refused in REFUSALS]))
    lines = lines_of(code, "9.0 10.0")
    for (_, target, says), one, each, unchanged in zip(REFUSALS, lines[::3], lines[1::3], lines[2::3], strict=True):
        assert re.fullmatch(f"here {says}", one)
        assert target in each
        assert each != "here nothing refused"
        assert unchanged == "here True"


@needs_compiler
def test_a_wrong_target_in_the_environment_is_named_by_the_first_call_and_a_setting_overrides_it() -> None:
    code = """
say(rejection(product))
deep_gemm.set_target(None, "cuda:0")
say(rejection(product))
"""
    lines = lines_of(code, "9.0", DG_TARGET="sm_70")
    said = [line for line in lines if line.startswith("here ")]
    assert re.fullmatch("here DG_TARGET: there are kernels for sm_80, .*, not for sm_70", said[0])
    assert said[1] == "here nothing refused"
    (refused,) = lines_of("say(rejection(product))", "9.0", DG_TARGET="sm_120")
    assert refused.startswith("here code for sm_120 does not run on Fake 0")


@needs_compiler
def test_a_chosen_target_bounds_shared_memory_and_leaves_sms_as_they_are() -> None:
    code = """
from deep_gemm._extension import C
for target in (None, "sm_80", "sm_86"):
    deep_gemm.set_target(target, "cuda:0")
    facts = C.device_facts(False, 0)
    say(facts["max_smem_bytes"] // 1024, facts["num_sms"], facts["l2_bytes"] >> 20, facts["arch_major"])
"""
    assert lines_of(code, "9.0") == ["here 227 132 50 9", "here 163 132 50 8", "here 99 132 50 8"]


def test_the_simulator_becomes_what_is_chosen() -> None:
    before = simulator.get_options()["target"]
    try:
        deep_gemm.set_target("sm_80", "cpu")
        assert deep_gemm.get_target("cpu") == simulator.get_options()["target"] == "sm_80"
        a, b = torch.ones(64, 64).bfloat16(), torch.ones(64, 64).bfloat16()
        d = torch.empty(64, 64).bfloat16()
        deep_gemm.bf16_gemm_nt(a, b, d)
        assert "sm80" in simulator.reports()[-1].kernel
        with simulator.options(target="sm_86"):
            assert deep_gemm.get_target("cpu") == "sm_86"
        deep_gemm.set_target(None, "cpu")
        assert deep_gemm.get_target("cpu") == "sm_90a"
    finally:
        simulator.set_options(target=before)


@pytest.mark.parametrize(
    ("environment", "target"),
    [
        ({"DG_TARGET": "sm_86"}, "sm_86"),
        ({"DG_TARGET": "sm_86", "DG_SIM_TARGET": "sm_100a"}, "sm_100a"),
        ({"DG_TARGET": ""}, "sm_90a"),
    ],
)
def test_the_simulator_starts_as_the_environment_says(environment, target) -> None:
    assert fresh.check("import deep_gemm; result = deep_gemm.get_target('cpu')", **environment).result == target


def test_a_target_is_a_name() -> None:
    with pytest.raises(TypeError, match="target must be a name like 'sm_80', or None, got 80"):
        deep_gemm.set_target(80, "cpu")


@needs_compiler
def test_threads_may_call_while_the_target_changes() -> None:
    """No call launches a kernel of the other target, which a device refuses."""
    code = """
import threading
product()
stop, failures = threading.Event(), []
def change():
    step = 0
    while not stop.is_set():
        step += 1
        deep_gemm.set_target("sm_80" if step % 2 else None, "cuda:0")
def work():
    try:
        a, sfa, b, sfb, d = operands(0)
        for _ in range(300): deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
    except BaseException as error:
        failures.append(error)
deep_gemm.set_target("sm_80", "cuda:0"); product()
threads = [threading.Thread(target=work) for _ in range(2)]
changer = threading.Thread(target=change)
for thread in (changer, *threads): thread.start()
for thread in threads: thread.join()
stop.set(); changer.join()
say(failures)
"""
    lines = lines_of(code, "9.0")
    assert [line for line in lines if line.startswith("here ")] == ["here []"]
    shapes = {line.split(": ", 1)[1].split(" stream")[0] for line in lines if line.startswith("launch ")}
    assert len(shapes) >= 2


ON_GPU = """
import torch, deep_gemm
from deep_gemm import utils
assert deep_gemm.get_target() == "sm_80" and deep_gemm.testing.get_arch_major() == 8
torch.manual_seed(0)
m, n, k = 130, 256, 512
x, w = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
d = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
def whole(codes, scales, rows, columns):
    return codes.double() * scales.double().repeat_interleave(rows, 0)[: codes.shape[0]].repeat_interleave(columns, 1)
def check(name, call, a, b):
    call()
    wanted, size = a @ b.T, a.abs() @ b.abs().T
    assert ((d.double() - wanted).abs() <= 2**-8 * wanted.abs() + 1e-5 * size).all(), name
    with torch.profiler.profile() as profile:
        call()
        torch.cuda.synchronize()
    kernels = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    names = [name for name in kernels if "gemm" in name]
    assert names and all("sm80" in name for name in names), (name, names)
    print(name, "right")
a, b = x.bfloat16(), w.bfloat16()
check("bf16", lambda: deep_gemm.bf16_gemm_nt(a, b, d), a.double(), b.double())
qa, qb = utils.per_token_cast_to_fp8(x, False), utils.per_block_cast_to_fp8(w, False)
check("fp8", lambda: deep_gemm.fp8_gemm_nt(qa, qb, d), whole(*qa, 1, 128), whole(*qb, 128, 128))
ia, ib = utils.per_token_cast_to_int8(x), utils.per_channel_cast_to_int8(w)
check("int8", lambda: deep_gemm.int8_gemm_nt(ia, ib, d), *(whole(q, s.reshape(-1, 1), 1, k) for q, s in (ia, ib)))
"""


@pytest.mark.gpu
def test_a_gpu_runs_the_kernels_of_an_older_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_GPU],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "DG_TARGET": "sm_80"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["bf16", "right", "fp8", "right", "int8", "right"]


@pytest.mark.gpu
def test_a_gpu_goes_back_to_its_own_kernels(cuda) -> None:
    chosen = os.environ.get("DG_TARGET")
    a, b = torch.randn(64, 256, device=cuda).bfloat16(), torch.randn(128, 256, device=cuda).bfloat16()
    wanted = a.double() @ b.double().T
    try:
        deep_gemm.set_target(None, cuda)
        own = deep_gemm.get_target(cuda)
        for target in ("sm_80", None, "sm_86", None):
            deep_gemm.set_target(target, cuda)
            assert deep_gemm.get_target(cuda) == (target or own)
            d = torch.empty(64, 128, device=cuda)
            deep_gemm.bf16_gemm_nt(a, b, d)
            assert (d.double() - wanted).abs().max() < 1e-3
    finally:
        deep_gemm.set_target(chosen, cuda)
