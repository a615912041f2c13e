"""Settings of a device: what they promise, that they hold for one device only, and that calls obey them."""

from __future__ import annotations

import threading

import pytest
import torch
from devices import BUT_SM100, EACH_ARCH
from grouped_inputs import alignment_of, contiguous, masked
from inputs import GuardedOutput, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import settings, simulator
from deep_gemm._extension import C

DEFAULTS = {
    "tc_util": 100,
    "pdl": 1,
    "ignore_compile_dims": 0,
    "block_m_multiple_of": 1,
    "block_n_multiple_of": 1,
    "batch_invariant": 0,
    "fast_accumulation": 0,
    "fp32_scales": 0,
    "threads_copy": 0,
    "num_sms": 0,
}


@pytest.fixture(autouse=True)
def defaults_afterwards():
    yield
    for name, value in DEFAULTS.items():
        C.set_call_setting_everywhere(name, value)


def dense(device, m: int = 70, n: int = 136, k: int = 400) -> None:
    """A small call must be right, whatever is set."""
    a, b = random_rows((m, k), device, 0), random_blocks((n, k), device, 1)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))


def grouped(device) -> None:
    case = contiguous([5, 0, 130], 136, 256, device)
    for psum in (False, True):
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.layout(psum), use_psum_layout=psum)
        out.check(complete=False)
        case.check(out.tensor)
    case = masked([5, 0, 40], 40, 136, 256, device)
    out = case.output()
    deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 16)
    out.check(complete=False)
    case.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_num_sms(device) -> None:
    available = deep_gemm.get_num_sms(device)
    deep_gemm.set_num_sms(1, device)
    assert deep_gemm.get_num_sms(device) == 1
    dense(device)
    grouped(device)
    deep_gemm.set_num_sms(available, device)
    assert deep_gemm.get_num_sms(device) == available
    deep_gemm.set_num_sms(1, device)
    deep_gemm.set_num_sms(0, device)
    assert deep_gemm.get_num_sms(device) == available


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_more_sms_than_there_are_is_no_limit(device) -> None:
    available = deep_gemm.get_num_sms(device)
    deep_gemm.set_num_sms(available + 1000)
    dense(device)
    assert deep_gemm.get_num_sms(device) == available


def test_set_without_a_device_reaches_every_device() -> None:
    """As a program sets it before it says `torch.cuda.set_device`. A device's own value lasts until then."""
    devices = ["cpu", "cuda:0", "cuda:7"]  # settings want no GPU
    deep_gemm.set_tc_util(50, "cuda:7")
    deep_gemm.set_num_sms(20, "cuda:7")
    assert [deep_gemm.get_tc_util(device) for device in devices] == [100, 100, 50]
    deep_gemm.set_tc_util(70)
    assert [deep_gemm.get_tc_util(device) for device in devices] == [70, 70, 70]
    assert C.get_call_setting(False, 7, "num_sms") == 20
    deep_gemm.set_tc_util(0, "cuda:7")
    assert [deep_gemm.get_tc_util(device) for device in devices] == [70, 70, 100]
    deep_gemm.set_tc_util(0)
    assert [deep_gemm.get_tc_util(device) for device in devices] == [100, 100, 100]
    for setter, name, value in [
        (deep_gemm.set_pdl, "pdl", False),
        (deep_gemm.set_ignore_compile_dims, "ignore_compile_dims", True),
        (deep_gemm.set_batch_invariant, "batch_invariant", True),
        (deep_gemm.set_fast_accumulation, "fast_accumulation", True),
        (deep_gemm.set_fp32_scales, "fp32_scales", True),
        (deep_gemm.set_block_size_multiple_of, "block_n_multiple_of", 16),
        (deep_gemm.set_num_sms, "num_sms", 3),
    ]:
        setter(value)
        assert {C.get_call_setting(False, index, name) for index in (0, 7, 63)} == {value}
        assert C.get_call_setting(True, 0, name) == value


def test_settings_do_not_start_cuda(monkeypatch) -> None:
    """On a machine with GPUs whose torch has not started CUDA: neither setting nor reading asks for more than that."""

    def started(*_) -> None:
        raise AssertionError("CUDA was started")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for name in ("current_device", "is_available", "init", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, name, started)
    monkeypatch.setattr(settings.C, "device_facts", started)
    deep_gemm.set_num_sms(1000)
    assert deep_gemm.get_num_sms() == 1000
    deep_gemm.set_tc_util(40, "cuda")
    assert deep_gemm.get_tc_util() == deep_gemm.get_tc_util("cuda:0") == 40
    assert deep_gemm.get_tc_util("cuda:1") == 100
    assert deep_gemm.get_pdl()
    assert not deep_gemm.get_batch_invariant()
    assert not deep_gemm.get_fp32_scales()
    deep_gemm.set_target("sm_80", "cuda")
    assert deep_gemm.get_target() == "sm_80"
    deep_gemm.set_target(None, "cuda")


