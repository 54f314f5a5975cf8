/* Batched linear algebra of small square matrices for the Bures-Wasserstein geometry.
 *
 * At its heart is the singular value decomposition by one-sided Jacobi rotations, F V = U S: the columns of F are
 * rotated in pairs until they are orthogonal (Hestenes; ordering of de Rijk).  Orthogonality is relative to the length
 * of the columns, so small singular values keep their digits, which LAPACK's bidiagonalisation does not promise.
 * Around it, three compositions that would spend most of their time in memory if torch did them: the Procrustes distance
 * of pairs of factors, one step towards a weighted mean, and the derivative of the mean.
 *
 * One matrix per SIMD lane, blocks of lanes over threads; the result of a matrix does not depend on its neighbours in
 * the batch.  The file includes itself, once for each precision.  It knows Python, but nothing of torch: addresses and
 * sizes come in as integers from _native.py, which also checks them.
 */
#ifndef REAL

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <dlfcn.h>
#include <pthread.h>
#endif

#define MAX_SWEEPS 40
#define MAX_THREADS 64
#define LANES 16 /* matrices of a block: enough independent chains; fewer are unrolled, not vectorised, by GCC */
#define ALIGNMENT 64
enum { FRESH, GUESS, COMPANION };

/* One binary for every x86 machine: the best clone is picked when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif
/* size_t: an index that may wrap, as int does with -fwrapv, is not vectorised. */
#define EACH_LANE for (size_t l = 0; l < LANES; l++)

/* What one thread does.  All arrays are row-major, matrices k x k; those marked * may be NULL. */
typedef struct {
    size_t k, m, first, last; /* size; points of a mean; items first .. last - 1 are this thread's */
    double tolerance;         /* step: cosine of two columns that counts as orthogonal, if above rounding;
                                 adjoint: relative residual of the linear equation */
    const void *a, *b;        /* svd: f; pairs: factors; step: iterates and points (item, m);
                                 adjoint: means and the derivative in them */
    const void *w, *start;    /* step: weights (item, m); svd, step: guesses of v* */
    const int64_t *ia, *ib;   /* pairs: which factors */
    void *u, *s, *v;          /* singular vectors and values; v* for svd; step: s* and v* together, then u is for b */
    void *out, *value;        /* pairs: alignments*, squared distances; step: next iterates, residuals;
                                 adjoint: derivatives in points (item, m) and weights (item, m) */
    unsigned char *failed;    /* (item): 1 where a matrix was singular or not finite, and the item is not to be trusted */
    int out_of_memory;
} task;

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#define REAL float
#define EPSILON FLT_EPSILON
#define SMALLEST 1e-30f /* squared length of a column, relative to the matrix, that is too short to be normalised */
#define SQRT sqrtf
#define ABS fabsf
#define NAME(x) JOIN(x, _f32)
/* Squares of squares of short columns would underflow. */
#define NOT_ORTHOGONAL(a, b, c, tolerance) (fabsf(c) > (tolerance) * (sqrtf(a) * sqrtf(b)))
#define ROTATION(a, b, c, cs, sn)                                                                                    \
    do {                                                                                                             \
        float zeta = ((b) - (a)) / (2 * (c)), t = 1 / (fabsf(zeta) + sqrtf(1 + zeta * zeta));                        \
        t = zeta < 0 ? -t : t;                                                                                       \
        cs = 1 / sqrtf(1 + t * t);                                                                                   \
        sn = cs * t;                                                                                                 \
    } while (0)
#include "_jacobi.c"

#define REAL double
#define EPSILON DBL_EPSILON
#define SMALLEST 1e-140
#define SQRT sqrt
#define ABS fabs
#define NAME(x) JOIN(x, _f64)
/* The range of double allows for fewer of the slow operations. */
#define NOT_ORTHOGONAL(a, b, c, tolerance) ((c) * (c) > (tolerance) * (tolerance) * ((a) * (b)))
#define ROTATION(a, b, c, cs, sn)                                                                                    \
    do {                                                                                                             \
        double d = (b) - (a), h = sqrt(d * d + 4 * (c) * (c));                                                       \
        cs = sqrt(0.5 + 0.5 * (fabs(d) / h));                                                                        \
        sn = (c) / (h * cs);                                                                                         \
        sn = d < 0 ? -sn : sn;                                                                                       \
    } while (0)
#include "_jacobi.c"

