/* Checks of the arguments from Python, before anything is read or written.
 *
 * An array is an address and the number of bytes from there to the end of its memory.  A job states how many numbers it
 * reads from or writes to each array; sizes must be in range and products must not overflow.  Invalid arguments raise
 * gbwatt.errors.InputError, which is a ValueError.
 */
#include <stdint.h>
#if SIZE_MAX < UINT64_MAX
#error "products of sizes need 64 bits; the package works without this file"
#endif

typedef struct {
    unsigned long long at;
    Py_ssize_t bytes; /* both are 0 for an optional array that is left out */
} array;
#define A "(Kn)"
#define READ(x) &(x).at, &(x).bytes
#define POINTER(x) ((void *)(uintptr_t)(x).at)

static PyObject *refusal; /* the class of the error for invalid arguments */

static int find_refusal(void)
{
    PyObject *errors = PyImport_ImportModule("gbwatt.errors");
    refusal = errors ? PyObject_GetAttrString(errors, "InputError") : NULL;
    Py_XDECREF(errors);
    return refusal != NULL;
}

/* Whether a size is in range; sets an error that names it otherwise. */
static int in_range(const char *name, Py_ssize_t value, Py_ssize_t least, Py_ssize_t most)
{
    if (value >= least && value <= most) return 1;
    PyErr_Format(refusal, "'%s' is %zd, but it must be between %zd and %zd", name, value, least, most);
    return 0;
}

/* Whether an array of this shape lies inside its memory and is aligned. */
static int holds(const char *name, array x, size_t itemsize, const size_t *shape, size_t axes)
{
    size_t needed = itemsize;
    int empty = 0, overflow = 0;
    for (size_t i = 0; i < axes; i++) empty |= shape[i] == 0;
    if (empty) return 1;
    for (size_t i = 0; i < axes; i++) overflow |= __builtin_mul_overflow(needed, shape[i], &needed);
    if (overflow || needed > (size_t)PY_SSIZE_T_MAX) {
        PyErr_Format(refusal, "'%s' would have more numbers than can be addressed", name);
        return 0;
    }
    if (x.at == 0 || x.bytes < 0 || (size_t)x.bytes < needed) {
        PyErr_Format(refusal, "'%s' has %zd bytes, but %zu are needed", name, x.at ? x.bytes : 0, needed);
        return 0;
    }
    if (x.at % itemsize) {
        PyErr_Format(refusal, "'%s' is not aligned to its numbers of %zu bytes", name, itemsize);
        return 0;
    }
    return 1;
}
#define HOLDS(x, itemsize, ...)                                                                                      \
    holds(#x, x, (size_t)(itemsize), (const size_t[]){__VA_ARGS__}, sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))
/* The same for an array that may be left out. */
#define GIVEN(x) ((x).at != 0 || (x).bytes != 0)
#define MAY_HOLD(x, ...) (!GIVEN(x) || HOLDS(x, __VA_ARGS__))

/* Whether item size and number of threads are valid. */
static int in_order(int itemsize, int threads)
{
    if (itemsize != 4 && itemsize != 8) {
        PyErr_Format(refusal, "'itemsize' is %d, but it must be 4 or 8", itemsize);
        return 0;
    }
    return in_range("threads", threads, 1, INT32_MAX);
}
