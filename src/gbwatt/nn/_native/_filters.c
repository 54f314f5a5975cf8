/* Filters of epochs and covariances of windows: what stands between a recording and a sequence of matrices.
 *
 * Correlations go through Fourier transforms of short blocks (overlap-save): a product of spectra for every
 * frequency costs a fraction of the sum over all lags, and the blocks stay in the cache.  Around them are the passes
 * over epochs and features that torch would make one by one, with copies: moments of channels, normalisation,
 * centred products of windows.
 *
 * Results do not depend on the number of threads.  The algorithms are in _filters.h.  Nothing here knows of torch:
 * addresses and sizes come in as integers from _native.py, which checks shapes and dtypes; that arrays are as large as
 * these sizes say is checked here.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef __GNUC__
#error "vectors need GCC or Clang; the package works without this file"
#endif

#define PI 3.14159265358979323846
#define PAIRS 5 /* of blocks that are correlated together; a multiple of the five rows of a product */
#define DEPTH 16 /* pairs of blocks whose products are added up in single precision */
#define LANES 1  /* items of a block for threads */
#define ALIGNMENT 64
#define NOWHERE ((size_t)-1)
#define MAX_CHANNELS (1 << 20) /* or filters; and samples: sizes of memory stay in range */
#define MAX_SAMPLES (1 << 30)
/* Those that have to be known: all, or half where a trial is one block of real numbers. */
#define FREQUENCIES(size, blocks) ((blocks) > 1 ? (size) : (size) / 2 + 1)
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif
#define INLINE static inline __attribute__((always_inline))

/* What one thread does.  All arrays are row-major and dense, but for the epochs x; those marked * may be NULL. */
typedef struct {
    size_t first, last;           /* items first .. last - 1 are this thread's */
    size_t batch, n_in, times;    /* of epochs; for covariances, of features: rows and their samples */
    size_t n_out, length, width;  /* filters, their samples, and those of the results */
    size_t padding, size, pieces; /* zeros before an epoch; samples of a block; pieces for the caller to add up */
    size_t windows;
    ptrdiff_t stride[3];          /* of epochs, in numbers: trials, channels, times */
    int constant;                 /* whether filters have one more input, which is 1 at all times of the epoch */
    double keep, lift;            /* of covariances: factor, and what is added to the diagonal, or to variances */
    const void *x, *kernel, *bias;        /* (batch, n_in, times), (n_out, n_in or one more, length), (n_out)* */
    const void *y, *grad, *weight;        /* results*, derivatives (batch, n_out, width), scale of each output */
    void *coefficients;                   /* of normalisations and of their derivatives: a few for each output */
    double *moments, *rows;               /* mean and variance of each output; two numbers for each row of results */
    void *spectrum, *ends;                /* of the filters; results for the constant input (n_out, width)* */
    double *reached;                      /* sums of derivatives over trials (n_out, width + 1) */
    void *out;
    int out_of_memory;
} task;

#include "../../geometry/_native/_boundary.h"
#include "../../geometry/_native/_threads.h"
typedef struct {
    worker responses, constants, correlations, filter_gradients, row_moments, normalisation, affine, row_products,
        normalisation_gradient, channel_moments, covariances, covariance_gradients;
} workers;

