"""Torch knows the calls: compiled, exported, traced, functionalised, mapped, faked, and counted as writes."""

from __future__ import annotations

import pytest
import torch
from products import OTHER_NAMES, PRODUCTS, ProductCall, make
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import deep_gemm

REPRESENTATIVES = [
    "fp8_gemm_nt",
    "bf16_gemm_tn",
    "int8_gemm_nt",
    "m_grouped_fp8_gemm_nt_contiguous",
    "m_grouped_bf16_gemm_nt_masked",
    "k_grouped_fp8_gemm_tn_contiguous",
]


def operator(name: str):
    return getattr(torch.ops.deep_gemm, name).default


def inputs_of(call: ProductCall) -> dict:
    """Tensors and pairs that the call reads."""
    return {name: value for name, value in call.arguments.items() if name != "d" and _is_input(value)}


def _is_input(value) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, tuple) and isinstance(value[0], torch.Tensor))


def program(call: ProductCall):
    """A step of a model: allocates D, multiplies, uses D."""
    inputs = list(inputs_of(call))
    rest = {name: value for name, value in call.arguments.items() if name not in (*inputs, "d")}

    def step(*values):
        d = torch.zeros(call.d.shape, dtype=call.d.dtype)
        call.function(**dict(zip(inputs, values, strict=True)), d=d, **rest)
        return d * 2

    return step


def bytes_of(value):
    if isinstance(value, torch.Tensor):
        return value.contiguous().view(torch.uint8).clone()
    return value


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", [*PRODUCTS, *OTHER_NAMES])
def test_each_product_is_an_operator_that_writes_d_alone(name) -> None:
    call = make(OTHER_NAMES.get(name, name))
    want = call.fresh()()
    flat = call.flat()
    before = {key: bytes_of(value) for key, value in flat.items()}
    assert operator(name)(**flat) is None
    assert torch.equal(call.d, want)
    written = {
        key for key, value in flat.items() if isinstance(value, torch.Tensor) and not bytes_of(value).equal(before[key])
    }
    assert written == {"d"}
    schema = operator(name)._schema
    written = {argument.name for argument in schema.arguments if argument.alias_info is not None}
    assert written <= {"d", "d_scales", "d_count"}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", PRODUCTS)
