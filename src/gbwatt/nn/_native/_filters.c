/* Filters of epochs, batch normalisation, and covariances of windows.
 *
 * Correlations use Fourier transforms of short blocks (overlap-save): a product of spectra for each frequency costs a
 * fraction of the sum over all lags, and the blocks stay in the cache.  Other jobs combine passes over epochs and
 * features that torch would make one by one, with copies: moments of channels, normalisation, centred products of
 * windows.
 *
 * Results do not depend on the number of threads.  The algorithms are in _filters.h.  This file is independent of torch:
 * __init__.py checks shapes and dtypes and passes addresses and sizes as integers; this file checks that the arrays are
 * as large as these sizes require.
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
#define INTERFACE 3 /* as in __init__.py; increase both when arguments or results of a function change */
#define ALIGNMENT 64
#define NOWHERE ((size_t)-1)
#define MAX_CHANNELS (1 << 20) /* or filters; and samples: sizes of memory stay in range */
#define MAX_SAMPLES (1 << 30)
/* Frequencies to compute: all, or half of them if a trial is one block of real numbers. */
#define FREQUENCIES(size, blocks) ((blocks) > 1 ? (size) : (size) / 2 + 1)
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif
#define INLINE static inline __attribute__((always_inline))

/* Arguments of the jobs.  Arrays are row-major and dense, except for epochs; arrays marked * may be NULL. */
typedef struct {
    const void *x;
    size_t batch, n_in, times;
    ptrdiff_t stride[3]; /* in numbers: trials, channels, times */
} epochs;

/* Filters (n_out, n_in, length) of epochs, which give results (batch, n_out, width). */
typedef struct {
    size_t n_out, length, width;
    size_t padding; /* zeros before and after an epoch */
    size_t size;    /* samples of a block */
    int constant;   /* whether filters have an additional input, which is 1 at all times of the epoch */
} filters;

typedef struct {
    epochs e;
    filters f;
    const void *kernel, *bias; /* (n_out, n_in or one more, length), (n_out)* */
    void *spectrum, *ends;     /* scratch: spectra of the filters; constant input and bias in the results (n_out, width)* */
    void *out;
} correlation_arguments;

typedef struct {
    epochs e;
    filters f;
    const void *y, *grad, *coefficients; /* results*, derivatives, coefficients of the normalisation (n_out, 4)* */
    size_t pieces;                       /* parts of the sum over trials, which the caller adds up */
    double *out;                         /* (pieces, n_out, n_in or one more, length) */
} filter_gradient_arguments;

typedef struct {
    epochs e;
    size_t pieces;
    double *out; /* (pieces, n_in, n_in + 1) */
} channel_moments_arguments;

/* Results (batch, n_out, width) that are normalised. */
typedef struct {
    const void *y;
    size_t batch, n_out, width;
} results;

typedef struct {
    results r;
    const void *weight, *bias; /* (n_out) */
    double eps;                /* is added to the variances */
    double *moments, *rows;    /* mean and variance (n_out, 2); scratch: two sums for each row (batch, n_out, 2) */
    void *coefficients, *out;  /* (n_out, 3), (batch, n_out, width) */
} normalise_arguments;

typedef struct {
    results r;
    const void *grad, *weight;
    const double *moments;
    double eps;
    double *rows;             /* scratch */
    void *coefficients, *out; /* (n_out, 4); derivatives in weight and bias (2, n_out) */
} normalise_gradient_arguments;

/* Windows of features (item, n, times).  Windows of which the mean is embedded are not centred and have an additional
 * row of ones; size, the number of rows of their products, is then n + 1. */
typedef struct {
    const void *x;
    size_t n, times, windows, size;
} windows;

typedef struct {
    windows s;
    double keep, lift; /* factor of the covariances, and number that is added to their diagonals */
    void *out;         /* (item, windows, size, size) */
} covariance_arguments;

typedef struct {
    windows s;
    double keep;
    const void *grad; /* (item, windows, size, size) */
    void *out;        /* (item, n, times) */
} covariance_gradient_arguments;

typedef struct {
    epochs e;
    size_t n_out;
    const void *w, *offset; /* (n_out, n_in), (n_out) */
    void *out;              /* (batch, n_out, times) */
} mixture_arguments;