typedef void *(*worker)(void *);

/* Items of a call, cut into parts of whole blocks. */
typedef struct {
    worker work;
    task part[MAX_THREADS];
    int parts;
} job;

#ifdef _WIN32
static void spread(job *all)
{
    for (int t = 0; t < all->parts; t++) all->work(&all->part[t]);
}
#else
/* The OpenMP runtime that torch has loaded, if any (GNU's or one that speaks its language).  Its threads spin for a
 * while after each parallel operation of torch, so that threads of our own would have to share the cores with them. */
static void (*omp_run)(void (*)(void *), void *, unsigned, unsigned);
static int (*omp_rank)(void), (*omp_size)(void);

static void find_runtime(void)
{
    *(void **)&omp_run = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    *(void **)&omp_rank = dlsym(RTLD_DEFAULT, "omp_get_thread_num");
    *(void **)&omp_size = dlsym(RTLD_DEFAULT, "omp_get_num_threads");
    if (!omp_rank || !omp_size) omp_run = NULL;
}

static void share(void *argument)
{
    job *all = (job *)argument;
    for (int t = omp_rank(); t < all->parts; t += omp_size()) all->work(&all->part[t]);
}

static void spread(job *all)
{
    if (all->parts > 1 && omp_run) {
        omp_run(share, all, (unsigned)all->parts, 0);
        return;
    }
    pthread_t thread[MAX_THREADS];
    int started[MAX_THREADS] = {0};
    for (int t = 1; t < all->parts; t++)
        started[t] = pthread_create(&thread[t], NULL, all->work, &all->part[t]) == 0;
    all->work(&all->part[0]);
    for (int t = 1; t < all->parts; t++) {
        if (started[t]) pthread_join(thread[t], NULL);
        else all->work(&all->part[t]);
    }
}
#endif

/* Work on the items with at most so many threads.  Returns whether memory ran out. */
static int run(worker work, const task *whole, size_t items, int threads)
{
    job all = {.work = work};
    size_t blocks = (items + LANES - 1) / LANES;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if ((size_t)threads > blocks) threads = (int)blocks;
    all.parts = threads < 1 ? 1 : threads;
    for (int t = 0; t < all.parts; t++) {
        task *part = &all.part[t];
        *part = *whole;
        part->first = blocks * (size_t)t / (size_t)all.parts * LANES;
        part->last = blocks * (size_t)(t + 1) / (size_t)all.parts * LANES;
        if (part->last > items) part->last = items;
    }
    spread(&all);
    int out_of_memory = 0;
    for (int t = 0; t < all.parts; t++) out_of_memory |= all.part[t].out_of_memory;
    return out_of_memory;
}

#define POINTER(x) ((void *)(uintptr_t)(x))
typedef unsigned long long address;

static PyObject *finish(worker f32, worker f64, const task *whole, Py_ssize_t items, int itemsize, int threads)
{
    int out_of_memory;
    Py_BEGIN_ALLOW_THREADS
    out_of_memory = run(itemsize == 4 ? f32 : f64, whole, (size_t)items, threads);
    Py_END_ALLOW_THREADS
    if (out_of_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *svd(PyObject *self, PyObject *args)
{
    address f, start, u, s, v, failed;
    Py_ssize_t items, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKnnii", &f, &start, &u, &s, &v, &failed, &items, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .a = POINTER(f), .start = POINTER(start), .u = POINTER(u), .s = POINTER(s),
                  .v = POINTER(v), .failed = POINTER(failed)};
    return finish(svd_f32, svd_f64, &whole, items, itemsize, threads);
}

static PyObject *procrustes(PyObject *self, PyObject *args)
{
    address a, b, ia, ib, value, out, failed;
    Py_ssize_t items, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKKnnii", &a, &b, &ia, &ib, &value, &out, &failed, &items, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .a = POINTER(a), .b = POINTER(b), .ia = POINTER(ia), .ib = POINTER(ib),
                  .value = POINTER(value), .out = POINTER(out), .failed = POINTER(failed)};
    return finish(pairs_f32, pairs_f64, &whole, items, itemsize, threads);
}

