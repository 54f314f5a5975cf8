/* Batched linear algebra of small square matrices for the Bures-Wasserstein geometry.
 *
 * At its heart is the singular value decomposition by one-sided Jacobi rotations, F V = U S: the columns of F are
 * rotated in pairs until they are orthogonal (Hestenes; ordering of de Rijk).  Orthogonality is relative to the length
 * of the columns, so small singular values keep their digits, which LAPACK's bidiagonalisation does not promise.
 * Around it, compositions that would spend most of their time in memory if torch did them: the Procrustes distance of
 * pairs of factors, the way to a weighted mean, step by step or as a whole, and the derivative of the mean.
 *
 * One matrix per SIMD lane, blocks of lanes over threads; the result of a matrix does not depend on its neighbours in
 * the batch.  The algorithms are in _jacobi.h.  Nothing here knows of torch: addresses and sizes come in as integers from
 * _native.py, which checks shapes and dtypes; that arrays are as large as these sizes say is checked here.
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
#define MAX_HALLEY 8      /* steps to a polar factor */
#define ROUNDABLE 1e-7    /* least singular value after which a step in double precision may be rounded to single */
#define SLOW 0.5 /* a walk whose residual falls by less in two steps needs new frames */
#define MAX_FRAMES 8 /* so many times at the most, unless they last; steps without a kernel cost more than all of them */
#define LANES 16 /* matrices that are decomposed together: enough independent chains */
#define MAX_SIZE 64 /* of matrices: about where LAPACK, which blocks larger ones better, catches up */
#define MAX_POINTS INT32_MAX /* of a mean */
#define ALIGNMENT 64
#define INLINE static inline __attribute__((always_inline))
/* size_t: an index that may wrap, as int does with -fwrapv, is not vectorised. */
#define EACH_LANE for (size_t l = 0; l < LANES; l++)
enum { FRESH, ROUGH, COMPANION };
enum { POWER, LOGARITHM }; /* of a^p, and of max(a, p) */

/* What one thread does.  All arrays are row-major, matrices k x k; those marked * may be NULL. */
typedef struct {
    size_t first, last;     /* items first .. last - 1 are this thread's */
    size_t n, k, m, q;      /* size that is mapped from; size; points of a mean; items in a row that share their points,
                               for walk and adjoint */
    size_t max_steps;       /* of a walk */
    double tolerance;       /* step: cosine of two columns that counts as orthogonal, if above rounding; walk: residual
                               of a mean; adjoint: relative residual of the linear equation */
    const void *a, *b;      /* svd: f; charts: matrices or factors, and c, one for all; pairs: factors; the others:
                               iterates or means, of affine-invariant ones the inverse, transposed, and points (item, m) */
    int function;           /* derive: which one; charts: whether a must be definite; adjoint: LOGARITHM, if the mean is
                               affine-invariant */
    double parameter;       /* derive: of the function; charts: p */
    const void *w, *grad;   /* weights (item, m), or, for frames, what the points were turned by before*; the derivative
                               in the values, the factors, the means; walk: what iterates are a step from* (item / q) */
    const int64_t *ia, *ib; /* pairs: which factors */
    void *u, *s, *v;        /* svd, frames: singular vectors and values; charts: eigenvectors and values;
                               compose, derive: eigenvectors, and values of a function, or eigenvalues; walk: u of the
                               points' frames */
    void *turned;           /* frames, step: points times v; charts: derivative in c, a part of the sum for each block;
                               pairs: b - a q^T* */
    void *out, *value;      /* compose, charts: values; derive, charts: derivatives in the matrices, and in p; pairs:
                               a - b q*, squared distances; frames: points times v u^T; step, walk: iterates, residuals;
                               slope: itself, and how far to go along it;
                               adjoint: derivatives in points (item, m) and weights (item, m) */
    int64_t *steps;         /* walk: how many */
    unsigned char *failed;  /* (item)*: 1 where a matrix was singular or not finite, or an iteration did not converge */
    size_t failures;        /* how many of these */
    int out_of_memory;
} task;

#include "_boundary.h"
#include "_threads.h"
typedef struct {
    worker symmetries, svd, eigen, maps, map_adjoints, composites, derivatives, charts, chart_adjoints, uncharts, unchart_adjoints,
        pairs, starts, frames, steps, walks, slopes, adjoints;
} workers;
#define WORKERS(x)                                                                                                   \
    {                                                                                                                \
        symmetries_##x, svd_##x, eigen_##x, maps_##x, map_adjoints_##x, composites_##x, derivatives_##x, charts_##x, \
            chart_adjoints_##x, uncharts_##x, unchart_adjoints_##x, pairs_##x, starts_##x, frames_##x, steps_##x,    \
            walks_##x, slopes_##x, adjoints_##x                                                                      \
    }
#define ALGORITHMS "_jacobi.h"
#include "_dispatch.h"

/* What all jobs have to know: how many items, of which size, in numbers of how many bytes, and how many threads. */
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

/* Whether indices are those of so many matrices. */
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

