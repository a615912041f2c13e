"""What the native runtime, `_C.so`, exports: see `DEEP_GEMM_EXPORT` in csrc/*_api.cpp.

`_C.so` is no Python module. `deep_gemm._extension` loads it and hands it on as `C`, and this file tells type checkers
and readers what `C` has. Arguments are positional only, but for the fields of a record, which have names only.
Fields that several records have are a class, from which theirs are made. tests/api/test_stubs.py compares names and
argument counts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from torch import Tensor
from typing_extensions import NotRequired, Unpack

# csrc/products_api.cpp: products, of all formats and groupings, by a record of named fields.

def product(
    *,
    a: Tensor,
    a_scales: Tensor | None = None,
    a_zeros: Tensor | None = None,
    a_scale: int | None = None,
    a_zero: int | None = None,
    a_element: int | None = None,
    a_group_k: int | None = None,
    b: Tensor,
    b_scales: Tensor | None = None,
    b_zeros: Tensor | None = None,
    b_second_scales: Tensor | None = None,
    b_sums: Tensor | None = None,
    b_scale: int | None = None,
    b_element: int | None = None,
    b_rows: int | None = None,
    b_k: int | None = None,
    b_group_k: int | None = None,
    b_zeros_k: int | None = None,
    b_near_scales: int | None = None,
    d: Tensor | Sequence[Tensor],
    d_scales: Tensor | None = None,
    d_count: Tensor | None = None,
    grouped_layout: Tensor | None = None,
    masked_m: Tensor | None = None,
    ks: Sequence[int] | None = None,
    psum: bool | None = None,
    zero_padding: bool | None = None,
    expected_m: int | None = None,
    group_by_group: bool | None = None,
    batched_form: int | None = None,
    layout: int | None = None,
    recipe: Sequence[int] | None = None,
    c: Tensor | None = None,
    bias: Tensor | None = None,
    alpha: Tensor | None = None,
    alpha_bits: int | None = None,
    gate: Sequence[int] | None = None,
    row_scale: Tensor | None = None,
    head_splits: Sequence[int] | None = None,
) -> bool:
    """D = C + A B^T, with what fields say beside it. Which formats operands have, their dtypes and scales say.

    False where nothing is launched: the product is empty (K = 0, or nothing but padding), so that D is C or zero, which
    the caller makes it; K is too long for exact sums, which it splits; or B is a pair of FP4 weights, and no field says
    so.

    Args:
        a, b: [M, K] and [N, K], with groups in front; `a_scales`, `b_scales` of either.
        a_scale, b_scale: bits of an FP32 number, where all of an operand has one scale; a_zero: one zero point for all.
        a_element, b_element: numbers of the element table, where a dtype does not say them: "s8" or "s4" of integers a,
            "e2m1r" of FP4 by FP4, and the element of packed weights.
        a_group_k, b_group_k: the K that shares a scale, of operands without a recipe.
        b_rows, b_k, b_zeros_k, b_zeros, b_second_scales, b_near_scales: of packed weights; b_sums: of rows of integers
            too.
        d, d_scales, d_count: written. A tuple or list for d is all three, or the first two of them.
        grouped_layout, psum, zero_padding, expected_m: experts whose rows follow each other.
        masked_m, expected_m: experts that have a matrix each.
        ks, grouped_layout, psum, group_by_group: groups along K, as far as the host knows them; or flattened matrices.
        batched_form: the number of an expression (`batched_forms`).
        layout: bits 1, 2, 4 compile M, N, K in; with 8 a is [K, M], with 16 b is [K, N]; 32: disable_ue8m0_cast.
        recipe: how many rows of A, of B, and how much of K share a scale; or of A rows and K, and of B rows and K.
        c, bias, alpha, alpha_bits, gate, row_scale: as `deep_gemm.epilogue.step_arguments` has them.
        head_splits: D is written in heads, of each `left` columns, `mid` that stay as they are, `right` columns.
    """

def product_key(*fields: Any) -> bytes:
    """What a call would be known again by, of all fields in order. For tests."""

def product_fields() -> str:
    """The names of a record's fields in their order, one a word."""

def build_id() -> str:
    """Which Python files the library goes with: the version, and a hash of this file."""