typedef struct {
    epochs e;
    size_t n_out;
    const void *grad; /* (batch, n_out, times) */
    size_t pieces;    /* parts of the sum over trials, which the caller adds up */
    double *out;      /* (pieces, n_out, n_in + 1) */
} mixture_gradient_arguments;

#include "../../geometry/_native/_boundary.h"
#include "../../geometry/_native/_threads.h"
typedef struct {
    worker responses, constants, correlations, filter_gradients, row_moments, normalisation, affine, row_products,
        normalisation_gradient, channel_moments, covariances, covariance_gradients, mixtures, mixture_gradients;
} workers;

/* Memory for a product of sizes, aligned for vectors; the address to be freed is stored before it. */
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

static size_t inputs_of(const epochs *e, const filters *f)
{
    return e->n_in + (f->constant ? 1 : 0);
}

static size_t blocks_of(const filters *f)
{
    const size_t step = f->size - f->length + 1;
    return (f->width + step - 1) / step;
}

#define WORKERS(x)                                                                                                   \
    {                                                                                                                \
        responses_##x, constants_##x, correlations_##x, filter_gradients_##x, row_moments_##x,                       \
            normalisation_##x, affine_##x, row_products_##x, normalisation_gradient_##x, channel_moments_##x,        \
            covariances_##x, covariance_gradients_##x, mixtures_##x, mixture_gradients_##x                           \
    }
#define ALGORITHMS "../../nn/_native/_filters.h" /* as the header that includes it sees it */
#include "../../geometry/_native/_dispatch.h"

