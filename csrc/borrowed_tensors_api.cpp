// The way in from Python for the calls of every layer: tensors are lent, not shared.
//
// tvm-ffi makes an object of its own of each tensor that it passes, because a callee might keep it: two allocations and
// their release. Ours keep none (docs/notes/results.md, "Host"). So torch only writes down where a tensor lies, in a
// DLTensor on the stack here, and tvm-ffi's calling convention takes that too. Nothing else differs: the stream,
// torch's allocator for workspaces, the released GIL, the exceptions. A call with anything but torch's tensors,
// integers, sequences of them and None goes through tvm-ffi.
#include <string>
#include <utility>

#include "api/call/lender.hpp"
#include "borrowed_arguments.hpp"
#include "util/require.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::AnyView;
using tvm::ffi::Array;

/// What of torch and tvm-ffi a call needs; deep_gemm/_extension.py hands it over.
struct Surroundings {
    PyObject* raise;       // () -> raises what raise_last_error does, through tvm-ffi
    PyObject* modes;       // () -> how many of torch's dispatch modes are active
    PyObject* zero;        // the number
    PyObject* negated;     // (tensor) -> whether it has torch's negative bit
    PyObject* written;     // (tensors) -> moves their version counters; or None
    PyObject* records;     // () -> whether torch records operators for a backward pass
    PyObject* wants;       // the name of a tensor's attribute: whether it asks for a gradient
    PyObject* type_error;  // the exceptions
    PyObject* runtime_error;
};

struct LendingFunction {
    std::string name;
    PyMethodDef method;
    TVMFFISafeCallType call;
    PyObject* sharing;  // tvm-ffi's own callable of the same function
    NamedPlaces named;
    ArgumentPlaces places;
    Surroundings surroundings;
    Lender lender;
};

constexpr const char* kNoGradient = "an argument asks for a gradient, which d would not have";

/// Tells torch that its tensors among those that a call has written were, as its own operators do. False where that
/// raised.
bool count_writes(PyObject* count, const BorrowedArguments& arguments) {
    if (count == &_Py_NoneStruct) return true;
    PyObject* const tensors = arguments.written();
    if (tensors == nullptr) return PyErr_Occurred() == nullptr;
    PyObject* const result = call_with(count, tensors);
    Py_DecRef(tensors);
    if (result == nullptr) return false;
    Py_DecRef(result);
    return true;
}

/// Torch's allocator, where a call wants memory, for as long as it runs.
class LentAllocator {
public:
    LentAllocator() = default;
    LentAllocator(const LentAllocator&) = delete;
    ~LentAllocator() {
        if (is_lent_) TVMFFIEnvSetDLPackManagedTensorAllocator(before_, 0, nullptr);
    }

    void lend(const DLPackExchangeAPI& api) {
        is_lent_ = TVMFFIEnvSetDLPackManagedTensorAllocator(api.managed_tensor_allocator, 0, &before_) == 0;
    }

private:
    bool is_lent_ = false;
    DLPackManagedTensorAllocator before_ = nullptr;
};

/// A call while it runs without the GIL, for whoever wants to know more of who lent its tensors: see
/// api/call/lender.hpp.
struct RunningCall {
    const DLPackExchangeAPI& api;
    const BorrowedArguments& lent;
    const Surroundings& surroundings;
    void* stream;
    void* thread;   // Python's state of this thread
    bool recorded;  // torch records operators for a backward pass
    LentAllocator allocator;

    static thread_local RunningCall* current;
};
thread_local RunningCall* RunningCall::current = nullptr;

/// Torch's stream of the moment.
void* stream_of(const DLPackExchangeAPI& api, DLDevice device) {
    void* stream = nullptr;
    if (device.device_type != kDLCPU) api.current_work_stream(device.device_type, device.device_id, &stream);
    return stream;
}

/// Whether torch records or watches operators in this thread.
bool any_modes(const Surroundings& around) {
    PyObject* const number = PyObject_CallNoArgs(around.modes);
    if (number == nullptr) PyErr_Clear();
    const bool any = number != around.zero;  // Python keeps one object of each small number
    Py_DecRef(number);
    return any;
}

/// Whether a backward pass would go through what this thread calls now.
bool records(const Surroundings& around) {
    PyObject* const answer = PyObject_CallNoArgs(around.records);
    if (answer == nullptr) PyErr_Clear();
    const bool yes = answer == &_Py_TrueStruct;
    Py_DecRef(answer);
    return yes;
}

PyObject* call_sharing(PyObject* function, const BorrowedArguments& arguments) {
    PyObject* const tuple = PyTuple_New(arguments.count());
    if (tuple == nullptr) return nullptr;
    for (ptrdiff_t i = 0; i < arguments.count(); ++i) {
        PyObject* const given = arguments.objects()[i];
        PyObject* const item = given == nullptr ? &_Py_NoneStruct : given;
        Py_IncRef(item);
        PyTuple_SetItem(tuple, i, item);  // takes the reference
    }
    PyObject* const result = PyObject_CallObject(function, tuple);
    Py_DecRef(tuple);
    return result;
}

/// Reads them in their places. False, with an error, where they cannot be such.
bool read(const LendingFunction& function, PyObject* const* given, ptrdiff_t count, PyObject* names,
          BorrowedArguments& arguments) {
    if (names == nullptr || count != 0) {
        PyErr_Format(function.surroundings.type_error, "%s takes its arguments by their names only",
                     function.name.c_str());
        return false;
    }
    NamedPlaces::Places made;
    PyObject* unknown = nullptr;
    const NamedPlaces::Places* const places = function.named.find(names, made, unknown);
    if (places == nullptr) {
        PyErr_Format(function.surroundings.type_error, "%s takes no argument %R", function.name.c_str(), unknown);
        return false;
    }
    const ptrdiff_t named = PySequence_Size(names);
    for (ptrdiff_t i = 0; i < named; ++i) {
        const ptrdiff_t place = (*places)[static_cast<size_t>(i)];
        if (place == function.places.written)
            arguments.add_written(given[i]);
        else
            arguments.add(given[i], place);
    }
    return true;
}