def element_names() -> str:
    """The element table's names, one a word, in the order of their numbers."""

def gate_kinds() -> str:
    """Kinds of gated activations, likewise."""

def batched_forms() -> str:
    """The einsum expressions that have a kernel, one a word, in the order of their numbers."""

def int8_row_sums(b: Tensor, scales: Tensor | None, sums: Tensor, recipe: Sequence[int] | None, /) -> None:
    """Sums of the rows of INT8 [N, K] or [G, N, K]: int32, or float32, times scales, where there is a recipe."""

# csrc/settings_api.cpp: what later calls obey.

def set_call_setting(simulated: bool, index: int, name: str, value: int, /) -> None:
    """Set one of a device's settings: see `kSettings` in csrc/settings_api.cpp for names and limits."""

def set_call_setting_everywhere(name: str, value: int, /) -> None:
    """Set one of the settings of every device, the simulator's too."""

def get_call_setting(simulated: bool, index: int, name: str, /) -> int:
    """One of a device's settings."""

def set_m_alignment(alignment: int, /) -> None:
    """To which multiple of rows experts of contiguous layouts are aligned, in the whole process."""

def get_m_alignment() -> int:
    """What `set_m_alignment` set; 128 at first."""

def set_compile_only(only: bool, /) -> None:
    """Whether launches are left out, in the whole process."""

def get_compile_only() -> bool:
    """What `set_compile_only` set; False at first."""

def choose_target(index: int, target: str, /) -> None:
    """Compile for this target on one GPU, or on each (index -1), from now on; for the GPU's own where it is empty."""

def chosen_target(index: int, /) -> str:
    """What `choose_target` or DG_TARGET chose for a GPU; empty where it runs as what it is."""

# csrc/jit_api.cpp: settings, compiler, devices.

def initialize(package_dir: str, nvrtc_directories: Sequence[str], /) -> None:
    """Tell the runtime where the package lies and where NVRTC may lie. Called once, by `_extension`."""

def jit_settings() -> Mapping[str, Any]:
    """The settings as read from the environment (reads it now, where nothing did yet)."""

def jit_compiler() -> Mapping[str, str]:
    """`identity` and `path` of the compiler in use. Opens it; raises RuntimeError where there is none."""

def jit_compile(name: str, text: str, target: str, output: str, /) -> bytes:
    """Compile source text for a target ("sm_90a") to "cubin" or "ptx", through the disk cache. Needs no device."""

def jit_cache_key(name: str, text: str, target: str, output: str, /) -> str:
    """The name under which the disk cache keeps what `jit_compile` returns."""

def jit_prune_cache(max_bytes: int, /) -> int:
    """Remove entries, those unused for longest first, until the others take no more. Returns how many went."""

def jit_entry_problem(directory_name: str, /) -> str:
    """Why an entry of the disk cache, `<name>.<key>`, would not be loaded; empty where it would."""

def stop_threads(ids: Sequence[int], /) -> None:
    """End what these threads (`threading.get_native_id()`) wait for or simulate, now and until they are let go."""

def let_threads_go(ids: Sequence[int], /) -> None:
    """Undo `stop_threads`."""

def gpus() -> str:
    """Names of the GPUs whose data sheets costs go by, with commas between."""

def card_facts(name: str, /) -> Mapping[str, int]:
    """What costs go by of one of `gpus`."""

def open_recorder(target: str, num_sms: int, gpu: str, /) -> int:
    """A GPU of a target that is not there, by a number: it takes note of the kernels that calls would load."""

def record_thread(recorder: int, /) -> None:
    """This thread's calls on CPU tensors are calls on that GPU from now on; run on the simulator again with 0."""

def take_recorded(recorder: int, /) -> Mapping[str, str]:
    """`name`, `text` and `target` of the kernel noted first of those that were not taken; empty after the last."""

def close_recorder(recorder: int, /) -> None:
    """Forget it. No thread may record with it."""

def jit_statistics() -> Mapping[str, Any]:
    """What this process compiled, stored on disk, found there and loaded, and the seconds that compiling took."""

def cuda_driver() -> Mapping[str, int]:
    """`version` and `device_count` of the CUDA driver. Raises RuntimeError, with the reason, where there is none."""

