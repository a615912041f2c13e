// The few functions of Python's stable ABI that we call, declared here: building needs no Python headers, and one build
// serves every Python version. Weak: in a process without Python the library loads all the same.
#pragma once

#include <cstddef>

struct PyObject;

extern "C" {
struct PyMethodDef {
    const char* name;
    /// `names`, null or a tuple, are of the last arguments, which are not among the `count`.
    PyObject* (*call)(PyObject* self, PyObject* const* arguments, ptrdiff_t count, PyObject* names);
    int flags;
    const char* doc;
};

#define DEEP_GEMM_PYTHON [[gnu::weak, gnu::visibility("default")]] extern
DEEP_GEMM_PYTHON PyObject PyBool_Type, PyList_Type, PyLong_Type, PyTuple_Type, _Py_NoneStruct, _Py_TrueStruct;
DEEP_GEMM_PYTHON PyObject* PyObject_Type(PyObject*);
DEEP_GEMM_PYTHON void Py_IncRef(PyObject*);
DEEP_GEMM_PYTHON void Py_DecRef(PyObject*);
DEEP_GEMM_PYTHON PyObject* PyObject_GetAttrString(PyObject*, const char*);
DEEP_GEMM_PYTHON PyObject* PyObject_GetAttr(PyObject*, PyObject* name);
DEEP_GEMM_PYTHON PyObject* PyObject_CallNoArgs(PyObject* function);
DEEP_GEMM_PYTHON PyObject* PyObject_CallObject(PyObject* function, PyObject* arguments);
DEEP_GEMM_PYTHON long long PyLong_AsLongLongAndOverflow(PyObject*, int* overflow);
DEEP_GEMM_PYTHON PyObject* PyBool_FromLong(long);
DEEP_GEMM_PYTHON PyObject* PyLong_FromLong(long);
DEEP_GEMM_PYTHON ptrdiff_t PySequence_Size(PyObject*);
DEEP_GEMM_PYTHON PyObject* PySequence_GetItem(PyObject*, ptrdiff_t);
DEEP_GEMM_PYTHON PyObject* PyTuple_New(ptrdiff_t);
DEEP_GEMM_PYTHON int PyTuple_SetItem(PyObject*, ptrdiff_t, PyObject*);
DEEP_GEMM_PYTHON PyObject* PyTuple_GetItem(PyObject*, ptrdiff_t);  // borrowed
DEEP_GEMM_PYTHON PyObject* PySequence_Tuple(PyObject*);
DEEP_GEMM_PYTHON int PyType_IsSubtype(PyObject* type, PyObject* of);
DEEP_GEMM_PYTHON int PyUnicode_CompareWithASCIIString(PyObject*, const char*);
DEEP_GEMM_PYTHON int PyObject_RichCompareBool(PyObject*, PyObject*, int operation);
DEEP_GEMM_PYTHON PyObject* PyCapsule_New(void*, const char* name, void (*)(PyObject*));
DEEP_GEMM_PYTHON void* PyCapsule_GetPointer(PyObject*, const char* name);
DEEP_GEMM_PYTHON PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject* self, PyObject* module);
DEEP_GEMM_PYTHON void PyErr_SetString(PyObject* type, const char* message);
DEEP_GEMM_PYTHON PyObject* PyErr_Format(PyObject* type, const char* format, ...);
DEEP_GEMM_PYTHON void PyErr_Clear();
DEEP_GEMM_PYTHON PyObject* PyErr_Occurred();
DEEP_GEMM_PYTHON int PyErr_CheckSignals();
DEEP_GEMM_PYTHON int Py_IsInitialized();
DEEP_GEMM_PYTHON int PyGILState_Ensure();  // an enumeration
DEEP_GEMM_PYTHON void PyGILState_Release(int);
DEEP_GEMM_PYTHON void* PyEval_SaveThread();
DEEP_GEMM_PYTHON void PyEval_RestoreThread(void*);
#undef DEEP_GEMM_PYTHON
}

namespace deep_gemm {

constexpr int kMethFastcall = 0x80, kMethKeywords = 2;  // METH_FASTCALL, METH_KEYWORDS
constexpr int kPyEqual = 2;                             // Py_EQ

}  // namespace deep_gemm
