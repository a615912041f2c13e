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

inline constexpr ptrdiff_t kMaxArguments = 48;

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

/// The places of arguments that are given by name. A line of Python's code has one tuple of names for all its calls, so
/// names are compared only when it comes first.
class NamedPlaces {
public:
    using Places = std::array<uint8_t, kMaxArguments>;

    /// `names`: a tuple of interned ones, kept.
    explicit NamedPlaces(PyObject* names) : names_(names), count_(PySequence_Size(names)) {
        Py_IncRef(names);
        for (ptrdiff_t place = 0; place < count_; ++place) {
            size_t i = hash_of(PyTuple_GetItem(names, place));
            while (by_address_[i % kNames].name != nullptr) ++i;
            by_address_[i % kNames] = {PyTuple_GetItem(names, place), place};
        }
    }

    ptrdiff_t count() const { return count_; }

    /// The places of `given`, a tuple of names; in `made` where they are not known. Null, with the first name that is
    /// none of ours, where there is such.
    const Places* find(PyObject* given, Places& made, PyObject*& unknown) const {
        const size_t first = slot_of(given);
        for (size_t i = 0; i < kWays; ++i) {
            const Known* const known = slots_[first + i].known.load(std::memory_order_acquire);
            if (known == nullptr) break;
            if (known->names == given) return &known->places;
        }
        const ptrdiff_t count = PySequence_Size(given);
        for (ptrdiff_t i = 0; i < count; ++i) {
            const ptrdiff_t place = place_of(PyTuple_GetItem(given, i));
            if (place < 0) return unknown = PyTuple_GetItem(given, i), nullptr;
            made[static_cast<size_t>(i)] = static_cast<uint8_t>(place);
        }
        for (size_t i = 0; i < kWays; ++i) {
            Slot& slot = slots_[first + i];
            if (slot.known.load(std::memory_order_acquire) != nullptr) continue;
            consider(slot, given, made);
            break;
        }
        return &made;
    }

private:
    struct Known {
        PyObject* names;  // kept, so that its address is no other's
        Places places;
    };
    struct Slot {
        std::atomic<const Known*> known = nullptr;
        std::atomic<PyObject*> last = nullptr;  // that came here, kept
    };
    struct Name {
        PyObject* name = nullptr;
        ptrdiff_t place = 0;
    };
    static constexpr int kSlotBits = 6;
    static constexpr size_t kWays = 4, kNames = 128;
    static_assert(kNames >= 2 * kMaxArguments);

    static size_t hash_of(PyObject* object) {
        return (reinterpret_cast<uintptr_t>(object) >> 4) * size_t{0x9e3779b97f4a7c15} >> 32;
    }
    static size_t slot_of(PyObject* names) { return (hash_of(names) & ((1 << kSlotBits) - 1)) * kWays; }

    ptrdiff_t place_of(PyObject* name) const {
        for (size_t i = hash_of(name); by_address_[i % kNames].name != nullptr; ++i)
            if (by_address_[i % kNames].name == name) return by_address_[i % kNames].place;
        for (ptrdiff_t i = 0; i < count_; ++i)  // a name that Python made while it ran
            if (PyObject_RichCompareBool(PyTuple_GetItem(names_, i), name, kPyEqual) == 1) return i;
        return -1;
    }

    /// Keeps it for good at its second coming. That made for one call, of a dictionary, does not come again.
    static void consider(Slot& slot, PyObject* given, const Places& places) {
        Py_IncRef(given);
        PyObject* const before = slot.last.exchange(given);
        if (before == nullptr) return;
        if (before != given) return Py_DecRef(before);
        const auto* const known = new Known{given, places};  // with the reference of `before`
        const Known* nobody = nullptr;
        if (!slot.known.compare_exchange_strong(nobody, known)) delete known, Py_DecRef(before);
    }

    PyObject* names_;
    ptrdiff_t count_;
    std::array<Name, kNames> by_address_;
    mutable std::array<Slot, kWays << kSlotBits> slots_;
};

/// Where a function has its arguments.
struct ArgumentPlaces {
    ptrdiff_t written, written_count;  // what it writes, with what comes with it in the places behind
    std::array<ptrdiff_t, 3> seldom;   // tensors that change less often than they come again
};

/// The arguments of one call, as tvm-ffi passes them on.
class BorrowedArguments {
public:
    BorrowedArguments(const Lender& lender, const ArgumentPlaces& places, ptrdiff_t count)
        : lender_(lender), places_(places), count_(count) {}
    BorrowedArguments(const BorrowedArguments&) = delete;
    ~BorrowedArguments() {
        if (kept_ != nullptr) Py_DecRef(kept_);
    }

    /// Afterwards `all_lent` says whether it was of a kind that is lent.
    void add(PyObject* argument, ptrdiff_t place) {
        if (argument == &_Py_NoneStruct) return;  // as it was made
        objects_[place] = argument;
        PyObject* const type = type_of(argument);
        if (type == &PyLong_Type || type == &PyBool_Type)
            add_number(argument, type, place);
        else if (type == &PyTuple_Type || type == &PyList_Type)
            add_numbers(argument, place);
        else if (lender_.lends(type))
            add_tensor(argument, place);
        else
            all_lent_ = false;
    }

