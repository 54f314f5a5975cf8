/* Batched linear algebra of small square matrices for the Bures-Wasserstein geometry.
 *
 * The basis is the singular value decomposition by one-sided Jacobi rotations, F V = U S: pairs of columns of F are
 * rotated until all are orthogonal (Hestenes; ordering of de Rijk).  Orthogonality is relative to the length of the
 * columns, so small singular values keep their relative precision, which LAPACK's bidiagonalisation does not guarantee.
 * Other jobs are compositions that would be limited by memory access in torch: the Procrustes distance of pairs of
 * factors, the iteration towards a weighted mean, step by step or as a whole, and the derivative of the mean.
 *
 * Each SIMD lane holds one matrix, and threads share blocks of lanes.  The result of a matrix does not depend on the
 * others of the batch.  The algorithms are in _jacobi.h.  This file is independent of torch: __init__.py checks shapes and
 * dtypes and passes addresses and sizes as integers; this file checks that the arrays are as large as these sizes require.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef __GNUC__
#error "vectors need GCC or Clang; the package works without this file"
#endif
#ifdef __has_builtin
#define SHUFFLES __has_builtin(__builtin_shufflevector) /* GCC from 12 on */
#else
#define SHUFFLES 0
#endif

#define MAX_SWEEPS 40
#define MAX_HALLEY 8   /* steps to a polar factor */
#define ROUNDABLE 1e-7 /* least singular value for which a step in double precision may be rounded to single */
#define SLOW 0.5       /* an iteration whose residual falls by less than this factor in two steps needs new frames */
#define MAX_FRAMES 8   /* how often frames are renewed, unless they last for several steps */
#define LANES 16       /* matrices that are decomposed together: enough independent chains of operations */
#define MAX_SIZE 64    /* of matrices; LAPACK is as fast for larger ones */
#define MAX_POINTS INT32_MAX /* of a mean */
#define MAX_MAPS 64 /* of the same matrices */
#define ALIGNMENT 64
#define INLINE static inline __attribute__((always_inline))
/* size_t, because loops over an index that may wrap, as an int with -fwrapv, are not vectorised */
#define EACH_LANE for (size_t l = 0; l < LANES; l++)
enum { FRESH, ROUGH, COMPANION };
enum { POWER, LOGARITHM }; /* a^p, and log(max(a, p)) */
#define INTERFACE 2        /* as in __init__.py; increase both when arguments or results of a function change */

/* Arguments of the jobs.  Arrays are row-major with one entry for each item, matrices are k x k unless stated; arrays
 * marked * may be NULL.  failed (item) is 1 where a matrix was singular or not finite or an iteration did not converge. */
typedef struct {
    size_t k;
    const void *x;
} symmetric_arguments;

typedef struct {
    size_t k;
    const void *f;
    void *u, *s, *v; /* left singular vectors, values (k), right vectors* */
    unsigned char *failed;
} svd_arguments;

typedef struct {
    size_t k;
    const void *x;
    void *u, *eigenvalues;
    unsigned char *failed;
} eigen_arguments;

typedef struct {
    size_t n, k;
    const void *x, *w; /* (n, n), and (n, k), the same for all items */
    void *out;
} map_arguments;

typedef struct {
    size_t n, k;
    const void *x, *w, *grad;
    void *grad_x, *grad_w; /* (n, n), and (n, k), a part of the sum for each block of items */
} map_adjoint_arguments;

typedef struct {
    size_t k;
    const void *u, *s;
    void *out;
} compose_arguments;

typedef struct {
    size_t k;
    const void *u, *eigenvalues, *grad;
    int function; /* POWER or LOGARITHM */
    double parameter;
    void *out;
} derive_arguments;

typedef struct {
    size_t k;
    int inverse;        /* whether a is a point of the space, to be mapped back */
    const void *a, *c;  /* matrices, or factors if inverse; a lower triangular matrix, the same for all items */
    double exponent;
    int definite;       /* whether eigenvalues at the level of rounding are a failure */
    void *u, *eigenvalues, *out;
} chart_arguments;

