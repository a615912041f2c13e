// The way in from Python for the calls of every layer: tensors are lent, not shared.
//
// tvm-ffi makes an object of its own of each tensor that it passes, because a callee might keep it: two allocations and
// their release. Ours keep none (docs/notes/results.md, "Host"). So torch only writes down where a tensor lies, in a
// DLTensor on the stack here, and tvm-ffi's calling convention takes that too. Nothing else differs: the stream,
// torch's allocator for workspaces, the released GIL, the exceptions. A call with anything but torch's tensors,
// integers, sequences of them and None goes through tvm-ffi.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "api/call/lender.hpp"
#include "util/ffi.hpp"
#include "util/python.hpp"
#include "util/require.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::AnyView;
using tvm::ffi::Array;

/// Who lends: torch, or whatever else has DLPack's exchange API in C.
class Lender {
public:
    Lender(PyObject* capsule, const DLPackExchangeAPI* api) : api_(*api), capsule_(capsule) {}

    const DLPackExchangeAPI& api() const { return api_; }

    /// Whether objects of this type are the lender's tensors.
    bool lends(PyObject* type) const {
        for (const std::atomic<PyObject*>& slot : types_) {
            PyObject* const known = slot.load(std::memory_order_acquire);
            if (known == type) return true;
            if (known == nullptr) break;
        }
        return learn(type);
    }

private:
    /// Types say by an attribute who lends their objects; subclasses inherit it. Types that are known stay alive.
    bool learn(PyObject* type) const {
        PyObject* const capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
        if (capsule == nullptr) PyErr_Clear();
        const bool lent = capsule == capsule_;
        Py_DecRef(capsule);
        if (!lent) return false;
        for (std::atomic<PyObject*>& slot : types_) {
            PyObject* known = nullptr;
            if (slot.compare_exchange_strong(known, type)) {
                Py_IncRef(type);
                return true;
            }
            if (known == type) return true;
        }
        return true;  // all slots are taken: this type is asked each time
    }

    const DLPackExchangeAPI& api_;
    PyObject* capsule_;
    mutable std::array<std::atomic<PyObject*>, 8> types_ = {};
};

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

constexpr ptrdiff_t kMaxArguments = 28;
constexpr ptrdiff_t kMaxTensors = kMaxArguments + 1;  // one of them may be a pair
// Places that all of them have in common.
constexpr ptrdiff_t kScalesOfA = 1, kScalesOfB = 3, kD = 4;
constexpr const char* kNoGradient = "an argument asks for a gradient, which d would not have";

/// Its type, which lives as long as the object does.
PyObject* type_of(PyObject* object) {
    PyObject* const type = PyObject_Type(object);
    Py_DecRef(type);
    return type;
}

/// A tuple of one. Null where there is no memory.
PyObject* tuple_of(PyObject* item) {
    PyObject* const tuple = PyTuple_New(1);
    if (tuple == nullptr) return nullptr;
    Py_IncRef(item);
    PyTuple_SetItem(tuple, 0, item);  // takes the reference
    return tuple;
}

/// Calls a Python function of one argument. Null where it raised.
PyObject* call_with(PyObject* function, PyObject* argument) {
    PyObject* const tuple = tuple_of(argument);
    if (tuple == nullptr) return nullptr;
    PyObject* const result = PyObject_CallObject(function, tuple);
    Py_DecRef(tuple);
    return result;
}

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

/// The arguments of one call, as tvm-ffi passes them on.
class BorrowedArguments {
public:
    /// Argument number `written` may be a tuple of two tensors.
    BorrowedArguments(const Lender& lender, ptrdiff_t written) : lender_(lender), written_(written) {}

    /// False where an argument is of a kind that is not lent.
    bool add(PyObject* argument) {
        const ptrdiff_t index = count_++;
        if (argument == &_Py_NoneStruct) return true;  // as it was made
        PyObject* const type = type_of(argument);
        if (type == &PyLong_Type || type == &PyBool_Type) {
            int64_t number = 0;
            if (!to_number(argument, number)) return false;
            if (type == &PyBool_Type)
                any_[index] = number != 0;
            else
                any_[index] = number;
            return true;
        }
        if (type == &PyTuple_Type && index == written_) return add_pair(argument);
        if (type == &PyTuple_Type || type == &PyList_Type) {
            Array<int64_t> numbers;
            if (!to_numbers(argument, numbers)) return false;
            any_[index] = sequences_.emplace_back(std::move(numbers));
            return true;
        }
        if (lender_.lends(type)) {
            any_[index] = &tensors_[index];
            return add_tensor(argument, index, tensors_[index]);
        }
        return false;
    }

