/* Filters of epochs and covariances of windows: what stands between a recording and a sequence of matrices.
 *
 * Correlations go through Fourier transforms of short blocks (overlap-save): a product of spectra for every
 * frequency costs a fraction of the sum over all lags, and the blocks stay in the cache.  Around them are the passes
 * over epochs and features that torch would make one by one, with copies: moments of channels, normalisation,
 * centred products of windows.
 *
 * Results do not depend on the number of threads.  The algorithms are in _filters.h.  Nothing here knows of torch:
 * addresses and sizes come in as integers from _native.py, which also checks them.
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

#include "../geometry/_threads.h"
typedef struct {
    worker responses, constants, correlations, filter_gradients, row_moments, normalisation, affine, row_products,
        normalisation_gradient, channel_moments, covariances, covariance_gradients;
} workers;

/* Memory at an address that vectors can be loaded from; the true one stands before it. */
static void *new(size_t bytes)
{
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
#define ALGORITHMS "../nn/_filters.h" /* as the header that includes it sees it */
#include "../geometry/_dispatch.h"

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

/* Sizes of epochs, filters and results, which the functions on epochs begin with. */
#define SIZES "(nnn)(nnn)(nnn)n"
#define READ_SIZES(t)                                                                                                \
    &(t).batch, &(t).n_in, &(t).times, &(t).stride[0], &(t).stride[1], &(t).stride[2], &(t).n_out, &(t).length,      \
        &(t).padding, &(t).size

static size_t rounded(size_t n, int itemsize)
{
    return (n * (size_t)itemsize + 31) / 32 * 32 / (size_t)itemsize; /* to the widest vectors */
}

static int correlate_all(task *t, int itemsize, int threads)
{
    const size_t step = t->size - t->length + 1, blocks = (t->width + step - 1) / step;
    const size_t pairs = t->batch * ((blocks + 1) / 2);
    t->spectrum = new((size_t)itemsize * FREQUENCIES(t->size, blocks) * t->n_in * 2 * rounded(t->n_out, itemsize));
    t->ends = t->constant ? new((size_t)itemsize * t->n_out * t->width) : NULL;
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
    address x, kernel, bias, out;
    int itemsize, threads, failed;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKK" SIZES "iii", &x, &kernel, &bias, &out, READ_SIZES(t), &t.constant, &itemsize,
                          &threads))
        return NULL;
    t.width = t.times + 2 * t.padding - t.length + 1;
    t.x = POINTER(x), t.kernel = POINTER(kernel), t.bias = POINTER(bias), t.out = POINTER(out);
    Py_BEGIN_ALLOW_THREADS
    failed = correlate_all(&t, itemsize, threads);
    Py_END_ALLOW_THREADS
    return done(failed);
}

static PyObject *filter_gradient(PyObject *self, PyObject *args)
{
    address x, y, grad, coefficients, out;
    int itemsize, threads;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKK" SIZES "inii", &x, &y, &grad, &coefficients, &out, READ_SIZES(t), &t.constant,
                          &t.pieces, &itemsize, &threads))
        return NULL;
    t.width = t.times + 2 * t.padding - t.length + 1;
    t.x = POINTER(x), t.y = POINTER(y), t.grad = POINTER(grad), t.coefficients = POINTER(coefficients);
    t.out = POINTER(out);
    return finish(WORKER(filter_gradients), &t, t.pieces, threads);
}

static PyObject *channel_moments(PyObject *self, PyObject *args)
{
    address x, out;
    int itemsize, threads;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "KK(nnn)(nnn)nii", &x, &out, &t.batch, &t.n_in, &t.times, &t.stride[0], &t.stride[1],
                          &t.stride[2], &t.pieces, &itemsize, &threads))
        return NULL;
    t.x = POINTER(x), t.out = POINTER(out);
    return finish(WORKER(channel_moments), &t, t.pieces, threads);
}

/* Two passes over results (batch, n_out, width), and what has to be known for the second, in between. */
static int passes(task *t, worker measure, worker conclude, worker apply, int threads)
{
    t->rows = new(sizeof(double) * 2 * t->batch * t->n_out);
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
    address y, weight, bias, coefficients, moments, out;
    int itemsize, threads, failed;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKK(nnn)dii", &y, &weight, &bias, &coefficients, &moments, &out, &t.batch, &t.n_out,
                          &t.width, &t.lift, &itemsize, &threads))
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
    address y, grad, weight, moments, coefficients, out;
    int itemsize, threads, failed;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKK(nnn)dii", &y, &grad, &weight, &moments, &coefficients, &out, &t.batch, &t.n_out,
                          &t.width, &t.lift, &itemsize, &threads))
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
    address x, grad, out;
    int itemsize, threads;
    task t = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "KKK(nnn)nddii", &x, &grad, &out, &t.batch, &t.n_in, &t.times, &t.windows, &t.keep,
                          &t.lift, &itemsize, &threads))
        return NULL;
    t.x = POINTER(x), t.grad = POINTER(grad), t.out = POINTER(out);
    return finish(grad ? WORKER(covariance_gradients) : WORKER(covariances), &t, t.batch, threads);
}

static PyMethodDef methods[] = {
    {"correlate", correlate, METH_VARARGS, "filters of epochs"},
    {"filter_gradient", filter_gradient, METH_VARARGS, "derivative of correlate in the filters"},
    {"channel_moments", channel_moments, METH_VARARGS, "products and sums of channels"},
    {"normalise", normalise, METH_VARARGS, "batch normalisation"},
    {"normalise_gradient", normalise_gradient, METH_VARARGS, "derivative of normalise"},
    {"covariances", covariances, METH_VARARGS, "trace-one covariances of windows, or their derivative"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_filters", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__filters(void)
{
#ifndef _WIN32
    find_runtime();
#endif
    find_best();
    return PyModule_Create(&module);
}