def device_facts(simulated: bool, index: int, /) -> Mapping[str, Any]:
    """Name, architecture of the kernels (`arch`, empty where there are none), SM count and memory sizes of a device."""

def jit_launch(
    name: str,
    text: str,
    grid: int,
    block: int,
    cluster: int,
    smem_bytes: int,
    dependent_launch: bool,
    tensors: Sequence[Tensor],
    numbers: Sequence[int],
    /,
) -> None:
    """Run any kernel whose one argument is a struct of these pointers and then these 64-bit integers. For tests."""

def jit_max_clusters(
    simulated: bool, index: int, name: str, text: str, block: int, cluster: int, smem_bytes: int, /
) -> int:
    """How many clusters of this size, of CTAs with so many threads and so much shared memory, run at once."""

# csrc/borrowed_tensors_api.cpp: how `_extension.BORROWING` are called.

def raise_last_error() -> None:
    """Raise what a borrowing function of this thread has just failed with. Called by them alone."""

# csrc/layout_api.cpp: scale layouts, packing weights, and the transposing kernel.

def pack_codes(
    values: Tensor, codes: Tensor, found: Tensor, element: int, wide: bool, smallest: int, offset: bool, pairs: bool, /
) -> None:
    """Codes from `smallest` (-8 or 0) on, [G, N, K] or `pairs` of them [G, N, K / 2], into blocks of `element`.

    `wide`: as they lie beside activations of 16 bits. `offset`: 8 is subtracted first. `found`, int32 [1], gets bit 0
    where a value is no code, or NaN, and bit 1 where `element` is 's4m' and a code is -8, which it cannot hold.
    """

def pack_scales(
    scales: Tensor, out: Tensor, rows: int, row_granularity: int, given_k: int, kept_k: int, factor: int, /
) -> None:
    """Scales [G, N / row_granularity, K / given_k] in any strides, FP32, E8M0 or words of four exponents, as
    PackedWeights have them."""

def transpose(source: Tensor, target: Tensor, ks: Tensor | None, psum_alignment: int, /) -> None:
    """One-byte elements: source [G, K, MN], MN contiguous -> target [G, MN, K up to 16], K contiguous. For tests.

    With `ks` (G = 1), K groups, each of which starts at a multiple of 128 in the target and is filled up with zeros.
    """

def scale_layout_transform(sf: Tensor, out: Tensor, padded_rows: int, row_granularity: int, encoding: int, /) -> None:
    """Scales [groups, rows, k] in any strides into `out`, MN-major; `encoding` is `enum class ScaleEncoding`."""

def scale_layout_transform_k_grouped(
    sf: Tensor, layout: Tensor, out: Tensor, padded_rows: int, gran_k: int, psum_alignment: int, /
) -> None:
    """Scales [sum of K blocks, rows] of K-grouped operands into packed words, group by group."""

def scale_layout_pack(sf: Tensor, out: Tensor, rows: int, row_granularity: int, /) -> None:
    """Scales [groups, rows / row_granularity, k] into words as SM100 reads them, by the kernel alone.

    `out` is [groups, words, rows and padding], or in blocks of rows [groups, blocks, words, 128].
    """

def layout_facts() -> str:
    """What layouts depend on: lines of an architecture and a fact that it has (csrc/config/host_facts.hpp)."""

def scale_layout_arch(tensor: Tensor, /) -> str:
    """Whose kernels run on this tensor's device: "sm80", "sm90", "sm100" or "sm120"."""

# csrc/models_api.cpp: what selection believes of single architectures.

def recorded_constants() -> Mapping[str, float]:
    """What the cost model goes by for this thread's latest recorded call, by name."""

def new_estimates() -> int:
    """A list of calls' configs, whose costs are asked again and again; a key to it."""

def delete_estimates(key: int, /) -> None: ...
def add_to_estimates(key: int, configs: Sequence[str], /) -> Mapping[str, float]:
    """Those of these configs (of all, where there are none) that are legal for this thread's latest recorded call, by
    their text, with what they cost in microseconds."""

def estimates(key: int, constants: Mapping[str, float], /) -> bytes:
    """What all configs that were added would cost in microseconds, as doubles, if these were constants of the cost
    model; those that are not named stay as they are."""

