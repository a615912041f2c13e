"""`python -m deep_gemm explain` and `precompile`: which kernels calls need, and compiling them beforehand."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from .. import _models, jit
from .._extension import C
from .._precompile import Calls, Operands, Result, kernels_of, output_for
from .._products import DEFAULT_PRODUCT
from .._recorded_calls import RecordedCalls
from .._recording import Machine, sms_of
from .._targets import BLACKWELL_TARGETS
from .output import Output, first_line


def given_machine(arguments: argparse.Namespace) -> Machine:
    """With the SMs that were given, or all of the GPU."""
    sms = sms_of(arguments.target, arguments.sms, arguments.gpu)
    return Machine(arguments.target, sms, arguments.gpu)


# Of weights: for all of K, or those of a recipe.
INT8_SCALES: dict[str, dict[str, int]] = {
    "whole": {},
    "rows": {"gran_k_b": 128, "per_row_b": 1},
    "blocks": {"gran_k_b": 128},
}


def scale_fields(arguments: argparse.Namespace) -> dict[str, int]:
    """How scales come, as `Calls.scales` takes it."""
    if arguments.product == "int8":
        tokens = {"gran_k_a": 128} if arguments.int8_tokens == "groups" else {}
        return INT8_SCALES[arguments.int8_scales] | tokens | {"asymmetric_a": int(arguments.asymmetric)}
    fields = {f"gran_k_{name}": int(getattr(arguments, f"gran_k_{name}")) for name in "ab"}
    blackwell = arguments.target in BLACKWELL_TARGETS
    if blackwell:
        fields |= {f"packs_scales_{name}": int(getattr(arguments, f"scales_{name}") == "fp32") for name in "ab"}
    if blackwell and arguments.product == "fp8_fp4":
        of_pairs = fields["packs_scales_b"] if arguments.far_exponents else 0  # PackedWeights have words
        return {"gran_k_a": fields["gran_k_a"], "packs_scales_a": fields["packs_scales_a"], "packs_scales_b": of_pairs}
    if arguments.product == "fp4":
        return {name: value for name, value in fields.items() if name.startswith("packs")}
    return fields if arguments.product == "fp8" else {}


def calls_of(arguments: argparse.Namespace) -> Calls:
    operands = Operands(**_given(Operands, arguments), scales=scale_fields(arguments))
    return Calls(operands, **_given(Calls, arguments), result=Result(**_given(Result, arguments)))


def _given(record: type, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fields of a record that are options of the command."""
    return {each.name: getattr(arguments, each.name) for each in fields(record) if hasattr(arguments, each.name)}