    /// What is written: a tensor, or a tuple or list of it and what comes with it.
    void add_written(PyObject* argument) {
        PyObject* const type = type_of(argument);
        const bool is_tuple = PyType_IsSubtype(type, &PyTuple_Type) != 0;
        if (!is_tuple && type != &PyList_Type) return add(argument, places_.written);
        // Others may change a list meanwhile.
        PyObject* const tuple = is_tuple ? argument : kept_ = PySequence_Tuple(argument);
        const ptrdiff_t size = tuple == nullptr ? 0 : PySequence_Size(tuple);
        if (size != 2 && size != 3) {
            all_lent_ = false;
            objects_[places_.written] = argument;
            return;
        }
        for (ptrdiff_t i = 0; i < size; ++i) add(PyTuple_GetItem(tuple, i), places_.written + i);
    }

    /// False where an argument is of a kind that is not lent: all must be shared then.
    bool all_lent() const { return all_lent_; }
    /// A tuple of the lender's tensors that the call writes. Null where there are none, or with an error.
    PyObject* written() const {
        PyObject* tensors[kMaxArguments];
        ptrdiff_t found = 0;
        for (ptrdiff_t i = 0; i < places_.written_count; ++i) {
            PyObject* const object = objects_[places_.written + i];
            if (object != nullptr && (all_lent_ || lender_.lends(type_of(object)))) tensors[found++] = object;
        }
        PyObject* const tuple = found == 0 ? nullptr : PyTuple_New(found);
        for (ptrdiff_t i = 0; tuple != nullptr && i < found; ++i) {
            Py_IncRef(tensors[i]);
            PyTuple_SetItem(tuple, i, tensors[i]);  // takes the reference
        }
        return tuple;
    }

    /// As they were given; null for None.
    PyObject* const* objects() const { return objects_; }

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
            const ptrdiff_t place = numbers_at_[i];
            if (!all && (place == places_.seldom[0] || place == places_.seldom[1] || place == places_.seldom[2]))
                continue;
            PyObject* const answer = PyObject_GetAttr(objects_[place], attribute);
            if (answer == nullptr) PyErr_Clear();
            const bool yes = answer == &_Py_TrueStruct;
            Py_DecRef(answer);
            if (yes) return true;
        }
        return false;
    }

    const TVMFFIAny* data() const { return reinterpret_cast<const TVMFFIAny*>(any_); }
    ptrdiff_t count() const { return count_; }
    /// The first device that is not the CPU.
    DLDevice device() const { return device_; }

private:
    void add_tensor(PyObject* object, ptrdiff_t place) {
        DLTensor& tensor = tensors_[place];
        if (lender_.api().dltensor_from_py_object_no_sync(object, &tensor) != 0) {
            PyErr_Clear();  // tvm-ffi finds the same and says so
            all_lent_ = false;
            return;
        }
        any_[place] = &tensor;
        const bool integers = tensor.dtype.code == kDLInt || tensor.dtype.code == kDLUInt;
        if (!integers) numbers_at_[number_count_++] = place;
        // Parts of complex tensors carry the bit, and torch can negate no FP8.
        if (tensor.dtype.code == kDLFloat || tensor.dtype.code == kDLBfloat) signed_[signed_count_++] = object;
        if (device_.device_type == kDLCPU) device_ = tensor.device;
    }

    void add_number(PyObject* object, PyObject* type, ptrdiff_t place) {
        int64_t number = 0;
        if (!to_number(object, number))
            all_lent_ = false;
        else if (type == &PyBool_Type)
            any_[place] = number != 0;
        else
            any_[place] = number;
    }

    void add_numbers(PyObject* sequence, ptrdiff_t place) {
        const ptrdiff_t size = PySequence_Size(sequence);
        tvm::ffi::Array<int64_t> numbers;
        numbers.reserve(size);
        for (ptrdiff_t i = 0; i < size; ++i) {
            PyObject* const item = PySequence_GetItem(sequence, i);
            int64_t number = 0;
            all_lent_ = all_lent_ && type_of(item) == &PyLong_Type && to_number(item, number);
            Py_DecRef(item);
            if (!all_lent_) return;
            numbers.push_back(number);
        }
        any_[place] = sequences_.emplace_back(std::move(numbers));
    }

    static bool to_number(PyObject* object, int64_t& number) {
        int overflow = 0;
        number = PyLong_AsLongLongAndOverflow(object, &overflow);
        return overflow == 0;
    }

    const Lender& lender_;
    const ArgumentPlaces& places_;
    ptrdiff_t count_;
    bool all_lent_ = true;
    PyObject* kept_ = nullptr;
    DLDevice device_ = {kDLCPU, 0};
    std::vector<tvm::ffi::Array<int64_t>> sequences_;  // `any_` points to what they hold, not to them
    tvm::ffi::AnyView any_[kMaxArguments];
    PyObject* objects_[kMaxArguments] = {};
    DLTensor tensors_[kMaxArguments];
    ptrdiff_t signed_count_ = 0, number_count_ = 0;
    PyObject* signed_[kMaxArguments];      // those with a sign bit
    ptrdiff_t numbers_at_[kMaxArguments];  // those that are no integers
};

}  // namespace deep_gemm