def cta_order_by_gpc(num_sms: int, clusters: int, size: int, /) -> Sequence[int]:
    """Where clusters of CTAs begin to walk the tiles, where that is by GPC: docs/kernels/tiles.md, "Clusters"."""

# csrc/plans_api.cpp: plans by other ways than selection.

def force_config(
    simulated: bool,
    index: int,
    m: int,
    n: int,
    k: int,
    swap_ab: int,
    rows: int,
    cols: int,
    cluster_rows: int,
    cluster_cols: int,
    cluster_k: int,
    k_warpgroups: int,
    ahead: int,
    /,
) -> None:
    """Serve all calls on a device with this config (rows = 0: select again). For tuning and tests."""

def set_autotune(simulated: bool, index: int, on: bool, measure: Callable[[str], float] | None, /) -> None:
    """Measure new problems on a device, or do not, whatever DG_AUTOTUNE says; forgets its plans.

    `measure` stands for the device's clock in tests: it gets a config ("swapped 64x16 cluster 1x1x4") and returns its
    time in microseconds.
    """

# csrc/selection_api.cpp: which kernel a problem gets.

def pairs() -> str:
    """The pair table (csrc/config/pairs.hpp): a pair a line, "key=value" by spaces, values by commas."""

def recorded_kernel(config: Mapping[str, int], /) -> Mapping[str, Any]:
    """The kernel of this thread's latest recorded call: name, text, smem_bytes, num_ctas, threads, estimated_us;
    preconvert_name and preconvert_text of one that converts an operand before it.

    A config that is not empty stands for the selected one: tile_rows, tile_cols, swap_ab, cluster_rows, cluster_cols,
    cluster_k, k_warpgroups, and which operand a kernel converts before the product: preconvert (1: A, 2: B).
    """

def recorded_spilling_kernel(config: Mapping[str, int], /) -> Mapping[str, Any]:
    """The same for a config, also for one that is refused because it would spill."""

def explain_recorded() -> str:
    """Every candidate for it, cheapest first, refused ones last, one a line."""

def recorded_layout_kernels() -> Mapping[str, str]:
    """Names and texts of what such calls may launch before its kernel, where operands or scales lie otherwise than it
    reads them."""

# csrc/simulator_api.cpp: the PTX simulator. `deep_gemm.simulator` is its public face.

def simulator_options() -> Mapping[str, Any]:
    """target, num_sms, schedule, seed, hazards, rules, threads, timeline."""

def set_simulator_options(
    target: str, num_sms: int, schedule: str, seed: int, hazards: str, rules: str, threads: int, timeline: bool, /
) -> None:
    """For the whole process."""

def simulator_reports() -> str:
    """JSON list of {"kernel", "report"} of the launches since `clear_simulator_reports`; at most 64, newest last."""

def clear_simulator_reports() -> None:
    """Forget all reports."""

def simulator_run(
    ptx: str,
    entry: str,
    grid: Sequence[int],
    block: Sequence[int],
    cluster: Sequence[int],
    smem_bytes: int,
    params: bytes,
    tensors: Sequence[Tensor],
    writable: Sequence[int],
    schedule: str,
    seed: int,
    hazards: str,
    rules: str,
    threads: int,
    timeline: bool,
    /,
) -> str:
    """Run PTX text and return the report as JSON."""

def simulator_add_device(
    ptx: str,
    entry: str,
    grid: Sequence[int],
    block: Sequence[int],
    cluster: Sequence[int],
    smem_bytes: int,
    params: bytes,
    tensors: Sequence[Tensor],
    writable: Sequence[int],
    /,
) -> None:
    """What the next of several devices runs, which this thread then starts together."""

def simulator_add_launches_of(device: int, /) -> None:
    """From now on this thread's launches are added as those of a device, and not run; -1: they run again."""

def simulator_forget_devices() -> None:
    """Those that were added and did not run."""

def simulator_run_devices(shared: Sequence[Tensor], schedule: str, seed: int, hazards: str, rules: str, /) -> str:
    """Run the devices that were added, and return a JSON list of their reports."""

