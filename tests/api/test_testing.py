"""deep_gemm.testing: none of this needs a GPU."""

import os
import sys

import pytest
import torch
from inputs import random_values

from deep_gemm import testing
from deep_gemm.testing.bench import kernel_seconds


def test_calc_diff():
    x = random_values((20, 30), "cpu", 0)
    assert testing.calc_diff(x, x) == pytest.approx(0, abs=1e-12)
    assert testing.calc_diff(torch.zeros(4), torch.zeros(4)) == 0
    assert testing.calc_diff(x, -x) == pytest.approx(2)
    assert testing.calc_diff(x, torch.zeros_like(x)) == 1
    # Away from exact by a small relative error e, it is about e squared over two.
    assert testing.calc_diff(x, x * 1.001) == pytest.approx(5e-7, rel=1e-2)
    assert testing.calc_diff(x, x.bfloat16()) < 1e-5
    broken = x.clone()
    broken[3, 4] = torch.nan
    assert not testing.calc_diff(broken, x) < 1  # NaN never passes a test of smallness


def test_assert_bitwise_equal():
    nan = torch.tensor([[1.0, float("nan")], [0.0, 2.0]])
    testing.assert_bitwise_equal(nan, nan.clone())
    testing.assert_bitwise_equal(nan.t(), nan.t().contiguous(), "strides")
    testing.assert_bitwise_equal(torch.empty(0), torch.empty(0))
    testing.assert_bitwise_equal(torch.tensor(3), torch.tensor(3))
    testing.assert_bitwise_equal(torch.ones(3, 5)[:1, :1], torch.ones(1, 1))
    other = nan.clone()
    other[1, 0] = -0.0
    with pytest.raises(AssertionError, match=r"^logits: 1 of 4 elements differ, the first at \(1, 0\): 0\.0 and -0\.0"):
        testing.assert_bitwise_equal(nan, other, "logits")
    with pytest.raises(AssertionError, match=r"torch\.float32 \[2, 2\] is compared with torch\.float32 \[4\]"):
        testing.assert_bitwise_equal(nan, nan.flatten())
    with pytest.raises(AssertionError, match=r"torch\.float32 \[2, 2\] is compared with torch\.bfloat16"):
        testing.assert_bitwise_equal(nan, nan.bfloat16())


def test_suppress_stdout_stderr(capfd):
    with testing.suppress_stdout_stderr():
        print("hidden")
        print("hidden", file=sys.stderr)
        os.write(1, b"hidden")
        os.write(2, b"hidden")
    print("seen")
    os.write(2, b"seen")
    assert capfd.readouterr() == ("seen\n", "seen")
    with pytest.raises(KeyError), testing.suppress_stdout_stderr():
        raise KeyError
    os.write(1, b"seen again")
    assert capfd.readouterr().out == "seen again"


def test_count_bytes():
    a, b = torch.empty((3, 5), dtype=torch.bfloat16), torch.empty(7, dtype=torch.float8_e4m3fn)
    assert testing.count_bytes() == 0
    assert testing.count_bytes(a, (b, [a, None]), None) == 30 + 7 + 30


def test_ignore_env(monkeypatch):
    monkeypatch.setenv("DG_TEST_VARIABLE", "1")
    active = True

    @testing.ignore_env("DG_TEST_VARIABLE", lambda: active)
    def read(fail=False):
        if fail:
            raise KeyError("on purpose")
        return os.environ.get("DG_TEST_VARIABLE")

    assert read() is None
    with pytest.raises(KeyError):
        read(fail=True)
    assert os.environ["DG_TEST_VARIABLE"] == "1"
    active = False
    assert read() == "1"


def test_test_filter(capsys):
    holds = False

    @testing.test_filter(lambda: holds)
    def double(x):
        return 2 * x

    assert double(2) is None
    assert "double: skipped" in capsys.readouterr().out
    holds = True
    assert double(2) == 4
    assert double.__name__ == "double"


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_what_needs_a_gpu_says_so():
    with pytest.raises(RuntimeError, match="no CUDA device"):
        testing.get_arch_major()
    with pytest.raises(RuntimeError, match="no CUDA device"):
        testing.bench_kineto(lambda: None, "gemm")


def test_bench_calls_as_often_as_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    calls = []
    assert testing.bench(lambda: calls.append(1), num_warmups=2, num_tests=3) > 0
    assert len(calls) == 5


class Event:
    def __init__(self, key, count, microseconds, on_gpu=True):
        device = torch.autograd.DeviceType
        self.key, self.count, self.self_device_time_total = key, count, microseconds
        self.device_type = device.CUDA if on_gpu else device.CPU


def test_kernel_seconds_averages_over_launches():
    events = [Event("gemm_a", 10, 50), Event("gemm_b", 10, 150), Event("gemm_a launch", 10, 1000, on_gpu=False)]
    assert kernel_seconds(events, "gemm_a") == pytest.approx(5e-6)
    assert kernel_seconds(events, "gemm", with_multiple_kernels=True) == pytest.approx(10e-6)
    assert kernel_seconds(events, "other") == 0
    with pytest.raises(ValueError, match="names 2 kernels"):
        kernel_seconds(events, "gemm")


@pytest.mark.gpu
def test_bench_kineto_on_a_gpu():
    x = torch.randn((1024, 1024), device="cuda")
    assert testing.bench_kineto(lambda: x.mul_(1.0), "MulFunctor", num_tests=3, suppress_kineto_output=True) > 0