COUNTS = {
    "num_sms": deep_gemm.set_num_sms,
    "percent": deep_gemm.set_tc_util,
    "block_m": deep_gemm.set_block_size_multiple_of,
    "alignment": deep_gemm.set_mk_alignment_for_contiguous_layout,
    "expected_m": deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout,
}


@pytest.mark.parametrize("wrong", [True, False, float("nan"), 64.0, "64", None], ids=str)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_integers(name, wrong) -> None:
    if name == "expected_m" and wrong is None:
        assert COUNTS[name](wrong) == 128
        return
    with pytest.raises(TypeError, match=f"{name} must be an integer, got {wrong!r}"):
        COUNTS[name](wrong)


@pytest.mark.parametrize("wrong", [2, -1, float("nan"), 1.0, "yes", None], ids=str)
def test_switches_are_on_or_off(wrong) -> None:
    for setter, name in [
        (deep_gemm.set_pdl, "enabled"),
        (deep_gemm.set_batch_invariant, "enabled"),
        (deep_gemm.set_fast_accumulation, "enabled"),
        (deep_gemm.set_fp32_scales, "enabled"),
        (deep_gemm.set_ignore_compile_dims, "ignore"),
        (deep_gemm.use_deterministic_algorithms, "enabled"),
    ]:
        with pytest.raises(TypeError, match=f"{name} must be True or False, got {wrong!r}"):
            setter(wrong)


def test_num_sms_bounds_the_grid() -> None:
    """As the simulator's report counts blocks: one for each SM."""
    with simulator.options(schedule="eager"):
        deep_gemm.set_num_sms(2, "cpu")
        dense(torch.device("cpu"), m=300, n=512)
        assert simulator.last_report().statistics["blocks"] <= 2


@pytest.mark.parametrize("percent", [1, 37, 99])
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_tc_util(device, percent) -> None:
    deep_gemm.set_tc_util(percent, device)
    assert deep_gemm.get_tc_util(device) == percent
    dense(device)
    grouped(device)


@pytest.mark.gpu
@pytest.mark.kernels_of("sm90")
def test_tc_util_slows_down(cuda) -> None:
    a, b = random_rows((4096, 4096), cuda, 0), random_blocks((4096, 4096), cuda, 1)
    d = torch.empty((4096, 4096), dtype=torch.bfloat16, device=cuda)

    def milliseconds() -> float:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        deep_gemm.fp8_gemm_nt(a, b, d)
        events[0].record()
        for _ in range(5):
            deep_gemm.fp8_gemm_nt(a, b, d)
        events[1].record()
        torch.cuda.synchronize()
        return events[0].elapsed_time(events[1])

    full = milliseconds()
    deep_gemm.set_tc_util(20, cuda)
    assert milliseconds() > 2 * full


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_pdl(device) -> None:
    assert deep_gemm.get_pdl(device)
    deep_gemm.set_pdl(False, device)
    assert not deep_gemm.get_pdl(device)
    dense(device)
    grouped(device)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_ignore_compile_dims(device) -> None:
    """Shapes that differ in an extent only then share a kernel."""
    deep_gemm.set_ignore_compile_dims(True, device)
    dense(device, k=400)
    before = C.jit_statistics()["loaded"]
    for k in (432, 464, 496):  # whose rows lie within lines as those do, which decides tiles
        dense(device, k=k)
    assert C.jit_statistics()["loaded"] == before
    grouped(device)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("multiple", [16, 64, (128, 64), (64, 128)])
def test_block_size_multiple_of(device, multiple) -> None:
    deep_gemm.set_block_size_multiple_of(multiple, device=device)
    dense(device)
    grouped(device)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("multiple", [(128, 1), (1, 128), (128, 128)])
def test_wasteful_tiles_serve_where_no_others_are_left(device, multiple) -> None:
    deep_gemm.set_block_size_multiple_of(multiple, device=device)
    dense(device, m=1, n=8)
    case = masked([5, 0, 7], 7, 7, 256, device)
    out = case.output()
    deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 1)
    out.check(complete=False)
    case.check(out.tensor)


def test_block_size_by_the_name_of_sglang() -> None:
    deep_gemm.set_block_size_multiple_of(value=(64, 32))
    deep_gemm.set_block_size_multiple_of(value=1)
    with pytest.raises(TypeError, match="give block_m or value, one of them, got block_m=16 and value=16"):
        deep_gemm.set_block_size_multiple_of(16, value=16)


def test_deterministic_algorithms_are_batch_invariant() -> None:
    """As SGLang's batch-invariant mode asks for them, around each product."""
    assert not deep_gemm.get_deterministic_algorithms()
    deep_gemm.use_deterministic_algorithms(False)
    deep_gemm.use_deterministic_algorithms(True)
    assert deep_gemm.get_deterministic_algorithms()
    assert deep_gemm.get_batch_invariant()
    deep_gemm.use_deterministic_algorithms(False)
    assert not deep_gemm.get_batch_invariant()
    deep_gemm.use_deterministic_algorithms(True)
    deep_gemm.set_batch_invariant(True)
    deep_gemm.use_deterministic_algorithms(False)
    assert deep_gemm.get_batch_invariant(), "who set it by its own name keeps it"


