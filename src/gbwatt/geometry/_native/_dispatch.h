/* Compiles the algorithms of a kernel for both precisions and several instruction sets, and selects among them.
 *
 * Include after defining ALGORITHMS, the name of a header that is included once for each precision (DOUBLE) and width of
 * vectors (BYTES) and names its functions with ARCHITECTURE; `workers`, a struct of functions; and WORKERS(x), its members
 * for the ending x.
 *
 * One binary serves all machines: on x86 the algorithms are compiled twice.  The best version is selected when the module
 * is loaded; set_level selects another.  Vectors are as wide as those of the processor, because the compiler splits wider
 * ones into single numbers.  Double precision comes first, because single precision may use it.
 */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define ARCHITECTURE(x) x##_avx2
#define BYTES 32
#define ROUGH_INVERSE(x) __builtin_ia32_rcpps256(x)
#define ROUGH_INVERSE_ROOT(x) __builtin_ia32_rsqrtps256(x)
#define DOUBLE 1
#include ALGORITHMS
#define DOUBLE 0
#include ALGORITHMS
#undef ARCHITECTURE
#undef BYTES
#undef ROUGH_INVERSE
#undef ROUGH_INVERSE_ROOT
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#define ARCHITECTURE(x) x
#define BYTES 16
#define DOUBLE 1
#include ALGORITHMS
#define DOUBLE 0
#include ALGORITHMS

static workers in_float = WORKERS(f32), in_double = WORKERS(f64);
static const char *level = "default"; /* the instruction set in use */

static int has_avx2(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

/* Select the algorithms of a level.  Returns 0 if it is unknown or the processor lacks its instructions. */
static int use_level(const char *name)
{
    if (strcmp(name, "default") == 0) {
        in_float = (workers)WORKERS(f32);
        in_double = (workers)WORKERS(f64);
        level = "default";
        return 1;
    }
#ifdef __x86_64__
    if (strcmp(name, "avx2") == 0 && has_avx2()) {
        in_float = (workers)WORKERS(f32_avx2);
        in_double = (workers)WORKERS(f64_avx2);
        level = "avx2";
        return 1;
    }
#endif
    return 0;
}

static PyObject *levels(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    return has_avx2() ? Py_BuildValue("(ss)", "default", "avx2") : Py_BuildValue("(s)", "default");
}

static PyObject *current_level(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    return PyUnicode_FromString(level);
}

static PyObject *set_level(PyObject *self, PyObject *args)
{
    const char *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    if (use_level(name)) Py_RETURN_NONE;
    return PyErr_Format(PyExc_ValueError, "the level '%s' is unknown, or the processor lacks its instructions", name);
}

#define LEVEL_METHODS                                                                                                \
    {"levels", levels, METH_NOARGS, "instruction sets that the processor supports"},                                 \
    {"level", current_level, METH_NOARGS, "instruction set in use"},                                                 \
    {"set_level", set_level, METH_VARARGS, "select an instruction set; not while other threads use the kernel"}

/* Create the module of a kernel.  `interface` is the number of the version of its functions' arguments and results: the
 * Python binding has the same number and refuses a binary with another one.  Increase both when a function changes. */
static PyObject *create_kernel(struct PyModuleDef *definition, int interface)
{
#ifndef _WIN32
    find_runtime();
#endif
    if (!use_level("avx2")) use_level("default");
    if (!find_refusal()) return NULL;
    PyObject *self = PyModule_Create(definition);
    if (self && PyModule_AddIntConstant(self, "INTERFACE", interface)) Py_CLEAR(self);
    return self;
}

#define WORKER(name, itemsize) ((itemsize) == 4 ? in_float.name : in_double.name)