/* Memory for a product of sizes, at an address that vectors can be loaded from; the true one stands before it. */
static void *new(size_t itemsize, size_t a, size_t b, size_t c)
{
    size_t bytes;
    if (__builtin_mul_overflow(itemsize, a, &bytes) || __builtin_mul_overflow(bytes, b, &bytes) ||
        __builtin_mul_overflow(bytes, c, &bytes) || bytes > PTRDIFF_MAX - ALIGNMENT - sizeof(void *))
        return NULL;
    char *memory = malloc(bytes + ALIGNMENT + sizeof(void *));
    if (!memory) return NULL;
    uintptr_t start = ((uintptr_t)memory + sizeof(void *) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    ((void **)start)[-1] = memory;
    return (void *)start;
}

static void delete(void *memory)
{
    if (memory) free(((void **)memory)[-1]);
}

#define WORKERS(x)                                                                                                   \
    {                                                                                                                \
        responses_##x, constants_##x, correlations_##x, filter_gradients_##x, row_moments_##x,                       \
            normalisation_##x, affine_##x, row_products_##x, normalisation_gradient_##x, channel_moments_##x,        \
            covariances_##x, covariance_gradients_##x                                                                \
    }
#define ALGORITHMS "../../nn/_native/_filters.h" /* as the header that includes it sees it */
#include "../../geometry/_native/_dispatch.h"

static PyObject *done(int out_of_memory)
{
    if (out_of_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *finish(worker work, const task *whole, size_t items, int threads)
{
    job all;
    int out_of_memory;
    Py_BEGIN_ALLOW_THREADS
    out_of_memory = run(&all, work, whole, items, threads);
    Py_END_ALLOW_THREADS
    return done(out_of_memory);
}

/* Sizes, which Python gives as numbers with a sign. */
typedef struct {
    Py_ssize_t batch, n_in, times, n_out, length, padding, size;
} sizes;

/* Whether all numbers of epochs (batch, n_in, times) with these strides are inside their memory. */
static int epochs(task *t, array x, const sizes *z, const Py_ssize_t *stride, int itemsize)
{
    if (!in_range("batch", z->batch, 1, INT32_MAX) || !in_range("n_in", z->n_in, 1, MAX_CHANNELS) ||
        !in_range("times", z->times, 1, MAX_SAMPLES))
        return 0;
    const Py_ssize_t shape[3] = {z->batch, z->n_in, z->times};
    size_t numbers = 1;
    int overflow = 0;
    for (int axis = 0; axis < 3; axis++) {
        size_t reach;
        if (!in_range("stride", stride[axis], 0, PY_SSIZE_T_MAX)) return 0;
        overflow |= __builtin_mul_overflow((size_t)stride[axis], (size_t)shape[axis] - 1, &reach);
        overflow |= __builtin_add_overflow(numbers, reach, &numbers);
    }
    if (overflow) numbers = SIZE_MAX; /* which nothing holds */
    if (!HOLDS(x, itemsize, numbers)) return 0;
    t->batch = (size_t)z->batch, t->n_in = (size_t)z->n_in, t->times = (size_t)z->times;
    for (int axis = 0; axis < 3; axis++) t->stride[axis] = stride[axis];
    t->x = POINTER(x);
    return 1;
}

/* Whether filters suit the epochs, and blocks the filters. */
static int filters(task *t, const sizes *z)
{
    if (!in_range("n_out", z->n_out, 1, MAX_CHANNELS) || !in_range("length", z->length, 1, MAX_SAMPLES) ||
        !in_range("padding", z->padding, 0, z->length - 1) ||
        !in_range("length", z->length, 1, z->times + 2 * z->padding) ||
        !in_range("size", z->size, z->length > 16 ? z->length : 16, 4 * (z->times + 2 * z->padding) + 16))
        return 0; /* larger blocks would only hold zeros */
    if (z->size & (z->size - 1)) {
        PyErr_Format(refusal, "'size' is %zd, but it must be a power of two", z->size);
        return 0;
    }
    t->n_out = (size_t)z->n_out, t->length = (size_t)z->length, t->padding = (size_t)z->padding;
    t->size = (size_t)z->size, t->width = t->times + 2 * t->padding - t->length + 1;
    return 1;
}

/* Whether the sizes of results (batch, n_out, width) are in range. */
static int results(task *t, const sizes *z)
{
    if (!in_range("batch", z->batch, 1, INT32_MAX) || !in_range("n_out", z->n_out, 1, MAX_CHANNELS) ||
        !in_range("times", z->times, 1, MAX_SAMPLES))
        return 0;
    t->batch = (size_t)z->batch, t->n_out = (size_t)z->n_out, t->width = (size_t)z->times;
    return 1;
}

/* Sizes of epochs, filters and results, which the functions on epochs begin with. */
#define SIZES "(nnn)(nnn)(nnn)n"
#define READ_SIZES(z, stride)                                                                                        \
    &(z).batch, &(z).n_in, &(z).times, &(stride)[0], &(stride)[1], &(stride)[2], &(z).n_out, &(z).length,            \
        &(z).padding, &(z).size

static size_t rounded(size_t n, int itemsize)
{
    return (n * (size_t)itemsize + 31) / 32 * 32 / (size_t)itemsize; /* to the widest vectors */
}

static size_t pairs_of_blocks(const task *t)
{
    const size_t step = t->size - t->length + 1, blocks = (t->width + step - 1) / step;
    return t->batch * ((blocks + 1) / 2);
}

static int correlate_all(task *t, int itemsize, int threads)
{
    const size_t step = t->size - t->length + 1, blocks = (t->width + step - 1) / step;
    const size_t pairs = pairs_of_blocks(t);
    t->spectrum = new((size_t)itemsize * 2, FREQUENCIES(t->size, blocks), t->n_in, rounded(t->n_out, itemsize));
    t->ends = t->constant ? new((size_t)itemsize, t->n_out, t->width, 1) : NULL;
    job all;
    int failed = !t->spectrum || (t->constant && !t->ends);
    if (!failed) failed = run(&all, WORKER(responses), t, t->n_in, threads);
    if (!failed && t->constant) failed = run(&all, WORKER(constants), t, 1, 1);
    if (!failed) failed = run(&all, WORKER(correlations), t, (pairs + PAIRS - 1) / PAIRS, threads);
    delete(t->spectrum), delete(t->ends);
    return failed;
}

static PyObject *correlate(PyObject *self, PyObject *args)
{
    array x, kernel, bias, out;
    Py_ssize_t stride[3];
    int itemsize, threads, failed;
    sizes z;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A SIZES "pii", READ(x), READ(kernel), READ(bias), READ(out),
                          READ_SIZES(z, stride), &t.constant, &itemsize, &threads) ||
        !in_order(itemsize, threads) || !epochs(&t, x, &z, stride, itemsize) || !filters(&t, &z) ||
        !HOLDS(kernel, itemsize, t.n_out, t.n_in + (t.constant ? 1 : 0), t.length) ||
        !MAY_HOLD(bias, itemsize, t.n_out) || !HOLDS(out, itemsize, t.batch, t.n_out, t.width))
        return NULL;
    t.kernel = POINTER(kernel), t.bias = POINTER(bias), t.out = POINTER(out);
    Py_BEGIN_ALLOW_THREADS
    failed = correlate_all(&t, itemsize, threads);
    Py_END_ALLOW_THREADS
    return done(failed);
}

static PyObject *filter_gradient(PyObject *self, PyObject *args)
{
    array x, y, grad, coefficients, out;
    Py_ssize_t stride[3], pieces;
    int itemsize, threads;
    sizes z;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A SIZES "pnii", READ(x), READ(y), READ(grad), READ(coefficients), READ(out),
                          READ_SIZES(z, stride), &t.constant, &pieces, &itemsize, &threads) ||
        !in_order(itemsize, threads) || !epochs(&t, x, &z, stride, itemsize) || !filters(&t, &z) ||
        !in_range("pieces", pieces, 1, (Py_ssize_t)pairs_of_blocks(&t)) ||
        !MAY_HOLD(y, itemsize, t.batch, t.n_out, t.width) || (GIVEN(y) && !HOLDS(coefficients, itemsize, t.n_out, 4)) ||
        !HOLDS(grad, itemsize, t.batch, t.n_out, t.width) ||
        !HOLDS(out, sizeof(double), (size_t)pieces, t.n_out, t.n_in + (t.constant ? 1 : 0), t.length))
        return NULL;
    t.pieces = (size_t)pieces;
    t.y = POINTER(y), t.grad = POINTER(grad), t.coefficients = POINTER(coefficients), t.out = POINTER(out);
    return finish(WORKER(filter_gradients), &t, t.pieces, threads);
}

