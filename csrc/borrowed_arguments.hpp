// The arguments of a call as Python hands them over, read without making objects of them (borrowed_tensors_api.cpp).
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "util/ffi.hpp"
#include "util/python.hpp"

namespace deep_gemm {

inline constexpr ptrdiff_t kMaxArguments = 28;
inline constexpr ptrdiff_t kMaxTensors = kMaxArguments + 1;  // one of them may be a pair
// Places that all of them have in common.
inline constexpr ptrdiff_t kScalesOfA = 1, kScalesOfB = 3, kD = 4;

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

/// Its type, which lives as long as the object does.
inline PyObject* type_of(PyObject* object) {
    PyObject* const type = PyObject_Type(object);
    Py_DecRef(type);
    return type;
}

/// A tuple of one. Null where there is no memory.
inline PyObject* tuple_of(PyObject* item) {
    PyObject* const tuple = PyTuple_New(1);
    if (tuple == nullptr) return nullptr;
    Py_IncRef(item);
    PyTuple_SetItem(tuple, 0, item);  // takes the reference
    return tuple;
}

/// Calls a Python function of one argument. Null where it raised.
inline PyObject* call_with(PyObject* function, PyObject* argument) {
    PyObject* const tuple = tuple_of(argument);
    if (tuple == nullptr) return nullptr;
    PyObject* const result = PyObject_CallObject(function, tuple);
    Py_DecRef(tuple);
    return result;
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
            tvm::ffi::Array<int64_t> numbers;
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
        pair_.count = PySequence_Size(tuple);
        if (pair_.count != 2) return false;  // with a counter it is no tuple, but a Counted
        for (ptrdiff_t i = 0; i < pair_.count; ++i) {
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

    static bool to_numbers(PyObject* sequence, tvm::ffi::Array<int64_t>& numbers) {
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
    std::vector<tvm::ffi::Array<int64_t>> sequences_;  // `any_` points to what they hold, not to them
    tvm::ffi::AnyView any_[kMaxArguments];
    DLTensor tensors_[kMaxArguments];
    ffi::LentPair pair_;
    ptrdiff_t signed_count_ = 0, number_count_ = 0;
    PyObject *signed_[kMaxTensors], *numbers_[kMaxTensors];  // those with a sign bit; those that are no integers
    ptrdiff_t numbers_at_[kMaxTensors];
};

}  // namespace deep_gemm