    /// Whether `negated` says so of one of the tensors.
    bool any_negated(PyObject* negated) const {
        for (ptrdiff_t i = 0; i < signed_count_; ++i) {
            PyObject* const answer = call_with(negated, signed_[i]);
            if (answer == nullptr) PyErr_Clear();
            const bool yes = answer == &_Py_TrueStruct;
            Py_DecRef(answer);
            if (yes) return true;
        }
        return false;
    }

    /// Whether one of the tensors asks for a gradient; or one of those that the call's launch, which lies ready, was
    /// not made for: asking costs, and scales and D change that less often than they come again.
    bool any_wants(PyObject* attribute, bool all) const {
        for (ptrdiff_t i = 0; i < number_count_; ++i) {
            if (!all && (numbers_at_[i] == kScalesOfA || numbers_at_[i] == kScalesOfB || numbers_at_[i] == kD))
                continue;
            PyObject* const answer = PyObject_GetAttr(numbers_[i], attribute);
            if (answer == nullptr) PyErr_Clear();
            const bool yes = answer == &_Py_TrueStruct;
            Py_DecRef(answer);
            if (yes) return true;
        }
        return false;
    }

    const TVMFFIAny* data() const { return reinterpret_cast<const TVMFFIAny*>(any_); }
    /// The first device that is not the CPU.
    DLDevice device() const { return device_; }

private:
    bool add_tensor(PyObject* object, ptrdiff_t index, DLTensor& tensor) {
        if (lender_.api().dltensor_from_py_object_no_sync(object, &tensor) != 0) {
            PyErr_Clear();  // tvm-ffi finds the same and says so
            return false;
        }
        const bool integers = tensor.dtype.code == kDLInt || tensor.dtype.code == kDLUInt;
        if (!integers) {
            numbers_at_[number_count_] = index;
            numbers_[number_count_++] = object;
        }
        // Parts of complex tensors carry the bit, and torch can negate no FP8.
        if (tensor.dtype.code == kDLFloat || tensor.dtype.code == kDLBfloat) signed_[signed_count_++] = object;
        if (device_.device_type == kDLCPU) device_ = tensor.device;
        return true;
    }

    /// The tuple keeps them alive.
    bool add_pair(PyObject* tuple) {
        if (PySequence_Size(tuple) != 2) return false;
        for (ptrdiff_t i = 0; i < 2; ++i) {
            PyObject* const item = PySequence_GetItem(tuple, i);
            const bool added = lender_.lends(type_of(item)) && add_tensor(item, written_, pair_.tensors[i]);
            Py_DecRef(item);
            if (!added) return false;
        }
        any_[written_] = static_cast<void*>(&pair_);
        return true;
    }

    static bool to_number(PyObject* object, int64_t& number) {
        int overflow = 0;
        number = PyLong_AsLongLongAndOverflow(object, &overflow);
        return overflow == 0;
    }

    static bool to_numbers(PyObject* sequence, Array<int64_t>& numbers) {
        const ptrdiff_t size = PySequence_Size(sequence);
        numbers.reserve(size);
        for (ptrdiff_t i = 0; i < size; ++i) {
            PyObject* const item = PySequence_GetItem(sequence, i);
            int64_t number = 0;
            const bool is_number = type_of(item) == &PyLong_Type && to_number(item, number);
            Py_DecRef(item);
            if (!is_number) return false;
            numbers.push_back(number);
        }
        return true;
    }

    const Lender& lender_;
    ptrdiff_t written_, count_ = 0;
    DLDevice device_ = {kDLCPU, 0};
    std::vector<Array<int64_t>> sequences_;  // `any_` points to what they hold, not to them
    AnyView any_[kMaxArguments];
    DLTensor tensors_[kMaxArguments];
    ffi::LentPair pair_;
    ptrdiff_t signed_count_ = 0, number_count_ = 0;
    PyObject *signed_[kMaxTensors], *numbers_[kMaxTensors];  // those with a sign bit; those that are no integers
    ptrdiff_t numbers_at_[kMaxTensors];
};

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