static PyObject *channel_moments(PyObject *self, PyObject *args)
{
    array x, out;
    Py_ssize_t stride[3], pieces;
    int itemsize, threads;
    sizes z;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, A A "(nnn)(nnn)nii", READ(x), READ(out), &z.batch, &z.n_in, &z.times, &stride[0],
                          &stride[1], &stride[2], &pieces, &itemsize, &threads) ||
        !in_order(itemsize, threads) || !epochs(&t, x, &z, stride, itemsize) ||
        !in_range("pieces", pieces, 1, z.batch) ||
        !HOLDS(out, sizeof(double), (size_t)pieces, t.n_in, t.n_in + 1))
        return NULL;
    t.pieces = (size_t)pieces, t.out = POINTER(out);
    return finish(WORKER(channel_moments), &t, t.pieces, threads);
}

/* Two passes over results (batch, n_out, width), and what has to be known for the second, in between. */
static int passes(task *t, worker measure, worker conclude, worker apply, int threads)
{
    t->rows = new(sizeof(double) * 2, t->batch, t->n_out, 1);
    job all;
    int failed = !t->rows;
    if (!failed) failed = run(&all, measure, t, t->batch, threads);
    if (!failed) failed = run(&all, conclude, t, 1, 1);
    if (!failed && apply) failed = run(&all, apply, t, t->batch, threads);
    delete(t->rows);
    return failed;
}