def simulator_tensor_map(
    address: int, type: int, sizes: Sequence[int], strides_bytes: Sequence[int], box: Sequence[int], swizzle: int, /
) -> bytes:
    """The simulator's form of a tensor map; dimension 0 is the contiguous one."""

# csrc/logits_api.cpp: index logits. `logits` is written; words of exponents are `q_scales` and `scales`.

def mqa_logits(
    *,
    q: Tensor,
    q_scales: Tensor | None = None,
    weights: Tensor,
    logits: Tensor,
    cleaned: bool,
    keys: Tensor,
    scales: Tensor,
    first_keys: Tensor,
    end_keys: Tensor,
    compressed: bool,
) -> bool:
    """q [rows, heads, D] and keys [keys, D] -> logits [rows, columns]; column 0 a row's first key if `compressed`."""

def mqa_logits_fields() -> str: ...
def paged_mqa_logits(
    *,
    q: Tensor,
    q_scales: Tensor | None = None,
    weights: Tensor,
    logits: Tensor,
    cleaned: bool,
    cache: Tensor,
    lengths: Tensor,
    block_table: Tensor,
) -> bool:
    """q [requests, next_n, heads, D] and keys in blocks -> logits [requests * next_n, columns]."""

def paged_mqa_logits_fields() -> str: ...
def paged_mqa_logits_metadata(lengths: Tensor, starts: Tensor, /) -> None:
    """lengths int32 [requests, next_n] or [requests] -> starts int32 [SMs + 1, 2]: request and split of 256 keys."""

def force_logits_plan(products: int, math_groups: int, /) -> None:
    """Plan index logits on Hopper with 1 or 2 products of a tile and 2 to 4 warpgroups that multiply; 0: as they are.

    For tuning and tests.
    """

def logits_kernel(fields: Mapping[str, int], target: str, /) -> dict[str, Any]:
    """The kernel of index logits with these fields: name, text, threads, smem_bytes, and rows that a CTA has at once.

    Fields: heads, d, rows (of a request, where keys are paged), block_kv (0: not paged), exponents, fp4, bf16_weights,
    bf16_logits.
    """

# csrc/hyperconnections_api.cpp

def prenorm_gemm(a: Tensor, b: Tensor, d: Tensor, squares: Tensor, /) -> None:
    """a BF16 [M, K], b FP32 [N, K] -> d FP32 [M, N], squares FP32 [M]; or both with splits of K in front."""

def prenorm_splits(a: Tensor, b: Tensor, /) -> int:
    """In how many splits a call without any is best made: 1 where clusters divide K."""

def force_prenorm_plan(rows: int, cols: int, cluster: int, warpgroups: int, /) -> None:
    """Plan the product with so many rows and columns of a CTA, and CTAs of a cluster; 0: as plans have them.

    For tuning and tests.
    """

# csrc/quantize_api.cpp

def quantize(
    *,
    x: Tensor,
    layout: Tensor | None = None,
    row_scale: Tensor | None = None,
    whole: Tensor | None = None,
    q: Tensor,
    s: Tensor,
    zeros: Tensor | None = None,
    sums: Tensor | None = None,
    element: int,
    share: int,
    group: int,
    scales: int,
    rows: int,
    expected_m: int,
    gate: int,
    interleaved: int,
    limit_bits: int,
    alpha_bits: int,
    up_shift_bits: int,
) -> bool:
    """x [M, K] or [G, M, K], or with gates [.., 2 K] -> codes q and scales s. Numbers: csrc/quantize/call.hpp."""

def quantize_fields() -> str:
    """The names of its fields in their order, one a word; likewise of those below."""

# csrc/moe_api.cpp

def pre_dispatch(
    *,
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    factor_bits: int,
    q: Tensor,
    s: Tensor,
    out_ids: Tensor,
    out_weights: Tensor,
) -> bool:
    """Tokens x, quantised, into q and s; their choices and weights, times a factor, into a buffer's rows, of which the
    others become -1 and 0."""

def pre_dispatch_fields() -> str: ...