typedef struct {
    size_t k;
    int inverse;
    const void *a, *c, *u, *eigenvalues, *grad; /* a: the result of chart, or the factors if inverse */
    double exponent;
    void *grad_a, *grad_c, *grad_exponent; /* grad_c: a part of the sum for each block of items; grad_exponent (item) */
} chart_adjoint_arguments;

typedef struct {
    size_t k, maps, items;
    const void *x, *d; /* d (maps, k, k), the same for all items */
    double exponent;
    int definite;
    void *u, *eigenvalues, *out; /* out (maps, item, k, k) */
} mapped_chart_arguments;

typedef struct {
    size_t k, maps, items;
    const void *d, *u, *eigenvalues, *grad; /* grad (maps, item, k, k) */
    double exponent;
    void *grad_x, *sums, *grad_exponent; /* sums (maps, 2, k, k): a part of them for each block of items */
} mapped_chart_adjoint_arguments;

typedef struct {
    size_t k;
    const void *a, *b;
    const int64_t *index_a, *index_b; /* which matrices of a and b an item is the distance of */
    void *square, *grad_a, *grad_b;   /* squared distance (item), a - b q*, b - a q^T* */
    unsigned char *failed;
} procrustes_arguments;

typedef struct {
    size_t k, m;
    const void *b; /* (m, k, k) */
    void *base;
} bures_start_arguments;

typedef struct { /* items are points */
    size_t k, m;
    const void *n, *b, *before; /* n (item / m); before*: rotations of b that v must include */
    void *u, *v, *rotated, *aligned;
} bures_frames_arguments;

typedef struct {
    size_t k, m;
    double tolerance;       /* cosine of two columns that count as orthogonal, if above rounding */
    const void *n, *b, *w;  /* iterates, points (m, k, k), weights (m) */
    void *next, *residual, *rotated; /* (k, k), (item), (m, k, k) */
    unsigned char *failed;
} bures_step_arguments;

typedef struct {
    size_t k, m, q;          /* q consecutive items share their points */
    size_t max_steps;
    double tolerance;        /* relative residual */
    const void *n, *b, *w;   /* iterates, points (item / q, m, k, k), weights (m) */
    const void *u, *base;    /* frames (item / q, m, k, k); the iterates before n (item / q)* */
    void *mean, *residual;
    int64_t *steps;
    unsigned char *failed;
} bures_iteration_arguments;

typedef struct {
    size_t k, m;
    const void *p, *b, *w;   /* inverses, transposed, of the iterates; points (m, k, k), weights (m) */
    void *slope, *tau;       /* tau (item): size of the step along the slope */
    unsigned char *failed;
} affine_slope_arguments;

typedef struct {
    size_t k, m, q;
    int affine;              /* whether the mean is affine-invariant; n is then the transposed inverse of its factor */
    double tolerance;        /* relative residual of the linear equation */
    const void *n, *b, *w;   /* as in bures_iteration_arguments */
    const void *grad;        /* derivative in n; if affine, the right side of the equation */
    void *grad_b, *grad_w;   /* (item, m, k, k), (item, m) */
    unsigned char *failed;
} mean_adjoint_arguments;

#include "_boundary.h"
#include "_threads.h"
typedef struct {
    worker symmetric, svd, eigen, map, map_adjoint, compose, derive, chart, chart_adjoint, mapped_chart,
        mapped_chart_adjoint, procrustes, bures_start, bures_frames, bures_step, bures_iteration, affine_slope,
        mean_adjoint;
} workers;
#define WORKERS(x)                                                                                                   \
    {                                                                                                                \
        symmetric_##x, svd_##x, eigen_##x, map_##x, map_adjoint_##x, compose_##x, derive_##x, chart_##x,             \
            chart_adjoint_##x, mapped_chart_##x, mapped_chart_adjoint_##x, procrustes_##x, bures_start_##x,          \
            bures_frames_##x, bures_step_##x, bures_iteration_##x, affine_slope_##x, mean_adjoint_##x                \
    }
#define ALGORITHMS "_jacobi.h"
#include "_dispatch.h"

/* Arguments of all functions: number and size of the items, bytes of a number, and number of threads. */
typedef struct {
    Py_ssize_t items, k;
    int itemsize, threads;
} sizes;
#define SIZES "nnii"
#define READ_SIZES(x) &(x).items, &(x).k, &(x).itemsize, &(x).threads

