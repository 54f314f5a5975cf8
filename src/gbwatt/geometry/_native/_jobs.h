/* The jobs: one function each, which a thread calls for its part of the items.  Part of _jacobi.h. */

/* BEGIN allocates memory for so many matrices and vectors, and starts the loop over blocks; lanes beyond the last item
 * repeat it.  END takes the array of failures, or NULL. */
#define BEGIN(job, matrices, vectors)                                                                                \
    static void *NAME(job)(void *argument)                                                                           \
    {                                                                                                                \
        slice *own = (slice *)argument;                                                                              \
        const job##_arguments *t = own->arguments;                                                                   \
        const size_t k = t->k, square = k * k, size = square * PARTS;                                                \
        size_t bytes;                                                                                                \
        char *raw = NULL;                                                                                            \
        if (!__builtin_mul_overflow((matrices) * square + (vectors), sizeof(vec), &bytes) &&                         \
            bytes < PTRDIFF_MAX - ALIGNMENT)                                                                         \
            raw = malloc(bytes + ALIGNMENT);                                                                         \
        own->out_of_memory = raw == NULL;                                                                            \
        if (!raw) return NULL;                                                                                       \
        vec *buffer = (vec *)(((uintptr_t)raw + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);                             \
        vec *s = buffer + (matrices) * square;                                                                       \
        (void)s, (void)size;                                                                                         \
        for (size_t start = own->first; start < own->last; start += LANES) {                                         \
            const size_t count = own->last - start < LANES ? own->last - start : LANES;                              \
            const REAL *from[LANES];                                                                                 \
            REAL *to[LANES];                                                                                         \
            int good[LANES];                                                                                         \
            (void)to;                                                                                                \
            EACH_LANE good[l] = 1;
#define END(failed)                                                                                                  \
            unsigned char *mark = failed;                                                                            \
            for (size_t l = 0; l < count; l++) {                                                                     \
                own->failures += !good[l];                                                                           \
                if (mark) mark[start + l] = !good[l];                                                                \
            }                                                                                                        \
        }                                                                                                            \
        free(raw);                                                                                                   \
        return NULL;                                                                                                 \
    }
#define BLOCK(i) (buffer + (i) * size)
#define ITEM(l) (start + ((l) < count ? (l) : count - 1))
#define LOAD(x, index, to)                                                                                           \
    do {                                                                                                             \
        EACH_LANE from[l] = (const REAL *)(x) + (index) * square;                                                    \
        NAME(load)(from, to, k, PARTS);                                                                              \
    } while (0)
#define STORE(x, index, where)                                                                                       \
    do {                                                                                                             \
        EACH_LANE to[l] = (REAL *)(where) + (index) * square;                                                        \
        NAME(store)(x, to, k, count);                                                                                \
    } while (0)

#define PUT_VALUES(x, to)                                                                                            \
    for (size_t l = 0; l < count; l++)                                                                               \
        for (size_t p = 0; p < k; p++) ((REAL *)(to))[(start + l) * k + p] = (x)[l / VEC * k + p][l % VEC]
#define GET_VALUES(from, x)                                                                                          \
    EACH_LANE for (size_t p = 0; p < k; p++) (x)[l / VEC * k + p][l % VEC] = ((const REAL *)(from))[ITEM(l) * k + p]

/* Whether matrices are finite and exactly symmetric */
BEGIN(symmetric, 0, 0)
    for (size_t l = 0; l < count; l++) {
        const REAL *x = (const REAL *)t->x + (start + l) * square;
        for (size_t i = 0; i < k; i++)
            for (size_t j = 0; j <= i; j++) good[l] &= (x[i * k + j] == x[j * k + i]) & (x[i * k + j] - x[i * k + j] == 0);
    }
    (void)from, (void)buffer;
END(NULL)

BEGIN(svd, 2 * PARTS + 1, PARTS * k)
    vec *f = BLOCK(0), *v = t->v ? BLOCK(1) : NULL;
    LOAD(t->f, ITEM(l), f);
    NAME(decompose)(f, v, s, BLOCK(2), k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    if (v) STORE(v, ITEM(l), t->v);
    PUT_VALUES(s, t->s);
END(t->failed)

/* w^T x w, with w of n x k numbers, the same for all symmetric x of n x n */
BEGIN(map, (t->n * t->n + t->n * k + square + square - 1) / square, 0)
    const size_t n = t->n;
    vec *x = buffer, *xw = x + n * n, *out = xw + n * k;
    for (size_t first = 0; first < count; first += VEC) {
        for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->x + ITEM(first + l) * n * n;
        NAME(load)(from, x, n, 1);
        NAME(common_product)(x, 1, n, t->w, 1, k, xw, 1, n, n, k, n);
        NAME(common_product)(xw, n, 1, t->w, 1, k, out, 1, k, k, k, n);
        NAME(symmetrise)(out, k, (REAL)0.5);
        for (size_t l = 0; l < VEC; l++) to[l] = (REAL *)t->out + ITEM(first + l) * square;
        NAME(store)(out, to, k, count - first < VEC ? count - first : VEC);
    }
END(NULL)

/* The derivatives in x and, summed over a block, in w */
BEGIN(map_adjoint, (2 * t->n * t->n + 2 * t->n * k + square + square - 1) / square, 0)
    const size_t n = t->n;
    vec *x = buffer, *xw = x + n * n, *g = xw + n * k, *wg = g + square, *out = wg + n * k;
    REAL *sum = (REAL *)t->grad_w + start / LANES * n * k;
    memset(sum, 0, sizeof(REAL) * n * k);
    for (size_t first = 0; first < count; first += VEC) {
        const size_t lanes = count - first < VEC ? count - first : VEC;
        for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->x + ITEM(first + l) * n * n;
        NAME(load)(from, x, n, 1);
        for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->grad + ITEM(first + l) * square;
        NAME(load)(from, g, k, 1);
        NAME(symmetrise)(g, k, (REAL)0.5);
        NAME(common_product)(g, k, 1, t->w, k, 1, wg, 1, k, k, n, k);
        NAME(common_product)(wg, k, 1, t->w, k, 1, out, 1, n, n, n, k);
        for (size_t l = 0; l < VEC; l++) to[l] = (REAL *)t->grad_x + ITEM(first + l) * n * n;
        NAME(store)(out, to, n, lanes);
        NAME(common_product)(x, 1, n, t->w, 1, k, xw, 1, n, n, k, n);
        for (size_t i = 0; i < n; i++)
            for (size_t p = 0; p < k; p++) {
                vec y = {0};
                for (size_t q = 0; q < k; q++) y += xw[q * n + i] * g[p * k + q];
                for (size_t l = 0; l < lanes; l++) sum[i * k + p] += 2 * y[l];
            }
    }
END(NULL)

/* Eigenvectors and eigenvalues of positive definite matrices */
BEGIN(eigen, PARTS, PARTS * k)
    vec *f = BLOCK(0);
    LOAD(t->x, ITEM(l), f);
    for (size_t h = 0; h < PARTS; h++) NAME(cholesky)(f + h * square, k, good + h * VEC);
    NAME(decompose)(f, NULL, s, NULL, k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    for (size_t p = 0; p < k * PARTS; p++) s[p] *= s[p];
    PUT_VALUES(s, t->eigenvalues);
END(t->failed)

/* u diag(s) u^T */
BEGIN(compose, 3 * PARTS, PARTS * k)
    vec *u = BLOCK(0), *x = BLOCK(1), *y = BLOCK(2);
    LOAD(t->u, ITEM(l), u);
    GET_VALUES(t->s, s);
    for (size_t h = 0; h < PARTS; h++) {
        for (size_t p = 0; p < k; p++)
            for (size_t i = 0; i < k; i++) x[h * square + p * k + i] = u[h * square + p * k + i] * s[h * k + p];
        NAME(symmetric_outer)(x + h * square, u + h * square, y + h * square, k);
    }
    STORE(y, ITEM(l), t->out);
END(NULL)

/* u (b * (u^T g u)) u^T, with the symmetric part g of the derivative and first differences b at the values s */
BEGIN(derive, 4 * PARTS + 1, 4 * k)
    vec *u = BLOCK(0), *g = BLOCK(1), *x = BLOCK(2), *y = BLOCK(3), *b = BLOCK(4);
    LOAD(t->u, ITEM(l), u);
    LOAD(t->grad, ITEM(l), g);
    for (size_t h = 0; h < size; h += square) {
        for (size_t p = 0; p < k; p++)
            for (size_t l = 0; l < VEC; l++)
                s[p][l] = ((const REAL *)t->eigenvalues)[ITEM(h / square * VEC + l) * k + p];
        if (t->function == POWER) NAME(power_quotients)(s, (REAL)t->parameter, s + k, b, k);
        else NAME(log_quotients)(s, (REAL)t->parameter, s + k, b, k);
        NAME(symmetrise)(g + h, k, (REAL)0.5);
        NAME(multiply)(g + h, u + h, x + h, k, 1);
        NAME(symmetric_inner)(u + h, x + h, y + h, k);
        NAME(times)(y + h, b, x + h, k);
        NAME(multiply)(u + h, x + h, y + h, k, 1);
        NAME(symmetric_outer)(y + h, u + h, g + h, k);
    }
    STORE(g, ITEM(l), t->out);
END(NULL)

/* Eigenvalues from the singular values of a factor, lifted to the rounding level of the largest one, and their powers.  If
 * `definite`, lanes with eigenvalues at that level fail. */
static void NAME(powers)(vec *s, vec *power, REAL exponent, int definite, size_t k, int *good)
{
    for (size_t l = 0; l < VEC; l++) {
        REAL largest = 0;
        for (size_t p = 0; p < k; p++) largest = s[p][l] * s[p][l] > largest ? s[p][l] * s[p][l] : largest;
        const REAL floor = EPSILON * largest > TINY ? EPSILON * largest : TINY;
        for (size_t p = 0; p < k; p++) {
            const REAL value = s[p][l] * s[p][l];
            good[l] &= !definite || value > floor;
            s[p][l] = value > floor ? value : floor;
            power[p][l] = POW(s[p][l], exponent);
        }
    }
}

/* sum += sign h a^T, over the lanes */
static void NAME(add_outer)(const vec *h, const vec *a, vec *x, REAL *sum, REAL sign, size_t lanes, size_t k)
{
    NAME(outer)(h, a, x, k, 1);
    for (size_t i = 0; i < k; i++)
        for (size_t p = 0; p < k; p++)
            for (size_t l = 0; l < lanes; l++) sum[i * k + p] += sign * x[p * k + i][l];
}

/* Chart c^-1 u diag(s^p) for a = u diag(s) u^T, a factor of c^-1 a^2p c^-T up to an orthogonal matrix on the right; its
 * inverse (c a a^T c^T)^p */
BEGIN(chart, 2 * PARTS + 1, 2 * PARTS * k)
    vec *f = BLOCK(0), *out = BLOCK(1), *x = BLOCK(2), *power = s + PARTS * k;
    LOAD(t->a, ITEM(l), f);
    for (size_t h = 0; h < PARTS; h++) {
        if (t->inverse) {
            NAME(lower_multiply)(t->c, f + h * square, k);
        } else {
            NAME(symmetrise)(f + h * square, k, (REAL)0.5);
            NAME(cholesky)(f + h * square, k, good + h * VEC);
        }
    }
    NAME(decompose)(f, NULL, s, NULL, k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    for (size_t h = 0; h < PARTS; h++)
        NAME(powers)(s + h * k, power + h * k, (REAL)t->exponent, t->definite, k, good + h * VEC);
    PUT_VALUES(s, t->eigenvalues);
    for (size_t h = 0; h < PARTS; h++) {
        vec *scaled = t->inverse ? x : out + h * square;
        for (size_t i = 0; i < square; i++) scaled[i] = f[h * square + i] * power[h * k + i / k];
        if (t->inverse) NAME(symmetric_outer)(x, f + h * square, out + h * square, k);
        else NAME(lower_solve)(t->c, out + h * square, k);
    }
    STORE(out, ITEM(l), t->out);
END(NULL)

/* A vector of matrices in the derivative of chart or its inverse.  grad is replaced by the derivative in the matrices. */
typedef struct {
    const REAL *c;
    REAL exponent;
    const vec *a, *u, *eigenvalues;
    vec *grad;
    vec *x, *y, *logs; /* scratch: two matrices and 3 k vectors */
    REAL *grad_c;      /* to which the derivatives of `lanes` matrices are added */
    size_t lanes, k;
} NAME(deformation);

/* x <- the derivative in a power, in the frame of its eigenvectors, from that in the value.  Returns the derivative in the
 * exponent. */
static vec NAME(power_adjoint)(const NAME(deformation) *d)
{
    const size_t k = d->k;
    vec slope = {0};
    NAME(power_quotients)(d->eigenvalues, d->exponent, d->logs, d->y, k);
    for (size_t p = 0; p < k; p++) slope += d->x[p * k + p] * d->logs[p] * d->logs[2 * k + p];
    NAME(times)(d->x, d->y, d->x, k);
    NAME(multiply)(d->u, d->x, d->y, k, 1);
    return slope;
}

/* For functions of c^-1 u diag(s^p) that do not change when it is rotated. */
static vec NAME(deform_adjoint)(const NAME(deformation) *d)
{
    const size_t k = d->k;
    NAME(upper_solve)(d->c, d->grad, k);
    NAME(add_outer)(d->grad, d->a, d->x, d->grad_c, -1, d->lanes, k);
    NAME(inner)(d->u, d->grad, d->x, k, 1);
    NAME(symmetrise)(d->x, k, (REAL)0.5);
    const vec slope = NAME(power_adjoint)(d);
    NAME(symmetric_outer)(d->y, d->u, d->grad, k);
    return slope;
}

static vec NAME(restore_adjoint)(const NAME(deformation) *d)
{
    const size_t k = d->k;
    NAME(symmetrise)(d->grad, k, 1); /* twice the symmetric part */
    NAME(multiply)(d->grad, d->u, d->y, k, 1);
    NAME(symmetric_inner)(d->u, d->y, d->x, k);
    const vec slope = NAME(power_adjoint)(d);
    NAME(symmetric_outer)(d->y, d->u, d->x, k);
    memcpy(d->y, d->a, sizeof(vec) * k * k);
    NAME(lower_multiply)(d->c, d->y, k);
    NAME(multiply)(d->x, d->y, d->grad, k, 1); /* the derivative in c a */
    NAME(add_outer)(d->grad, d->a, d->x, d->grad_c, 1, d->lanes, k);
    NAME(upper_multiply)(d->c, d->grad, k);
    return (REAL)0.5 * slope;
}

BEGIN(chart_adjoint, 3 * PARTS + 2, PARTS * k + 3 * k)
    vec *u = BLOCK(0), *g = BLOCK(1), *a = BLOCK(2), *x = BLOCK(3);
    NAME(deformation) d = {.c = t->c, .exponent = (REAL)t->exponent, .x = x, .y = x + square, .logs = s + PARTS * k,
                           .grad_c = (REAL *)t->grad_c + start / LANES * square, .k = k};
    LOAD(t->u, ITEM(l), u);
    LOAD(t->grad, ITEM(l), g);
    LOAD(t->a, ITEM(l), a);
    GET_VALUES(t->eigenvalues, s);
    memset(d.grad_c, 0, sizeof(REAL) * square);
    for (size_t h = 0; h < PARTS; h++) {
        d.a = a + h * square, d.u = u + h * square, d.grad = g + h * square, d.eigenvalues = s + h * k;
        d.lanes = count <= h * VEC ? 0 : count - h * VEC < VEC ? count - h * VEC : VEC;
        const vec slope = t->inverse ? NAME(restore_adjoint)(&d) : NAME(deform_adjoint)(&d);
        for (size_t l = 0; l < d.lanes; l++) ((REAL *)t->grad_exponent)[start + h * VEC + l] = slope[l];
    }
    STORE(g, ITEM(l), t->grad_a);
END(NULL)

/* Charts of w^T x w for several orthogonal w at once: c^-1 w^T u diag(s^p) = d u diag(s^p), for x = u diag(s) u^T. */
BEGIN(mapped_chart, 2 * PARTS, 2 * PARTS * k)
    vec *f = BLOCK(0), *y = BLOCK(1), *power = s + PARTS * k;
    LOAD(t->x, ITEM(l), f);
    for (size_t h = 0; h < PARTS; h++) {
        NAME(symmetrise)(f + h * square, k, (REAL)0.5);
        NAME(cholesky)(f + h * square, k, good + h * VEC);
    }
    NAME(decompose)(f, NULL, s, NULL, k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    for (size_t h = 0; h < PARTS; h++)
        NAME(powers)(s + h * k, power + h * k, (REAL)t->exponent, t->definite, k, good + h * VEC);
    PUT_VALUES(s, t->eigenvalues);
    for (size_t i = 0; i < size; i++) f[i] *= power[i / k];
    for (size_t j = 0; j < t->maps; j++) {
        const REAL *d = (const REAL *)t->d + j * square;
        for (size_t h = 0; h < size; h += square) NAME(common_product)(f + h, k, 1, d, k, 1, y + h, k, 1, k, k, k);
        STORE(y, j * t->items + ITEM(l), t->out);
    }
END(NULL)

/* Its derivatives.  With g the derivative in c^-1 w^T r for r = u diag(s^p), and h = u m u^T the one in x that follows from
 * it, the sums over a block for the maps are those of g r^T and of 2 x h. */
BEGIN(mapped_chart_adjoint, 8 + 2 * t->maps, 4 * k)
    vec *u = buffer, *r = u + square, *xu = r + square, *b = xu + square, *g = b + square, *x = g + square;
    vec *y = x + square, *m = y + square, *sums = m + square, *logs = s + k;
    memset(sums, 0, sizeof(vec) * 2 * t->maps * square);
    for (size_t first = 0; first < count; first += VEC) {
        const size_t lanes = count - first < VEC ? count - first : VEC;
        vec slope = {0};
        for (size_t l = 0; l < VEC; l++) {
            from[l] = (const REAL *)t->u + ITEM(first + l) * square;
            for (size_t p = 0; p < k; p++) s[p][l] = ((const REAL *)t->eigenvalues)[ITEM(first + l) * k + p];
        }
        NAME(load)(from, u, k, 1);
        NAME(power_quotients)(s, (REAL)t->exponent, logs, b, k);
        for (size_t i = 0; i < square; i++) r[i] = u[i] * logs[2 * k + i / k], xu[i] = 2 * u[i] * s[i / k];
        memset(m, 0, sizeof(vec) * square);
        for (size_t j = 0; j < t->maps; j++) {
            const REAL *d = (const REAL *)t->d + j * square;
            for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->grad + (j * t->items + ITEM(first + l)) * square;
            NAME(load)(from, g, k, 1);
            for (size_t i = 0; i < square; i++)
                for (size_t l = lanes; l < VEC; l++) g[i][l] = 0; /* repeated items */
            NAME(outer)(g, r, x, k, 1);
            for (size_t i = 0; i < square; i++) sums[2 * j * square + i] += x[i];
            NAME(common_product)(g, k, 1, d, 1, k, y, k, 1, k, k, k);
            NAME(inner)(u, y, x, k, 1);
            NAME(symmetrise)(x, k, (REAL)0.5);
            for (size_t p = 0; p < k; p++) slope += x[p * k + p] * logs[p] * logs[2 * k + p];
            NAME(times)(x, b, x, k);
            for (size_t i = 0; i < square; i++) m[i] += x[i];
            NAME(multiply)(xu, x, y, k, 1);
            NAME(outer)(y, u, x, k, 1);
            for (size_t i = 0; i < square; i++) sums[(2 * j + 1) * square + i] += x[i];
        }
        NAME(multiply)(u, m, y, k, 1);
        NAME(symmetric_outer)(y, u, x, k);
        for (size_t l = 0; l < VEC; l++) to[l] = (REAL *)t->grad_x + ITEM(first + l) * square;
        NAME(store)(x, to, k, lanes);
        for (size_t l = 0; l < lanes; l++) ((REAL *)t->grad_exponent)[start + first + l] = slope[l];
    }
    for (size_t j = 0; j < 2 * t->maps; j++) {
        REAL *sum = (REAL *)t->sums + (start / LANES * 2 * t->maps + j) * square;
        for (size_t i = 0; i < square; i++) {
            const vec x = sums[j * square + i % k * k + i / k];
            sum[i] = 0;
            for (size_t l = 0; l < VEC; l++) sum[i] += x[l];
        }
    }
END(NULL)

BEGIN(procrustes, 6 * PARTS + 4, PARTS * k)
    vec *a = BLOCK(0), *b = BLOCK(1), *f = BLOCK(2), *v = BLOCK(3), *q = BLOCK(4), *x = BLOCK(5), *wide = BLOCK(6);
    LOAD(t->a, (size_t)t->index_a[ITEM(l)], a);
    LOAD(t->b, (size_t)t->index_b[ITEM(l)], b);
    int hard[LANES], any = 0;
    NAME(inner)(b, a, f, k, PARTS);
    memcpy(q, f, sizeof(vec) * size);
    for (size_t h = 0; h < size; h += square) NAME(polar)(q + h, v, v + square, x, x + square, wide, k, hard + h / square * VEC);
    EACH_LANE any |= hard[l];
    if (any) {
        NAME(decompose)(f, v, s, x, k, FRESH, 0, good);
        NAME(outer)(f, v, x, k, PARTS);
        for (size_t h = 0; h < PARTS; h++) {
            mask which;
            for (size_t l = 0; l < VEC; l++) which[l] = hard[h * VEC + l] ? -1 : 0;
            for (size_t i = h * square; i < (h + 1) * square; i++) q[i] = NAME(choose)(which, x[i], q[i]);
        }
    }
    NAME(multiply)(b, q, x, k, PARTS);
    for (size_t i = 0; i < size; i++) x[i] = a[i] - x[i];
    for (size_t h = 0; h < PARTS; h++) {
        const vec value = NAME(dot)(x + h * square, x + h * square, k);
        for (size_t l = h * VEC; l < (h + 1) * VEC && l < count; l++) ((REAL *)t->square)[start + l] = value[l % VEC];
    }
    if (t->grad_a) {
        STORE(x, ITEM(l), t->grad_a);
        NAME(outer)(a, q, x, k, PARTS);
        for (size_t i = 0; i < size; i++) x[i] = b[i] - x[i];
        STORE(x, ITEM(l), t->grad_b);
    }
END(t->failed)

/* A factor of the mean of b b^T over the points */
BEGIN(bures_start, 3, 0)
    const size_t m = t->m;
    vec *b = buffer, *product = b + square, *sum = product + square;
    for (size_t first = 0; first < count; first += VEC) {
        const vec share = NAME(all)(1 / (REAL)m);
        memset(sum, 0, sizeof(vec) * square);
        for (size_t j = 0; j < m; j++) {
            for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->b + (ITEM(first + l) * m + j) * square;
            NAME(load)(from, b, k, 1);
            NAME(symmetric_outer)(b, b, product, k);
            NAME(add)(product, &share, sum, k, 1);
        }
        NAME(cholesky)(sum, k, good + first);
        for (size_t l = 0; l < VEC; l++) to[l] = (REAL *)t->base + ITEM(first + l) * square;
        NAME(store)(sum, to, k, count - first < VEC ? count - first : VEC);
    }
END(NULL)

BEGIN(bures_frames, 5 * PARTS, PARTS * k)
    vec *n = BLOCK(0), *b = BLOCK(1), *f = BLOCK(2), *v = BLOCK(3), *x = BLOCK(4);
    LOAD(t->n, ITEM(l) / t->m, n);
    LOAD(t->b, ITEM(l), b);
    NAME(inner)(n, b, f, k, PARTS);
    NAME(decompose)(f, v, s, x, k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    if (t->before) {
        LOAD(t->before, ITEM(l), n);
        NAME(multiply)(n, v, x, k, PARTS);
        STORE(x, ITEM(l), t->v);
    } else {
        STORE(v, ITEM(l), t->v);
    }
    NAME(multiply)(b, v, x, k, PARTS);
    STORE(x, ITEM(l), t->rotated);
    NAME(outer)(x, f, b, k, PARTS);
    STORE(b, ITEM(l), t->aligned);
END(NULL)

BEGIN(bures_step, 5 * PARTS, PARTS * k)
    const size_t m = t->m;
    vec *n = BLOCK(0), *b = BLOCK(1), *f = BLOCK(2), *aligned = BLOCK(3), *next = BLOCK(4);
    vec weight[PARTS];
    LOAD(t->n, ITEM(l), n);
    memset(next, 0, sizeof(vec) * size);
    for (size_t j = 0; j < m; j++) { /* points are unique up to rotations of their columns, and are returned rotated */
        EACH_LANE ((REAL *)weight)[l] = ((const REAL *)t->w)[ITEM(l) * m + j];
        LOAD(t->b, ITEM(l) * m + j, b);
        NAME(inner)(n, b, f, k, PARTS);
        NAME(decompose)(f, b, s, NULL, k, COMPANION, (REAL)t->tolerance, good);
        NAME(outer)(b, f, aligned, k, PARTS);
        NAME(add)(aligned, weight, next, k, PARTS);
        STORE(b, ITEM(l) * m + j, t->rotated);
    }
    STORE(next, ITEM(l), t->next);
    for (size_t h = 0; h < PARTS; h++) {
        vec change = NAME(distance)(next + h * square, n + h * square, k);
        vec length = NAME(dot)(n + h * square, n + h * square, k), value = NAME(root)(change / length);
        for (size_t l = h * VEC; l < (h + 1) * VEC && l < count; l++) ((REAL *)t->residual)[start + l] = value[l % VEC];
    }
END(t->failed)

/* All steps to a mean, in frames of a common start: the points are rotated once so that u^T n^T b is nearly diagonal, and u
 * is updated with n.  Lanes that converge slowly get new frames, and fail if these do not help for several steps. */
BEGIN(bures_iteration, 9 + 2 * t->m + 2 * PARTS, t->m * k + 2 * t->m + PARTS * k)
    const size_t m = t->m;
    NAME(iteration) a = {.n = buffer, .next = buffer + square, .move = buffer + 2 * square, .new = buffer + 4 * square,
                   .x = buffer + 6 * square, .y = buffer + 7 * square, .z = buffer + 8 * square, .u = buffer + 9 * square,
                   .b = buffer + (9 + m) * square, .lengths = s, .weights = s + m * k, .defect = s + m * k + m, .k = k,
                   .m = m, .enough = (REAL)t->tolerance / 10 > EPSILON ? (REAL)t->tolerance / 10 : EPSILON};
    vec *f = buffer + (9 + 2 * m) * square, *v = f + size, *values = s + m * k + 2 * m;
    for (size_t first = 0; first < count; first += VEC) { /* one vector of problems at a time */
        REAL last[VEC], before[VEC], doubt[VEC]; /* residuals of the last two steps, and error of the last frames */
        int fit[VEC], open[VEC], past[VEC], tried[VEC], left = 0; /* past: steps in these frames; tried: how often frames were renewed */
        for (size_t l = 0; l < VEC; l++) {
            left += open[l] = fit[l] = first + l < count;
            past[l] = tried[l] = 0;
            last[l] = before[l] = doubt[l] = INFINITY;
            from[l] = (const REAL *)t->n + ITEM(first + l) * square;
        }
        NAME(load)(from, a.n, k, 1);
        if (t->base) { /* a past step, for the acceleration */
            for (size_t l = 0; l < VEC; l++) {
                from[l] = (const REAL *)t->base + ITEM(first + l) / t->q * square;
                past[l] = 1;
            }
            NAME(load)(from, a.x, k, 1);
            for (size_t i = 0; i < square; i++) a.move[i] = a.n[i] - a.x[i], a.new[i] = a.n[i];
        }
        for (size_t j = 0; j < m; j++) {
            for (size_t l = 0; l < VEC; l++) a.weights[j][l] = ((const REAL *)t->w)[ITEM(first + l) * m + j];
            for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->u + (ITEM(first + l) / t->q * m + j) * square;
            NAME(load)(from, a.u + j * square, k, 1);
            for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->b + (ITEM(first + l) / t->q * m + j) * square;
            NAME(load)(from, a.b + j * square, k, 1);
            NAME(start_frame)(&a, j, ~(mask){0});
        }
        for (size_t taken = 0; left; taken++) {
            vec defect, rest, error = NAME(step_in_frames)(&a, fit, &defect, &rest);
            vec change = NAME(root)(NAME(distance)(a.next, a.n, k)), norm = NAME(root)(NAME(dot)(a.n, a.n, k));
            mask stuck = {0};
            for (size_t l = 0; l < VEC; l++) {
                if (!open[l]) continue;
                /* includes an estimate of the error of the frames, which fall at least as fast as their rotations do */
                const REAL rate = error[l] < doubt[l] ? error[l] / doubt[l] : 1, wrong = rate * error[l];
                const REAL residual = (change[l] + (wrong < rest[l] ? wrong : rest[l])) / norm[l], slow = SLOW * before[l];
                before[l] = last[l], last[l] = residual, doubt[l] = error[l];
                const size_t item = start + first + l;
                good[first + l] = fit[l] && residual <= (REAL)t->tolerance && defect[l] <= a.enough;
                if (!good[first + l] && taken < t->max_steps) {
                    if (fit[l] && residual <= slow) continue;
                    if (tried[l] < MAX_FRAMES || past[l] > 2) { /* repeat the step in new frames */
                        stuck[l] = -1, fit[l] = 1, past[l] = -1, tried[l]++;
                        last[l] = before[l] = doubt[l] = INFINITY;
                        continue;
                    }
                }
                for (size_t i = 0; i < k; i++) /* the last iterate, unless it is wrong */
                    for (size_t p = 0; p < k; p++)
                        ((REAL *)t->mean)[(item * k + i) * k + p] =
                            fit[l] ? a.n[p * k + i][l] : ((const REAL *)t->n)[(item * k + i) * k + p];
                ((REAL *)t->residual)[item] = residual;
                t->steps[item] = (int64_t)taken;
                open[l] = 0, left--;
            }
            if (NAME(some)(stuck)) NAME(renew_frames)(&a, f, v, values, stuck);
            NAME(mix)(a.n, a.next, a.move, a.new, k, past, stuck);
            for (size_t l = 0; l < VEC; l++) past[l]++;
        }
    }
END(t->failed)

/* sum of w u diag(log(s^2)) u^T over p^T b = u diag(s) v^T, and the step size along it that is optimal for a linear
 * equation */
BEGIN(affine_slope, 4 * PARTS + 1, PARTS * k)
    const size_t m = t->m;
    vec *n = BLOCK(0), *b = BLOCK(1), *f = BLOCK(2), *sum = BLOCK(3), *spare = BLOCK(4), weight[PARTS], steep[PARTS];
    LOAD(t->p, ITEM(l), n);
    memset(sum, 0, sizeof(vec) * size);
    memset(steep, 0, sizeof(steep));
    for (size_t j = 0; j < m; j++) {
        EACH_LANE ((REAL *)weight)[l] = ((const REAL *)t->w)[ITEM(l) * m + j];
        LOAD(t->b, ITEM(l) * m + j, b);
        NAME(inner)(n, b, f, k, PARTS);
        NAME(decompose)(f, NULL, s, NULL, k, FRESH, 0, good);
        for (size_t h = 0; h < PARTS; h++) {
            vec *u = f + h * square, *x = b + h * square;
            vec most = NAME(all)(-INFINITY), least = NAME(all)(INFINITY);
            for (size_t p = 0; p < k; p++) {
                const vec log = NAME(logs)(s[h * k + p]);
                most = NAME(larger)(log, most), least = -NAME(larger)(-log, -least);
                for (size_t i = 0; i < k; i++) x[p * k + i] = 2 * log * u[p * k + i];
            }
            for (size_t l = 0; l < VEC; l++) {
                const REAL half = most[l] - least[l];
                steep[h][l] += weight[h][l] * (half > 0 ? half / TANH(half) : 1);
            }
            NAME(symmetric_outer)(x, u, spare, k);
            NAME(add)(spare, weight + h, sum + h * square, k, 1);
        }
    }
    STORE(sum, ITEM(l), t->slope);
    for (size_t l = 0; l < count; l++) ((REAL *)t->tau)[start + l] = 2 / (1 + steep[l / VEC][l % VEC]);
END(t->failed)

/* The derivative of a mean.  n is first rotated, which gives a factor of the same mean, to nearly orthogonal columns, for
 * which the linear equation is nearly diagonal; the rotation starts from the frame of the first point.  For affine-invariant
 * means, the equation is already close to the identity. */
BEGIN(mean_adjoint, PARTS * (4 + 2 * t->m) + 8 + t->m, PARTS * (t->m + 1) * k + t->m + 2 * k)
    const size_t m = t->m;
    const int affine = t->affine;
    vec *n = BLOCK(0), *b = BLOCK(1), *rotation = BLOCK(2), *grad = BLOCK(3), *u = BLOCK(4), *v = BLOCK(4 + m);
    vec *h = BLOCK(4 + 2 * m), *right = h + m * square, *z = right + square, *scale = z + square, *spare = scale + square;
    vec *x = spare + square, *y = x + square, *p = y + square, *q = p + square;
    vec *values = s + PARTS * k, *weights = values + PARTS * m * k, *logs = weights + m;
    const REAL precision = (REAL)t->tolerance / 100; /* of the frames: ill-conditioned points amplify their errors */
    LOAD(t->n, ITEM(l), n);
    for (size_t j = 0; j < m; j++) {
        LOAD(t->b, ITEM(l) / t->q * m + j, b);
        NAME(inner)(n, b, u + j * size, k, PARTS);
        NAME(decompose)(u + j * size, v + j * size, values + j * PARTS * k, h, k, ROUGH, precision, good);
        if (j > 0 || affine) continue;
        memcpy(rotation, u, sizeof(vec) * size);
        NAME(multiply)(n, rotation, b, k, PARTS);
        NAME(decompose)(b, rotation, s, NULL, k, COMPANION, (REAL)0.01, good);
        for (size_t i = 0; i < size; i++) n[i] = b[i] * s[i / k];
        NAME(inner)(rotation, u, b, k, PARTS);
        memcpy(u, b, sizeof(vec) * size);
        LOAD(t->grad, ITEM(l), b); /* the derivative in the mean */
        NAME(multiply)(b, rotation, grad, k, PARTS);
    }
    if (affine) LOAD(t->grad, ITEM(l), grad);
    for (size_t part = 0; part * VEC < count; part++) {
        const size_t at = part * square, lanes = count - part * VEC < VEC ? count - part * VEC : VEC;
        vec *squares = s + part * k;
        if (affine) {
            memcpy(right, grad + at, sizeof(vec) * square);
            for (size_t i = 0; i < square; i++) scale[i] = NAME(all)(1);
        } else {
            NAME(inner)(n + at, grad + at, right, k, 1);
            NAME(symmetrise)(right, k, (REAL)0.25);
            for (size_t i = 0; i < k; i++) squares[i] *= squares[i];
            NAME(harmonic)(squares, scale, k, 0);
            for (size_t i = 0; i < square * VEC; i++) ((REAL *)scale)[i] = 1 / SQRT(((REAL *)scale)[i]);
        }
        for (size_t j = 0; j < m; j++) {
            for (size_t l = 0; l < VEC; l++) weights[j][l] = ((const REAL *)t->w)[ITEM(part * VEC + l) * m + j];
            const vec *value = values + (j * PARTS + part) * k;
            if (affine) NAME(logarithmic)(value, logs, h + j * square, k, 0);
            else NAME(harmonic)(value, h + j * square, k, 0);
        }
        NAME(equation) system = {.u = u + at, .h = h, .w = weights, .scale = scale, .p = p, .q = q, .x = x, .y = y,
                                 .k = k, .m = m, .stride = size};
        NAME(conjugate)(&system, right, z, spare, (REAL)t->tolerance, good + part * VEC);
        NAME(symmetrise)(z, k, (REAL)0.5);
        for (size_t j = 0; j < m; j++) {
            const vec *value = values + (j * PARTS + part) * k, *uj = u + j * size + at, twice = 2 * weights[j];
            vec sum = {0};
            NAME(multiply)(z, uj, x, k, 1);
            NAME(symmetric_inner)(uj, x, y, k);
            for (size_t i = 0; i < k; i++) {
                if (affine) sum += y[i * k + i] * 2 * NAME(logs)(value[i]);
                else sum += y[i * k + i] * value[i];
            }
            if (affine) NAME(logarithmic)(value, logs, h, k, 1);
            else NAME(harmonic)(value, h, k, 1);
            for (size_t i = 0; i < square; i++) x[i] = twice * y[i] * h[i];
            NAME(multiply)(n + at, uj, y, k, 1);
            NAME(multiply)(y, x, spare, k, 1);
            NAME(outer)(spare, v + j * size + at, y, k, 1);
            for (size_t l = 0; l < lanes; l++) {
                const size_t item = (start + part * VEC + l) * m + j;
                ((REAL *)t->grad_w)[item] = sum[l];
                to[l] = (REAL *)t->grad_b + item * square;
            }
            NAME(store)(y, to, k, lanes);
        }
    }
END(t->failed)

#undef BEGIN
#undef END
#undef BLOCK
#undef ITEM
#undef LOAD
#undef STORE
#undef PUT_VALUES
#undef GET_VALUES
