"""What a source asks of its FFMA (csrc/jit/sm90/ffma_yields.hpp) stands in the machine code; nothing else changed."""

from __future__ import annotations

import re
import uuid

import pytest
import sass
from field_calls import kernel_of

from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

# A factor that many FFMA share, then another; and sums that are read and written by hand, so that none is moved. A new
# text each time: of one that was compiled before, the cache has what set the hints then.
SOURCE = (
    f"// {uuid.uuid4()}"
    + """
extern "C" __global__ void planted(const float* factors, float* sums, int rounds) {
    float sum[48];
    for (int i = 0; i < 48; ++i) sum[i] = sums[i * 32 + threadIdx.x];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        const float first = factors[64 * round + threadIdx.x], second = factors[64 * round + 32 + threadIdx.x];
        for (int i = 0; i < 48; ++i) sum[i] = __fmaf_rn(sum[(i + 7) % 48], i < 24 ? first : second, sum[i]);
    }
    for (int i = 0; i < 48; ++i) sums[i * 32 + threadIdx.x] = sum[i];
}
"""
)
REUSE = 0xF << 122  # of an instruction's operands


def compiled(line: str, target: str = HOPPER_TARGET, output: str = "cubin") -> bytes:
    return C.jit_compile("planted", line + SOURCE, target, output)


def is_ffma(word: int) -> bool:
    return word & sass.OPCODE == sass.FFMA


NOTHING = "// nothing is asked\n"  # a line, so that others have the same numbers


def plain() -> list[int]:
    return sass.instructions(compiled(NOTHING))


@pytest.mark.parametrize("every", [0, 1, 2, 3, 6, 8, 100])
def test_as_often_as_asked(every: int):
    code = sass.instructions(compiled(f"// FFMA yield: 1 of {every}\n" if every else "// FFMA yield: none\n"))
    assert sum(is_ffma(word) for word in code) >= 48
    run = 0
    for word, after in zip(code, [*code[1:], 0], strict=True):
        if word & sass.OPCODE == sass.BRANCH:
            run = 0
        if not is_ffma(word):
            continue
        run += 1
        if every and run % every == 0:
            assert sass.yields(word)
            assert not word & REUSE  # another warp's operands may stand there when this one goes on
        else:
            assert not sass.yields(word)
            # The second factor is the shared one: bits 32 to 39; the target is at 16.
            shared = is_ffma(after) and (word ^ after) >> 32 & 0xFF == 0 and word >> 32 & 0xFF != word >> 16 & 0xFF
            assert bool(word & 2 << 122) >= shared


def test_only_hints_of_ffma_change():
    before, after = plain(), sass.instructions(compiled("// FFMA yield: 1 of 3\n"))
    assert before != after
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        hints = REUSE | sass.NO_YIELD if is_ffma(old) else 0
        assert old & ~hints == new & ~hints


def test_a_register_that_is_written_is_not_kept():
    text = SOURCE.replace("sum[i] = __fmaf_rn(sum[(i + 7) % 48], i < 24 ? first : second, sum[i])", "STEP;")
    step = "sum[i % 2] = __fmaf_rn(sum[0], sum[0], sum[i % 2])"
    code = sass.instructions(
        C.jit_compile("planted", "// FFMA yield: none\n" + text.replace("STEP", step), HOPPER_TARGET, "cubin")
    )
    found = [word for word in code if is_ffma(word)]
    assert found
    for word in found:
        target = word >> 16 & 0xFF
        kept = [word >> 24 + 8 * i & 0xFF for i in (0, 1) if word >> 122 + i & 1]
        assert target not in kept


def test_without_a_line_ptxas_decides():
    """Behind the wait for a round's own wgmma it lets some FFMA yield."""
    fields = {"num_sms": HOPPER_SMS, "m": 4096, "n": 576, "k": 7168, "tile_rows": 192, "tile_cols": 96}
    text = str(kernel_of("dense", fields)["text"])
    [line] = re.findall(r"// FFMA yield: 1 of \d+\n", text)

    def yielding(source: str) -> int:
        code = sass.instructions(C.jit_compile("planted", f"// {uuid.uuid4()}\n{source}", HOPPER_TARGET, "cubin"))
        return sum(
            is_ffma(code[index]) and sass.yields(code[index]) for loop in sass.wgmma_loops(code) for index in loop
        )

    assert yielding(text.replace(line, "// FFMA yield: none\n")) == 0
    assert 0 < yielding(text.replace(line, "// FFMA yield as they like\n")) != yielding(text)


def test_other_targets_are_left_alone():
    line = "// FFMA yield: 1 of 3\n"
    assert compiled(line, output="ptx") == compiled(NOTHING, output="ptx")
    assert sass.instructions(compiled(line, "sm_100a")) == sass.instructions(compiled(NOTHING, "sm_100a"))


def test_nobody_can_tell_what_is_asked():
    with pytest.raises(ValueError, match='goes on with "none" or with "1 of " and a number'):
        compiled("// FFMA yield: often\n")


WGRAD = {"per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1}


@pytest.mark.parametrize(
    ("fields", "rows", "cols", "asked"),
    [
        ({}, 256, 128, "1 of 8"),
        ({}, 256, 112, "1 of 8"),
        ({}, 192, 128, "1 of 3"),
        ({}, 128, 192, None),
        ({}, 128, 160, None),
        ({}, 128, 128, "1 of 8"),
        ({"cluster_k": 2, "m": 128}, 128, 112, "1 of 6"),
        (WGRAD, 128, 128, "1 of 2"),
        (WGRAD, 192, 128, None),
        ({}, 128, 32, None),
        ({}, 64, 128, None),
        ({"bf16": 1}, 128, 128, None),
    ],
)
def test_what_kernels_ask_for(fields, rows, cols, asked):
    """As was measured best: docs/notes/tried.md, "FFMA that yield"."""
    problem = {"num_sms": HOPPER_SMS, "m": 1024, "n": 3840, "k": 4096, **fields}
    text = str(kernel_of("dense", {**problem, "tile_rows": rows, "tile_cols": cols})["text"])
    assert re.findall(r"// FFMA yield: (.*)\n", text) == ([asked] if asked else [])


def test_experts_on_high_tiles_ask_for_yields():
    fields = {"num_sms": HOPPER_SMS, "m": 4096, "expected_m": 192, "n": 6144, "k": 7168, "groups": 32}
    text = str(kernel_of("masked", {**fields, "tile_rows": 256, "tile_cols": 128})["text"])
    assert "// FFMA yield: 1 of 8\n" in text