static int sound(const sizes *x)
{
    return in_order(x->itemsize, x->threads) && in_range("items", x->items, 0, PY_SSIZE_T_MAX / LANES) &&
           in_range("k", x->k, 1, MAX_SIZE);
}

/* Whether `divisor` divides the number of items. */
static int divides(const char *name, Py_ssize_t divisor, Py_ssize_t items, Py_ssize_t most)
{
    if (!in_range(name, divisor, 1, most)) return 0;
    if (items % divisor == 0) return 1;
    PyErr_Format(refusal, "'%s' is %zd, but it must divide the %zd items", name, divisor, items);
    return 0;
}

static int not_negative(const char *name, double x)
{
    if (x >= 0 && x <= DBL_MAX) return 1;
    PyErr_Format(refusal, "'%s' must be finite and not negative", name);
    return 0;
}

/* Whether all indices are below the number of matrices. */
static int inside(const char *name, const int64_t *index, Py_ssize_t items, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < items; i++)
        if (index[i] < 0 || index[i] >= count) {
            PyErr_Format(refusal, "'%s' has the index %lld at %zd, but there are %zd matrices", name,
                         (long long)index[i], i, count);
            return 0;
        }
    return 1;
}

/* Run a job.  Returns the number of items that failed. */
static PyObject *finish(worker work, const void *arguments, const sizes *z)
{
    int out_of_memory;
    size_t failures = 0;
    if (z->items == 0) return PyLong_FromLong(0);
    Py_BEGIN_ALLOW_THREADS
    out_of_memory = run(work, arguments, (size_t)z->items, z->threads, &failures);
    Py_END_ALLOW_THREADS
    return out_of_memory ? PyErr_NoMemory() : PyLong_FromSize_t(failures);
}

/* Local variables for the sizes, as unsigned numbers. */
#define NAMES(z)                                                                                                     \
    const size_t items = (size_t)(z).items, k = (size_t)(z).k;                                                       \
    const int itemsize = (z).itemsize;                                                                               \
    (void)items, (void)itemsize

static PyObject *svd(PyObject *self, PyObject *args)
{
    array f, u, s, v, failed;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A SIZES, READ(f), READ(u), READ(s), READ(v), READ(failed), READ_SIZES(z)) ||
        !sound(&z))
        return NULL;
    NAMES(z);
    if (!HOLDS(f, itemsize, items, k, k) || !HOLDS(u, itemsize, items, k, k) || !HOLDS(s, itemsize, items, k) ||
        !MAY_HOLD(v, itemsize, items, k, k) || !HOLDS(failed, 1, items))
        return NULL;
    svd_arguments job = {k, .f = POINTER(f), .u = POINTER(u), .s = POINTER(s), .v = POINTER(v), .failed = POINTER(failed)};
    return finish(WORKER(svd, itemsize), &job, &z);
}

static PyObject *eigen(PyObject *self, PyObject *args)
{
    array x, u, s, failed;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A SIZES, READ(x), READ(u), READ(s), READ(failed), READ_SIZES(z)) || !sound(&z))
        return NULL;
    NAMES(z);
    if (!HOLDS(x, itemsize, items, k, k) || !HOLDS(u, itemsize, items, k, k) || !HOLDS(s, itemsize, items, k) ||
        !HOLDS(failed, 1, items))
        return NULL;
    eigen_arguments job = {k, .x = POINTER(x), .u = POINTER(u), .eigenvalues = POINTER(s), .failed = POINTER(failed)};
    return finish(WORKER(eigen, itemsize), &job, &z);
}

static PyObject *symmetric(PyObject *self, PyObject *args)
{
    array x;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A SIZES, READ(x), READ_SIZES(z)) || !sound(&z)) return NULL;
    NAMES(z);
    if (!HOLDS(x, itemsize, items, k, k)) return NULL;
    symmetric_arguments job = {k, .x = POINTER(x)};
    return finish(WORKER(symmetric, itemsize), &job, &z);
}

