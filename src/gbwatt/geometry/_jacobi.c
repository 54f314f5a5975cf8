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
 * _native.py, which also checks them.
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

/* Do the job.  Returns how many items failed. */
static PyObject *finish(worker work, const task *whole, Py_ssize_t items, int threads)
{
    job all;
    int out_of_memory;
    size_t failures = 0;
    Py_BEGIN_ALLOW_THREADS
    out_of_memory = run(&all, work, whole, (size_t)items, threads);
    Py_END_ALLOW_THREADS
    for (int t = 0; t < all.parts; t++) failures += all.part[t].failures;
    return out_of_memory ? PyErr_NoMemory() : PyLong_FromSize_t(failures);
}

static PyObject *svd(PyObject *self, PyObject *args)
{
    address f, u, s, v, failed;
    Py_ssize_t items, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKnnii", &f, &u, &s, &v, &failed, &items, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .a = POINTER(f), .u = POINTER(u), .s = POINTER(s),
                  .v = POINTER(v), .failed = POINTER(failed)};
    return finish(WORKER(svd), &whole, items, threads);
}

static PyObject *eigen(PyObject *self, PyObject *args)
{
    address x, u, s, failed;
    Py_ssize_t items, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKnnii", &x, &u, &s, &failed, &items, &k, &itemsize, &threads)) return NULL;
    task whole = {.k = (size_t)k, .a = POINTER(x), .u = POINTER(u), .s = POINTER(s), .failed = POINTER(failed)};
    return finish(WORKER(eigen), &whole, items, threads);
}

static PyObject *symmetric(PyObject *self, PyObject *args)
{
    address x, failed;
    Py_ssize_t items, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKnnii", &x, &failed, &items, &k, &itemsize, &threads)) return NULL;
    task whole = {.k = (size_t)k, .a = POINTER(x), .failed = POINTER(failed)};
    return finish(WORKER(symmetries), &whole, items, threads);
}

static PyObject *map(PyObject *self, PyObject *args)
{
    address x, w, out, failed;
    Py_ssize_t items, n, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKnnnii", &x, &w, &out, &failed, &items, &n, &k, &itemsize, &threads)) return NULL;
    task whole = {.n = (size_t)n, .k = (size_t)k, .a = POINTER(x), .b = POINTER(w), .out = POINTER(out),
                  .failed = POINTER(failed)};
    return finish(WORKER(maps), &whole, items, threads);
}

static PyObject *map_adjoint(PyObject *self, PyObject *args)
{
    address x, w, grad, out, sums, failed;
    Py_ssize_t items, n, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKnnnii", &x, &w, &grad, &out, &sums, &failed, &items, &n, &k, &itemsize, &threads))
        return NULL;
    task whole = {.n = (size_t)n, .k = (size_t)k, .a = POINTER(x), .b = POINTER(w), .grad = POINTER(grad),
                  .turned = POINTER(sums), .out = POINTER(out), .failed = POINTER(failed)};
    return finish(WORKER(map_adjoints), &whole, items, threads);
}

static PyObject *compose(PyObject *self, PyObject *args)
{
    address u, s, out, failed;
    Py_ssize_t items, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKnnii", &u, &s, &out, &failed, &items, &k, &itemsize, &threads)) return NULL;
    task whole = {.k = (size_t)k, .u = POINTER(u), .s = POINTER(s), .out = POINTER(out), .failed = POINTER(failed)};
    return finish(WORKER(composites), &whole, items, threads);
}

static PyObject *derive(PyObject *self, PyObject *args)
{
    address u, s, grad, out, failed;
    double parameter;
    Py_ssize_t items, k;
    int function, itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKidnnii", &u, &s, &grad, &out, &failed, &function, &parameter, &items, &k, &itemsize,
                          &threads))
        return NULL;
    task whole = {.k = (size_t)k, .function = function, .parameter = parameter, .grad = POINTER(grad), .u = POINTER(u),
                  .s = POINTER(s), .out = POINTER(out), .failed = POINTER(failed)};
    return finish(WORKER(derivatives), &whole, items, threads);
}