static PyObject *done(int out_of_memory)
{
    if (out_of_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *finish(worker work, const void *arguments, size_t items, int threads)
{
    int out_of_memory;
    Py_BEGIN_ALLOW_THREADS
    out_of_memory = run(work, arguments, items, threads, NULL);
    Py_END_ALLOW_THREADS
    return done(out_of_memory);
}

/* Sizes from Python, which are signed. */
typedef struct {
    Py_ssize_t batch, n_in, times, n_out, length, padding, size, stride[3];
    int itemsize, threads;
} sizes;
#define EPOCHS "(nnn)(nnn)"
#define READ_EPOCHS(z)                                                                                               \
    &(z).batch, &(z).n_in, &(z).times, &(z).stride[0], &(z).stride[1], &(z).stride[2]
#define FILTERS "(nnn)n"
#define READ_FILTERS(z) &(z).n_out, &(z).length, &(z).padding, &(z).size
#define KIND "ii"
#define READ_KIND(z) &(z).itemsize, &(z).threads

/* Check and set epochs (batch, n_in, times) with these strides: all of their numbers must lie inside their memory. */
static int check_epochs(epochs *e, array x, const sizes *z)
{
    if (!in_order(z->itemsize, z->threads) || !in_range("batch", z->batch, 1, INT32_MAX) ||
        !in_range("n_in", z->n_in, 1, MAX_CHANNELS) || !in_range("times", z->times, 1, MAX_SAMPLES))
        return 0;
    const Py_ssize_t shape[3] = {z->batch, z->n_in, z->times};
    size_t numbers = 1;
    int overflow = 0;
    for (int axis = 0; axis < 3; axis++) {
        size_t reach;
        if (!in_range("stride", z->stride[axis], 0, PY_SSIZE_T_MAX)) return 0;
        overflow |= __builtin_mul_overflow((size_t)z->stride[axis], (size_t)shape[axis] - 1, &reach);
        overflow |= __builtin_add_overflow(numbers, reach, &numbers);
    }
    if (overflow) numbers = SIZE_MAX; /* too large for any memory */
    if (!HOLDS(x, z->itemsize, numbers)) return 0;
    *e = (epochs){POINTER(x), (size_t)z->batch, (size_t)z->n_in, (size_t)z->times,
                  {z->stride[0], z->stride[1], z->stride[2]}};
    return 1;
}

/* Check and set filters of epochs, and the size of their blocks. */
static int check_filters(filters *f, const sizes *z, int constant)
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
    *f = (filters){(size_t)z->n_out, (size_t)z->length, (size_t)(z->times + 2 * z->padding - z->length + 1),
                   (size_t)z->padding, (size_t)z->size, constant};
    return 1;
}

/* Check and set results (batch, n_out, width). */
static int check_results(results *r, array y, const sizes *z)
{
    if (!in_order(z->itemsize, z->threads) || !in_range("batch", z->batch, 1, INT32_MAX) ||
        !in_range("n_out", z->n_out, 1, MAX_CHANNELS) || !in_range("times", z->times, 1, MAX_SAMPLES) ||
        !HOLDS(y, z->itemsize, (size_t)z->batch, (size_t)z->n_out, (size_t)z->times))
        return 0;
    *r = (results){POINTER(y), (size_t)z->batch, (size_t)z->n_out, (size_t)z->times};
    return 1;
}

static size_t rounded(size_t n, int itemsize)
{
    return (n * (size_t)itemsize + 31) / 32 * 32 / (size_t)itemsize; /* to the widest vectors */
}

static size_t pairs_of_blocks(const epochs *e, const filters *f)
{
    return e->batch * ((blocks_of(f) + 1) / 2);
}

static int correlate_all(correlation_arguments *t, int itemsize, int threads)
{
    const size_t pairs = pairs_of_blocks(&t->e, &t->f);
    t->spectrum = new((size_t)itemsize * 2, FREQUENCIES(t->f.size, blocks_of(&t->f)), t->e.n_in,
                      rounded(t->f.n_out, itemsize));
    const int ends = t->f.constant || t->bias;
    t->ends = ends ? new((size_t)itemsize, t->f.n_out, t->f.width, 1) : NULL;
    int failed = !t->spectrum || (ends && !t->ends);
    if (!failed) failed = run(WORKER(responses, itemsize), t, t->e.n_in, threads, NULL);
    if (!failed && ends) failed = run(WORKER(constants, itemsize), t, 1, 1, NULL);
    if (!failed) failed = run(WORKER(correlations, itemsize), t, (pairs + PAIRS - 1) / PAIRS, threads, NULL);
    delete(t->spectrum), delete(t->ends);
    return failed;
}

static PyObject *correlate(PyObject *self, PyObject *args)
{
    array x, kernel, bias, out;
    int constant, failed;
    sizes z;
    epochs e;
    filters f;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A EPOCHS FILTERS "p" KIND, READ(x), READ(kernel), READ(bias), READ(out),
                          READ_EPOCHS(z), READ_FILTERS(z), &constant, READ_KIND(z)) ||
        !check_epochs(&e, x, &z) || !check_filters(&f, &z, constant) ||
        !HOLDS(kernel, z.itemsize, f.n_out, inputs_of(&e, &f), f.length) || !MAY_HOLD(bias, z.itemsize, f.n_out) ||
        !HOLDS(out, z.itemsize, e.batch, f.n_out, f.width))
        return NULL;
    correlation_arguments job = {e, f, .kernel = POINTER(kernel), .bias = POINTER(bias), .out = POINTER(out)};
    Py_BEGIN_ALLOW_THREADS
    failed = correlate_all(&job, z.itemsize, z.threads);
    Py_END_ALLOW_THREADS
    return done(failed);
}

static PyObject *filter_gradient(PyObject *self, PyObject *args)
{
    array x, y, grad, coefficients, out;
    Py_ssize_t pieces;
    int constant;
    sizes z;
    epochs e;
    filters f;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A EPOCHS FILTERS "pn" KIND, READ(x), READ(y), READ(grad), READ(coefficients),
                          READ(out), READ_EPOCHS(z), READ_FILTERS(z), &constant, &pieces, READ_KIND(z)) ||
        !check_epochs(&e, x, &z) || !check_filters(&f, &z, constant) ||
        !in_range("pieces", pieces, 1, (Py_ssize_t)pairs_of_blocks(&e, &f)) ||
        !MAY_HOLD(y, z.itemsize, e.batch, f.n_out, f.width) ||
        (GIVEN(y) && !HOLDS(coefficients, z.itemsize, f.n_out, 4)) ||
        !HOLDS(grad, z.itemsize, e.batch, f.n_out, f.width) ||
        !HOLDS(out, sizeof(double), (size_t)pieces, f.n_out, inputs_of(&e, &f), f.length))
        return NULL;
    filter_gradient_arguments job = {e, f, .y = POINTER(y), .grad = POINTER(grad),
                                     .coefficients = POINTER(coefficients), .pieces = (size_t)pieces,
                                     .out = POINTER(out)};
    return finish(WORKER(filter_gradients, z.itemsize), &job, job.pieces, z.threads);
}