static PyObject *map(PyObject *self, PyObject *args)
{
    array x, w, out;
    Py_ssize_t from;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A "n" SIZES, READ(x), READ(w), READ(out), &from, READ_SIZES(z)) || !sound(&z) ||
        !in_range("n", from, 1, MAX_SIZE))
        return NULL;
    NAMES(z);
    const size_t n = (size_t)from;
    if (!HOLDS(x, itemsize, items, n, n) || !HOLDS(w, itemsize, n, k) || !HOLDS(out, itemsize, items, k, k)) return NULL;
    map_arguments job = {n, k, .x = POINTER(x), .w = POINTER(w), .out = POINTER(out)};
    return finish(WORKER(map, itemsize), &job, &z);
}

static PyObject *map_adjoint(PyObject *self, PyObject *args)
{
    array x, w, grad, out, sums;
    Py_ssize_t from;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A "n" SIZES, READ(x), READ(w), READ(grad), READ(out), READ(sums), &from,
                          READ_SIZES(z)) ||
        !sound(&z) || !in_range("n", from, 1, MAX_SIZE))
        return NULL;
    NAMES(z);
    const size_t n = (size_t)from, blocks = (items + LANES - 1) / LANES;
    if (!HOLDS(x, itemsize, items, n, n) || !HOLDS(w, itemsize, n, k) || !HOLDS(grad, itemsize, items, k, k) ||
        !HOLDS(out, itemsize, items, n, n) || !HOLDS(sums, itemsize, blocks, n, k))
        return NULL;
    map_adjoint_arguments job = {n, k, .x = POINTER(x), .w = POINTER(w), .grad = POINTER(grad), .grad_x = POINTER(out),
                                 .grad_w = POINTER(sums)};
    return finish(WORKER(map_adjoint, itemsize), &job, &z);
}

static PyObject *compose(PyObject *self, PyObject *args)
{
    array u, s, out;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A SIZES, READ(u), READ(s), READ(out), READ_SIZES(z)) || !sound(&z)) return NULL;
    NAMES(z);
    if (!HOLDS(u, itemsize, items, k, k) || !HOLDS(s, itemsize, items, k) || !HOLDS(out, itemsize, items, k, k))
        return NULL;
    compose_arguments job = {k, .u = POINTER(u), .s = POINTER(s), .out = POINTER(out)};
    return finish(WORKER(compose, itemsize), &job, &z);
}

static PyObject *derive(PyObject *self, PyObject *args)
{
    array u, s, grad, out;
    double parameter;
    Py_ssize_t function;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A "nd" SIZES, READ(u), READ(s), READ(grad), READ(out), &function, &parameter,
                          READ_SIZES(z)) ||
        !sound(&z) || !in_range("function", function, POWER, LOGARITHM))
        return NULL;
    NAMES(z);
    if (!HOLDS(u, itemsize, items, k, k) || !HOLDS(s, itemsize, items, k) || !HOLDS(grad, itemsize, items, k, k) ||
        !HOLDS(out, itemsize, items, k, k))
        return NULL;
    derive_arguments job = {k, .u = POINTER(u), .eigenvalues = POINTER(s), .grad = POINTER(grad),
                            .function = (int)function, .parameter = parameter, .out = POINTER(out)};
    return finish(WORKER(derive, itemsize), &job, &z);
}

static PyObject *to_chart(PyObject *args, int inverse)
{
    array a, c, u, s, out;
    double exponent;
    int definite;
    sizes z;
    if (!PyArg_ParseTuple(args, A A A A A "dp" SIZES, READ(a), READ(c), READ(u), READ(s), READ(out), &exponent,
                          &definite, READ_SIZES(z)) ||
        !sound(&z))
        return NULL;
    NAMES(z);
    if (!HOLDS(a, itemsize, items, k, k) || !HOLDS(c, itemsize, k, k) || !HOLDS(u, itemsize, items, k, k) ||
        !HOLDS(s, itemsize, items, k) || !HOLDS(out, itemsize, items, k, k))
        return NULL;
    chart_arguments job = {k, inverse, .a = POINTER(a), .c = POINTER(c), .exponent = exponent, .definite = definite,
                           .u = POINTER(u), .eigenvalues = POINTER(s), .out = POINTER(out)};
    return finish(WORKER(chart, itemsize), &job, &z);
}

