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
    ptrdiff_t written;  // which argument is written
    Surroundings surroundings;
    Lender lender;
};

constexpr const char* kNoGradient = "an argument asks for a gradient, which d would not have";

/// Tells torch that a tensor, or each of several, was written, as its own operators do. False where that raised.
bool count_write(PyObject* written, PyObject* argument) {
    if (written == &_Py_NoneStruct) return true;
    PyObject* const type = type_of(argument);
    PyObject* const tensors = type == &PyTuple_Type || type == &PyList_Type ? argument : tuple_of(argument);
    if (tensors == nullptr) return false;
    PyObject* const result = call_with(written, tensors);
    if (tensors != argument) Py_DecRef(tensors);
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

PyObject* call_sharing(PyObject* function, PyObject* const* arguments, ptrdiff_t count) {
    PyObject* const tuple = PyTuple_New(count);
    if (tuple == nullptr) return nullptr;
    for (ptrdiff_t i = 0; i < count; ++i) {
        Py_IncRef(arguments[i]);
        PyTuple_SetItem(tuple, i, arguments[i]);  // takes the reference
    }
    PyObject* const result = PyObject_CallObject(function, tuple);
    Py_DecRef(tuple);
    return result;
}

PyObject* call_borrowing(PyObject* self, PyObject* const* arguments, ptrdiff_t count) noexcept {
    const auto& function = *static_cast<const LendingFunction*>(PyCapsule_GetPointer(self, nullptr));
    const Surroundings& around = function.surroundings;
    if (any_modes(around)) {
        PyErr_SetString(around.type_error, "one of torch's dispatch modes is active: an operator must serve this call");
        return nullptr;
    }
    BorrowedArguments lent(function.lender, function.written);
    bool all = count <= kMaxArguments;
    for (ptrdiff_t i = 0; all && i < count; ++i) all = lent.add(arguments[i]);
    if (!all) {
        PyObject* const result = call_sharing(function.sharing, arguments, count);
        PyObject* const d = count > function.written ? arguments[function.written] : nullptr;
        if (result == nullptr || d == nullptr || type_of(d) != &PyList_Type) return result;
        return count_write(around.written, d) ? result : nullptr;
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
        failed = function.call(nullptr, lent.data(), static_cast<int32_t>(count), &result);
        RunningCall::current = outer;
        PyEval_RestoreThread(running.thread);
    }
    if (failed != 0) return PyErr_Occurred() ? nullptr : PyObject_CallObject(around.raise, nullptr);
    if (!count_write(around.written, arguments[function.written])) return nullptr;
    return PyBool_FromLong(result.v_int64 != 0);
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

/// A Python callable of `call`, an export that writes its argument number `written` and returns a bool. Called by
/// deep_gemm/_extension.py, with the GIL. It, and all that it is given, lives as long as the process.
extern "C" [[gnu::visibility("default")]] PyObject* deep_gemm_borrowing_function(
    const char* name, TVMFFISafeCallType call, ptrdiff_t written, PyObject* sharing, PyObject* exchange_api,
    PyObject* raise, PyObject* modes, PyObject* negated, PyObject* count_writes, PyObject* records, PyObject* wants,
    PyObject* type_error, PyObject* runtime_error) {
    using namespace deep_gemm;
    const auto* const api =
        static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(exchange_api, "dlpack_exchange_api"));
    if (api == nullptr) return nullptr;
    if (api->dltensor_from_py_object_no_sync == nullptr) {  // a lender may leave it out
        Py_IncRef(sharing);
        return sharing;
    }
    const Surroundings surroundings{raise,   modes, PyLong_FromLong(0), negated,      count_writes,
                                    records, wants, type_error,         runtime_error};
    for (PyObject* kept :
         {sharing, exchange_api, raise, modes, negated, count_writes, records, wants, type_error, runtime_error})
        Py_IncRef(kept);
    auto* const function = new LendingFunction{.name = name,
                                               .method = {},
                                               .call = call,
                                               .sharing = sharing,
                                               .written = written,
                                               .surroundings = surroundings,
                                               .lender = {exchange_api, api}};
    function->method = {function->name.c_str(), call_borrowing, kMethFastcall, nullptr};
    PyObject* const self = PyCapsule_New(function, nullptr, nullptr);
    return self == nullptr ? nullptr : PyCFunction_NewEx(&function->method, self, nullptr);
}
