/* Polar factors u v^T of f = u diag(s) v^T, without a decomposition.  Part of _jacobi.h.
 *
 * Halley's method with weights (Nakatsukasa, Bai, Gygi 2010): x (a + b x^2) / (1 + c x^2) maps singular values between
 * least and 1 as close to 1 as a function of this kind can: from 1e-6 in three steps.  One takes a product and a Cholesky
 * decomposition.  The first squares the condition, and is in double precision where single would not do.
 */

/* Rows of a block of three, the last ones repeated. */
#define THREE(i, k) i, i + 1 < (k) ? i + 1 : i, i + 2 < (k) ? i + 2 : i

/* Three rows of three columns of a matrix. */
typedef struct {
    vec c00, c10, c20, c01, c11, c21, c02, c12, c22;
} NAME(block);

/* scale f - x l^T over the columns before p, in a block of columns from p on. */
INLINE NAME(block) NAME(remainder)(const vec *f, vec scale, const vec *x, const vec *l, size_t k, size_t p, const size_t *row)
{
    const vec *f0 = f + p * k, *f1 = f0 + k, *f2 = f1 + k;
    vec c00 = scale * f0[row[0]], c10 = scale * f0[row[1]], c20 = scale * f0[row[2]];
    vec c01 = scale * f1[row[0]], c11 = scale * f1[row[1]], c21 = scale * f1[row[2]];
    vec c02 = scale * f2[row[0]], c12 = scale * f2[row[1]], c22 = scale * f2[row[2]];
    for (size_t j = 0; j < p; j++) {
        const vec *done = x + j * k, x0 = done[row[0]], x1 = done[row[1]], x2 = done[row[2]];
        const vec y0 = l[j * k + p], y1 = l[j * k + p + 1], y2 = l[j * k + p + 2];
        c00 -= x0 * y0, c10 -= x1 * y0, c20 -= x2 * y0;
        c01 -= x0 * y1, c11 -= x1 * y1, c21 -= x2 * y1;
        c02 -= x0 * y2, c12 -= x1 * y2, c22 -= x2 * y2;
    }
    return (NAME(block)){c00, c10, c20, c01, c11, c21, c02, c12, c22};
}

/* x <- a remainder, divided by the block of l^T on the diagonal. */
INLINE void NAME(settle)(NAME(block) b, const vec *l, vec *x, size_t k, size_t p, const size_t *row)
{
    const vec *l0 = l + p * k, *l1 = l0 + k, *l2 = l1 + k;
    const vec x10 = l0[p + 1], x20 = l0[p + 2], x21 = l1[p + 2], d0 = l0[p], d1 = l1[p + 1], d2 = l2[p + 2];
    vec *o0 = x + p * k, *o1 = o0 + k, *o2 = o1 + k;
    const vec c00 = b.c00 * d0, c10 = b.c10 * d0, c20 = b.c20 * d0;
    const vec c01 = (b.c01 - c00 * x10) * d1, c11 = (b.c11 - c10 * x10) * d1, c21 = (b.c21 - c20 * x10) * d1;
    o0[row[0]] = c00, o0[row[1]] = c10, o0[row[2]] = c20;
    o1[row[0]] = c01, o1[row[1]] = c11, o1[row[2]] = c21;
    o2[row[0]] = (b.c02 - c00 * x20 - c01 * x21) * d2, o2[row[1]] = (b.c12 - c10 * x20 - c11 * x21) * d2;
    o2[row[2]] = (b.c22 - c20 * x20 - c21 * x21) * d2;
}

/* l <- the Cholesky factor of scale * g + ridge, below its diagonal, and the inverses of the diagonal on it; pivots that are
 * not positive are replaced.  Returns the least pivot, an upper bound of the smallest eigenvalue that is usually close. */