static PyObject *chart(PyObject *self, PyObject *args)
{
    (void)self;
    return to_chart(args, 0);
}

static PyObject *unchart(PyObject *self, PyObject *args)
{
    (void)self;
    return to_chart(args, 1);
}

static PyObject *from_chart(PyObject *args, int inverse)
{
    array a, c, u, s, grad, out, sums, slopes;
    double exponent;
    sizes z;
    if (!PyArg_ParseTuple(args, A A A A A A A A "d" SIZES, READ(a), READ(c), READ(u), READ(s), READ(grad), READ(out),
                          READ(sums), READ(slopes), &exponent, READ_SIZES(z)) ||
        !sound(&z))
        return NULL;
    NAMES(z);
    if (!HOLDS(a, itemsize, items, k, k) || !HOLDS(c, itemsize, k, k) || !HOLDS(u, itemsize, items, k, k) ||
        !HOLDS(s, itemsize, items, k) || !HOLDS(grad, itemsize, items, k, k) || !HOLDS(out, itemsize, items, k, k) ||
        !HOLDS(sums, itemsize, (items + LANES - 1) / LANES, k, k) || !HOLDS(slopes, itemsize, items))
        return NULL;
    chart_adjoint_arguments job = {k, inverse, .a = POINTER(a), .c = POINTER(c), .u = POINTER(u),
                                   .eigenvalues = POINTER(s), .grad = POINTER(grad), .exponent = exponent,
                                   .grad_a = POINTER(out), .grad_c = POINTER(sums), .grad_exponent = POINTER(slopes)};
    return finish(WORKER(chart_adjoint, itemsize), &job, &z);
}

static PyObject *chart_adjoint(PyObject *self, PyObject *args)
{
    (void)self;
    return from_chart(args, 0);
}

static PyObject *unchart_adjoint(PyObject *self, PyObject *args)
{
    (void)self;
    return from_chart(args, 1);
}

static PyObject *mapped_chart(PyObject *self, PyObject *args)
{
    array x, d, u, s, out;
    double exponent;
    int definite;
    Py_ssize_t count;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A "dpn" SIZES, READ(x), READ(d), READ(u), READ(s), READ(out), &exponent,
                          &definite, &count, READ_SIZES(z)) ||
        !sound(&z) || !in_range("maps", count, 1, MAX_MAPS))
        return NULL;
    NAMES(z);
    const size_t maps = (size_t)count;
    if (!HOLDS(x, itemsize, items, k, k) || !HOLDS(d, itemsize, maps, k, k) || !HOLDS(u, itemsize, items, k, k) ||
        !HOLDS(s, itemsize, items, k) || !HOLDS(out, itemsize, maps, items, k, k))
        return NULL;
    mapped_chart_arguments job = {k, maps, items, .x = POINTER(x), .d = POINTER(d), .exponent = exponent,
                                  .definite = definite, .u = POINTER(u), .eigenvalues = POINTER(s),
                                  .out = POINTER(out)};
    return finish(WORKER(mapped_chart, itemsize), &job, &z);
}

static PyObject *mapped_chart_adjoint(PyObject *self, PyObject *args)
{
    array d, u, s, grad, out, sums, slopes;
    double exponent;
    Py_ssize_t count;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A A "dn" SIZES, READ(d), READ(u), READ(s), READ(grad), READ(out), READ(sums),
                          READ(slopes), &exponent, &count, READ_SIZES(z)) ||
        !sound(&z) || !in_range("maps", count, 1, MAX_MAPS))
        return NULL;
    NAMES(z);
    const size_t maps = (size_t)count, blocks = (items + LANES - 1) / LANES;
    if (!HOLDS(d, itemsize, maps, k, k) || !HOLDS(u, itemsize, items, k, k) || !HOLDS(s, itemsize, items, k) ||
        !HOLDS(grad, itemsize, maps, items, k, k) || !HOLDS(out, itemsize, items, k, k) ||
        !HOLDS(sums, itemsize, blocks, maps, 2, k, k) || !HOLDS(slopes, itemsize, items))
        return NULL;
    mapped_chart_adjoint_arguments job = {k, maps, items, .d = POINTER(d), .u = POINTER(u), .eigenvalues = POINTER(s),
                                          .grad = POINTER(grad), .exponent = exponent, .grad_x = POINTER(out),
                                          .sums = POINTER(sums), .grad_exponent = POINTER(slopes)};
    return finish(WORKER(mapped_chart_adjoint, itemsize), &job, &z);
}

