"""Tensor maps for micro-benchmarks, whose kernels take them as 16 numbers of their argument."""

from __future__ import annotations

import ctypes
import struct

import torch

from deep_gemm._extension import C

# cuda.h: CU_TENSOR_MAP_DATA_TYPE_UINT8 and ..._FLOAT32, CU_TENSOR_MAP_INTERLEAVE_NONE, ..._SWIZZLE_128B,
# ..._L2_PROMOTION_L2_256B, no NaN fill.
UINT8, FLOAT32, INTERLEAVE_NONE, SWIZZLE_128, PROMOTION_256, FILL_ZERO = 0, 7, 0, 3, 3, 0
SIMULATED = {UINT8: 0, FLOAT32: 3}  # TensorMapType in csrc/device/tensor_map.hpp
ELEMENT_BYTES = {UINT8: 1, FLOAT32: 4}


def matrix_map(data: torch.Tensor, rows: int, row_bytes: int, box_rows: int, element: int = UINT8) -> list[int]:
    """Of a matrix [rows, row_bytes]: boxes of 128 bytes of `box_rows` rows, as the GEMM's operands and D have them."""
    assert rows * row_bytes <= data.numel() * data.element_size()
    size = ELEMENT_BYTES[element]
    sizes, strides, box = [row_bytes // size, rows, 1], [row_bytes, rows * row_bytes], [128 // size, box_rows, 1]
    if data.device.type == "cpu":
        encoded = bytes(C.simulator_tensor_map(data.data_ptr(), SIMULATED[element], sizes, strides, box, SWIZZLE_128))
        return list(struct.unpack("16q", encoded))
    raw = ctypes.create_string_buffer(128 + 64)
    address = (ctypes.addressof(raw) + 63) // 64 * 64  # the driver wants 64-byte alignment
    encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    encode.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p),
        *([ctypes.c_void_p] * 4),
        *([ctypes.c_int] * 4),
    ]
    error = encode(
        address,
        element,
        3,
        data.data_ptr(),
        (ctypes.c_uint64 * 3)(*sizes),
        (ctypes.c_uint64 * 2)(*strides),
        (ctypes.c_uint32 * 3)(*box),
        (ctypes.c_uint32 * 3)(1, 1, 1),
        *(INTERLEAVE_NONE, SWIZZLE_128, PROMOTION_256, FILL_ZERO),
    )
    if error:
        raise RuntimeError(f"cuTensorMapEncodeTiled: error {error}")
    return list(struct.unpack("16q", ctypes.string_at(address, 128)))