static PyObject *normalise(PyObject *self, PyObject *args)
{
    array y, weight, bias, coefficients, moments, out;
    int itemsize, threads, failed;
    sizes z;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A "(nnn)dii", READ(y), READ(weight), READ(bias), READ(coefficients),
                          READ(moments), READ(out), &z.batch, &z.n_out, &z.times, &t.lift, &itemsize, &threads) ||
        !in_order(itemsize, threads) || !results(&t, &z) || !HOLDS(y, itemsize, t.batch, t.n_out, t.width) ||
        !HOLDS(weight, itemsize, t.n_out) || !HOLDS(bias, itemsize, t.n_out) ||
        !HOLDS(coefficients, itemsize, t.n_out, 3) || !HOLDS(moments, sizeof(double), t.n_out, 2) ||
        !HOLDS(out, itemsize, t.batch, t.n_out, t.width))
        return NULL;
    t.y = POINTER(y), t.weight = POINTER(weight), t.bias = POINTER(bias), t.coefficients = POINTER(coefficients);
    t.moments = POINTER(moments), t.out = POINTER(out);
    Py_BEGIN_ALLOW_THREADS
    failed = passes(&t, WORKER(row_moments), WORKER(normalisation), WORKER(affine), threads);
    Py_END_ALLOW_THREADS
    return done(failed);
}

static PyObject *normalise_gradient(PyObject *self, PyObject *args)
{
    array y, grad, weight, moments, coefficients, out;
    int itemsize, threads, failed;
    sizes z;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A "(nnn)dii", READ(y), READ(grad), READ(weight), READ(moments),
                          READ(coefficients), READ(out), &z.batch, &z.n_out, &z.times, &t.lift, &itemsize, &threads) ||
        !in_order(itemsize, threads) || !results(&t, &z) || !HOLDS(y, itemsize, t.batch, t.n_out, t.width) ||
        !HOLDS(grad, itemsize, t.batch, t.n_out, t.width) || !HOLDS(weight, itemsize, t.n_out) ||
        !HOLDS(moments, sizeof(double), t.n_out, 2) || !HOLDS(coefficients, itemsize, t.n_out, 4) ||
        !HOLDS(out, itemsize, 2, t.n_out))
        return NULL;
    t.y = POINTER(y), t.grad = POINTER(grad), t.weight = POINTER(weight), t.moments = POINTER(moments);
    t.coefficients = POINTER(coefficients), t.out = POINTER(out);
    Py_BEGIN_ALLOW_THREADS
    failed = passes(&t, WORKER(row_products), WORKER(normalisation_gradient), NULL, threads);
    Py_END_ALLOW_THREADS
    return done(failed);
}

static PyObject *covariances(PyObject *self, PyObject *args)
{
    array x, grad, out;
    Py_ssize_t windows;
    int itemsize, threads;
    sizes z;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, A A A "(nnn)nddii", READ(x), READ(grad), READ(out), &z.batch, &z.n_in, &z.times,
                          &windows, &t.keep, &t.lift, &itemsize, &threads) ||
        !in_order(itemsize, threads))
        return NULL;
    const Py_ssize_t inner = z.times > 0 && z.times <= MAX_SAMPLES ? z.times : 1;
    const Py_ssize_t outer = z.n_in > 0 && z.n_in <= MAX_CHANNELS ? z.n_in * inner : 1;
    const Py_ssize_t stride[3] = {outer, inner, 1}; /* epochs() refuses what is out of range */
    if (!epochs(&t, x, &z, stride, itemsize) || !in_range("windows", windows, 1, z.times)) return NULL;
    t.windows = (size_t)windows;
    if (!MAY_HOLD(grad, itemsize, t.batch, t.windows, t.n_in, t.n_in) ||
        (GIVEN(grad) ? !HOLDS(out, itemsize, t.batch, t.n_in, t.times)
                 : !HOLDS(out, itemsize, t.batch, t.windows, t.n_in, t.n_in)))
        return NULL;
    t.grad = POINTER(grad), t.out = POINTER(out);
    return finish(GIVEN(grad) ? WORKER(covariance_gradients) : WORKER(covariances), &t, t.batch, threads);
}

static PyMethodDef methods[] = {
    {"correlate", correlate, METH_VARARGS, "filters of epochs"},
    {"filter_gradient", filter_gradient, METH_VARARGS, "derivative of correlate in the filters"},
    {"channel_moments", channel_moments, METH_VARARGS, "products and sums of channels"},
    {"normalise", normalise, METH_VARARGS, "batch normalisation"},
    {"normalise_gradient", normalise_gradient, METH_VARARGS, "derivative of normalise"},
    {"covariances", covariances, METH_VARARGS, "trace-one covariances of windows, or their derivative"},
    LEVEL_METHODS,
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_filters", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__filters(void)
{
#ifndef _WIN32
    find_runtime();
#endif
    find_best();
    if (!find_refusal()) return NULL;
    PyObject *self = PyModule_Create(&module);
    if (self && PyModule_AddIntConstant(self, "MAX_CHANNELS", MAX_CHANNELS)) Py_CLEAR(self);
    return self;
}