static PyObject *mix(PyObject *self, PyObject *args)
{
    array x, w, offset, out;
    Py_ssize_t filters;
    sizes z;
    epochs e;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A EPOCHS "n" KIND, READ(x), READ(w), READ(offset), READ(out), READ_EPOCHS(z),
                          &filters, READ_KIND(z)) ||
        !check_epochs(&e, x, &z) || !in_range("n_out", filters, 1, MAX_CHANNELS))
        return NULL;
    const size_t n_out = (size_t)filters;
    if (!HOLDS(w, z.itemsize, n_out, e.n_in) || !HOLDS(offset, z.itemsize, n_out) ||
        !HOLDS(out, z.itemsize, e.batch, n_out, e.times))
        return NULL;
    mixture_arguments job = {e, n_out, .w = POINTER(w), .offset = POINTER(offset), .out = POINTER(out)};
    return finish(WORKER(mixtures, z.itemsize), &job, e.batch, z.threads);
}

static PyObject *mix_gradient(PyObject *self, PyObject *args)
{
    array x, grad, out;
    Py_ssize_t filters, pieces;
    sizes z;
    epochs e;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A EPOCHS "nn" KIND, READ(x), READ(grad), READ(out), READ_EPOCHS(z), &filters, &pieces,
                          READ_KIND(z)) ||
        !check_epochs(&e, x, &z) || !in_range("n_out", filters, 1, MAX_CHANNELS) ||
        !in_range("pieces", pieces, 1, z.batch))
        return NULL;
    const size_t n_out = (size_t)filters;
    if (!HOLDS(grad, z.itemsize, e.batch, n_out, e.times) ||
        !HOLDS(out, sizeof(double), (size_t)pieces, n_out, e.n_in + 1))
        return NULL;
    mixture_gradient_arguments job = {e, n_out, .grad = POINTER(grad), .pieces = (size_t)pieces, .out = POINTER(out)};
    return finish(WORKER(mixture_gradients, z.itemsize), &job, job.pieces, z.threads);
}

static PyObject *channel_moments(PyObject *self, PyObject *args)
{
    array x, out;
    Py_ssize_t pieces;
    sizes z;
    epochs e;
    (void)self;
    if (!PyArg_ParseTuple(args, A A EPOCHS "n" KIND, READ(x), READ(out), READ_EPOCHS(z), &pieces, READ_KIND(z)) ||
        !check_epochs(&e, x, &z) || !in_range("pieces", pieces, 1, z.batch) ||
        !HOLDS(out, sizeof(double), (size_t)pieces, e.n_in, e.n_in + 1))
        return NULL;
    channel_moments_arguments job = {e, .pieces = (size_t)pieces, .out = POINTER(out)};
    return finish(WORKER(channel_moments, z.itemsize), &job, job.pieces, z.threads);
}

/* Measure the rows of results (batch, n_out, width), conclude from all of them, and, unless NULL, apply the conclusion. */
static PyObject *measure_rows(void *arguments, double **rows, const results *r, worker measure, worker conclude,
                              worker apply, int threads)
{
    int failed;
    Py_BEGIN_ALLOW_THREADS
    *rows = new(sizeof(double) * 2, r->batch, r->n_out, 1);
    failed = !*rows;
    if (!failed) failed = run(measure, arguments, r->batch, threads, NULL);
    if (!failed) failed = run(conclude, arguments, 1, 1, NULL);
    if (!failed && apply) failed = run(apply, arguments, r->batch, threads, NULL);
    delete(*rows);
    Py_END_ALLOW_THREADS
    return done(failed);
}
#define ROWS "(nnn)d" KIND
#define READ_ROWS(z, eps) &(z).batch, &(z).n_out, &(z).times, &(eps), READ_KIND(z)

