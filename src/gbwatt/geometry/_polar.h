/* Polar factors by products of matrices alone.  Part of _jacobi.h. */

/* Odd polynomials a x + b x^3 + c x^5 that bring [least, 1] closest to 1, relative to their largest value there; the image
 * of one is the interval of the next, and that of the last is 1, to rounding. */
typedef struct {
    REAL least, a, b, c;
} NAME(polynomial);
static const NAME(polynomial) NAME(polynomials)[] = {
    {(REAL)0.001, (REAL)4.25317725, (REAL)-12.6074317, (REAL)9.35425449},
    {(REAL)0.00425316, (REAL)4.24023066, (REAL)-12.498888, (REAL)9.25865731},
    {(REAL)0.0180334, (REAL)4.18511483, (REAL)-12.0438218, (REAL)8.85870695},
    {(REAL)0.0754014, (REAL)3.95389308, (REAL)-10.2557236, (REAL)7.3018305},
    {(REAL)0.29375, (REAL)3.1568366, (REAL)-5.45688298, (REAL)3.30004637},
    {(REAL)0.796221, (REAL)2.10106257, (REAL)-1.74484566, (REAL)0.643783088},
    {1, (REAL)1.875, (REAL)-1.25, (REAL)0.375},
};
#define LAST (sizeof(NAME(polynomials)) / sizeof(NAME(polynomial)) - 1)

/* The least pivot of a symmetric matrix, which is not below its smallest eigenvalue, and seldom far above; x is scratch. */
static vec NAME(least_pivot)(const vec *g, vec *x, size_t k)
{
    vec least = NAME(all)(INFINITY);
    for (size_t p = 0; p < k; p++) {
        vec *column = x + p * k;
        for (size_t i = p; i < k; i++) column[i] = g[p * k + i];
        for (size_t j = 0; j < p; j++) {
            const vec c = x[j * k + p];
            for (size_t i = p; i < k; i++) column[i] -= c * x[j * k + i];
        }
        least = -NAME(larger)(-least, -column[p]);
        const vec positive = NAME(larger)(column[p], NAME(all)(TINY)), inverse = 1 / NAME(root)(positive);
        for (size_t i = p; i < k; i++) column[i] *= inverse;
    }
    return least;
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

/* What the polar factor of f takes, lane by lane: the polynomial to begin with, and f and g = f^T f scaled for it.  hard
 * marks the lanes where f is too ill-conditioned.  x: scratch. */
static void NAME(prepare)(vec *f, vec *g, vec *x, size_t k, size_t *next, int *hard)
{
    const vec scale = 1 / NAME(root)(NAME(dot)(g, g, k)); /* of the largest eigenvalue, or less */
    const vec least = NAME(least_pivot)(g, x, k) * scale, root = NAME(root)(scale);
    for (size_t i = 0; i < k * k; i++) f[i] *= root, g[i] *= scale;
    for (size_t l = 0; l < VEC; l++) {
        const REAL value = least[l] > 0 ? SQRT(least[l]) / 2 : 0;
        hard[l] = !(value >= NAME(polynomials)[0].least);
        for (next[l] = 0; next[l] < LAST && NAME(polynomials)[next[l] + 1].least < value;) next[l]++;
    }
}

/* u v^T of f = u diag(s) v^T, by products of matrices alone, in the lanes that are not hard; f is overwritten.  The result
 * is in f or x.  g, x: scratch. */
static const vec *NAME(polar)(vec *f, vec *x, vec *g, size_t k, int *hard)
{
    size_t next[VEC];
    int done[VEC];
    vec unit;
    NAME(normalise)(f, &unit, 1, k, 1);
    for (int step = 0; step < MAX_POLYNOMIALS; step++) {
        vec a = NAME(all)(1), b = {0}, c = {0}, off = NAME(all)(1); /* lanes that are done are left as they are */
        int last = 0, left = 0;
        NAME(symmetric_inner)(f, f, g, k);
        if (step == 0) {
            NAME(prepare)(f, g, x, k, next, hard);
            for (size_t l = 0; l < VEC; l++) done[l] = hard[l];
        }
        for (size_t l = 0; l < VEC; l++) last |= !done[l] && next[l] == LAST;
        if (last) off = NAME(from_identity)(g, k);
        for (size_t l = 0; l < VEC; l++) {
            if (done[l]) continue;
            const NAME(polynomial) *p = NAME(polynomials) + next[l];
            if (next[l] < LAST || off[l] > EPSILON / 4) a[l] = p->a, b[l] = p->b, c[l] = p->c, left = 1;
            else a[l] = (REAL)1.5, b[l] = (REAL)-0.5, done[l] = 1; /* of the third order, which is enough to end with */
            next[l] += next[l] < LAST;
        }
        if (left) NAME(symmetric_inner)(g, g, x, k);
        for (size_t i = 0; i < k * k; i++) g[i] = left ? b * g[i] + c * x[i] : b * g[i];
        for (size_t p = 0; p < k; p++) g[p * k + p] += a;
        NAME(multiply)(f, g, x, k, 1);
        if (!left) return x;
        vec *other = f;
        f = x, x = other;
    }
    for (size_t l = 0; l < VEC; l++) hard[l] |= !done[l];
    return f;
}