static PyObject *procrustes(PyObject *self, PyObject *args)
{
    array a, b, ia, ib, value, in_a, in_b, failed;
    Py_ssize_t of_a, of_b;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A A A "nn" SIZES, READ(a), READ(b), READ(ia), READ(ib), READ(value),
                          READ(in_a), READ(in_b), READ(failed), &of_a, &of_b, READ_SIZES(z)) ||
        !sound(&z) || !in_range("of_a", of_a, 0, PY_SSIZE_T_MAX) || !in_range("of_b", of_b, 0, PY_SSIZE_T_MAX))
        return NULL;
    NAMES(z);
    if (!HOLDS(a, itemsize, (size_t)of_a, k, k) || !HOLDS(b, itemsize, (size_t)of_b, k, k) ||
        !HOLDS(ia, sizeof(int64_t), items) || !HOLDS(ib, sizeof(int64_t), items) || !HOLDS(value, itemsize, items) ||
        !MAY_HOLD(in_a, itemsize, items, k, k) || (GIVEN(in_a) && !HOLDS(in_b, itemsize, items, k, k)) ||
        !HOLDS(failed, 1, items) || !inside("ia", POINTER(ia), z.items, of_a) ||
        !inside("ib", POINTER(ib), z.items, of_b))
        return NULL;
    procrustes_arguments job = {k, .a = POINTER(a), .b = POINTER(b), .index_a = POINTER(ia), .index_b = POINTER(ib),
                                .square = POINTER(value), .grad_a = POINTER(in_a), .grad_b = POINTER(in_b),
                                .failed = POINTER(failed)};
    return finish(WORKER(procrustes, itemsize), &job, &z);
}

static PyObject *bures_start(PyObject *self, PyObject *args)
{
    array b, out;
    Py_ssize_t points;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A "n" SIZES, READ(b), READ(out), &points, READ_SIZES(z)) || !sound(&z) ||
        !in_range("m", points, 1, MAX_POINTS))
        return NULL;
    NAMES(z);
    const size_t m = (size_t)points;
    if (!HOLDS(b, itemsize, items, m, k, k) || !HOLDS(out, itemsize, items, k, k)) return NULL;
    bures_start_arguments job = {k, m, .b = POINTER(b), .base = POINTER(out)};
    return finish(WORKER(bures_start, itemsize), &job, &z);
}

/* Items are points. */
static PyObject *bures_frames(PyObject *self, PyObject *args)
{
    array n, b, before, u, v, rotated, aligned;
    Py_ssize_t points;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A A "n" SIZES, READ(n), READ(b), READ(before), READ(u), READ(v), READ(rotated),
                          READ(aligned), &points, READ_SIZES(z)) ||
        !sound(&z) || !divides("m", points, z.items, MAX_POINTS))
        return NULL;
    NAMES(z);
    const size_t m = (size_t)points;
    if (!HOLDS(n, itemsize, items / m, k, k) || !HOLDS(b, itemsize, items, k, k) ||
        !MAY_HOLD(before, itemsize, items, k, k) || !HOLDS(u, itemsize, items, k, k) ||
        !HOLDS(v, itemsize, items, k, k) || !HOLDS(rotated, itemsize, items, k, k) ||
        !HOLDS(aligned, itemsize, items, k, k))
        return NULL;
    bures_frames_arguments job = {k, m, .n = POINTER(n), .b = POINTER(b), .before = POINTER(before), .u = POINTER(u),
                                  .v = POINTER(v), .rotated = POINTER(rotated), .aligned = POINTER(aligned)};
    return finish(WORKER(bures_frames, itemsize), &job, &z);
}