static PyObject *normalise(PyObject *self, PyObject *args)
{
    array y, weight, bias, coefficients, moments, out;
    double eps;
    sizes z;
    results r;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A ROWS, READ(y), READ(weight), READ(bias), READ(coefficients), READ(moments),
                          READ(out), READ_ROWS(z, eps)) ||
        !check_results(&r, y, &z) || !HOLDS(weight, z.itemsize, r.n_out) || !HOLDS(bias, z.itemsize, r.n_out) ||
        !HOLDS(coefficients, z.itemsize, r.n_out, 3) || !HOLDS(moments, sizeof(double), r.n_out, 2) ||
        !HOLDS(out, z.itemsize, r.batch, r.n_out, r.width))
        return NULL;
    normalise_arguments job = {r, .weight = POINTER(weight), .bias = POINTER(bias), .eps = eps,
                               .moments = POINTER(moments), .coefficients = POINTER(coefficients),
                               .out = POINTER(out)};
    return measure_rows(&job, &job.rows, &r, WORKER(row_moments, z.itemsize), WORKER(normalisation, z.itemsize), WORKER(affine, z.itemsize), z.threads);
}

static PyObject *normalise_gradient(PyObject *self, PyObject *args)
{
    array y, grad, weight, moments, coefficients, out;
    double eps;
    sizes z;
    results r;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A ROWS, READ(y), READ(grad), READ(weight), READ(moments),
                          READ(coefficients), READ(out), READ_ROWS(z, eps)) ||
        !check_results(&r, y, &z) || !HOLDS(grad, z.itemsize, r.batch, r.n_out, r.width) ||
        !HOLDS(weight, z.itemsize, r.n_out) || !HOLDS(moments, sizeof(double), r.n_out, 2) ||
        !HOLDS(coefficients, z.itemsize, r.n_out, 4) || !HOLDS(out, z.itemsize, 2, r.n_out))
        return NULL;
    normalise_gradient_arguments job = {r, .grad = POINTER(grad), .weight = POINTER(weight),
                                        .moments = POINTER(moments), .eps = eps,
                                        .coefficients = POINTER(coefficients), .out = POINTER(out)};
    return measure_rows(&job, &job.rows, &r, WORKER(row_products, z.itemsize), WORKER(normalisation_gradient, z.itemsize), NULL, z.threads);
}

/* Covariances of windows, or their derivative if grad is given. */
static PyObject *covariances(PyObject *self, PyObject *args)
{
    array x, grad, out;
    Py_ssize_t number;
    double keep, lift;
    int embed_mean;
    sizes z;
    epochs e;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A "(nnn)nddp" KIND, READ(x), READ(grad), READ(out), &z.batch, &z.n_in, &z.times,
                          &number, &keep, &lift, &embed_mean, READ_KIND(z)))
        return NULL;
    const Py_ssize_t inner = z.times > 0 && z.times <= MAX_SAMPLES ? z.times : 1;
    const Py_ssize_t outer = z.n_in > 0 && z.n_in <= MAX_CHANNELS ? z.n_in * inner : 1;
    z.stride[0] = outer, z.stride[1] = inner, z.stride[2] = 1; /* check_epochs refuses what is out of range */
    if (!check_epochs(&e, x, &z) || !in_range("windows", number, 1, z.times)) return NULL;
    const windows s = {e.x, e.n_in, e.times, (size_t)number, e.n_in + (embed_mean ? 1 : 0)};
    const int itemsize = z.itemsize;
    if (GIVEN(grad)) {
        covariance_gradient_arguments job = {s, keep, .grad = POINTER(grad), .out = POINTER(out)};
        if (!HOLDS(grad, itemsize, e.batch, s.windows, s.size, s.size) || !HOLDS(out, itemsize, e.batch, s.n, s.times))
            return NULL;
        return finish(WORKER(covariance_gradients, itemsize), &job, e.batch, z.threads);
    }
    covariance_arguments job = {s, keep, lift, .out = POINTER(out)};
    if (!HOLDS(out, itemsize, e.batch, s.windows, s.size, s.size)) return NULL;
    return finish(WORKER(covariances, itemsize), &job, e.batch, z.threads);
}

static PyMethodDef methods[] = {
    {"correlate", correlate, METH_VARARGS, "filters of epochs"},
    {"filter_gradient", filter_gradient, METH_VARARGS, "derivative of correlate in the filters"},
    {"mix", mix, METH_VARARGS, "filters of channels, w x + offset"},
    {"mix_gradient", mix_gradient, METH_VARARGS, "derivative of mix in the filters"},
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
    PyObject *self = create_kernel(&module, INTERFACE);
    if (self && PyModule_AddIntConstant(self, "MAX_CHANNELS", MAX_CHANNELS)) Py_CLEAR(self);
    return self;
}
