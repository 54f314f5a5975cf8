/* Batched singular value decomposition of small square matrices: one-sided Jacobi.
 *
 * F V = U S: the columns of F are rotated in pairs until they are orthogonal (Hestenes; ordering of de Rijk).
 * Orthogonality is relative to the length of the columns, so small singular values keep their digits, which
 * LAPACK's bidiagonalisation does not promise.  One matrix per SIMD lane, blocks of lanes over threads; the
 * result of a matrix does not depend on its neighbours in the batch.
 *
 * The file includes itself, once for each precision.  It knows Python, but nothing of torch: addresses and sizes
 * come in as integers from _native.py, which also checks them.
 */
#ifndef REAL

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <pthread.h>
#endif

#define MAX_SWEEPS 40
#define MAX_THREADS 64
#define LANES 16 /* matrices of a block: enough independent chains; fewer are unrolled, not vectorised, by GCC */
#define ALIGNMENT 64

/* One binary for every x86 machine: the best clone is picked when the library is loaded. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#define EACH_LANE for (size_t l = 0; l < LANES; l++) /* size_t: a wrapping index, as with -fwrapv, is not vectorised */

typedef struct {
    const void *f, *v0;          /* (batch, k, k) row-major; v0 NULL: start from the identity */
    void *u, *s, *v;             /* (batch, k, k), (batch, k), (batch, k, k); v NULL: not wanted */
    unsigned char *failed;       /* (batch): 1 where the decomposition is not to be trusted */
    Py_ssize_t k, first, last;   /* matrices first .. last - 1 */
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
#include "_jacobi.c"

#define REAL double
#define EPSILON DBL_EPSILON
#define SMALLEST 1e-280
#define SQRT sqrt
#define ABS fabs
#define NAME(x) JOIN(x, _f64)
#include "_jacobi.c"

static void run(void *(*work)(void *), const task *whole, Py_ssize_t batch, Py_ssize_t lanes, int threads,
                int *out_of_memory)
{
    task part[MAX_THREADS];
    Py_ssize_t blocks = (batch + lanes - 1) / lanes;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > blocks) threads = (int)blocks;
    if (threads < 1) threads = 1;
#ifdef _WIN32
    threads = 1;
#endif
    for (int t = 0; t < threads; t++) {
        part[t] = *whole;
        part[t].first = blocks * t / threads * lanes;
        part[t].last = blocks * (t + 1) / threads * lanes;
        if (part[t].last > batch) part[t].last = batch;
    }
#ifndef _WIN32
    pthread_t thread[MAX_THREADS];
    int started[MAX_THREADS] = {0};
    for (int t = 1; t < threads; t++) started[t] = pthread_create(&thread[t], NULL, work, &part[t]) == 0;
#endif
    work(&part[0]);
#ifndef _WIN32
    for (int t = 1; t < threads; t++) {
        if (started[t]) pthread_join(thread[t], NULL);
        else work(&part[t]);
    }
#endif
    *out_of_memory = 0;
    for (int t = 0; t < threads; t++) *out_of_memory |= part[t].out_of_memory;
}

/* svd(f, v0, u, s, v, failed, batch, k, itemsize, threads): addresses and sizes as integers. */
static PyObject *svd(PyObject *self, PyObject *args)
{
    unsigned long long f, v0, u, s, v, failed;
    Py_ssize_t batch, k;
    int itemsize, threads, out_of_memory;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKKKnnii", &f, &v0, &u, &s, &v, &failed, &batch, &k, &itemsize, &threads))
        return NULL;
    task whole = {(const void *)(size_t)f, (const void *)(size_t)v0, (void *)(size_t)u, (void *)(size_t)s,
                  (void *)(size_t)v, (unsigned char *)(size_t)failed, k, 0, 0, 0};
    Py_BEGIN_ALLOW_THREADS
    run(itemsize == 4 ? work_f32 : work_f64, &whole, batch, LANES, threads, &out_of_memory);
    Py_END_ALLOW_THREADS
    if (out_of_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"svd", svd, METH_VARARGS, "Batched one-sided Jacobi."}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_jacobi", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__jacobi(void) { return PyModule_Create(&module); }

#else /* the algorithm, for one REAL */


/* (x, y) -> (c x - s y, s x + c y) for two columns. */
INLINE void NAME(rotate)(REAL *restrict x, REAL *restrict y, const REAL *restrict c, const REAL *restrict s,
                         size_t k)
{
    for (size_t i = 0; i < k; i++)
        EACH_LANE {
            REAL xi = x[i * LANES + l], yi = y[i * LANES + l];
            x[i * LANES + l] = c[l] * xi - s[l] * yi;
            y[i * LANES + l] = s[l] * xi + c[l] * yi;
        }
}

/* Rotation that makes two columns orthogonal, the longer one first.  Returns 0: nothing to do, 1: only lanes that
 * change places, 2: some lane was not orthogonal yet. */
INLINE int NAME(angle)(const REAL *restrict x, const REAL *restrict y, REAL *restrict cosine, REAL *restrict sine,
                       size_t k)
{
    const REAL tolerance = EPSILON * SQRT((REAL)k);
    REAL a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0};
    for (size_t i = 0; i < k; i++)
        EACH_LANE {
            a[l] += x[i * LANES + l] * x[i * LANES + l];
            b[l] += y[i * LANES + l] * y[i * LANES + l];
            c[l] += x[i * LANES + l] * y[i * LANES + l];
        }
    REAL off[LANES], swap[LANES], rotate = 0, act = 0; /* flags as numbers: they stay in vector registers */
    EACH_LANE {
        off[l] = ABS(c[l]) > tolerance * (SQRT(a[l]) * SQRT(b[l])) ? 1 : 0;
        swap[l] = b[l] > a[l] * (1 + 64 * EPSILON) ? 1 : 0;
    }
    EACH_LANE {
        rotate += off[l];
        act += off[l] + swap[l];
    }
    if (act == 0) return 0;
    EACH_LANE {
        REAL zeta = (b[l] - a[l]) / (2 * c[l]);
        REAL t = 1 / (ABS(zeta) + SQRT(1 + zeta * zeta));
        t = zeta < 0 ? -t : t;
        t = off[l] > 0 ? t : 0;
        REAL cs = 1 / SQRT(1 + t * t), sn = cs * t;
        cosine[l] = swap[l] > 0 ? sn : cs;
        sine[l] = swap[l] > 0 ? -cs : sn;
    }
    return rotate > 0 ? 2 : 1;
}