static PyObject *bures_step(PyObject *self, PyObject *args)
{
    array n, b, w, out, value, rotated, failed;
    double tolerance;
    Py_ssize_t points;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A A "dn" SIZES, READ(n), READ(b), READ(w), READ(out), READ(value),
                          READ(rotated), READ(failed), &tolerance, &points, READ_SIZES(z)) ||
        !sound(&z) || !not_negative("tolerance", tolerance) || !in_range("m", points, 1, MAX_POINTS))
        return NULL;
    NAMES(z);
    const size_t m = (size_t)points;
    if (!HOLDS(n, itemsize, items, k, k) || !HOLDS(b, itemsize, items, m, k, k) || !HOLDS(w, itemsize, items, m) ||
        !HOLDS(out, itemsize, items, k, k) || !HOLDS(value, itemsize, items) ||
        !HOLDS(rotated, itemsize, items, m, k, k) || !HOLDS(failed, 1, items))
        return NULL;
    bures_step_arguments job = {k, m, .tolerance = tolerance, .n = POINTER(n), .b = POINTER(b), .w = POINTER(w),
                                .next = POINTER(out), .residual = POINTER(value), .rotated = POINTER(rotated),
                                .failed = POINTER(failed)};
    return finish(WORKER(bures_step, itemsize), &job, &z);
}

static PyObject *bures_iterate_in_frames(PyObject *self, PyObject *args)
{
    array n, b, w, u, base, out, value, steps, failed;
    double tolerance;
    Py_ssize_t max_steps, shared, points;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A A A A "dnnn" SIZES, READ(n), READ(b), READ(w), READ(u), READ(base),
                          READ(out), READ(value), READ(steps), READ(failed), &tolerance, &max_steps, &shared, &points,
                          READ_SIZES(z)) ||
        !sound(&z) || !not_negative("tolerance", tolerance) || !in_range("max_steps", max_steps, 0, INT32_MAX) ||
        !divides("q", shared, z.items, PY_SSIZE_T_MAX) || !in_range("m", points, 1, MAX_POINTS))
        return NULL;
    NAMES(z);
    const size_t q = (size_t)shared, m = (size_t)points;
    if (!HOLDS(n, itemsize, items, k, k) || !HOLDS(b, itemsize, items / q, m, k, k) || !HOLDS(w, itemsize, items, m) ||
        !HOLDS(u, itemsize, items / q, m, k, k) || !MAY_HOLD(base, itemsize, items / q, k, k) ||
        !HOLDS(out, itemsize, items, k, k) || !HOLDS(value, itemsize, items) ||
        !HOLDS(steps, sizeof(int64_t), items) || !HOLDS(failed, 1, items))
        return NULL;
    bures_iteration_arguments job = {k, m, q, .max_steps = (size_t)max_steps, .tolerance = tolerance, .n = POINTER(n),
                                     .b = POINTER(b), .w = POINTER(w), .u = POINTER(u), .base = POINTER(base),
                                     .mean = POINTER(out), .residual = POINTER(value), .steps = POINTER(steps),
                                     .failed = POINTER(failed)};
    return finish(WORKER(bures_iteration, itemsize), &job, &z);
}

static PyObject *affine_slope(PyObject *self, PyObject *args)
{
    array n, b, w, out, value, failed;
    Py_ssize_t points;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A "n" SIZES, READ(n), READ(b), READ(w), READ(out), READ(value), READ(failed),
                          &points, READ_SIZES(z)) ||
        !sound(&z) || !in_range("m", points, 1, MAX_POINTS))
        return NULL;
    NAMES(z);
    const size_t m = (size_t)points;
    if (!HOLDS(n, itemsize, items, k, k) || !HOLDS(b, itemsize, items, m, k, k) || !HOLDS(w, itemsize, items, m) ||
        !HOLDS(out, itemsize, items, k, k) || !HOLDS(value, itemsize, items) || !HOLDS(failed, 1, items))
        return NULL;
    affine_slope_arguments job = {k, m, .p = POINTER(n), .b = POINTER(b), .w = POINTER(w), .slope = POINTER(out),
                                  .tau = POINTER(value), .failed = POINTER(failed)};
    return finish(WORKER(affine_slope, itemsize), &job, &z);
}

