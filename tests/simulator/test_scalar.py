"""Scalar instructions against results worked out by hand."""

# ruff: noqa: E501  (PTX stands in the tables as it is, one case a line)

from __future__ import annotations

import math
import struct

import pytest
from ptx_tools import evaluate, kernel, run_kernel
from torch import int32, zeros


def f32(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def f64(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]


NAN = 0x7FFFFFFF
BIG = 0xFFFFFFFF
MIN64 = 1 << 63

# instruction(s), inputs in %r1, %r2 ... , 32-bit result in %r0
INTEGER = [
    ("add.s32 %r0, %r1, %r2;", [7, -9], BIG - 1),
    ("add.u32 %r0, %r1, %r2;", [BIG, 2], 1),
    ("sub.s32 %r0, %r1, %r2;", [3, 5], BIG - 1),
    ("mul.lo.s32 %r0, %r1, %r2;", [-3, 7], (1 << 32) - 21),
    ("mul.hi.u32 %r0, %r1, %r2;", [BIG, BIG], BIG - 1),
    ("mul.hi.s32 %r0, %r1, %r2;", [-1, 5], BIG),
    ("mad.lo.s32 %r0, %r1, %r2, %r3;", [3, 4, 5], 17),
    ("mad.hi.u32 %r0, %r1, %r2, %r3;", [1 << 31, 4, 1], 3),
    ("mul24.lo.u32 %r0, %r1, %r2;", [0xFF000003, 4], 12),
    ("mul24.lo.s32 %r0, %r1, %r2;", [0xFFFFFF, 4], BIG - 3),
    ("sad.s32 %r0, %r1, %r2, %r3;", [3, 10, 1], 8),
    ("div.s32 %r0, %r1, %r2;", [-7, 2], BIG - 2),
    ("div.u32 %r0, %r1, %r2;", [7, 0], BIG),
    ("div.s32 %r0, %r1, %r2;", [1 << 31, -1], 1 << 31),
    ("rem.s32 %r0, %r1, %r2;", [-7, 2], BIG),
    ("rem.u32 %r0, %r1, %r2;", [7, 4], 3),
    ("abs.s32 %r0, %r1;", [-5], 5),
    ("neg.s32 %r0, %r1;", [5], (1 << 32) - 5),
    ("min.s32 %r0, %r1, %r2;", [-1, 1], BIG),
    ("min.u32 %r0, %r1, %r2;", [-1, 1], 1),
    ("max.s32 %r0, %r1, %r2;", [-1, 1], 1),
    ("max.u32 %r0, %r1, %r2;", [-1, 1], BIG),
    ("max.s16x2 %r0, %r1, %r2;", [0x0001FFFF, 0xFFFF0001], 0x00010001),
    ("add.u16x2 %r0, %r1, %r2;", [0x0001FFFF, 0x00010001], 0x00020000),
    ("and.b32 %r0, %r1, %r2;", [12, 10], 8),
    ("or.b32 %r0, %r1, %r2;", [12, 10], 14),
    ("xor.b32 %r0, %r1, %r2;", [12, 10], 6),
    ("not.b32 %r0, %r1;", [0], BIG),
    ("cnot.b32 %r0, %r1;", [0], 1),
    ("shl.b32 %r0, %r1, %r2;", [1, 31], 1 << 31),
    ("shl.b32 %r0, %r1, %r2;", [1, 32], 0),
    ("shr.u32 %r0, %r1, %r2;", [1 << 31, 31], 1),
    ("shr.s32 %r0, %r1, %r2;", [1 << 31, 40], BIG),
    ("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", [0x80000000, 1, 1], 3),
    ("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", [2, 1, 1], 0x80000001),
    ("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", [2, 7, 40], 7),
    ("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", [5, 7, 32], 7),
    ("prmt.b32 %r0, %r1, %r2, 0x5410;", [0x33221100, 0x77665544], 0x55441100),
    ("prmt.b32 %r0, %r1, %r2, 0x8080;", [0x80, 0], 0xFF80FF80),
    ("prmt.b32.f4e %r0, %r1, %r2, %r3;", [0x33221100, 0x77665544, 1], 0x44332211),
    ("lop3.b32 %r0, %r1, %r2, %r3, 0x96;", [0xF0, 0xCC, 0xAA], 0x96),
    ("lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", [0xF0, 0xCC, 0xAA], 0xE8),
    ("lop3.b32 %r0, %r1, %r2, %r3, 0x01;", [0, 0, 0], BIG),
    ("bfe.u32 %r0, %r1, %r2, %r3;", [0xABCD, 4, 8], 0xBC),
    ("bfe.s32 %r0, %r1, %r2, %r3;", [0xABCD, 4, 8], 0xFFFFFFBC),
    ("bfe.s32 %r0, %r1, %r2, %r3;", [1 << 31, 28, 8], 0xFFFFFFF8),
    ("bfi.b32 %r0, %r1, %r2, %r3, %r4;", [0xF, 0, 8, 4], 0xF00),
    ("bfi.b32 %r0, %r1, %r2, %r3, %r4;", [0xFF, 0xABCD, 4, 4], 0xABFD),
    ("bmsk.clamp.b32 %r0, %r1, %r2;", [4, 8], 0xFF0),
    ("szext.wrap.s32 %r0, %r1, %r2;", [0x80, 8], 0xFFFFFF80),
    ("popc.b32 %r0, %r1;", [0xF0F], 8),
    ("popc.b64 %r0, %d1;", [-1], 64),
    ("clz.b32 %r0, %r1;", [1], 31),
    ("clz.b64 %r0, %d1;", [1], 63),
    ("brev.b32 %r0, %r1;", [1], 1 << 31),
    ("bfind.u32 %r0, %r1;", [0x100], 8),
    ("bfind.s32 %r0, %r1;", [-1], BIG),
    ("bfind.shiftamt.u32 %r0, %r1;", [0x100], 23),
    ("dp4a.s32.s32 %r0, %r1, %r2, %r3;", [0x01FF0203, 0x01010101, 10], 15),
    ("vabsdiff4.u32.u32.u32 %r0, %r1, %r2, %r3;", [0x01FF0080, 0x0200007F, 9], 0x01FF0001),
    ("vabsdiff4.u32.s32.s32 %r0, %r1, %r2, %r3;", [0x01FF0080, 0x0200007F, 9], 0x010100FF),
    ("add.cc.u32 %r5, %r1, %r2; addc.u32 %r0, %r3, %r4;", [BIG, 1, 2, 3], 6),
    ("sub.cc.u32 %r5, %r1, %r2; subc.u32 %r0, %r3, %r4;", [0, 1, 5, 3], 1),
    ("mad.lo.cc.u32 %r5, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, %r4;", [1 << 31, 2, 0, 7], 8),
    ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r0, 1, 2, %p1;", [-1, 0], 1),
    ("setp.lo.u32 %p1, %r1, %r2; selp.b32 %r0, 1, 2, %p1;", [-1, 0], 2),
    ("setp.eq.and.s32 %p1|%p2, %r1, %r2, %p3; selp.b32 %r0, 1, 2, %p1;", [4, 4], 2),
    ("setp.eq.s32 %p3, 0, 0; setp.gt.and.s32 %p1|%p2, %r1, %r2, !%p3; selp.b32 %r0, 1, 2, %p2;", [4, 3], 2),
    ("setp.ne.or.s32 %p1, %r1, %r2, %p3; selp.b32 %r0, 1, 2, %p1;", [4, 4], 2),
    ("set.lt.u32.s32 %r0, %r1, %r2;", [1, 2], BIG),
    ("slct.b32.s32 %r0, %r1, %r2, %r3;", [10, 20, -1], 20),
    ("setp.eq.s32 %p1, %r1, 5; @%p1 mov.u32 %r0, 8; @!%p1 mov.u32 %r0, 9;", [5], 8),
    (
        "setp.eq.s32 %p1, %r1, 5; not.pred %p2, %p1; and.pred %p3, %p1, %p2; or.pred %p4, %p1, %p2; xor.pred %p5, %p4, %p3; selp.u32 %r0, 1, 0, %p5;",
        [5],
        1,
    ),
    ("mov.b32 {%h1, %h2}, %r1; mov.b32 %r0, {%h2, %h1};", [0x12345678], 0x56781234),
    ("mov.b64 {%r5, %r0}, %d1;", [0x1122334455667788], 0x11223344),
    ("mov.b64 {_, %r0}, %d1;", [0x1122334455667788], 0x11223344),
    ("cvt.u16.u32 %h1, %r1; mul.wide.u16 %r0, %h1, 3;", [0x1FFFF], 0x2FFFD),
    ("cvt.s16.s32 %h1, %r1; cvt.s32.s16 %r0, %h1;", [0x18000], 0xFFFF8000),
    ("cvt.u16.u32 %h1, %r1; shl.b16 %h2, %h1, 4; cvt.u32.u16 %r0, %h2;", [0xF00F], 0x00F0),
    ("activemask.b32 %r0;", [], 1),
]

# 64-bit results in %d0
LONG = [
    ("add.s64 %d0, %d1, %d2;", [MIN64, -1], MIN64 - 1),
    ("mul.lo.s64 %d0, %d1, %d2;", [-3, 1 << 40], (1 << 64) - (3 << 40)),
    ("mul.hi.u64 %d0, %d1, %d2;", [-1, 16], 15),
    ("mul.wide.u32 %d0, %r1, %r2;", [BIG, BIG], BIG * BIG),
    ("mul.wide.s32 %d0, %r1, %r2;", [-2, 3], (1 << 64) - 6),
    ("mad.wide.s32 %d0, %r1, %r2, %d3;", [-2, 3, 10], 4),
    ("mad.wide.u32 %d0, %r1, 8, %d2;", [BIG, 1], BIG * 8 + 1),
    ("div.u64 %d0, %d1, %d2;", [MIN64, 3], MIN64 // 3),
    ("rem.s64 %d0, %d1, %d2;", [-7, 4], (1 << 64) - 3),
    ("shr.s64 %d0, %d1, %r2;", [-8, 1], (1 << 64) - 4),
    ("shl.b64 %d0, %d1, 40;", [3], 3 << 40),
    ("bfe.u64 %d0, %d1, 8, 16;", [0xABCDEF00], 0xCDEF),
    ("bfi.b64 %d0, %d1, %d2, 32, 8;", [0xFF, 1], 0xFF00000001),
    ("brev.b64 %d0, %d1;", [1], MIN64),
    ("mov.b64 %d0, {%r1, %r2};", [0x11111111, 0x22222222], 0x2222222211111111),
    ("cvt.s64.s32 %d0, %r1;", [-5], (1 << 64) - 5),
    ("cvt.u64.u32 %d0, %r1;", [-5], BIG - 4),
    ("cvt.sat.u64.s64 %d0, %d1;", [-5], 0),
    ("min.s64 %d0, %d1, %d2;", [-5, 3], (1 << 64) - 5),
    ("xor.b64 %d0, %d1, %d2;", [5, 3], 6),
    ("selp.b64 %d0, %d1, %d2, %p1;", [5, 3], 3),
]

F = "mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3;"
FLOAT = [
    ("add.f32 %f0, %f1, %f2;", [1.5, 2.25], f32(3.75)),
    ("add.rz.f32 %f0, %f1, %f2;", [1.0, 2**-24 + 2**-30], f32(1.0)),
    ("add.rp.f32 %f0, %f1, %f2;", [1.0, 2**-30], f32(1.0) + 1),
    ("add.rm.f32 %f0, %f1, %f2;", [-1.0, -(2**-30)], f32(-1.0) + 1),
    ("sub.f32 %f0, %f1, %f2;", [1.0, 3.0], f32(-2.0)),
    ("mul.f32 %f0, %f1, %f2;", [3.0, -0.5], f32(-1.5)),
    ("mul.rn.f32 %f0, %f1, %f2;", [3.0, 0.5], f32(1.5)),
    ("mul.ftz.f32 %f0, %f1, %f2;", [2**-100, 2**-40], 0),
    ("mul.f32 %f0, %f1, %f2;", [2**-100, 2**-40], f32(2**-140)),
    ("fma.rn.f32 %f0, %f1, %f2, %f3;", [1 + 2**-12, 1 + 2**-12, -1.0], f32(2**-11 + 2**-24)),
    ("fma.rn.sat.f32 %f0, %f1, %f2, %f3;", [2.0, 2.0, 0.0], f32(1.0)),
    ("div.rn.f32 %f0, %f1, %f2;", [1.0, 3.0], f32(1 / 3)),
    ("div.full.f32 %f0, %f1, %f2;", [6.0, 3.0], f32(2.0)),
    ("div.approx.ftz.f32 %f0, %f1, %f2;", [6.0, 3.0], f32(2.0)),
    ("rcp.approx.ftz.f32 %f0, %f1;", [4.0], f32(0.25)),
    ("sqrt.rn.f32 %f0, %f1;", [2.0], f32(math.sqrt(2))),
    ("rsqrt.approx.f32 %f0, %f1;", [4.0], f32(0.5)),
    ("ex2.approx.ftz.f32 %f0, %f1;", [-3.0], f32(0.125)),
    ("lg2.approx.f32 %f0, %f1;", [8.0], f32(3.0)),
    ("sin.approx.f32 %f0, %f1;", [0.0], 0),
    ("cos.approx.f32 %f0, %f1;", [0.0], f32(1.0)),
    ("tanh.approx.f32 %f0, %f1;", [0.0], 0),
    ("min.f32 %f0, %f1, %f2;", [math.nan, 2.0], f32(2.0)),
    ("max.NaN.f32 %f0, %f1, %f2;", [math.nan, 2.0], NAN),
    ("max.f32 %f0, %f1, %f2;", [-0.0, 0.0], 0),
    ("abs.f32 %f0, %f1;", [-2.0], f32(2.0)),
    ("neg.f32 %f0, %f1;", [2.0], f32(-2.0)),
    ("copysign.f32 %f0, %f1, %f2;", [-1.0, 3.0], f32(-3.0)),
    ("setp.ltu.f32 %p1, %f1, %f2; selp.f32 %f0, %f1, %f2, %p1;", [math.nan, 2.0], 0x7FC00000),
    ("setp.lt.f32 %p1, %f1, %f2; selp.f32 %f0, %f1, %f2, %p1;", [math.nan, 2.0], f32(2.0)),
    ("setp.nan.f32 %p1, %f1, %f2; selp.f32 %f0, 0f3F800000, 0f00000000, %p1;", [math.nan, 2.0], f32(1.0)),
    ("testp.infinite.f32 %p1, %f1; selp.f32 %f0, 0f3F800000, 0f00000000, %p1;", [math.inf], f32(1.0)),
    ("cvt.rzi.s32.f32 %r5, %f1; mov.b32 %f0, %r5;", [-2.7], BIG - 1),
    ("cvt.rni.s32.f32 %r5, %f1; mov.b32 %f0, %r5;", [2.5], 2),
    ("cvt.rmi.s32.f32 %r5, %f1; mov.b32 %f0, %r5;", [-2.1], BIG - 2),
    ("cvt.rpi.u32.f32 %r5, %f1; mov.b32 %f0, %r5;", [2.1], 3),
    ("cvt.rzi.u32.f32 %r5, %f1; mov.b32 %f0, %r5;", [-2.7], 0),
    ("cvt.rzi.s32.f32 %r5, %f1; mov.b32 %f0, %r5;", [1e20], 0x7FFFFFFF),
    ("cvt.rzi.s32.f32 %r5, %f1; mov.b32 %f0, %r5;", [math.nan], 0),
    ("cvt.rmi.f32.f32 %f0, %f1;", [-2.1], f32(-3.0)),
    ("cvt.sat.f32.f32 %f0, %f1;", [2.1], f32(1.0)),
    ("cvt.rn.bf16.f32 %h1, %f1; cvt.f32.bf16 %f0, %h1;", [1 + 2**-8], f32(1.0)),
    ("cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f0, %h1;", [65519.0], f32(65504.0)),
    ("cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f0, %h1;", [65520.0], f32(math.inf)),
    ("cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f0, %h1;", [2**-24], f32(2**-24)),
    (
        "cvt.rn.f16.f32 %h1, %f1; cvt.rn.f16.f32 %h2, %f2; add.f16 %h3, %h1, %h2; cvt.f32.f16 %f0, %h3;",
        [2048.0, 1.0],
        f32(2048.0),
    ),
    (
        "cvt.rn.f16.f32 %h1, %f1; cvt.rn.f16.f32 %h2, %f2; sub.rn.f16 %h3, %h1, %h2; cvt.f32.f16 %f0, %h3;",
        [3.0, 0.5],
        f32(2.5),
    ),
    (
        "cvt.rn.f16.f32 %h1, %f1; cvt.rn.f16.f32 %h2, %f2; setp.lt.f16 %p1, %h1, %h2; selp.f32 %f0, 0f3F800000, 0f00000000, %p1;",
        [-2.0, 1.0],
        f32(1.0),
    ),
    ("cvt.rn.bf16x2.f32 %r5, %f1, %f2; mov.b32 %f0, %r5;", [1.0, -2.0], 0x3F80C000),
    ("cvt.rn.relu.bf16x2.f32 %r5, %f1, %f2; mov.b32 %f0, %r5;", [1.0, -2.0], 0x3F800000),
    ("cvt.rn.f16x2.f32 %r5, %f1, %f2; mov.b32 %f0, %r5;", [1.0, -2.0], 0x3C00C000),
    ("cvt.rz.bf16x2.f32 %r5, %f1, %f2; mov.b32 %f0, %r5;", [1.99999, 1.0], 0x3FFF3F80),
    ("cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; cvt.u32.u16 %r5, %h1; mov.b32 %f0, %r5;", [1000.0, -1.0], 0x7EB8),
    ("cvt.rn.satfinite.e5m2x2.f32 %h1, %f1, %f2; cvt.u32.u16 %r5, %h1; mov.b32 %f0, %r5;", [1.0, 0.25], 0x3C34),
    (
        "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; cvt.rn.f16x2.e4m3x2 %r5, %h1; mov.b32 %f0, %r5;",
        [448.0, 0.0625],
        0x5F002C00,
    ),
    (
        "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; cvt.rn.relu.f16x2.e4m3x2 %r5, %h1; mov.b32 %f0, %r5;",
        [-448.0, 0.0625],
        0x00002C00,
    ),
    ("cvt.rna.tf32.f32 %r5, %f1; mov.b32 %f0, %r5;", [1 + 2**-11], f32(1 + 2**-10)),
    ("cvt.rp.satfinite.ue8m0x2.f32 %h1, %f1, %f2; cvt.u32.u16 %r5, %h1; mov.b32 %f0, %r5;", [3.0, 1.0], 0x817F),
    # Ties go to even, what is too large to the largest value, of either sign; NaN to the largest one.
    (
        "{ .reg .b8 %b1; cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f2; mov.b16 %h1, {%b1, 0}; } cvt.u32.u16 %r5, %h1; mov.b32 %f0, %r5;",
        [2.5, -9.0],
        0x4F,
    ),
    (
        "{ .reg .b8 %b1; cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f2; mov.b16 %h1, {%b1, %b1}; } cvt.u32.u16 %r5, %h1; mov.b32 %f0, %r5;",
        [math.nan, 0.75],
        0x7272,
    ),
    (
        "{ .reg .b8 %b1, %b2; cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f2; cvt.rn.f16x2.e2m1x2 %r5, %b1; } mov.b32 %f0, %r5;",
        [-0.3, 5.1],
        0xB8004600,
    ),
    ("cvt.rn.satfinite.e2m3x2.f32 %h1, %f1, %f2; cvt.u32.u16 %r5, %h1; mov.b32 %f0, %r5;", [-8.0, 1.0625], 0x3F08),
    (
        "cvt.rn.satfinite.e3m2x2.f32 %h1, %f1, %f2; cvt.rn.f16x2.e3m2x2 %r5, %h1; mov.b32 %f0, %r5;",
        [100.0, -0.05],
        0x4F00AC00,
    ),
    ("cvt.f64.f32 %g1, %f1; mul.f64 %g1, %g1, 0d4000000000000000; cvt.rn.f32.f64 %f0, %g1;", [1.5], f32(3.0)),
    ("mov.b64 %d5, {%f1, %f2}; add.rn.f32x2 %d6, %d5, %d5; mov.b64 {%f4, %f0}, %d6;", [1.0, 2.5], f32(5.0)),
    ("mov.b64 %d5, {%f1, %f2}; fma.rn.f32x2 %d6, %d5, %d5, %d5; mov.b64 {%f0, %f4}, %d6;", [3.0, 2.5], f32(12.0)),
    ("cvt.rn.bf16x2.f32 %r5, %f1, %f2; add.rn.bf16x2 %r6, %r5, %r5; mov.b32 %f0, %r6;", [1.0, 3.0], 0x400040C0),
    ("cvt.rn.f16x2.f32 %r5, %f1, %f2; fma.rn.f16x2 %r6, %r5, %r5, %r5; mov.b32 %f0, %r6;", [1.0, 3.0], 0x40004A00),
    ("cvt.rn.f16x2.f32 %r5, %f1, %f2; max.f16x2 %r6, %r5, 0; mov.b32 %f0, %r6;", [-1.0, 3.0], 0x00004200),
    ("cvt.rn.bf16x2.f32 %r5, %f1, %f2; neg.bf16x2 %r6, %r5; mov.b32 %f0, %r6;", [1.0, 3.0], 0xBF80C040),
    (
        "cvt.rn.bf16.f32 %h1, %f1; cvt.rn.bf16.f32 %h2, %f2; fma.rn.f32.bf16 %f0, %h1, %h2, %f3;",
        [1 + 2**-7, 3.0, 2**-20],
        f32(3 + 3 * 2**-7 + 2**-20),
    ),
    ("cvt.rn.f16.f32 %h1, %f1; fma.rn.sat.f32.f16 %f0, %h1, %h1, %f2;", [0.5, 1.0], f32(1.0)),
    ("cvt.rn.f16.f32 %h1, %f1; sub.f32.f16 %f0, %h1, %f2;", [1.5, 2**-20], f32(1.5 - 2**-20)),
    ("cvt.rn.bf16.f32 %h1, %f1; add.rz.f32.bf16 %f0, %h1, %f2;", [1.0, 2**-24 * 1.5], f32(1.0)),
    ("cvt.rn.bf16.f32 %h1, %f1; add.rp.f32.bf16 %f0, %h1, %f2;", [1.0, 2**-30], f32(1 + 2**-23)),
    ("set.gt.f32.f32 %f0, %f1, %f2;", [3.0, 2.0], f32(1.0)),
]

FROM_INTEGER = [
    ("cvt.rn.f32.s32 %f0, %r1;", [-3], f32(-3.0)),
    ("cvt.rn.f32.u32 %f0, %r1;", [-1], f32(2.0**32)),
    ("cvt.rz.f32.u32 %f0, %r1;", [-1], f32(2.0**32) - 1),
    ("cvt.rn.f32.s32 %f0, %r1;", [2**24 + 3], f32(2.0**24 + 4)),
    ("cvt.rn.f16.s32 %h1, %r1; cvt.f32.f16 %f0, %h1;", [-2049], f32(-2048.0)),
    ("cvt.rn.f32.s64 %f0, %d1;", [-(1 << 40)], f32(-(2.0**40))),
    ("cvt.rn.f32.u64 %f0, %d1;", [-1], f32(2.0**64)),
    ("cvt.sat.s8.s32 %r5, %r1; mov.b32 %f0, %r5;", [-1000], 0xFFFFFF80),
    ("cvt.pack.sat.u8.s32.b32 %r5, %r1, %r2, %r3; mov.b32 %f0, %r5;", [300, -4, 0xABCD], 0xABCDFF00),
]


def ids(table: list) -> list[str]:
    return [row[0].split(";")[0].split()[0] for row in table]


@pytest.mark.parametrize(("code", "inputs", "expected"), INTEGER, ids=ids(INTEGER))
def test_integer(code: str, inputs: list[int], expected: int) -> None:
    assert evaluate(code, inputs) == expected


@pytest.mark.parametrize(("code", "inputs", "expected"), LONG, ids=ids(LONG))
def test_64_bit(code: str, inputs: list[int], expected: int) -> None:
    assert evaluate(code, inputs, width=64, result="%d0") == expected


@pytest.mark.parametrize(("code", "inputs", "expected"), FLOAT, ids=[row[0][:40] for row in FLOAT])
def test_float(code: str, inputs: list[float], expected: int) -> None:
    words = [f32(x) for x in inputs] + [0] * (3 - len(inputs))
    assert evaluate(F + code, words, result="%f0") == expected


@pytest.mark.parametrize(("code", "inputs", "expected"), FROM_INTEGER, ids=ids(FROM_INTEGER))
def test_conversion_from_integer(code: str, inputs: list[int], expected: int) -> None:
    assert evaluate(code, inputs, result="%f0") == expected


def test_double() -> None:
    code = "mov.b64 %g1, %d1; mov.b64 %g2, %d2; fma.rn.f64 %g0, %g1, %g2, %g1;"
    assert evaluate(code, [f64(1.5), f64(2.0)], width=64, result="%g0") == f64(4.5)


def test_every_e4m3_value_survives_conversion() -> None:
    """All 256 bit patterns: e4m3 to f16 to f32 and back."""
    out = zeros(256, dtype=int32)
    run_kernel(
        kernel("""
    cvt.u16.u32 %h1, %t;
    cvt.rn.f16x2.e4m3x2 %r1, %h1;
    mov.b32 {%h2, %h3}, %r1;
    cvt.f32.f16 %f1, %h2;
    mov.f32 %f2, 0f00000000;
    cvt.rn.satfinite.e4m3x2.f32 %h4, %f2, %f1;
    cvt.u32.u16 %r2, %h4;
    mul.wide.u32 %offset, %t, 4;
    add.s64 %out, %out, %offset;
    st.global.u32 [%out], %r2;"""),
        out,
        threads=256,
    )
    expected = [0x7F if x & 0x7F == 0x7F else x for x in range(256)]  # both NaNs become one
    assert out.tolist() == expected


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("frobnicate.u32 %r0, %r1;", "unknown instruction 'frobnicate'"),
        ("add.wrong.u32 %r0, %r1, %r2;", "modifier '.wrong' of add"),
        ("add.u32 %r0, %r1, %nothing;", "unknown name '%nothing'"),
        ("add.u32 %r0, %r1;", "operand 3 is missing"),
        ("add.u32 %r0, %r1, %r2, %r3;", "operand 4 of add"),
        ("add.u32 %r0, %d1, %r2;", "has 64 bits, the instruction takes 32"),
        ("bra NOWHERE;", "no label 'NOWHERE'"),
        ("ld.global.v3.u32 {%r0, %r1, %r2}, [%in];", "3 operands are given"),
        ("wgmma.mma_async.sync.aligned.m64n12k32.f32.e4m3.e4m3 {%f0}, %d1, %d2, 1, 1, 1;", "N from 8 to 256"),
    ],
)
def test_what_is_not_understood_is_an_error_that_names_the_line(code: str, what: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        evaluate(code, [])
    assert what in str(raised.value)
    assert "PTX line" in str(raised.value)
    assert code.split(";")[0].split()[0].split(".")[0] in str(raised.value)