/* Do the job.  Returns how many items failed. */
static PyObject *finish(worker work, const task *whole, const sizes *z)
{
    job all;
    int out_of_memory;
    size_t failures = 0;
    if (z->items == 0) return PyLong_FromLong(0);
    Py_BEGIN_ALLOW_THREADS
    out_of_memory = run(&all, work, whole, (size_t)z->items, z->threads);
    Py_END_ALLOW_THREADS
    for (int t = 0; t < all.parts; t++) failures += all.part[t].failures;
    return out_of_memory ? PyErr_NoMemory() : PyLong_FromSize_t(failures);
}

/* The names under which functions below know their sizes, as numbers that are not negative. */
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
        !HOLDS(v, itemsize, items, k, k) || !HOLDS(failed, 1, items))
        return NULL;
    task whole = {.k = k, .a = POINTER(f), .u = POINTER(u), .s = POINTER(s), .v = POINTER(v), .failed = POINTER(failed)};
    return finish(WORKER(svd), &whole, &z);
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
    task whole = {.k = k, .a = POINTER(x), .u = POINTER(u), .s = POINTER(s), .failed = POINTER(failed)};
    return finish(WORKER(eigen), &whole, &z);
}

static PyObject *symmetric(PyObject *self, PyObject *args)
{
    array x;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A SIZES, READ(x), READ_SIZES(z)) || !sound(&z)) return NULL;
    NAMES(z);
    if (!HOLDS(x, itemsize, items, k, k)) return NULL;
    task whole = {.k = k, .a = POINTER(x)};
    return finish(WORKER(symmetries), &whole, &z);
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
    task whole = {.n = n, .k = k, .a = POINTER(x), .b = POINTER(w), .out = POINTER(out)};
    return finish(WORKER(maps), &whole, &z);
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
    task whole = {.n = n, .k = k, .a = POINTER(x), .b = POINTER(w), .grad = POINTER(grad), .turned = POINTER(sums),
                  .out = POINTER(out)};
    return finish(WORKER(map_adjoints), &whole, &z);
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
    task whole = {.k = k, .u = POINTER(u), .s = POINTER(s), .out = POINTER(out)};
    return finish(WORKER(composites), &whole, &z);
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
    task whole = {.k = k, .function = (int)function, .parameter = parameter, .grad = POINTER(grad), .u = POINTER(u),
                  .s = POINTER(s), .out = POINTER(out)};
    return finish(WORKER(derivatives), &whole, &z);
}

static PyObject *to_chart(PyObject *args, int inverse)
{
    array a, c, u, s, out;
    double parameter;
    int definite;
    sizes z;
    if (!PyArg_ParseTuple(args, A A A A A "dp" SIZES, READ(a), READ(c), READ(u), READ(s), READ(out), &parameter,
                          &definite, READ_SIZES(z)) ||
        !sound(&z))
        return NULL;
    NAMES(z);
    if (!HOLDS(a, itemsize, items, k, k) || !HOLDS(c, itemsize, k, k) || !HOLDS(u, itemsize, items, k, k) ||
        !HOLDS(s, itemsize, items, k) || !HOLDS(out, itemsize, items, k, k))
        return NULL;
    task whole = {.k = k, .function = definite, .parameter = parameter, .a = POINTER(a), .b = POINTER(c),
                  .u = POINTER(u), .s = POINTER(s), .out = POINTER(out)};
    return finish(inverse ? WORKER(uncharts) : WORKER(charts), &whole, &z);
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
    double parameter;
    sizes z;
    if (!PyArg_ParseTuple(args, A A A A A A A A "d" SIZES, READ(a), READ(c), READ(u), READ(s), READ(grad), READ(out),
                          READ(sums), READ(slopes), &parameter, READ_SIZES(z)) ||
        !sound(&z))
        return NULL;
    NAMES(z);
    if (!HOLDS(a, itemsize, items, k, k) || !HOLDS(c, itemsize, k, k) || !HOLDS(u, itemsize, items, k, k) ||
        !HOLDS(s, itemsize, items, k) || !HOLDS(grad, itemsize, items, k, k) || !HOLDS(out, itemsize, items, k, k) ||
        !HOLDS(sums, itemsize, (items + LANES - 1) / LANES, k, k) || !HOLDS(slopes, itemsize, items))
        return NULL;
    task whole = {.k = k, .parameter = parameter, .a = POINTER(a), .b = POINTER(c), .grad = POINTER(grad),
                  .u = POINTER(u), .s = POINTER(s), .turned = POINTER(sums), .out = POINTER(out),
                  .value = POINTER(slopes)};
    return finish(inverse ? WORKER(unchart_adjoints) : WORKER(chart_adjoints), &whole, &z);
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
    task whole = {.k = k, .a = POINTER(a), .b = POINTER(b), .ia = POINTER(ia), .ib = POINTER(ib),
                  .value = POINTER(value), .out = POINTER(in_a), .turned = POINTER(in_b), .failed = POINTER(failed)};
    return finish(WORKER(pairs), &whole, &z);
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
    task whole = {.k = k, .m = m, .b = POINTER(b), .out = POINTER(out)};
    return finish(WORKER(starts), &whole, &z);
}