static PyObject *bures_step(PyObject *self, PyObject *args)
{
    address n, b, w, start, out, value, u, s, v, failed;
    double tolerance;
    Py_ssize_t items, m, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKKKKKdnnnii", &n, &b, &w, &start, &out, &value, &u, &s, &v, &failed, &tolerance,
                          &items, &m, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .m = (size_t)m, .tolerance = tolerance, .a = POINTER(n), .b = POINTER(b),
                  .w = POINTER(w), .start = POINTER(start), .out = POINTER(out), .value = POINTER(value),
                  .u = POINTER(u), .s = POINTER(s), .v = POINTER(v), .failed = POINTER(failed)};
    return finish(steps_f32, steps_f64, &whole, items, itemsize, threads);
}

static PyObject *bures_adjoint(PyObject *self, PyObject *args)
{
    address n, grad, w, u, s, v, out, value, failed;
    double tolerance;
    Py_ssize_t items, m, k;
    int itemsize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKKKKdnnnii", &n, &grad, &w, &u, &s, &v, &out, &value, &failed, &tolerance, &items,
                          &m, &k, &itemsize, &threads))
        return NULL;
    task whole = {.k = (size_t)k, .m = (size_t)m, .tolerance = tolerance, .a = POINTER(n), .b = POINTER(grad),
                  .w = POINTER(w), .u = POINTER(u), .s = POINTER(s), .v = POINTER(v), .out = POINTER(out),
                  .value = POINTER(value), .failed = POINTER(failed)};
    return finish(adjoints_f32, adjoints_f64, &whole, items, itemsize, threads);
}

