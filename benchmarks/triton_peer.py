"""Triton's matmul compiled for sm_80, by tiles: what another compiler reaches with the same instructions."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

TILES = [(128, 128), (128, 256), (64, 256), (256, 128)]
LINES = (64, 128)  # bytes of K of a stage
WARPS_STAGES = [(4, 3), (4, 4), (8, 3), (8, 4)]
SHARED_BYTES = 163 * 1024  # of sm_80
GROUP = 8  # rows of tiles that are walked together


def installed() -> bool:
    try:
        import cupy  # noqa: F401
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def _kernel():
    import triton
    import triton.language as tl

    @triton.jit
    def matmul(
        a, b, d, m, n, k, rows: tl.constexpr, cols: tl.constexpr, depth: tl.constexpr, exact: tl.constexpr,
        group: tl.constexpr,
    ):  # fmt: skip
        program, row_tiles, col_tiles = tl.program_id(0), tl.cdiv(m, rows), tl.cdiv(n, cols)
        strip = group * col_tiles
        first = program // strip * group
        height = min(row_tiles - first, group)
        row = (first + program % strip % height) * rows + tl.arange(0, rows)
        col = program % strip // height * cols + tl.arange(0, cols)
        at = tl.arange(0, depth)
        from_a, from_b = a + row[:, None] * k + at[None, :], b + col[None, :] * k + at[:, None]
        total = tl.zeros((rows, cols), dtype=tl.int32 if exact else tl.float32)
        for _ in range(0, k, depth):
            total = tl.dot(tl.load(from_a), tl.load(from_b), total, out_dtype=tl.int32 if exact else tl.float32)
            from_a += depth
            from_b += depth
        out = d + row[:, None] * n + col[None, :]
        tl.store(out, total if exact else total.to(tl.bfloat16))

    return matmul


def candidates(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> dict[str, Callable[[], None]]:
    """D = A B^T of BF16, or of int8 with an int32 D, by tiles; extents that tiles divide."""
    import cupy
    import numpy
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    kernel = _kernel()
    exact, (m, k), n = a.dtype == torch.int8, a.shape, b.shape[0]
    pointer, out = ("*i8", "*i32") if exact else ("*bf16", "*bf16")
    found = {}
    for (rows, cols), line, (warps, stages) in itertools.product(TILES, LINES, WARPS_STAGES):
        depth = line // a.element_size()
        if (rows + cols) * line * stages > SHARED_BYTES or m % rows or n % cols or k % depth:
            continue
        values = {"rows": rows, "cols": cols, "depth": depth, "exact": exact, "group": GROUP}
        types = {"a": pointer, "b": pointer, "d": out, "m": "i32", "n": "i32", "k": "i32"}
        signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in types}
        constants = {(kernel.arg_names.index(name),): value for name, value in values.items()}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
        made = compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": warps, "num_stages": stages})
        module = cupy.cuda.function.Module()
        module.load(made.asm["ptx"].encode())
        function = module.get_function("matmul")
        from cuda.bindings import driver

        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.cuFuncSetAttribute(driver.CUfunction(function.ptr), limit, made.metadata.shared)
        arguments = (
            *(numpy.uint64(t.data_ptr()) for t in (a, b, d)),
            *map(numpy.int32, (m, n, k)),
            *[numpy.uint64(0)] * 2,
        )

        def call(
            function=function, module=module, shared=made.metadata.shared, warps=warps, grid=m // rows * (n // cols),
            arguments=arguments,
        ) -> None:  # fmt: skip
            stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
            function((grid, 1, 1), (32 * warps, 1, 1), arguments, shared_mem=shared, stream=stream)

        found[f"{rows}x{cols}x{depth}, {warps} warps, {stages} stages"] = call
    return found