static vec NAME(factorise)(const vec *g, vec scale, REAL ridge, vec *l, size_t k)
{
    const vec tiny = NAME(all)(TINY);
    vec least = NAME(all)(INFINITY);
    size_t p = 0;
    for (; p + 3 <= k; p += 3) {
        vec *l0 = l + p * k, *l1 = l0 + k, *l2 = l1 + k;
        for (size_t i = p; i < k; i += 3) {
            const size_t row[3] = {THREE(i, k)};
            NAME(block) b = NAME(remainder)(g, scale, l, l, k, p, row);
            if (i > p) {
                NAME(settle)(b, l, l, k, p, row);
                continue;
            }
            b.c00 += ridge;
            l0[p] = NAME(inverse_root)(NAME(larger)(b.c00, tiny));
            l0[p + 1] = b.c10 * l0[p], l0[p + 2] = b.c20 * l0[p];
            b.c11 += ridge - l0[p + 1] * l0[p + 1];
            l1[p + 1] = NAME(inverse_root)(NAME(larger)(b.c11, tiny));
            l1[p + 2] = (b.c21 - l0[p + 2] * l0[p + 1]) * l1[p + 1];
            b.c22 += ridge - l0[p + 2] * l0[p + 2] - l1[p + 2] * l1[p + 2];
            l2[p + 2] = NAME(inverse_root)(NAME(larger)(b.c22, tiny));
            least = -NAME(larger)(NAME(larger)(-b.c00, -b.c11), NAME(larger)(-b.c22, -least));
        }
    }
    for (; p < k; p++) {
        vec *column = l + p * k;
        for (size_t i = p; i < k; i++) column[i] = scale * g[p * k + i];
        for (size_t j = 0; j < p; j++)
            for (size_t i = p; i < k; i++) column[i] -= l[j * k + p] * l[j * k + i];
        column[p] += ridge;
        least = -NAME(larger)(-column[p], -least);
        column[p] = NAME(inverse_root)(NAME(larger)(column[p], tiny));
        for (size_t i = p + 1; i < k; i++) column[i] *= column[p];
    }
    return least;
}

/* x <- f l^-T */
static void NAME(divide_forward)(const vec *f, const vec *l, vec *x, size_t k)
{
    size_t p = 0;
    for (; p + 3 <= k; p += 3)
        for (size_t i = 0; i < k; i += 3) {
            const size_t row[3] = {THREE(i, k)};
            NAME(settle)(NAME(remainder)(f, NAME(all)(1), x, l, k, p, row), l, x, k, p, row);
        }
    for (; p < k; p++)
        for (size_t i = 0; i < k; i++) {
            vec c = f[p * k + i];
            for (size_t j = 0; j < p; j++) c -= x[j * k + i] * l[j * k + p];
            x[p * k + i] = c * l[p * k + p];
        }
}

/* x <- x l^-1, and f <- share f + rest x */
static void NAME(divide_backward)(vec *restrict x, const vec *restrict l, vec *restrict f, vec share, vec rest, size_t k)
{
    size_t p = k;
    for (; p % 3; p--)
        for (size_t i = 0; i < k; i++) {
            vec c = x[(p - 1) * k + i];
            for (size_t j = p; j < k; j++) c -= x[j * k + i] * l[(p - 1) * k + j];
            x[(p - 1) * k + i] = c *= l[(p - 1) * k + p - 1];
            f[(p - 1) * k + i] = share * f[(p - 1) * k + i] + rest * c;
        }
    for (; p > 0;) {
        p -= 3;
        const vec *l0 = l + p * k, *l1 = l0 + k, *l2 = l1 + k;
        const vec x10 = l0[p + 1], x20 = l0[p + 2], x21 = l1[p + 2], d0 = l0[p], d1 = l1[p + 1], d2 = l2[p + 2];
        vec *x0 = x + p * k, *x1 = x0 + k, *x2 = x1 + k, *f0 = f + p * k;
        for (size_t i = 0; i < k; i += 3) {
            const size_t row[3] = {THREE(i, k)};
            vec c00 = x0[row[0]], c10 = x0[row[1]], c20 = x0[row[2]], c01 = x1[row[0]], c11 = x1[row[1]], c21 = x1[row[2]];
            vec c02 = x2[row[0]], c12 = x2[row[1]], c22 = x2[row[2]];
            for (size_t j = p + 3; j < k; j++) {
                const vec *done = x + j * k, y0 = l0[j], y1 = l1[j], y2 = l2[j];
                const vec a = done[row[0]], b = done[row[1]], c = done[row[2]];
                c00 -= a * y0, c10 -= b * y0, c20 -= c * y0;
                c01 -= a * y1, c11 -= b * y1, c21 -= c * y1;
                c02 -= a * y2, c12 -= b * y2, c22 -= c * y2;
            }
            c02 *= d2, c12 *= d2, c22 *= d2;
            c01 = (c01 - c02 * x21) * d1, c11 = (c11 - c12 * x21) * d1, c21 = (c21 - c22 * x21) * d1;
            c00 = (c00 - c01 * x10 - c02 * x20) * d0, c10 = (c10 - c11 * x10 - c12 * x20) * d0;
            c20 = (c20 - c21 * x10 - c22 * x20) * d0;
            x0[row[0]] = c00, x0[row[1]] = c10, x0[row[2]] = c20;
            x1[row[0]] = c01, x1[row[1]] = c11, x1[row[2]] = c21;
            x2[row[0]] = c02, x2[row[1]] = c12, x2[row[2]] = c22;
        }
        for (size_t i = 0; i < 3 * k; i++) f0[i] = share * f0[i] + rest * x0[i];
    }
}