static PyObject *to_chart(PyObject *args, int inverse)
{
    address a, c, u, s, out, failed;
    double parameter;
    Py_ssize_t items, k;
    int definite, itemsize, threads;
    if (!PyArg_ParseTuple(args, "KKKKKKdinnii", &a, &c, &u, &s, &out, &failed, &parameter, &definite, &items, &k,
                          &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .function = definite, .parameter = parameter, .a = POINTER(a), .b = POINTER(c),
                  .u = POINTER(u), .s = POINTER(s), .out = POINTER(out), .failed = POINTER(failed)};
    return finish(inverse ? WORKER(uncharts) : WORKER(charts), &whole, items, threads);
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
    address a, c, u, s, grad, out, sums, slopes, failed;
    double parameter;
    Py_ssize_t items, k;
    int itemsize, threads;
    if (!PyArg_ParseTuple(args, "KKKKKKKKKdnnii", &a, &c, &u, &s, &grad, &out, &sums, &slopes, &failed, &parameter,
                          &items, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .parameter = parameter, .a = POINTER(a), .b = POINTER(c), .grad = POINTER(grad),
                  .u = POINTER(u), .s = POINTER(s), .turned = POINTER(sums), .out = POINTER(out),
                  .value = POINTER(slopes), .failed = POINTER(failed)};
    return finish(inverse ? WORKER(unchart_adjoints) : WORKER(chart_adjoints), &whole, items, threads);
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
    address a, b, ia, ib, value, in_a, in_b, failed;
    Py_ssize_t items, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKKKnnii", &a, &b, &ia, &ib, &value, &in_a, &in_b, &failed, &items, &k, &itemsize,
                          &threads))
        return NULL;
    task whole = {.k = (size_t)k, .a = POINTER(a), .b = POINTER(b), .ia = POINTER(ia), .ib = POINTER(ib),
                  .value = POINTER(value), .out = POINTER(in_a), .turned = POINTER(in_b), .failed = POINTER(failed)};
    return finish(WORKER(pairs), &whole, items, threads);
}

static PyObject *bures_start(PyObject *self, PyObject *args)
{
    address b, out, failed;
    Py_ssize_t items, m, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKnnnii", &b, &out, &failed, &items, &m, &k, &itemsize, &threads)) return NULL;
    task whole = {.k = (size_t)k, .m = (size_t)m, .b = POINTER(b), .out = POINTER(out), .failed = POINTER(failed)};
    return finish(WORKER(starts), &whole, items, threads);
}

static PyObject *bures_frames(PyObject *self, PyObject *args)
{
    address n, b, before, u, v, turned, aligned, failed;
    Py_ssize_t items, m, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKKKnnnii", &n, &b, &before, &u, &v, &turned, &aligned, &failed, &items, &m, &k,
                          &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .m = (size_t)m, .a = POINTER(n), .b = POINTER(b), .w = POINTER(before),
                  .u = POINTER(u), .v = POINTER(v), .turned = POINTER(turned), .out = POINTER(aligned),
                  .failed = POINTER(failed)};
    return finish(WORKER(frames), &whole, items, threads);
}

static PyObject *bures_step(PyObject *self, PyObject *args)
{
    address n, b, w, out, value, turned, failed;
    double tolerance;
    Py_ssize_t items, m, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKKdnnnii", &n, &b, &w, &out, &value, &turned, &failed, &tolerance, &items, &m, &k,
                          &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .m = (size_t)m, .tolerance = tolerance, .a = POINTER(n), .b = POINTER(b),
                  .w = POINTER(w), .out = POINTER(out), .value = POINTER(value), .turned = POINTER(turned),
                  .failed = POINTER(failed)};
    return finish(WORKER(steps), &whole, items, threads);
}

static PyObject *bures_walk(PyObject *self, PyObject *args)
{
    address n, b, w, u, base, out, value, steps, failed;
    double tolerance;
    Py_ssize_t max_steps, items, q, m, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKKKKdnnnnnii", &n, &b, &w, &u, &base, &out, &value, &steps, &failed, &tolerance,
                          &max_steps, &items, &q, &m, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .m = (size_t)m, .q = (size_t)q, .max_steps = (size_t)max_steps, .tolerance = tolerance,
                  .a = POINTER(n), .b = POINTER(b), .w = POINTER(w), .grad = POINTER(base), .u = POINTER(u),
                  .out = POINTER(out), .value = POINTER(value), .steps = POINTER(steps), .failed = POINTER(failed)};
    return finish(WORKER(walks), &whole, items, threads);
}

static PyObject *affine_slope(PyObject *self, PyObject *args)
{
    address n, b, w, out, value, failed;
    Py_ssize_t items, m, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKnnnii", &n, &b, &w, &out, &value, &failed, &items, &m, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .m = (size_t)m, .a = POINTER(n), .b = POINTER(b), .w = POINTER(w), .out = POINTER(out),
                  .value = POINTER(value), .failed = POINTER(failed)};
    return finish(WORKER(slopes), &whole, items, threads);
}

static PyObject *adjoint(PyObject *self, PyObject *args)
{
    address n, b, w, grad, out, value, failed;
    double tolerance;
    Py_ssize_t items, q, m, k;
    int function, itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKKidnnnnii", &n, &b, &w, &grad, &out, &value, &failed, &function, &tolerance, &items,
                          &q, &m, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .m = (size_t)m, .q = (size_t)q, .function = function, .tolerance = tolerance, .a = POINTER(n),
                  .b = POINTER(b), .w = POINTER(w), .grad = POINTER(grad), .out = POINTER(out),
                  .value = POINTER(value), .failed = POINTER(failed)};
    return finish(WORKER(adjoints), &whole, items, threads);
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
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_jacobi", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__jacobi(void)
{
#ifndef _WIN32
    find_runtime();
#endif
    find_best();
    return PyModule_Create(&module);
}