class LayerRows(TypedDict):
    """Both products of a MoE layer: its weights, its rows by psum ends, and what is quantised between the products.

    `ready`: int32, a counter for each 8 rows, 0 before and after.
    """

    up: Tensor
    up_scales: NotRequired[Tensor | None]
    up_second_scales: NotRequired[Tensor | None]
    up_zeros: NotRequired[Tensor | None]
    up_packing: NotRequired[Sequence[int] | None]
    down: Tensor
    down_scales: NotRequired[Tensor | None]
    down_second_scales: NotRequired[Tensor | None]
    down_zeros: NotRequired[Tensor | None]
    down_packing: NotRequired[Sequence[int] | None]
    ends: Tensor
    row_weights: Tensor
    ready: Tensor
    expected_m: int
    gate: Sequence[int]
    rows: Tensor
    row_scales: NotRequired[Tensor | None]
    inner: Tensor
    inner_scales: NotRequired[Tensor | None]

class MoeLayer(LayerRows):
    out: Tensor

class MoeLayerOfRanks(LayerRows, Travel):
    pulled: Tensor

def moe_layer(**fields: Unpack[MoeLayer]) -> bool:
    """In one launch: rows [rows, K] -> inner, quantised -> out [rows, N]."""

def moe_layer_fields() -> str: ...
def moe_layer_of_ranks(**fields: Unpack[MoeLayerOfRanks]) -> bool:
    """The same where rows are other ranks' tokens (csrc/ranks_api.cpp): they are brought into `rows`, and results go
    to their slots: there is no `out`. `pulled`: as `ready`."""

def moe_layer_of_ranks_fields() -> str: ...

# csrc/ranks_api.cpp

class RankGroup(TypedDict):
    """This rank; how long it waits; the address of each rank's part of the shared memory, and its bytes; where ids,
    weights, x, its scales and results begin in one; int32 [1], how many calls there were before."""

    rank: int
    timeout_ns: int
    parts: Sequence[int]
    part_bytes: int
    ids_at: int
    weights_at: int
    x_at: int
    x_scales_at: int
    results_at: int
    calls: Tensor

class Travel(RankGroup):
    """Which choice each row is of (`source`), of `room` tokens of each rank from `first_token` on."""

    source: Tensor
    first_token: int
    room: int
    choices: int

class ExchangeChoices(RankGroup):
    ids: Tensor
    row_weights: Tensor
    first_token: int
    tokens: int
    bound: int
    experts: int

class PullRows(Travel):
    out: Tensor
    out_scales: Tensor

class PushRows(Travel):
    down: Tensor

class CombineResults(RankGroup):
    out: Tensor
    choices: int
    num_experts: int

def exchange_choices(**fields: Unpack[ExchangeChoices]) -> bool:
    """Waits for all ranks' tokens; their choices of this rank's experts into ids [ranks x room, choices], else -1."""

def exchange_choices_fields() -> str: ...
def pull_rows(**fields: Unpack[PullRows]) -> bool:
    """Tokens and their scales to the rows [rows] that `source` has of ids. Counts the call."""

def pull_rows_fields() -> str: ...
def push_rows(**fields: Unpack[PushRows]) -> bool:
    """Results to the slots of the tokens that they are of."""

def push_rows_fields() -> str: ...
def combine_results(**fields: Unpack[CombineResults]) -> bool:
    """Waits for all ranks' results, and adds up each token's."""

def combine_results_fields() -> str: ...

# csrc/routing_api.cpp

def route(
    *,
    ids: Tensor,
    weights: Tensor | None = None,
    row_of: Tensor,
    source: Tensor,
    ends: Tensor,
    counts: Tensor,
    indices: Tensor | None = None,
    row_weights: Tensor | None = None,
    masked: bool,
    alignment: int,
) -> bool:
    """ids [tokens, choices] -> the row of each choice, and what is in each row."""

def route_fields() -> str: ...
def gather_rows(
    *,
    x: Tensor,
    scales: Tensor | None = None,
    source: Tensor,
    out: Tensor,
    out_scales: Tensor | None = None,
    choices: int,
    clear: bool,
) -> bool:
    """x [tokens, K] -> [rows, K]; choices: of a token; clear: whether rows of no token become zeros."""

def gather_rows_fields() -> str: ...
def combine_rows(*, x: Tensor, weights: Tensor | None = None, row_of: Tensor, out: Tensor) -> bool:
    """x [rows, N] -> [tokens, N]."""

def combine_rows_fields() -> str: ...