@pytest.mark.parametrize("device", BUT_SM100, indirect=True)
def test_block_sizes_that_no_tile_has(device) -> None:
    deep_gemm.set_block_size_multiple_of(256, 256, device=device)
    with pytest.raises(ValueError, match=r"multiple of 256 and a width that is a multiple of 256.*set_block_size"):
        dense(device)
    deep_gemm.set_block_size_multiple_of(1, device=device)
    dense(device)
    for wrong in (0, 257, (8, 0)):
        with pytest.raises(ValueError, match="multiples of"):
            deep_gemm.set_block_size_multiple_of(wrong, device=device)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_batch_invariant(device) -> None:
    assert not deep_gemm.get_batch_invariant(device)
    deep_gemm.set_batch_invariant(True, device)
    assert deep_gemm.get_batch_invariant(device)
    dense(device, m=8, k=4096)
    grouped(device)


def test_alignment() -> None:
    assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 128
    with alignment_of(64):
        assert deep_gemm.get_k_alignment_for_contiguous_layout() == 64
        assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 64
        assert deep_gemm.get_m_alignment_for_contiguous_layout() == 64
    for wrong in (0, -128, 4, 100, 1 << 20):
        with pytest.raises(ValueError, match=f"multiple of 8 up to 4096, got {wrong}"):
            deep_gemm.set_mk_alignment_for_contiguous_layout(wrong)
    assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 128


THEORETICAL = {
    "sm_90a": [(None, 128), (0, 64), (1, 64), (64, 64), (65, 128), (4096, 128)],
    "sm_80": [(None, 128), (64, 64), (65, 128)],
    "sm_120a": [(33, 64), (200, 128)],
    "sm_100a": [(None, 128), (0, 32), (1, 32), (33, 64), (200, 224), (224, 224), (225, 128), (300, 160), (4096, 224)],
}


@pytest.mark.parametrize(
    ("target", "expected_m", "alignment"), [(target, *each) for target, rows in THEORETICAL.items() for each in rows]
)
def test_theoretical_alignment(monkeypatch, target, expected_m, alignment) -> None:
    """With `num_groups`, the rows are those of all of them. What comes back can be set."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)  # the simulator is the device
    theoretical = deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout
    with simulator.options(target=target):
        assert theoretical(expected_m) == alignment
        of_all = None if expected_m is None else max(8 * expected_m - 7, 0)
        assert theoretical(expected_m=of_all, num_groups=8) == alignment
        assert theoretical(expected_m, 0) == alignment
        with pytest.raises(ValueError, match="num_groups must be at least 0, got -1"):
            theoretical(expected_m, -1)
    with alignment_of(alignment):
        assert deep_gemm.get_mk_alignment_for_contiguous_layout() == alignment


@pytest.mark.gpu
def test_devices_have_their_own() -> None:
    deep_gemm.set_pdl(False, "cpu")
    deep_gemm.set_tc_util(50, "cuda:0")
    assert not deep_gemm.get_pdl("cpu")
    assert deep_gemm.get_pdl("cuda:0")
    assert deep_gemm.get_tc_util("cpu") == 100
    assert deep_gemm.get_tc_util() == (50 if torch.cuda.current_device() == 0 else 100)


@pytest.mark.parametrize("device", ["cuda:64", "meta"])
def test_devices_that_do_not_exist(device) -> None:
    with pytest.raises((ValueError, RuntimeError), match="device"):
        deep_gemm.set_pdl(True, device)


def test_values_out_of_range() -> None:
    for percent in (101, -5):
        with pytest.raises(ValueError, match=rf"tc_util must be between 1 and 100, got {percent}"):
            deep_gemm.set_tc_util(percent, "cpu")
    for num_sms in (-1, 1 << 40):
        with pytest.raises(ValueError, match=rf"num_sms must be between 0 and \d+, got {num_sms}"):
            deep_gemm.set_num_sms(num_sms)
    with pytest.raises(TypeError, match="one number, a pair, or two numbers, but not"):
        deep_gemm.set_block_size_multiple_of((16, 16), 16)


def test_threads_may_set_while_others_call() -> None:
    """Every value is legal, so every call is right."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def change() -> None:
        step = 0
        while not stop.wait(0.001):
            step += 1
            deep_gemm.set_pdl(step % 2 == 0, "cpu")
            deep_gemm.set_num_sms(1 + step % 4, "cpu")

    def work() -> None:
        try:
            for _ in range(4):
                dense(torch.device("cpu"))
        except BaseException as error:
            failures.append(error)

    changer = threading.Thread(target=change)
    workers = [threading.Thread(target=work) for _ in range(2)]
    for thread in (changer, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    changer.join()
    assert not failures, failures