def explain(arguments: argparse.Namespace, output: Output) -> int:
    """Candidates, why each was refused, and the choice."""
    calls, machine = calls_of(arguments), given_machine(arguments)
    with jit.record(machine.target, machine.num_sms, machine.gpu):
        made = RecordedCalls(calls, arguments.n, arguments.k, arguments.m, arguments.target)
        made.make(calls.expected_m or arguments.m if calls.grouping == "masked" else arguments.m)
    lines = C.explain_recorded().splitlines()
    legal = [line for line in lines if ": refused" not in line]
    refused = [line for line in lines if ": refused" in line]
    experts = f" of {calls.experts} {calls.grouping} experts" if calls.grouping != "dense" else ""
    problem = f"M={arguments.m} N={arguments.n} K={arguments.k}{experts}, {arguments.target} with {machine.num_sms} SMs"
    output.line(f"{problem}: {len(legal)} candidates, cheapest first")
    for index, line in enumerate(legal if arguments.all else legal[:10]):
        output.line(f"{'->' if index == 0 else '  '} {line}")
    if len(legal) > 10 and not arguments.all:
        output.line(f"   ... and {len(legal) - 10} more (--all)")
    output.facts |= {"m": arguments.m, "n": arguments.n, "k": arguments.k, "target": machine.target}
    output.facts["sms"] = machine.num_sms
    output.facts |= {"candidates": legal, "refused": refused}
    output.line(f"refused: {len(refused)}")
    reasons: dict[str, int] = {}
    for line in refused:
        reasons[line.split(": refused, ")[1]] = reasons.get(line.split(": refused, ")[1], 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        output.line(f"   {count:4d}: {reason}")
    if arguments.all:
        output.line("\n".join(f"   {line}" for line in refused))
    kernel = dict(C.recorded_kernel({}))
    output.facts["kernel"] = kernel
    if "preconvert_name" in kernel:
        output.line(f"\n{kernel['preconvert_name']} converts an operand before it")
    output.line(f"\nchosen kernel ({'FP16' if calls.operands.product == 'fp16' else 'BF16'} output):\n{kernel['text']}")
    return 0


def precompile(arguments: argparse.Namespace, output: Output) -> int:
    """Compile every kernel that M = 1 ... --max-m can need for the given weights, or for a model's."""
    if bool(arguments.weight) == (arguments.model is not None):
        raise ValueError("precompile wants shapes of weights (7168x2048 ...), or --model config.json")
    kernels = (kernels_of_model if arguments.model else kernels_of_weights)(arguments, output)
    recording = jit.Recording(arguments.target, kernels)
    output.facts |= {"target": arguments.target, "kernels": [kernel.name for kernel in kernels]}
    if arguments.dry_run:
        output.line("\n".join(f"  {kernel.name}" for kernel in kernels))
        return 0
    return compile_and_tell(recording, output, output_for(arguments.newer_gpu))


def kernels_of_model(arguments: argparse.Namespace, output: Output) -> list[jit.RecordedKernel]:
    product = arguments.product if arguments.product != DEFAULT_PRODUCT else None
    how = _models.ModelCalls(**{**_given(_models.ModelCalls, arguments), "product": product})
    weights = _models.weights_of_model(arguments.model, how)
    found = _models.kernels_of_model(arguments.model, weights, how, given_machine(arguments), progress=True)
    of_weights = output.facts["weights"] = []
    for each, some in found.of_weights:
        calls, names = each.calls, [kernel.name for kernel in some]
        called = {"product": calls.operands.product, "grouping": calls.grouping, "experts": calls.experts}
        of_weights.append({"name": each.name, "n": each.n, "k": each.k, **called, "kernels": names})
        experts = f", {calls.experts} {calls.grouping}" if calls.grouping != "dense" else ""
        output.line(f"{each.name:28s} {each.n:6d} x {each.k:6d} {called['product']}{experts}: {len(some)} kernels")
    output.facts["others"] = {name: [kernel.name for kernel in some] for name, some in found.of_others}
    for name, some in found.of_others:
        output.line(f"{name:28s} {len(some)} kernels")
    kernels = found.kernels
    output.line(f"{arguments.model}: {len(kernels)} kernels for {arguments.target}")
    return kernels


def kernels_of_weights(arguments: argparse.Namespace, output: Output) -> list[jit.RecordedKernel]:
    calls, machine = calls_of(arguments), given_machine(arguments)
    kernels = kernels_of(calls, arguments.weight, arguments.max_m, machine, layouts=arguments.layouts)
    count = f"{len(kernels)} kernels for {arguments.target}"
    output.line(f"{len(arguments.weight)} weights, M up to {arguments.max_m}: {count}")
    return kernels


def compile_and_tell(recording: jit.Recording, output: Output, image: str = "cubin") -> int:
    """Compile kernels, and say what became of them. 0 where all of them are in the cache for other processes."""
    before = jit.statistics()
    results = jit.compile_recorded(recording, output=image, progress=True)
    stored, found = (jit.statistics()[count] - before[count] for count in ("stored", "found_on_disk"))
    errors = [(result.name, result.error) for result in results if result.error is not None]
    for name, error in errors:
        output.line(f"failed: {name}: {first_line(error)}")
    memory_only = len(results) - len(errors) - stored - found
    output.facts |= {
        "compiled": stored + memory_only,
        "found": found,
        "failed": [{"name": name, "error": str(error)} for name, error in errors],
        "not_stored": memory_only,
    }
    output.say("compiled", stored + memory_only)
    output.say("found", f"{found} compiled earlier")
    output.say("failed", len(errors))
    where = jit.cache_dir() or "there is no cache directory"
    output.say("in the cache", f"{stored + found} of {len(results)} ({where})")
    if memory_only:
        output.say("not stored", f"{memory_only}, which end with this process: the cache cannot be written")
    return 1 if errors or memory_only else 0