PyObject* call_borrowing(PyObject* self, PyObject* const* given, ptrdiff_t count, PyObject* names) noexcept {
    const auto& function = *static_cast<const LendingFunction*>(PyCapsule_GetPointer(self, nullptr));
    const Surroundings& around = function.surroundings;
    if (any_modes(around)) {
        PyErr_SetString(around.type_error, "one of torch's dispatch modes is active: an operator must serve this call");
        return nullptr;
    }
    BorrowedArguments lent(function.lender, function.places, function.named.count());
    if (!read(function, given, count, names, lent)) return nullptr;
    if (!lent.all_lent()) {
        PyObject* const result = call_sharing(function.sharing, lent);
        return result == nullptr || count_writes(around.written, lent) ? result : nullptr;
    }
    const bool recorded = records(around);
    if (recorded && lent.any_wants(around.wants, false)) {
        PyErr_SetString(around.runtime_error, kNoGradient);
        return nullptr;
    }
    TVMFFIAny result = {};
    int failed;
    {
        RunningCall running{.api = function.lender.api(),
                            .lent = lent,
                            .surroundings = around,
                            .stream = stream_of(function.lender.api(), lent.device()),
                            .thread = PyEval_SaveThread(),
                            .recorded = recorded,
                            .allocator = {}};
        RunningCall* const outer = std::exchange(RunningCall::current, &running);
        failed = function.call(nullptr, lent.data(), static_cast<int32_t>(lent.count()), &result);
        RunningCall::current = outer;
        PyEval_RestoreThread(running.thread);
    }
    if (failed != 0) return PyErr_Occurred() ? nullptr : PyObject_CallObject(around.raise, nullptr);
    if (!count_writes(around.written, lent)) return nullptr;
    return PyBool_FromLong(result.v_int64 != 0);
}

/// Both operands' scales and D, where a record has such.
std::array<ptrdiff_t, 3> seldom_new(PyObject* names, ptrdiff_t written) {
    std::array<ptrdiff_t, 3> places = {-1, -1, written};
    for (ptrdiff_t i = 0; i < PySequence_Size(names); ++i)
        for (const auto& [name, place] : {std::pair{"a_scales", &places[0]}, std::pair{"b_scales", &places[1]}})
            if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), name) == 0) *place = i;
    return places;
}

/// Raises what the last call of a borrowing function in this thread failed with, the way tvm-ffi does.
void raise_last_error() { throw tvm::ffi::detail::MoveFromSafeCallRaised(); }

}  // namespace

void* current_stream(DeviceId id) {
    if (id.simulated) return nullptr;
    const RunningCall* const running = RunningCall::current;
    if (running != nullptr && running->lent.device().device_id == id.index) return running->stream;
    return TVMFFIEnvGetStream(kDLCUDA, id.index);
}

void begin_cold_call() {
    RunningCall* const running = RunningCall::current;
    if (running == nullptr) return;
    running->allocator.lend(running->api);
    PyEval_RestoreThread(running->thread);
    const bool negated = running->lent.any_negated(running->surroundings.negated);
    const bool wants = running->recorded && running->lent.any_wants(running->surroundings.wants, true);
    running->thread = PyEval_SaveThread();
    require_runtime(!wants, kNoGradient);
    require_type(!negated, "a tensor has torch's negative bit, so its memory does not hold its values");
}

}  // namespace deep_gemm

DEEP_GEMM_EXPORT(raise_last_error, deep_gemm::raise_last_error);

/// A Python callable of `call`, an export that takes a record, whose fields' names `names` has, and returns a bool. It
/// writes `written_count` of them, from number `written` on. Called by deep_gemm/_extension.py, with the GIL. It, and
/// all that it is given, lives as long as the process.
extern "C" [[gnu::visibility("default")]] PyObject* deep_gemm_borrowing_function(
    const char* name, TVMFFISafeCallType call, PyObject* names, ptrdiff_t written, ptrdiff_t written_count,
    PyObject* sharing, PyObject* exchange_api, PyObject* raise, PyObject* modes, PyObject* negated,
    PyObject* count_writes, PyObject* records, PyObject* wants, PyObject* type_error, PyObject* runtime_error) {
    using namespace deep_gemm;
    const auto* const api =
        static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(exchange_api, "dlpack_exchange_api"));
    if (api == nullptr) return nullptr;
    const ptrdiff_t fields = PySequence_Size(names);
    if (fields > kMaxArguments) return PyErr_Format(type_error, "%s has too many fields", name);
    const Surroundings surroundings{raise,   modes, PyLong_FromLong(0), negated,      count_writes,
                                    records, wants, type_error,         runtime_error};
    for (PyObject* kept :
         {sharing, exchange_api, raise, modes, negated, count_writes, records, wants, type_error, runtime_error})
        Py_IncRef(kept);
    auto* const function = new LendingFunction{.name = name,
                                               .method = {},
                                               .call = call,
                                               .sharing = sharing,
                                               .named = NamedPlaces(names),
                                               .places = {written, written_count, seldom_new(names, written)},
                                               .surroundings = surroundings,
                                               .lender = {exchange_api, api}};
    function->method = {function->name.c_str(), call_borrowing, kMethFastcall | kMethKeywords, nullptr};
    PyObject* const self = PyCapsule_New(function, nullptr, nullptr);
    return self == nullptr ? nullptr : PyCFunction_NewEx(&function->method, self, nullptr);
}