def test_each_product_takes_fp16(name) -> None:
    """As D, by its operator too, and as the operands of those that have no scales."""
    call = make(name)
    halves = {side: call.arguments[side].half() for side in "ab" if isinstance(call.arguments.get(side), torch.Tensor)}
    for operands in ({}, halves):
        want = call(**operands, d=call.d.float())
        found = call(**operands, d=torch.full_like(call.d, float("nan"), dtype=torch.float16))
        torch.testing.assert_close(found.float(), want, rtol=2.0**-10, atol=1e-4)
        flat = call.flat() | operands | {"d": torch.full_like(found, float("nan"))}
        operator(name)(**flat)
        assert torch.equal(flat["d"], found)


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_torch_checks_each_operator(name) -> None:
    call = make(name)
    tests = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if "bf16" in name:  # torch compares no FP8 on CPUs; the test above does
        tests.append("test_schema")
    call.d.zero_()  # nor NaN
    outcome = torch.library.opcheck(operator(name), (), call.flat(), test_utils=tests)
    assert set(outcome.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_compiled_as_one_graph(name) -> None:
    call = make(name)
    step = program(call)
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    operands = inputs_of(call).values()
    assert torch.equal(compiled(*operands), step(*operands))


@pytest.mark.slow
def test_compiled_by_inductor() -> None:
    call = make("fp8_gemm_nt")
    step = program(call)
    torch._dynamo.reset()
    operands = inputs_of(call).values()
    assert torch.equal(torch.compile(step, fullgraph=True)(*operands), step(*operands))


def test_compiled_with_c_in_place_and_older_names() -> None:
    call = make("m_grouped_fp8_gemm_nt_contiguous")
    layout = call.arguments.pop("grouped_layout")
    dense = make("fp8_gemm_nt").arguments

    def step(d, c):
        call.function(call.arguments["a"], call.arguments["b"], d, m_indices=layout)
        deep_gemm.fp8_gemm_nt(dense["a"], dense["b"], c, c)

    plain = torch.zeros_like(call.d), torch.ones(dense["d"].shape)
    compiled = torch.zeros_like(call.d), torch.ones(dense["d"].shape)
    step(*plain)
    torch._dynamo.reset()
    torch.compile(step, fullgraph=True, backend="aot_eager")(*compiled)
    assert all(map(torch.equal, plain, compiled))


def test_one_layout_by_two_names_is_refused_when_compiled() -> None:
    call = make("m_grouped_fp8_gemm_nt_contiguous")
    layout = call.arguments.pop("grouped_layout")

    def step(d):
        call.function(call.arguments["a"], call.arguments["b"], d, m_indices=layout, grouped_layout=layout)

    torch._dynamo.reset()
    with pytest.raises(TypeError, match="m_indices is the older name of grouped_layout: give one of them, not both"):
        torch.compile(step, backend="eager")(torch.zeros_like(call.d))


@pytest.mark.parametrize("strict", [True, False])
def test_exported(strict) -> None:
    call = make("fp8_gemm_nt")

    class Model(torch.nn.Module):
        def forward(self, *tensors):
            return program(call)(tensors[:2], tensors[2:])

    operands = (*call.arguments["a"], *call.arguments["b"])
    exported = torch.export.export(Model(), operands, strict=strict)
    assert "deep_gemm_jit.fp8_gemm_nt" in str(exported.graph)
    assert torch.equal(exported.module()(*operands), Model()(*operands))


@pytest.mark.parametrize("name", REPRESENTATIVES)
@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_recorded_with_the_product(name, mode) -> None:
    call = make(name)
    step, operands = program(call), inputs_of(call).values()
    recorded = make_fx(step, tracing_mode=mode)(*operands)
    assert f"deep_gemm_jit.{name}" in recorded.code
    assert torch.equal(recorded(*operands), step(*operands))


def test_functionalised() -> None:
    call = make("bf16_gemm_nt")
    step, operands = program(call), inputs_of(call).values()
    assert torch.equal(torch.func.functionalize(step)(*operands), step(*operands))
    recorded = make_fx(torch.func.functionalize(step))(*operands)
    assert "deep_gemm_jit.bf16_gemm_nt" in recorded.code
    d = torch._to_functional_tensor(torch.zeros_like(call.d))
    call.function(*map(torch._to_functional_tensor, operands), d)
    assert torch.equal(torch._from_functional_tensor(d) * 2, step(*operands))


def test_mapped_by_vmap() -> None:
    calls = [make("fp8_gemm_nt") for _ in range(3)]
    for call in calls:
        call.arguments["a"][1].mul_(torch.randint(1, 5, ()))
    a, a_scales = (torch.stack([call.arguments["a"][i] for call in calls]) for i in range(2))
    b, d = calls[0].arguments["b"], torch.zeros(3, *calls[0].d.shape, dtype=torch.bfloat16)

    def each(a, a_scales, d):
        deep_gemm.fp8_gemm_nt((a, a_scales), b, d)
        return d

    torch.vmap(each)(a, a_scales, d)
    assert torch.equal(d, torch.stack([call() for call in calls]))
    with pytest.raises(ValueError, match="d must have the mapped dimension"):
        torch.vmap(lambda a, s: each(a, s, calls[0].d))(a, a_scales)


@pytest.mark.parametrize("name", PRODUCTS)
def test_fake_and_meta_tensors_pass_through(name) -> None:
    call = make(name)

    def moved(move) -> None:
        def all_of(value):
            if isinstance(value, tuple):
                return tuple(map(all_of, value))
            return move(value) if isinstance(value, torch.Tensor) else value

        call.function(**{key: all_of(value) for key, value in call.arguments.items()})

    moved(lambda tensor: tensor.to("meta"))
    with FakeTensorMode() as mode:
        moved(mode.from_tensor)
    assert call.d.isnan().all()


@pytest.mark.parametrize("name", PRODUCTS)
def test_writing_d_counts_as_a_write(name) -> None:
    call = make(name)
    before = call.d._version
    assert call()._version > before
    empty = make(name)
    empty.arguments["d"] = empty.d[..., :0]
    before = call.d._version
    with pytest.raises((ValueError, TypeError)):
        call.fresh()(d=call.d[..., :3])
    assert call.d._version == before


def test_backward_refuses_what_was_overwritten() -> None:
    call = make("bf16_gemm_nt")
    call.arguments["d"] = torch.ones(call.d.shape)
    weight = torch.ones(call.d.shape, requires_grad=True)
    loss = (weight * call.d).sum()
    call()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_in_inference_mode() -> None:
    call = make("fp8_gemm_nt")
    with torch.inference_mode():
        inside = call.fresh()()
    assert torch.equal(inside, call())


def negated(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, its values negated by torch's negative bit."""
    return torch._neg_view(tensor)


def test_the_negative_bit_is_resolved() -> None:
    call = make("bf16_gemm_nt")
    want = call.fresh()()
    a, b = call.arguments["a"], call.arguments["b"]
    for _ in range(3):  # a call that comes again is remembered
        assert torch.equal(call(a=negated(a), d=torch.zeros_like(want)), -want)
        assert torch.equal(call(a=negated(a), b=negated(b), d=torch.zeros_like(want)), want)
    d = negated(torch.zeros_like(want))
    assert torch.equal(call(d=d), want)
    c = negated(torch.ones_like(want))
    assert torch.equal(call(c=c, d=c), call.fresh()(c=-torch.ones_like(want)))


def test_scales_that_are_parts_of_complex_numbers() -> None:
    call = make("fp8_gemm_nt")
    want = call.fresh()()
    scales = call.arguments["b"][1]
    conjugate = torch.complex(scales, scales).conj()
    assert conjugate.imag.is_neg()
    got = call(b=(call.arguments["b"][0], conjugate.imag))
    assert torch.equal(got, -want)
    assert torch.equal(call(b=(call.arguments["b"][0], conjugate.real)), want)


@pytest.mark.gpu
def test_compiled_into_a_cuda_graph(cuda) -> None:
    call = make("fp8_gemm_nt")
    a, b = (tuple(t.to(cuda) for t in call.arguments[name]) for name in ("a", "b"))

    def step(a, b):
        d = torch.zeros(call.d.shape, dtype=call.d.dtype, device=cuda)
        deep_gemm.fp8_gemm_nt(a, b, d)
        return d * 2

    compiled = torch.compile(step, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        got = compiled(a, b).clone()
    assert torch.equal(got, step(a, b))


def scale_layouts():
    """Name, and arguments, of each function that returns scales in another layout."""
    scales = torch.rand(140, 6)
    powers = torch.exp2(torch.randint(-9, 9, (140, 6)).float())
    sizes = [256, 512]
    return {
        "get_mn_major_tma_aligned_tensor": (scales,),
        "get_mn_major_tma_aligned_packed_ue8m0_tensor": (powers,),
        "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor": (
            powers.T.contiguous(),
            torch.tensor(sizes, dtype=torch.int32),
            sizes,
        ),
        "transform_sf_into_required_layout": (scales, 140, 768, (1, 128, 128), None, True),
    }


@pytest.mark.parametrize("name", scale_layouts())
def test_scale_layouts_are_operators(name) -> None:
    arguments = scale_layouts()[name]
    function, tensors = getattr(deep_gemm, name), [x for x in arguments if isinstance(x, torch.Tensor)]
    rest = arguments[len(tensors) :]
    want = function(*arguments)

    def program(*given):
        return function(*given, *rest) * 2

    assert torch.equal(operator(name)(*arguments), want)
    outcome = torch.library.opcheck(operator(name), arguments)
    assert set(outcome.values()) == {"SUCCESS"}
    torch._dynamo.reset()
    assert torch.equal(torch.compile(program, fullgraph=True, backend="aot_eager")(*tensors), want * 2)
    recorded = make_fx(program)(*tensors)
    assert f"deep_gemm_jit.{name}" in recorded.code
    assert torch.equal(recorded(*tensors), want * 2)
    mapped = torch.vmap(lambda sf: function(sf, *arguments[1:]))(torch.stack([tensors[0]] * 2))
    assert torch.equal(mapped, torch.stack([want] * 2))
    on_meta = function(*(x.to("meta") for x in tensors), *rest)
    assert on_meta.is_meta
    assert (on_meta.shape, on_meta.stride(), on_meta.dtype) == (want.shape, want.stride(), want.dtype)
    released = tensors[0].clone()
    released.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match=r"sf has the shape .* but no memory"):
        function(released, *arguments[1:])


def test_a_layout_that_is_there_already_is_returned_outside_of_programs() -> None:
    ready = deep_gemm.get_mn_major_tma_aligned_tensor(torch.rand(8, 3))
    assert deep_gemm.get_mn_major_tma_aligned_tensor(ready) is ready
    copy = operator("get_mn_major_tma_aligned_tensor")(ready)
    assert torch.equal(copy, ready)
    assert copy.data_ptr() != ready.data_ptr()
    assert copy.stride() == ready.stride()