/* One sweep over all pairs of columns; f and v hold column after column, k rows of LANES numbers each.
 * Returns whether any lane still had to be rotated. */
CLONES static int NAME(sweep)(REAL *f, REAL *v, size_t k)
{
    const size_t column = (size_t)k * LANES;
    int rotated = 0;
    for (size_t p = 0; p + 1 < k; p++)
        for (size_t q = p + 1; q < k; q++) {
            REAL cosine[LANES], sine[LANES];
            int found = NAME(angle)(f + p * column, f + q * column, cosine, sine, k);
            if (!found) continue;
            rotated |= found == 2;
            NAME(rotate)(f + p * column, f + q * column, cosine, sine, k);
            if (v) NAME(rotate)(v + p * column, v + q * column, cosine, sine, k);
        }
    return rotated;
}

/* out = f v, column after column. */
CLONES static void NAME(multiply)(const REAL *restrict f, const REAL *restrict v, REAL *restrict out, size_t k)
{
    memset(out, 0, sizeof(REAL) * k * k * LANES);
    for (size_t p = 0; p < k; p++)
        for (size_t j = 0; j < k; j++)
            for (size_t i = 0; i < k; i++)
                EACH_LANE out[(p * k + i) * LANES + l] +=
                    f[(j * k + i) * LANES + l] * v[(p * k + j) * LANES + l];
}

/* Lanes of a (count, k, k) row-major array, transposed to columns; lanes beyond count repeat the first. */
static void NAME(load)(const REAL *restrict from, const REAL *restrict scale, REAL *restrict to, size_t k, size_t count)
{
    for (size_t l = 0; l < LANES; l++) {
        const REAL *x = from + (l < count ? l : 0) * k * k;
        REAL factor = scale ? 1 / scale[l] : 1;
        for (size_t i = 0; i < k; i++)
            for (size_t p = 0; p < k; p++) to[(p * k + i) * LANES + l] = x[i * k + p] * factor;
    }
}

static void NAME(block)(const task *t, size_t start, size_t count, REAL *f, REAL *v, REAL *spare)
{
    const size_t k = (size_t)t->k;
    const size_t size = k * k;
    const REAL *input = (const REAL *)t->f + start * size;
    REAL scale[LANES];
    for (size_t l = 0; l < LANES; l++) {
        const REAL *x = input + (l < count ? l : 0) * size;
        scale[l] = 0;
        for (size_t i = 0; i < size; i++) scale[l] = ABS(x[i]) > scale[l] ? ABS(x[i]) : scale[l];
        if (!(scale[l] > 0)) scale[l] = 1;
    }
    NAME(load)(input, scale, f, k, count);
    if (t->v0) {
        NAME(load)((const REAL *)t->v0 + start * size, NULL, v, k, count);
        NAME(multiply)(f, v, spare, k);
        memcpy(f, spare, sizeof(REAL) * size * LANES);
    } else if (t->v) {
        memset(v, 0, sizeof(REAL) * size * LANES);
        for (size_t p = 0; p < k; p++) EACH_LANE v[(p * k + p) * LANES + l] = 1;
    }
    int sweeps = 0, rotated = 1;
    while (rotated && sweeps++ < MAX_SWEEPS) rotated = NAME(sweep)(f, t->v ? v : NULL, k);
    for (size_t l = 0; l < count; l++) {
        REAL *u = (REAL *)t->u + (start + l) * size, *s = (REAL *)t->s + (start + l) * k;
        REAL *w = t->v ? (REAL *)t->v + (start + l) * size : NULL;
        int good = !rotated;
        for (size_t p = 0; p < k; p++) {
            REAL square = 0;
            for (size_t i = 0; i < k; i++) {
                REAL x = f[(p * k + i) * LANES + l];
                square += x * x;
            }
            good &= square > SMALLEST && square <= (REAL)(k * k * 4); /* false for NaN as well */
            REAL length = SQRT(square), inverse = 1 / length;
            s[p] = length * scale[l];
            for (size_t i = 0; i < k; i++) u[i * k + p] = f[(p * k + i) * LANES + l] * inverse;
            if (w)
                for (size_t i = 0; i < k; i++) w[i * k + p] = v[(p * k + i) * LANES + l];
        }
        t->failed[start + l] = !good;
    }
}

static void *NAME(work)(void *argument)
{
    task *t = (task *)argument;
    size_t size = (size_t)t->k * (size_t)t->k * LANES;
    char *raw = malloc(3 * size * sizeof(REAL) + ALIGNMENT);
    t->out_of_memory = raw == NULL;
    if (!raw) return NULL;
    REAL *space = (REAL *)(((size_t)raw + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    for (size_t start = (size_t)t->first; start < (size_t)t->last; start += LANES) {
        size_t left = (size_t)t->last - start;
        NAME(block)(t, start, left < LANES ? left : LANES, space, space + size, space + 2 * size);
    }
    free(raw);
    return NULL;
}

#undef REAL
#undef EPSILON
#undef SMALLEST
#undef SQRT
#undef ABS
#undef NAME
#endif
