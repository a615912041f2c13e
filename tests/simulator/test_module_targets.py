"""What the simulator refuses, or allows, by the target that the PTX names: instructions, shared memory, clusters."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from ptx_tools import kernel, run_kernel

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C

KIB = 1024
SHARED_BYTES = {"sm_80": 163, "sm_86": 99, "sm_87": 163, "sm_88": 99, "sm_89": 99, "sm_90a": 227}
SHARED_BYTES |= {"sm_100a": 227, "sm_103a": 227, "sm_110a": 227, "sm_120": 99, "sm_121a": 99}
MMA_FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f0,%f1,%f2,%f3}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%f0,%f1,%f2,%f3};"
MMA_I8 = "tcgen05.mma.cta_group::1.kind::i8 [%r0], %d1, %d2, %r1, %p1;"
GATHER = "cp.async.bulk.tensor.2d.shared::{}.global.tile::gather4.mbarrier::complete_tx::bytes [%r0], [%d1, {{%r1, %r2, %r3, %r4, %r5}}], [%r6];"
SCATTER = (
    "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d1, {%r1, %r2, %r3, %r4, %r5}], [%r0];"
)
CANCEL = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"

FEATURES = [
    # instruction, a target without it, one that has it, what is said
    ("cp.async.bulk.commit_group;", "sm_80", "sm_90", "sm_80 has no bulk and tensor copies: cp needs sm_90 or higher"),
    ("cp.async.bulk.wait_group 0;", "sm_89", "sm_120", "sm_89 has no bulk and tensor copies"),
    (GATHER.format("cta"), "sm_90a", "sm_120", "sm_90a has no copies of four rows: cp needs sm_100 or higher"),
    (GATHER.format("cluster"), "sm_120a", "sm_100f", "sm_120a has no copies of four rows to a block of the cluster: cp needs a target from sm_100a to sm_110a"),
    (SCATTER, "sm_100", "sm_103a", "sm_100 has no copies of four rows"),
    ("red.async.release.gpu.global.add.u32 [%out], %r1;", "sm_90a", "sm_100", "sm_90a has no red.async to global memory: red needs sm_100 or higher"),
    ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], 16;", "sm_86", "sm_120", "sm_86 has no mbarriers that count bytes"),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 16;", "sm_80", "sm_90", "sm_80 has no mbarriers that count bytes"),
    ("mbarrier.arrive.shared.b64 %d1, [%r0], 2;", "sm_80", "sm_90", "sm_80 has no arrivals by a count but with .noComplete: mbarrier needs"),
    ("mbarrier.try_wait.parity.shared.b64 %p1, [%r0], 0;", "sm_87", "sm_90", "sm_87 has no mbarrier.try_wait (test_wait it has)"),
    ("fence.proxy.async;", "sm_80", "sm_90", "sm_80 has no asynchronous proxy: fence needs"),
    ("fence.proxy.async.shared::cta;", "sm_80", "sm_90", "sm_80 has no asynchronous proxy"),
    ("fence.mbarrier_init.release.cluster;", "sm_80", "sm_90", "sm_80 has no fence.mbarrier_init"),
    ("fence.acq_rel.cluster;", "sm_80", "sm_90", "sm_80 has no clusters of blocks: fence needs sm_90 or higher"),
    ("mapa.shared::cluster.u32 %r1, %r0, 0;", "sm_89", "sm_90", "sm_89 has no clusters of blocks"),
    ("st.shared::cluster.u32 [%r0], %r1;", "sm_89", "sm_90", "sm_89 has no clusters of blocks"),
    ("mov.u32 %r1, %cluster_ctarank;", "sm_89", "sm_90", "sm_89 has no clusters of blocks: mov needs sm_90 or higher"),
    ("barrier.cluster.arrive.aligned;", "sm_80", "sm_90", "sm_80 has no clusters of blocks"),
    ("elect.sync %r1|%p1, -1;", "sm_80", "sm_90", "sm_80 has no elect: elect needs sm_90 or higher"),
    ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r0], {%r1};", "sm_80", "sm_90", "sm_80 has no stmatrix"),
    ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r0];", "sm_120", "sm_120a", "sm_120 has no matrices of 8-bit elements: ldmatrix needs sm_100a or higher"),
    ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b4x16_p64 {%r1, %r2}, [%r0];", "sm_90a", "sm_121a", "sm_90a has no matrices of 8-bit elements"),
    ("stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%r0], {%r1, %r2};", "sm_90a", "sm_100f", "sm_90a has no matrices of 8-bit elements: stmatrix needs sm_100a or higher"),
    ("griddepcontrol.wait;", "sm_80", "sm_90", "sm_80 has no griddepcontrol"),
    ("setmaxnreg.inc.sync.aligned.u32 40;", "sm_90", "sm_90a", "sm_90 has no setmaxnreg: setmaxnreg needs sm_90a or higher"),
    ("wgmma.fence.sync.aligned;", "sm_120", "sm_90a", "sm_120 has no wgmma: wgmma needs sm_90a"),
    ("wgmma.fence.sync.aligned;", "sm_100a", "sm_90a", "sm_100a has no wgmma: wgmma needs sm_90a"),
    ("tcgen05.fence::before_thread_sync;", "sm_120a", "sm_100a", "sm_120a has no tcgen05: tcgen05 needs a target from sm_100a to sm_110a"),
    (MMA_I8, "sm_100f", "sm_100a", "sm_100f has no products of integers: tcgen05 needs sm_100a or sm_110a"),
    (MMA_I8, "sm_103a", "sm_110a", "sm_103a has no products of integers"),
    (MMA_FP8, "sm_80", "sm_89", "sm_80 has no E4M3 and E5M2: mma needs sm_89 or higher"),
    (MMA_FP8, "sm_87", "sm_120", "sm_87 has no E4M3 and E5M2"),
    ("cvt.rn.f16x2.e4m3x2 %r1, %h0;", "sm_86", "sm_89", "sm_86 has no E4M3 and E5M2: cvt needs sm_89 or higher"),
    ("cvt.rn.satfinite.e5m2x2.f32 %h0, %f0, %f1;", "sm_80", "sm_89", "sm_80 has no E4M3 and E5M2"),
    ("cvt.rz.satfinite.ue8m0x2.f32 %h0, %f0, %f1;", "sm_120", "sm_120a", "sm_120 has no UE8M0: cvt needs sm_100a or higher"),
    ("mul.rn.bf16x2 %r1, %r2, %r3;", "sm_89", "sm_90", "sm_89 has no sums and products of BF16 except fma"),
    ("red.global.add.v2.f32 [%out], {%f0, %f1};", "sm_89", "sm_90", "sm_89 has no atomics on vectors"),
    ("red.global.add.noftz.bf16x2 [%out], %r1;", "sm_89", "sm_90", "sm_89 has no atomics on BF16"),
    ("redux.sync.max.f32 %f0, %f1, -1;", "sm_110a", "sm_100f", "sm_110a has no redux of FP32: redux needs sm_100a or one of its family"),
    ("fma.rn.f32.bf16 %f0, %h1, %h2, %f3;", "sm_90a", "sm_100", "sm_90a has no FP32 sums of 16-bit operands: fma needs sm_100 or higher"),
    (CANCEL + ".b128 [%r0], [%r1];", "sm_90a", "sm_120", "sm_90a has no cluster launch control: clusterlaunchcontrol needs sm_100 or higher"),
    (CANCEL + ".multicast::cluster::all.b128 [%r0], [%r1];", "sm_100", "sm_120a", "sm_100 has no cluster launch control for all blocks"),
    ("add.rn.f32x2 %d1, %d2, %d3;", "sm_90a", "sm_100", "sm_90a has no pairs of FP32: add needs sm_100 or higher"),
    ("ld.global.v8.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [%out];", "sm_90", "sm_100", "sm_90 has no accesses of 32 bytes"),
]  # fmt: skip
AMPERE = [
    "cp.async.cg.shared.global [%r0], [%out], 16;",
    "cp.async.mbarrier.arrive.noinc.shared.b64 [%r0];",
    "mbarrier.test_wait.parity.shared.b64 %p1, [%r0], 0;",
    "mbarrier.arrive.noComplete.shared.b64 %d1, [%r0], 2;",
    "mbarrier.arrive.shared.b64 %d1, [%r0];",
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1,%r2,%r3,%r4}, [%r0];",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%f0,%f1,%f2,%f3};",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%r1,%r2,%r5,%r6}, {%r3,%r3,%r3,%r3}, {%r4,%r4}, {%r1,%r2,%r5,%r6};",
    "cvt.rn.bf16x2.f32 %r1, %f0, %f1;",
    "fma.rn.bf16x2 %r1, %r2, %r3, %r4;",
    "redux.sync.add.s32 %r1, %r2, -1;",
]  # fmt: skip


def text(code: str, target: str) -> str:
    """The instruction stands where it never runs."""
    return kernel(f"    bra END;\n    {code}\nEND:", shared=".shared .align 128 .b8 data[128];", target=target)


def load(code: str, target: str) -> None:
    run_kernel(text(code, target), torch.zeros(1, dtype=torch.int32))


@pytest.mark.parametrize(("code", "without", "having", "said"), FEATURES)
def test_what_a_target_does_not_have_is_refused_with_a_sentence(
    code: str, without: str, having: str, said: str
) -> None:
    with pytest.raises(RuntimeError, match="PTX line") as rejection:
        load(code, without)
    assert said in str(rejection.value)
    load(code, having)


@pytest.mark.parametrize("target", SHARED_BYTES)
@pytest.mark.parametrize("code", AMPERE)
def test_what_ampere_has_all_have(code: str, target: str) -> None:
    load(code, target)


@pytest.mark.skipif(not shutil.which("ptxas"), reason="needs ptxas")
def test_ptxas_draws_the_same_lines(tmp_path: Path) -> None:
    def compiles(code: str, target: str) -> bool:
        source = tmp_path / "test.ptx"
        source.write_text(text(code, target).replace(".version 8.6", ".version 9.0"))
        command = ["ptxas", f"-arch={target}", str(source), "-o", str(tmp_path / "test.cubin")]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    for code, without, having, _ in FEATURES:
        assert not compiles(code, without), (code, without)
        assert compiles(code, having), (code, having)


@pytest.mark.parametrize(("target", "kib"), SHARED_BYTES.items())
def test_shared_memory_of_a_block(target: str, kib: int) -> None:
    body = kernel("", target=target)
    run_kernel(body, torch.zeros(1), smem_bytes=kib * KIB)
    said = f"on {target} a block may have {kib * KIB} bytes of shared memory, got {kib * KIB + 16}"
    with pytest.raises(ValueError, match=said):
        run_kernel(body, torch.zeros(1), smem_bytes=kib * KIB + 16)


def test_clusters() -> None:
    run_kernel(kernel("", target="sm_90"), torch.zeros(1), grid=[2], cluster=[2])
    with pytest.raises(ValueError, match="sm_89 has no clusters of blocks, got one of 2"):
        run_kernel(kernel("", target="sm_89"), torch.zeros(1), grid=[2], cluster=[2])


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("sm_75", "the simulator knows sm_80, sm_86"),
        ("sm_999", "with a or f behind them, not sm_999"),
        ("sm_90x", "must be like sm_90a, got 'sm_90x'"),
        ("compute_90", "must be like sm_90a"),
    ],
)
def test_other_targets_are_refused(target: str, said: str) -> None:
    with pytest.raises(RuntimeError, match=f"PTX line 2.*{said}"):
        load("", target)
    with pytest.raises(ValueError, match=said):
        simulator.set_options(target=target)


def test_a_text_without_a_target_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"the text names no \.target"):
        run_kernel(text("", "sm_80").replace(".target sm_80", ""), torch.zeros(1))


SCALE = """
struct Params { float* values; long factor; };
extern "C" __global__ void scale(const __grid_constant__ Params p) { p.values[threadIdx.x] *= p.factor; }
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_87", "sm_89", "sm_120"])
def test_the_runtime_compiles_for_the_target_that_the_simulator_is(target: str) -> None:
    values = torch.arange(32, dtype=torch.float32)
    with simulator.options(target=target):
        C.jit_launch("scale", SCALE, 1, 32, 1, 0, False, [values], [3])
        assert C.device_facts(True, 0)["max_smem_bytes"] == SHARED_BYTES[target] * KIB
    assert torch.equal(values, 3 * torch.arange(32, dtype=torch.float32))


def test_a_device_that_the_library_has_no_kernels_for() -> None:
    a, b, d = (torch.ones(16, 128, dtype=torch.bfloat16) for _ in range(3))
    with (
        simulator.options(target="sm_90"),
        pytest.raises(RuntimeError, match=r"but PTX simulator \(sm_90\) is an sm_90$"),
    ):
        deep_gemm.bf16_gemm_nt(a, b, d[:, :16].contiguous())
