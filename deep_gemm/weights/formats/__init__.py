"""Checkpoints' formats, a file each: what is read, which keys of a config decide, and what is refused."""

from . import awq, compressed_tensors, fp8_blocks, gptq, mxfp4, nvfp4, qoq, w4afp8
from .config import Config
from .layer import Format, Layer, Read

FORMATS = {
    "compressed-tensors": compressed_tensors.FORMAT,
    "gptq": gptq.FORMAT,
    "awq": awq.FORMAT,
    "w4afp8": w4afp8.FORMAT,
    "mxfp4": mxfp4.FORMAT,
    "nvfp4": nvfp4.FORMAT,
    "fp8-block": fp8_blocks.FORMAT,
    "qoq": qoq.FORMAT,
}

__all__ = ["FORMATS", "Config", "Format", "Layer", "Read"]