/* Items are points. */
static PyObject *bures_frames(PyObject *self, PyObject *args)
{
    array n, b, before, u, v, turned, aligned;
    Py_ssize_t points;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A A "n" SIZES, READ(n), READ(b), READ(before), READ(u), READ(v), READ(turned),
                          READ(aligned), &points, READ_SIZES(z)) ||
        !sound(&z) || !divides("m", points, z.items, MAX_POINTS))
        return NULL;
    NAMES(z);
    const size_t m = (size_t)points;
    if (!HOLDS(n, itemsize, items / m, k, k) || !HOLDS(b, itemsize, items, k, k) ||
        !MAY_HOLD(before, itemsize, items, k, k) || !HOLDS(u, itemsize, items, k, k) ||
        !HOLDS(v, itemsize, items, k, k) || !HOLDS(turned, itemsize, items, k, k) ||
        !HOLDS(aligned, itemsize, items, k, k))
        return NULL;
    task whole = {.k = k, .m = m, .a = POINTER(n), .b = POINTER(b), .w = POINTER(before), .u = POINTER(u),
                  .v = POINTER(v), .turned = POINTER(turned), .out = POINTER(aligned)};
    return finish(WORKER(frames), &whole, &z);
}

static PyObject *bures_step(PyObject *self, PyObject *args)
{
    array n, b, w, out, value, turned, failed;
    double tolerance;
    Py_ssize_t points;
    sizes z;
    (void)self;
    if (!PyArg_ParseTuple(args, A A A A A A A "dn" SIZES, READ(n), READ(b), READ(w), READ(out), READ(value),
                          READ(turned), READ(failed), &tolerance, &points, READ_SIZES(z)) ||
        !sound(&z) || !not_negative("tolerance", tolerance) || !in_range("m", points, 1, MAX_POINTS))
        return NULL;
    NAMES(z);
    const size_t m = (size_t)points;
    if (!HOLDS(n, itemsize, items, k, k) || !HOLDS(b, itemsize, items, m, k, k) || !HOLDS(w, itemsize, items, m) ||
        !HOLDS(out, itemsize, items, k, k) || !HOLDS(value, itemsize, items) ||
        !HOLDS(turned, itemsize, items, m, k, k) || !HOLDS(failed, 1, items))
        return NULL;
    task whole = {.k = k, .m = m, .tolerance = tolerance, .a = POINTER(n), .b = POINTER(b), .w = POINTER(w),
                  .out = POINTER(out), .value = POINTER(value), .turned = POINTER(turned), .failed = POINTER(failed)};
    return finish(WORKER(steps), &whole, &z);
}

static PyObject *bures_walk(PyObject *self, PyObject *args)
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
    task whole = {.k = k, .m = m, .q = q, .max_steps = (size_t)max_steps, .tolerance = tolerance, .a = POINTER(n),
                  .b = POINTER(b), .w = POINTER(w), .grad = POINTER(base), .u = POINTER(u), .out = POINTER(out),
                  .value = POINTER(value), .steps = POINTER(steps), .failed = POINTER(failed)};
    return finish(WORKER(walks), &whole, &z);
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
    task whole = {.k = k, .m = m, .a = POINTER(n), .b = POINTER(b), .w = POINTER(w), .out = POINTER(out),
                  .value = POINTER(value), .failed = POINTER(failed)};
    return finish(WORKER(slopes), &whole, &z);
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
    task whole = {.k = k, .m = m, .q = q, .function = (int)function, .tolerance = tolerance, .a = POINTER(n),
                  .b = POINTER(b), .w = POINTER(w), .grad = POINTER(grad), .out = POINTER(out),
                  .value = POINTER(value), .failed = POINTER(failed)};
    return finish(WORKER(adjoints), &whole, &z);
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
    {"procrustes", procrustes, METH_VARARGS, "min over orthogonal q of |a - b q|^2"},
    {"bures_start", bures_start, METH_VARARGS, "a factor of the mean of b bT"},
    {"bures_frames", bures_frames, METH_VARARGS, "nT b = u diag(s) vT"},
    {"bures_step", bures_step, METH_VARARGS, "n <- sum of w b q"},
    {"bures_walk", bures_walk, METH_VARARGS, "the fixed point of bures_step"},
    {"affine_slope", affine_slope, METH_VARARGS, "sum of w log(nT b bT n)"},
    {"adjoint", adjoint, METH_VARARGS, "derivative of the fixed point of bures_step, or of where affine_slope is 0"},
    LEVEL_METHODS,
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_jacobi", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__jacobi(void)
{
#ifndef _WIN32
    find_runtime();
#endif
    find_best();
    if (!find_refusal()) return NULL;
    PyObject *self = PyModule_Create(&module);
    if (self && (PyModule_AddIntConstant(self, "MAX_SIZE", MAX_SIZE) || PyModule_AddIntConstant(self, "LANES", LANES)))
        Py_CLEAR(self);
    return self;
}