/* f <- the best step for singular values from least to 1, with g = f^T f; least is updated.  Lanes in stay do not change.
 * l, x: scratch. */
static void NAME(approach)(vec *f, const vec *g, vec *least, mask stay, vec *l, vec *x, size_t k)
{
    const vec square = *least * *least, cube = 4 * (1 - square) / (square * square), zero = {0}, one = NAME(all)(1);
    vec d;
    for (size_t i = 0; i < VEC; i++) d[i] = CBRT(cube[i]);
    const vec first = NAME(root)(1 + d), second = 8 - 4 * d + 8 * (2 - square) / (square * first);
    const vec a = first + NAME(root)(NAME(larger)(second, zero)) / 2, b = (a - 1) * (a - 1) / 4, c = a + b - 1;
    const vec after = *least * (a + b * square) / (1 + c * square), share = b / c;
    *least = NAME(choose)(stay, *least, -NAME(larger)(-after, -one));
    NAME(factorise)(g, NAME(choose)(stay, zero, c), 1, l, k);
    NAME(divide_forward)(f, l, x, k);
    NAME(divide_backward)(x, l, f, NAME(choose)(stay, one, share), NAME(choose)(stay, zero, a - share), k);
}

/* |g - 1|^2 */
static vec NAME(from_identity)(const vec *g, size_t k)
{
    vec sum[4] = {{0}, {0}, {0}, {0}};
    for (size_t p = 0; p < k; p++) {
        size_t i = 0;
        const vec one = g[p * k + p] - 1;
        for (; i + 3 < p; i += 4)
            for (size_t j = 0; j < 4; j++) sum[j] += g[p * k + i + j] * g[p * k + i + j];
        for (; i < p; i++) sum[0] += g[p * k + i] * g[p * k + i];
        sum[1] += (REAL)0.5 * one * one;
    }
    return 2 * ((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Scale f and g = f^T f so that no singular value of f exceeds 1.  Returns an estimate of the smallest one; x is scratch. */
static vec NAME(scale_down)(vec *f, vec *g, vec *x, size_t k)
{
    const vec scale = 1 / NAME(root)(NAME(dot)(g, g, k)), root = NAME(root)(scale);
    const vec least = NAME(factorise)(g, scale, 0, x, k);
    for (size_t i = 0; i < k * k; i++) f[i] *= root, g[i] *= scale;
    return NAME(root)(NAME(larger)(least, (vec){0})) / 2;
}

#if DOUBLE
/* Scale f and take the first step to its polar factor.  Returns the least singular value after it; hard is set for lanes that
 * are too ill-conditioned for double precision.  x: three matrices of scratch. */
static vec NAME(first_step)(vec *f, vec *x, size_t k, int *hard)
{
    const size_t square = k * k;
    NAME(symmetric_inner)(f, f, x, k);
    vec least = NAME(scale_down)(f, x, x + square, k);
    for (size_t i = 0; i < VEC; i++) {
        hard[i] = !(least[i] >= ROUNDABLE);
        if (hard[i]) least[i] = 1;
    }
    NAME(approach)(f, x, &least, (mask){0}, x + square, x + 2 * square, k);
    return least;
}
#else
/* The same in double precision, in some lanes.  x: four matrices of scratch. */
static void NAME(first_step)(vec *f, ARCHITECTURE(vector_f64) *x, vec *least, mask which, size_t k, int *hard)
{
    const size_t half = VEC / 2;
    for (size_t first = 0; first < VEC; first += half) {
        int beyond[VEC];
        mask these = which; /* in this half */
        for (size_t i = 0; i < k * k; i++) {
            const float *narrow = (const float *)(f + i) + first;
            double *wide = (double *)(x + i);
            for (size_t l = 0; l < half; l++) wide[l] = narrow[l];
        }
        const ARCHITECTURE(vector_f64) after = ARCHITECTURE(first_step_f64)(x, x + k * k, k, beyond);
        for (size_t l = 0; l < half; l++) {
            these[(first + half + l) % VEC] = 0;
            if (which[first + l]) hard[first + l] = beyond[l], (*least)[first + l] = (REAL)after[l];
        }
        for (size_t i = 0; i < k * k; i++) {
            const double *wide = (const double *)(x + i);
            vec narrow;
            for (size_t l = 0; l < half; l++) ((float *)&narrow)[l] = ((float *)&narrow)[half + l] = (float)wide[l];
            f[i] = NAME(choose)(these, narrow, f[i]);
        }
    }
}
#endif

/* f <- f (1 + h / 2 + 3/8 h^2 + 5/16 h^3 + 35/128 h^4) with h = 1 - g, a truncated series of f g^-1/2; only three terms if
 * off, the squared norm of h, is small enough.  g is overwritten; x, y, z: scratch. */
static void NAME(end)(vec *f, vec *g, vec off, vec *x, vec *y, vec *z, size_t k)
{
    const mask many = ~(mask)(off <= (REAL)NEARLY);
    for (size_t i = 0; i < k * k; i++) g[i] = -g[i];
    for (size_t p = 0; p < k; p++) g[p * k + p] += 1;
    NAME(symmetric_inner)(g, g, x, k);
    if (NAME(some)(many)) {
        const vec third = (vec)((mask)NAME(all)((REAL)0.3125) & many), fourth = (vec)((mask)NAME(all)((REAL)0.2734375) & many);
        for (size_t i = 0; i < k * k; i++) y[i] = third * g[i] + fourth * x[i];
        NAME(symmetric_inner)(x, y, z, k);
        for (size_t i = 0; i < k * k; i++) g[i] = (REAL)0.5 * g[i] + (REAL)0.375 * x[i] + z[i];
    } else {
        for (size_t i = 0; i < k * k; i++) g[i] = (REAL)0.5 * g[i] + (REAL)0.375 * x[i];
    }
    NAME(multiply)(f, g, x, k, 1);
    for (size_t i = 0; i < k * k; i++) f[i] += x[i];
}

/* f <- u v^T, except in lanes that are hard.  g, l, x, y: scratch; wide: four matrices of scratch in double precision, if f is
 * in single precision. */
static void NAME(polar)(vec *f, vec *g, vec *l, vec *x, vec *y, void *wide, size_t k, int *hard)
{
    vec unit, off;
    NAME(normalise)(f, &unit, 1, k, 1);
    NAME(symmetric_inner)(f, f, g, k);
    vec least = NAME(scale_down)(f, g, x, k);
    const mask ill = ~(mask)(least >= (REAL)SQUARABLE);
    for (size_t i = 0; i < VEC; i++) hard[i] = ill[i] != 0;
#if !DOUBLE
    if (NAME(some)(ill)) {
        NAME(first_step)(f, wide, &least, ill, k, hard);
        NAME(symmetric_inner)(f, f, x, k);
        for (size_t i = 0; i < k * k; i++) g[i] = NAME(choose)(ill, x[i], g[i]);
    }
#else
    (void)wide;
#endif
    for (int step = 0; step <= MAX_HALLEY; step++) { /* lanes that have converged do not change */
        off = NAME(from_identity)(g, k);
        mask stay = {0};
        int left = 0;
        for (size_t i = 0; i < VEC; i++) {
            stay[i] = hard[i] || off[i] <= (REAL)NEAR ? -1 : 0;
            hard[i] |= !stay[i] && step == MAX_HALLEY; /* also for NaN */
            left |= !stay[i];
            const REAL known = off[i] < 1 ? SQRT(1 - SQRT(off[i])) : 0; /* lower bound of the singular values */
            if (least[i] > (REAL)0.99) least[i] = (REAL)0.1; /* otherwise this lane would have converged */
            if (!(least[i] >= known)) least[i] = known;
        }
        if (!left || step == MAX_HALLEY) break;
        NAME(approach)(f, g, &least, stay, l, x, k);
        NAME(symmetric_inner)(f, f, g, k);
    }
    NAME(end)(f, g, off, x, y, l, k);
}
#undef THREE