static PyObject *adjoint(PyObject *self, PyObject *args)
{
    array n, b, w, grad, out, value, failed;
    double tolerance;
    Py_ssize_t function, shared, points;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A A "ndnn" SIZES, READ(n), READ(b), READ(w), READ(grad), READ(out),
                          READ(value), READ(failed), &function, &tolerance, &shared, &points, READ_SIZES(z)) ||
        !sound(&z) || !in_range("function", function, POWER, LOGARITHM) || !not_negative("tolerance", tolerance) ||
        !divides("q", shared, z.items, PY_SSIZE_T_MAX) || !in_range("m", points, 1, MAX_POINTS))
        return NULL;
    NAMES(z);
    const size_t q = (size_t)shared, m = (size_t)points;
    if (!HOLDS(n, itemsize, items, k, k) || !HOLDS(b, itemsize, items / q, m, k, k) || !HOLDS(w, itemsize, items, m) ||
        !HOLDS(grad, itemsize, items, k, k) || !HOLDS(out, itemsize, items, m, k, k) ||
        !HOLDS(value, itemsize, items, m) || !HOLDS(failed, 1, items))
        return NULL;
    mean_adjoint_arguments job = {k, m, q, .affine = function == LOGARITHM, .tolerance = tolerance, .n = POINTER(n),
                                  .b = POINTER(b), .w = POINTER(w), .grad = POINTER(grad), .grad_b = POINTER(out),
                                  .grad_w = POINTER(value), .failed = POINTER(failed)};
    return finish(WORKER(mean_adjoint, itemsize), &job, &z);
}

static PyMethodDef methods[] = {
    {"svd", svd, METH_VARARGS, "f = u diag(s) vT"},
    {"eigen", eigen, METH_VARARGS, "x = u diag(s) uT, for positive definite x"},
    {"symmetric", symmetric, METH_VARARGS, "whether x = xT, all finite"},
    {"map", map, METH_VARARGS, "wT x w"},
    {"map_adjoint", map_adjoint, METH_VARARGS, "derivative of map"},
    {"compose", compose, METH_VARARGS, "u diag(s) uT"},
    {"derive", derive, METH_VARARGS, "derivative of a function of symmetric matrices"},
    {"chart", chart, METH_VARARGS, "c^-1 u diag(s^p), for u diag(s) uT"},
    {"chart_adjoint", chart_adjoint, METH_VARARGS, "derivative of chart"},
    {"unchart", unchart, METH_VARARGS, "(c a aT cT)^p"},
    {"unchart_adjoint", unchart_adjoint, METH_VARARGS, "derivative of unchart"},
    {"mapped_chart", mapped_chart, METH_VARARGS, "chart of wT x w for several orthogonal w, with d = c^-1 wT"},
    {"mapped_chart_adjoint", mapped_chart_adjoint, METH_VARARGS, "derivative of mapped_chart"},
    {"procrustes", procrustes, METH_VARARGS, "min over orthogonal q of |a - b q|^2"},
    {"bures_start", bures_start, METH_VARARGS, "a factor of the mean of b bT"},
    {"bures_frames", bures_frames, METH_VARARGS, "nT b = u diag(s) vT"},
    {"bures_step", bures_step, METH_VARARGS, "n <- sum of w b q"},
    {"bures_iterate_in_frames", bures_iterate_in_frames, METH_VARARGS, "the fixed point of bures_step"},
    {"affine_slope", affine_slope, METH_VARARGS, "sum of w log(nT b bT n)"},
    {"adjoint", adjoint, METH_VARARGS, "derivative of the fixed point of bures_step, or of the zero of affine_slope"},
    LEVEL_METHODS,
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_jacobi", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__jacobi(void)
{
    PyObject *self = create_kernel(&module, INTERFACE);
    if (self && (PyModule_AddIntConstant(self, "MAX_SIZE", MAX_SIZE) || PyModule_AddIntConstant(self, "LANES", LANES) ||
                 PyModule_AddIntConstant(self, "MAX_MAPS", MAX_MAPS)))
        Py_CLEAR(self);
    return self;
}