static PyMethodDef methods[] = {
    {"svd", svd, METH_VARARGS, "f = u diag(s) vT"},
    {"procrustes", procrustes, METH_VARARGS, "min over orthogonal q of |a - b q|^2"},
    {"bures_step", bures_step, METH_VARARGS, "n <- sum of w b q"},
    {"bures_adjoint", bures_adjoint, METH_VARARGS, "derivative of the fixed point of bures_step"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_jacobi", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__jacobi(void)
{
#ifndef _WIN32
    find_runtime();
#endif
    return PyModule_Create(&module);
}

#else /* the algorithms, for one REAL.  A matrix in lanes is column after column, k rows of LANES numbers each. */

/* (x, y) -> (c x - s y, s x + c y) for two columns. */
INLINE void NAME(rotate)(REAL *restrict x, REAL *restrict y, const REAL *restrict c, const REAL *restrict s, size_t k)
{
    for (size_t i = 0; i < k; i++)
        EACH_LANE {
            REAL xi = x[i * LANES + l], yi = y[i * LANES + l];
            x[i * LANES + l] = c[l] * xi - s[l] * yi;
            y[i * LANES + l] = s[l] * xi + c[l] * yi;
        }
}

/* Rotation that makes two columns orthogonal, the longer one first.  Returns whether any lane was not orthogonal yet. */
INLINE int NAME(angle)(const REAL *restrict x, const REAL *restrict y, REAL *restrict cosine, REAL *restrict sine,
                       size_t k, REAL tolerance)
{
    REAL a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0};
    for (size_t i = 0; i < k; i++)
        EACH_LANE {
            a[l] += x[i * LANES + l] * x[i * LANES + l];
            b[l] += y[i * LANES + l] * y[i * LANES + l];
            c[l] += x[i * LANES + l] * y[i * LANES + l];
        }
    REAL off[LANES], swap[LANES], rotate = 0; /* flags as numbers: they stay in vector registers */
    EACH_LANE {
        off[l] = NOT_ORTHOGONAL(a[l], b[l], c[l], tolerance) ? 1 : 0;
        /* never without a rotation: a sweep that did nothing has then seen every pair */
        swap[l] = off[l] > 0 && b[l] > a[l] ? 1 : 0;
    }
    EACH_LANE rotate += off[l];
    if (rotate == 0) return 0;
    EACH_LANE {
        REAL cs, sn;
        ROTATION(a[l], b[l], c[l], cs, sn);
        cs = off[l] > 0 ? cs : 1;
        sn = off[l] > 0 ? sn : 0;
        cosine[l] = swap[l] > 0 ? sn : cs;
        sine[l] = swap[l] > 0 ? -cs : sn;
    }
    return 1;
}

/* One sweep over all pairs of columns.  Returns whether any lane still had to be rotated. */
CLONES static int NAME(sweep)(REAL *f, REAL *v, size_t k, REAL tolerance)
{
    const size_t column = k * LANES;
    int rotated = 0;
    for (size_t p = 0; p + 1 < k; p++)
        for (size_t q = p + 1; q < k; q++) {
            REAL cosine[LANES], sine[LANES];
            if (!NAME(angle)(f + p * column, f + q * column, cosine, sine, k, tolerance)) continue;
            rotated = 1;
            NAME(rotate)(f + p * column, f + q * column, cosine, sine, k);
            if (v) NAME(rotate)(v + p * column, v + q * column, cosine, sine, k);
        }
    return rotated;
}

/* out_ip = sum over j of a_(i ai + j aj) b_(p bp + j bj), two columns p at a time to load a once for both. */
INLINE void NAME(product)(const REAL *restrict a, size_t ai, size_t aj, const REAL *restrict b, size_t bp, size_t bj,
                          REAL *restrict out, size_t k)
{
    for (size_t p = 0; p < k; p += 2) {
        const size_t next = p + 1 < k ? p + 1 : p;
        for (size_t i = 0; i < k; i++) {
            REAL one[LANES] = {0}, two[LANES] = {0};
            for (size_t j = 0; j < k; j++)
                EACH_LANE {
                    REAL x = a[(i * ai + j * aj) * LANES + l];
                    one[l] += x * b[(p * bp + j * bj) * LANES + l];
                    two[l] += x * b[(next * bp + j * bj) * LANES + l];
                }
            EACH_LANE out[(p * k + i) * LANES + l] = one[l];
            EACH_LANE out[(next * k + i) * LANES + l] = two[l];
        }
    }
}

/* out = a^T b */
CLONES static void NAME(inner)(const REAL *restrict a, const REAL *restrict b, REAL *restrict out, size_t k)
{
    NAME(product)(a, k, 1, b, k, 1, out, k);
}

/* out = a b */
CLONES static void NAME(multiply)(const REAL *restrict a, const REAL *restrict b, REAL *restrict out, size_t k)
{
    NAME(product)(a, 1, k, b, k, 1, out, k);
}

/* out = a b^T */
CLONES static void NAME(outer)(const REAL *restrict a, const REAL *restrict b, REAL *restrict out, size_t k)
{
    NAME(product)(a, 1, k, b, 1, k, out, k);
}

/* y += w x */
CLONES static void NAME(add)(const REAL *restrict x, const REAL *restrict w, REAL *restrict y, size_t k)
{
    for (size_t i = 0; i < k * k; i++) EACH_LANE y[i * LANES + l] += w[l] * x[i * LANES + l];
}

/* sum of (x - y)^2; y may be NULL for zero */
CLONES static void NAME(distance)(const REAL *restrict x, const REAL *restrict y, REAL *restrict out, size_t k)
{
    REAL sum[LANES] = {0};
    if (y)
        for (size_t i = 0; i < k * k; i++)
            EACH_LANE sum[l] += (x[i * LANES + l] - y[i * LANES + l]) * (x[i * LANES + l] - y[i * LANES + l]);
    else
        for (size_t i = 0; i < k * k; i++) EACH_LANE sum[l] += x[i * LANES + l] * x[i * LANES + l];
    memcpy(out, sum, sizeof sum);
}

/* Divide by the largest entry, which is returned in scale. */
CLONES static void NAME(normalise)(REAL *restrict f, REAL *restrict scale, size_t k)
{
    REAL largest[LANES] = {0}, inverse[LANES];
    for (size_t i = 0; i < k * k; i++)
        EACH_LANE largest[l] = ABS(f[i * LANES + l]) > largest[l] ? ABS(f[i * LANES + l]) : largest[l];
    EACH_LANE {
        largest[l] = largest[l] > 0 ? largest[l] : 1;
        inverse[l] = 1 / largest[l];
    }
    for (size_t i = 0; i < k * k; i++) EACH_LANE f[i * LANES + l] *= inverse[l];
    memcpy(scale, largest, sizeof largest);
}

/* Matrices, one for each lane, from row-major memory into lanes, and back. */
static void NAME(load)(const REAL *const *from, REAL *restrict to, size_t k)
{
    for (size_t i = 0; i < k; i++)
        for (size_t p = 0; p < k; p++) EACH_LANE to[(p * k + i) * LANES + l] = from[l][i * k + p];
}

static void NAME(store)(const REAL *restrict from, REAL *const *to, size_t k, size_t count)
{
    for (size_t i = 0; i < k; i++)
        for (size_t p = 0; p < k; p++)
            for (size_t l = 0; l < count; l++) to[l][i * k + p] = from[(p * k + i) * LANES + l];
}

/* f = u diag(s) v^T.  u replaces f; s is k rows of LANES.  What is in v before: FRESH, nothing, it will be v; GUESS, a
 * start that f is turned by; COMPANION, any matrix, turned along with f.  v NULL: not wanted.  good is cleared for the
 * lanes that are singular or not finite; spare is overwritten. */
static void NAME(decompose)(REAL *f, REAL *v, REAL *s, REAL *spare, size_t k, int before, REAL tolerance, int *good)
{
    const REAL rounding = EPSILON * SQRT((REAL)k);
    const size_t size = k * k * LANES;
    REAL scale[LANES];
    NAME(normalise)(f, scale, k);
    if (before == GUESS) {
        NAME(multiply)(f, v, spare, k);
        memcpy(f, spare, sizeof(REAL) * size);
    } else if (v && before == FRESH) {
        memset(v, 0, sizeof(REAL) * size);
        for (size_t p = 0; p < k; p++) EACH_LANE v[(p * k + p) * LANES + l] = 1;
    }
    int sweeps = 0, rotated = 1;
    while (rotated && sweeps++ < MAX_SWEEPS) rotated = NAME(sweep)(f, v, k, tolerance > rounding ? tolerance : rounding);
    for (size_t p = 0; p < k; p++) {
        REAL *column = f + p * k * LANES, square[LANES] = {0}, inverse[LANES];
        for (size_t i = 0; i < k; i++) EACH_LANE square[l] += column[i * LANES + l] * column[i * LANES + l];
        EACH_LANE {
            good[l] &= !rotated && square[l] > SMALLEST && square[l] <= (REAL)(4 * k * k); /* false for NaN as well */
            REAL length = SQRT(square[l]);
            s[p * LANES + l] = length * scale[l];
            inverse[l] = 1 / length;
        }
        for (size_t i = 0; i < k; i++) EACH_LANE column[i * LANES + l] *= inverse[l];
    }
}

/* Solve scale * (sum of w u (h * (u^T e u)) u^T) = right with e = scale * z, by conjugate gradients in each lane; right is
 * replaced by the residual, z by e; good is cleared for the lanes that did not get there. */
typedef struct {
    const REAL *u, *h, *w; /* (m) matrices, (m) matrices, (m) rows of LANES */
    const REAL *scale;
    REAL *p, *q, *x, *y; /* scratch */
    size_t k, m;
} NAME(equation);

CLONES static void NAME(times)(const REAL *restrict x, const REAL *restrict y, REAL *restrict out, size_t k)
{
    for (size_t i = 0; i < k * k * LANES; i++) out[i] = x[i] * y[i];
}

CLONES static void NAME(dot)(const REAL *restrict x, const REAL *restrict y, REAL *restrict out, size_t k)
{
    REAL sum[LANES] = {0};
    for (size_t i = 0; i < k * k; i++) EACH_LANE sum[l] += x[i * LANES + l] * y[i * LANES + l];
    memcpy(out, sum, sizeof sum);
}

static void NAME(apply)(const NAME(equation) *e, REAL *spare)
{
    const size_t k = e->k, size = k * k * LANES;
    memset(e->q, 0, sizeof(REAL) * size);
    NAME(times)(e->scale, e->p, spare, k);
    for (size_t j = 0; j < e->m; j++) {
        const REAL *u = e->u + j * size;
        NAME(multiply)(spare, u, e->x, k);
        NAME(inner)(u, e->x, e->y, k);
        NAME(times)(e->y, e->h + j * size, e->x, k);
        NAME(multiply)(u, e->x, e->y, k);
        NAME(outer)(e->y, u, e->x, k);
        NAME(add)(e->x, e->w + j * LANES, e->q, k);
    }
    NAME(times)(e->q, e->scale, spare, k);
    memcpy(e->q, spare, sizeof(REAL) * size);
}

static void NAME(conjugate)(const NAME(equation) *e, REAL *right, REAL *z, REAL *spare, REAL tolerance, int *good)
{
    const size_t k = e->k, size = k * k * LANES;
    REAL rr[LANES], target[LANES], pq[LANES], step[LANES], minus[LANES], ratio[LANES], open;
    REAL unit[LANES];
    NAME(times)(right, e->scale, spare, k);
    memcpy(right, spare, sizeof(REAL) * size);
    NAME(normalise)(right, unit, k);
    memcpy(e->p, right, sizeof(REAL) * size);
    memset(z, 0, sizeof(REAL) * size);
    NAME(dot)(right, right, rr, k);
    EACH_LANE target[l] = tolerance * tolerance * rr[l];
    for (size_t iteration = 0; iteration < 4 * k + 20; iteration++) {
        open = 0;
        EACH_LANE open += rr[l] > target[l] ? 1 : 0;
        if (open == 0) break;
        NAME(apply)(e, spare);
        NAME(dot)(e->p, e->q, pq, k);
        EACH_LANE {
            step[l] = rr[l] > target[l] && pq[l] > 0 ? rr[l] / pq[l] : 0;
            minus[l] = -step[l];
        }
        NAME(add)(e->p, step, z, k);
        NAME(add)(e->q, minus, right, k);
        NAME(dot)(right, right, pq, k);
        EACH_LANE {
            ratio[l] = rr[l] > target[l] ? pq[l] / rr[l] : 0;
            rr[l] = rr[l] > target[l] ? pq[l] : rr[l];
        }
        memcpy(spare, right, sizeof(REAL) * size);
        NAME(add)(e->p, ratio, spare, k);
        memcpy(e->p, spare, sizeof(REAL) * size);
    }
    EACH_LANE good[l] &= rr[l] <= target[l];
    for (size_t i = 0; i < k * k; i++) EACH_LANE z[i * LANES + l] *= unit[l];
    NAME(times)(z, e->scale, spare, k);
    memcpy(z, spare, sizeof(REAL) * size);
}

/* x_ij -> (x_ij + x_ji) factor */
static void NAME(symmetrise)(REAL *x, size_t k, REAL factor)
{
    for (size_t p = 0; p < k; p++)
        for (size_t i = 0; i <= p; i++)
            EACH_LANE {
                REAL sum = (x[(p * k + i) * LANES + l] + x[(i * k + p) * LANES + l]) * factor;
                x[(p * k + i) * LANES + l] = x[(i * k + p) * LANES + l] = sum;
            }
}

/* out_ij = a_i b_j / (a_i + b_j), which is the curvature, or, with the factor a_i left out, the response to a point */
static void NAME(harmonic)(const REAL *a, REAL *out, size_t k, int response)
{
    for (size_t p = 0; p < k; p++)
        for (size_t i = 0; i < k; i++)
            EACH_LANE {
                REAL x = a[i * LANES + l], y = a[p * LANES + l];
                out[(p * k + i) * LANES + l] = (response ? 1 : x) * (y / (x + y)); /* x y may leave the range */
            }
}

/* The jobs: a thread's memory, then block after block of lanes; lanes beyond the last item repeat it. */
#define BEGIN(job, buffers)                                                                                          \
    static void *NAME(job)(void *argument)                                                                           \
    {                                                                                                                \
        task *t = (task *)argument;                                                                                  \
        const size_t k = t->k, square = k * k, size = square * LANES;                                                \
        char *raw = malloc(((buffers) * size + k * LANES) * sizeof(REAL) + ALIGNMENT);                               \
        t->out_of_memory = raw == NULL;                                                                              \
        if (!raw) return NULL;                                                                                       \
        REAL *buffer = (REAL *)(((uintptr_t)raw + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);                           \
        REAL *s = buffer + (buffers) * size;                                                                         \
        for (size_t start = t->first; start < t->last; start += LANES) {                                             \
            const size_t count = t->last - start < LANES ? t->last - start : LANES;                                  \
            const REAL *from[LANES];                                                                                 \
            REAL *to[LANES];                                                                                         \
            int good[LANES];                                                                                         \
            EACH_LANE good[l] = 1;
#define END                                                                                                          \
            for (size_t l = 0; l < count; l++) t->failed[start + l] = !good[l];                                      \
        }                                                                                                            \
        free(raw);                                                                                                   \
        return NULL;                                                                                                 \
    }
#define BUFFER(i) (buffer + (i) * size)
#define ITEM(l) (start + ((l) < count ? (l) : count - 1))

BEGIN(svd, 3)
    REAL *f = BUFFER(0), *v = t->v ? BUFFER(1) : NULL;
    EACH_LANE from[l] = (const REAL *)t->a + ITEM(l) * square;
    NAME(load)(from, f, k);
    if (t->start) {
        EACH_LANE from[l] = (const REAL *)t->start + ITEM(l) * square;
        NAME(load)(from, v, k);
    }
    NAME(decompose)(f, v, s, BUFFER(2), k, t->start ? GUESS : FRESH, 0, good);
    EACH_LANE to[l] = (REAL *)t->u + ITEM(l) * square;
    NAME(store)(f, to, k, count);
    if (v) {
        EACH_LANE to[l] = (REAL *)t->v + ITEM(l) * square;
        NAME(store)(v, to, k, count);
    }
    for (size_t l = 0; l < count; l++)
        for (size_t p = 0; p < k; p++) ((REAL *)t->s)[(start + l) * k + p] = s[p * LANES + l];
END

BEGIN(pairs, 6)
    REAL *a = BUFFER(0), *b = BUFFER(1), *f = BUFFER(2), *v = BUFFER(3), *q = BUFFER(4), *bq = BUFFER(5);
    REAL value[LANES];
    EACH_LANE from[l] = (const REAL *)t->a + (size_t)t->ia[ITEM(l)] * square;
    NAME(load)(from, a, k);
    EACH_LANE from[l] = (const REAL *)t->b + (size_t)t->ib[ITEM(l)] * square;
    NAME(load)(from, b, k);
    NAME(inner)(b, a, f, k);
    NAME(decompose)(f, v, s, q, k, FRESH, 0, good);
    NAME(outer)(f, v, q, k);
    NAME(multiply)(b, q, bq, k);
    NAME(distance)(a, bq, value, k);
    for (size_t l = 0; l < count; l++) ((REAL *)t->value)[start + l] = value[l];
    if (t->out) {
        EACH_LANE to[l] = (REAL *)t->out + ITEM(l) * square;
        NAME(store)(q, to, k, count);
    }
END

BEGIN(steps, 7)
    REAL *n = BUFFER(0), *b = BUFFER(1), *f = BUFFER(2), *v = BUFFER(3), *q = BUFFER(4), *bq = BUFFER(5);
    REAL *next = BUFFER(6), weight[LANES], change[LANES], length[LANES];
    EACH_LANE from[l] = (const REAL *)t->a + ITEM(l) * square;
    NAME(load)(from, n, k);
    memset(next, 0, sizeof(REAL) * size);
    for (size_t j = 0; j < t->m; j++) {
        EACH_LANE weight[l] = ((const REAL *)t->w)[ITEM(l) * t->m + j];
        EACH_LANE from[l] = (const REAL *)t->b + (ITEM(l) * t->m + j) * square;
        NAME(load)(from, b, k);
        NAME(inner)(n, b, f, k);
        if (!t->v) { /* no frames wanted: points are only known up to rotations of their columns, and come back turned */
            NAME(decompose)(f, b, s, q, k, COMPANION, (REAL)t->tolerance, good);
            NAME(outer)(b, f, bq, k);
            NAME(add)(bq, weight, next, k);
            EACH_LANE to[l] = (REAL *)t->u + (ITEM(l) * t->m + j) * square;
            NAME(store)(b, to, k, count);
            continue;
        }
        if (t->start) {
            EACH_LANE from[l] = (const REAL *)t->start + (ITEM(l) * t->m + j) * square;
            NAME(load)(from, v, k);
        }
        NAME(decompose)(f, v, s, q, k, t->start ? GUESS : FRESH, (REAL)t->tolerance, good);
        NAME(outer)(v, f, q, k);
        NAME(multiply)(b, q, bq, k);
        NAME(add)(bq, weight, next, k);
        EACH_LANE to[l] = (REAL *)t->u + (ITEM(l) * t->m + j) * square;
        NAME(store)(f, to, k, count);
        EACH_LANE to[l] = (REAL *)t->v + (ITEM(l) * t->m + j) * square;
        NAME(store)(v, to, k, count);
        for (size_t l = 0; l < count; l++)
            for (size_t p = 0; p < k; p++) ((REAL *)t->s)[(ITEM(l) * t->m + j) * k + p] = s[p * LANES + l];
    }
    NAME(distance)(next, n, change, k);
    NAME(distance)(n, NULL, length, k);
    EACH_LANE to[l] = (REAL *)t->out + ITEM(l) * square;
    NAME(store)(next, to, k, count);
    for (size_t l = 0; l < count; l++) ((REAL *)t->value)[start + l] = SQRT(change[l] / length[l]);
END

BEGIN(adjoints, 11 + 2 * t->m)
    const size_t m = t->m;
    REAL *n = BUFFER(0), *turn = BUFFER(1), *right = BUFFER(2), *z = BUFFER(3), *scale = BUFFER(4), *p = BUFFER(5);
    REAL *q = BUFFER(6), *x = BUFFER(7), *y = BUFFER(8), *spare = BUFFER(9), *v = BUFFER(10);
    REAL *u = BUFFER(11), *h = BUFFER(11 + m);
    REAL weight[LANES], *weights = malloc(m * LANES * sizeof(REAL)), *values = malloc(m * k * LANES * sizeof(REAL));
    if (!weights || !values) {
        t->out_of_memory = 1;
        free(weights);
        free(values);
        break;
    }
    /* N turned by an orthogonal matrix is a factor of the same mean; take the one with orthogonal columns. */
    EACH_LANE from[l] = (const REAL *)t->a + ITEM(l) * square;
    NAME(load)(from, n, k);
    NAME(decompose)(n, turn, s, spare, k, FRESH, 0, good);
    for (size_t j = 0; j < k; j++)
        for (size_t i = 0; i < k; i++) EACH_LANE n[(j * k + i) * LANES + l] *= s[j * LANES + l];
    EACH_LANE from[l] = (const REAL *)t->b + ITEM(l) * square;
    NAME(load)(from, x, k);
    NAME(multiply)(x, turn, y, k);
    NAME(inner)(n, y, right, k);
    NAME(symmetrise)(right, k, (REAL)0.25);
    for (size_t i = 0; i < k * LANES; i++) s[i] *= s[i];
    NAME(harmonic)(s, scale, k, 0);
    for (size_t i = 0; i < size; i++) scale[i] = 1 / SQRT(scale[i]);
    for (size_t j = 0; j < m; j++) {
        EACH_LANE from[l] = (const REAL *)t->u + (ITEM(l) * m + j) * square;
        NAME(load)(from, x, k);
        NAME(inner)(turn, x, u + j * size, k);
        EACH_LANE weights[j * LANES + l] = ((const REAL *)t->w)[ITEM(l) * m + j];
        for (size_t i = 0; i < k; i++)
            EACH_LANE values[(j * k + i) * LANES + l] = ((const REAL *)t->s)[(ITEM(l) * m + j) * k + i];
        NAME(harmonic)(values + j * k * LANES, h + j * size, k, 0);
    }
    NAME(equation) system = {.u = u, .h = h, .w = weights, .scale = scale, .p = p, .q = q, .x = x, .y = y, .k = k, .m = m};
    NAME(conjugate)(&system, right, z, spare, (REAL)t->tolerance, good);
    NAME(symmetrise)(z, k, (REAL)0.5);
    for (size_t j = 0; j < m; j++) {
        const REAL *value = values + j * k * LANES;
        REAL sum[LANES] = {0};
        NAME(multiply)(z, u + j * size, x, k);
        NAME(inner)(u + j * size, x, y, k);
        for (size_t i = 0; i < k; i++) EACH_LANE sum[l] += y[(i * k + i) * LANES + l] * value[i * LANES + l];
        for (size_t l = 0; l < count; l++) ((REAL *)t->value)[(start + l) * m + j] = sum[l];
        NAME(harmonic)(value, h, k, 1);
        NAME(times)(y, h, x, k);
        NAME(multiply)(n, u + j * size, y, k);
        NAME(multiply)(y, x, spare, k);
        EACH_LANE from[l] = (const REAL *)t->v + (ITEM(l) * m + j) * square;
        NAME(load)(from, v, k);
        NAME(outer)(spare, v, y, k);
        memset(x, 0, sizeof(REAL) * size);
        EACH_LANE weight[l] = 2 * weights[j * LANES + l];
        NAME(add)(y, weight, x, k);
        EACH_LANE to[l] = (REAL *)t->out + (ITEM(l) * m + j) * square;
        NAME(store)(x, to, k, count);
    }
    free(weights);
    free(values);
END

#undef BEGIN
#undef END
#undef BUFFER
#undef ITEM
#undef REAL
#undef EPSILON
#undef SMALLEST
#undef SQRT
#undef ABS
#undef NAME
#undef NOT_ORTHOGONAL
#undef ROTATION
#endif
