/* Singular value decomposition by one-sided Jacobi rotations, and triangular factors.  Part of _jacobi.h. */

/* (x, y) -> (c x - s y, s x + c y) for two columns. */
INLINE void NAME(rotate)(vec *restrict x, vec *restrict y, vec c, vec s, size_t k)
{
    size_t i = 0;
    for (; i + 1 < k; i += 2) {
        const vec x0 = x[i], y0 = y[i], x1 = x[i + 1], y1 = y[i + 1];
        x[i] = c * x0 - s * y0, x[i + 1] = c * x1 - s * y1;
        y[i] = s * x0 + c * y0, y[i + 1] = s * x1 + c * y1;
    }
    if (i < k) {
        const vec x0 = x[i], y0 = y[i];
        x[i] = c * x0 - s * y0, y[i] = s * x0 + c * y0;
    }
}

/* c / (d + sqrt(d^2 + c^2)) for d >= 0, the tangent of half an angle, which may be approximate; and 1 / sqrt(x), which must
 * be accurate, because rotations must not change lengths. */
#if defined(ROUGH_INVERSE_ROOT) && !DOUBLE
INLINE vec NAME(tangent)(vec d, vec c)
{
    const vec x = d * d + c * c;
    return c * (vec)ROUGH_INVERSE(d + x * (vec)ROUGH_INVERSE_ROOT(x));
}

/* Processors differ in the rough value.  The last step adds a small correction: a product with a factor close to 1.5 - 0.5
 * would round to the number below 1 for x = 1 on some of them, and many small rotations would shorten the columns. */
INLINE vec NAME(inverse_root)(vec x)
{
    vec y = (vec)ROUGH_INVERSE_ROOT(x);
    y *= (REAL)1.5 - (REAL)0.5 * x * y * y;
    return y + (REAL)0.5 * y * (1 - x * y * y);
}
#else
INLINE vec NAME(tangent)(vec d, vec c)
{
    return c / (d + NAME(root)(d * d + c * c));
}

INLINE vec NAME(inverse_root)(vec x)
{
    return 1 / NAME(root)(x);
}
#endif

/* Rotations that make two columns with squared lengths a, b and product c orthogonal, with the longer one first; the lengths
 * are updated.  Returns whether any lane was not yet orthogonal. */
INLINE int NAME(angle)(vec *a, vec *b, const vec *c, vec *cosine, vec *sine, REAL tolerance)
{
    mask off[PARTS], any = {0};
    for (size_t h = 0; h < PARTS; h++) {
        off[h] = (mask)(c[h] * c[h] > tolerance * tolerance * (a[h] * b[h]));
        any |= off[h];
    }
    if (!NAME(some)(any)) return 0;
    for (size_t h = 0; h < PARTS; h++) {
        const vec d = b[h] - a[h], t = NAME(tangent)(NAME(larger)(d, -d), 2 * c[h]);
        const vec cs = NAME(choose)(off[h], NAME(inverse_root)(1 + t * t), NAME(all)(1));
        const vec change = (vec)((mask)(c[h] * t) & off[h]), sn = (vec)((mask)(cs * t) & off[h]);
        /* columns are swapped only when they are rotated, so that a sweep without rotations covers every pair */
        const mask swap = (mask)(d > 0) & off[h];
        const vec longer = NAME(choose)(swap, b[h], a[h]), shorter = NAME(choose)(swap, a[h], b[h]);
        cosine[h] = NAME(choose)(swap, sn, cs);
        sine[h] = -NAME(choose)(swap, cs, sn); /* the angle has the opposite sign if b is longer */
        a[h] = longer + change;
        b[h] = shorter - change;
    }
    return 1;
}

/* Product of two columns, and the squared length of one. */
INLINE vec NAME(column_product)(const vec *x, const vec *y, size_t k)
{
    vec a = {0}, b = {0}, c = {0}, d = {0};
    size_t i = 0;
    for (; i + 3 < k; i += 4)
        a += x[i] * y[i], b += x[i + 1] * y[i + 1], c += x[i + 2] * y[i + 2], d += x[i + 3] * y[i + 3];
    for (; i < k; i++) a += x[i] * y[i];
    return (a + b) + (c + d);
}

INLINE vec NAME(length)(const vec *x, size_t k)
{
    return NAME(column_product)(x, x, k);
}

/* Products of two columns of each part. */
INLINE void NAME(cross)(const vec *x, const vec *y, vec *out, size_t k)
{
    const size_t square = k * k;
    for (size_t h = 0; h < PARTS; h += 2, x += 2 * square, y += 2 * square) { /* enough independent sums */
        vec c0 = {0}, c1 = {0}, d0 = {0}, d1 = {0};
        for (size_t i = 0; i + 1 < k; i += 2) {
            c0 += x[i] * y[i], c1 += x[square + i] * y[square + i];
            d0 += x[i + 1] * y[i + 1], d1 += x[square + i + 1] * y[square + i + 1];
        }
        if (k % 2) c0 += x[k - 1] * y[k - 1], c1 += x[square + k - 1] * y[square + k - 1];
        out[h] = c0 + d0, out[h + 1] = c1 + d1;
    }
}

/* Rotate two columns of each part, as rotate does, and replace c by the products of the first one with a third column, as cross
 * does; in one pass, because the sums would otherwise wait for each other. */
INLINE void NAME(rotate_and_cross)(vec *restrict x, vec *restrict y, const vec *restrict z, vec *restrict c,
                                   const vec *cosine, const vec *sine, size_t k)
{
    for (size_t h = 0; h < PARTS; h++, x += k * k, y += k * k, z += k * k) {
        const vec cs = cosine[h], sn = sine[h];
        vec even = {0}, odd = {0};
        size_t i = 0;
        for (; i + 1 < k; i += 2) {
            const vec x0 = x[i], y0 = y[i], x1 = x[i + 1], y1 = y[i + 1];
            const vec first = cs * x0 - sn * y0, second = cs * x1 - sn * y1;
            x[i] = first, x[i + 1] = second;
            y[i] = sn * x0 + cs * y0, y[i + 1] = sn * x1 + cs * y1;
            even += first * z[i], odd += second * z[i + 1];
        }
        if (i < k) {
            const vec x0 = x[i], y0 = y[i], first = cs * x0 - sn * y0;
            x[i] = first, y[i] = sn * x0 + cs * y0;
            even += first * z[i];
        }
        c[h] = even + odd;
    }
}

/* One sweep over all pairs of columns.  Returns whether any lane was rotated.  lengths: k PARTS of scratch. */
static int NAME(sweep)(vec *f, vec *v, vec *lengths, size_t k, REAL tolerance)
{
    const size_t square = k * k;
    int rotated = 0;
    for (size_t p = 0; p < k; p++)
        for (size_t h = 0; h < PARTS; h++) lengths[p * PARTS + h] = NAME(length)(f + h * square + p * k, k);
    for (size_t p = 0; p + 1 < k; p++) {
        vec *x = f + p * k, c[PARTS], cosine[PARTS], sine[PARTS];
        NAME(cross)(x, x + k, c, k);
        for (size_t q = p + 1; q < k; q++) {
            vec *y = f + q * k;
            if (!NAME(angle)(lengths + p * PARTS, lengths + q * PARTS, c, cosine, sine, tolerance)) {
                if (q + 1 < k) NAME(cross)(x, y + k, c, k);
                continue;
            }
            rotated = 1;
            if (q + 1 < k) NAME(rotate_and_cross)(x, y, y + k, c, cosine, sine, k);
            else
                for (size_t h = 0; h < PARTS; h++)
                    NAME(rotate)(x + h * square, y + h * square, cosine[h], sine[h], k);
            for (size_t h = 0; v && h < PARTS; h++)
                NAME(rotate)(v + h * square + p * k, v + h * square + q * k, cosine[h], sine[h], k);
        }
    }
    return rotated;
}

/* Scale columns to length one; their lengths times scale are s.  good is cleared for lanes with columns that are too short
 * or not finite. */
static void NAME(measure)(vec *f, vec *s, const vec *scale, size_t k, int *good)
{
    for (size_t p = 0; p < k * PARTS; p++, f += k) {
        const vec square = NAME(length)(f, k);
        for (size_t l = 0; l < VEC; l++)
            good[p / k * VEC + l] &= square[l] > SMALLEST * UNIT * UNIT && square[l] <= (REAL)(4 * k * k) * UNIT * UNIT;
        const vec length = NAME(root)(square), inverse = 1 / length;
        s[p] = length * scale[p / k];
        for (size_t i = 0; i < k; i++) f[i] *= inverse;
    }
}

/* Whether right singular vectors can be computed from the left ones: the values decrease, but not too far. */
static int NAME(recoverable)(const vec *s, size_t k)
{
    for (size_t p = 1; p < k; p++)
        if (NAME(exceeds)(s[p] - 2 * s[p - 1], 0)) return 0;
    return !NAME(exceeds)(s[0] - (REAL)RECOVERABLE * s[k - 1], 0);
}

/* v <- v^T u, orthonormalised starting from the columns of large values, which are more precise; not orthonormalised if
 * rough.  x is scratch. */
static void NAME(recover)(const vec *u, vec *v, vec *x, size_t k, int rough)
{
    NAME(inner)(v, u, x, k, 1);
    for (size_t p = 0; p < k; p++) {
        vec *y = x + p * k;
        for (size_t q = 0; q < p && !rough; q++) {
            const vec *z = v + q * k, c = NAME(column_product)(y, z, k);
            for (size_t i = 0; i < k; i++) y[i] -= c * z[i];
        }
        const vec inverse = 1 / NAME(root)(NAME(length)(y, k));
        for (size_t i = 0; i < k; i++) v[p * k + i] = y[i] * inverse;
    }
}

/* Rotate until the columns of a block are orthogonal.  Returns whether they are. */
static int NAME(orthogonalise)(vec *f, vec *v, vec *lengths, size_t k, REAL tolerance)
{
    for (int sweeps = 0; sweeps < MAX_SWEEPS; sweeps++)
        if (!NAME(sweep)(f, v, lengths, k, tolerance)) return 1;
    return 0;
}

/* u and s of a block, and v from them, which takes half as many operations.  v contains a copy of f.  Returns whether this was
 * possible, and restores f otherwise. */
static int NAME(left_first)(vec *f, vec *v, vec *s, vec *spare, const vec *scale, size_t k, int before, REAL tolerance,
                            int *good)
{
    const size_t square = k * k;
    int possible, fine[LANES];
    memcpy(v, f, sizeof(vec) * square * PARTS);
    possible = NAME(orthogonalise)(f, NULL, s, k, tolerance);
    memcpy(fine, good, sizeof(fine));
    NAME(measure)(f, s, scale, k, fine);
    for (size_t h = 0; possible && h < PARTS; h++) possible = NAME(recoverable)(s + h * k, k);
    if (!possible) {
        memcpy(f, v, sizeof(vec) * square * PARTS);
        return 0;
    }
    memcpy(good, fine, sizeof(fine));
    for (size_t h = 0; h < PARTS; h++) {
        const int rough = before == ROUGH && !NAME(exceeds)(s[h * k] - 1000 * s[h * k + k - 1], 0);
        NAME(recover)(f + h * square, v + h * square, spare, k, rough);
    }
    return 1;
}

/* f = u diag(s) v^T for a block.  u replaces f.  FRESH: v is computed.  ROUGH: the same, but columns of small s may be less
 * orthogonal, by rounding over s.  COMPANION: v contains any matrix, which is rotated like f.  v may be NULL.  good is cleared
 * for lanes that are singular or not finite.  spare: scratch, a matrix. */
static void NAME(decompose)(vec *f, vec *v, vec *s, vec *spare, size_t k, int before, REAL tolerance, int *good)
{
    const REAL rounding = EPSILON * SQRT((REAL)k);
    vec scale[PARTS];
    NAME(normalise)(f, scale, UNIT, k, PARTS);
    if (v && before != COMPANION) {
        if (tolerance <= rounding && NAME(left_first)(f, v, s, spare, scale, k, before, rounding, good)) return;
        NAME(identity)(v, k, PARTS);
    }
    if (!NAME(orthogonalise)(f, v, s, k, tolerance > rounding ? tolerance : rounding)) EACH_LANE good[l] = 0;
    NAME(measure)(f, s, scale, k, good);
}

/* --------------------------------------------------------------------------------------------- triangular factors */

/* f <- its Cholesky factor.  good is cleared for lanes that are not positive definite. */
static void NAME(cholesky)(vec *f, size_t k, int *good)
{
    for (size_t p = 0; p < k; p++) {
        vec *column = f + p * k;
        for (size_t j = 0; j < p; j++) {
            const vec c = f[j * k + p];
            for (size_t i = p; i < k; i++) column[i] -= c * f[j * k + i];
            column[j] = (vec){0};
        }
        for (size_t l = 0; l < VEC; l++) good[l] &= column[p][l] > 0;
        const vec inverse = 1 / NAME(root)(NAME(choose)((mask)(column[p] > 0), column[p], NAME(all)(1)));
        for (size_t i = p; i < k; i++) column[i] *= inverse;
    }
}

/* x <- c x or c^-1 x, or the same with c^T, for one lower triangular matrix c in row-major memory; four columns at a time,
 * for independent sums. */
INLINE void NAME(triangular)(const REAL *c, vec *x, size_t k, int transposed, int solve)
{
    const size_t row = transposed ? 1 : k, column = transposed ? k : 1;
    for (size_t p = 0; p < k; p += 4, x += 4 * k) {
        vec *x0 = x, *x1 = p + 1 < k ? x + k : x, *x2 = p + 2 < k ? x + 2 * k : x, *x3 = p + 3 < k ? x + 3 * k : x;
        for (size_t step = 0; step < k; step++) {
            const size_t i = transposed == solve ? k - 1 - step : step; /* the order in which products use old entries and solutions use new ones */
            const REAL *ci = c + i * row, pivot = ci[i * column];
            const size_t first = transposed ? i + 1 : 0, last = transposed ? k : i;
            vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
            for (size_t j = first; j < last; j++) {
                const REAL cij = ci[j * column];
                s0 += cij * x0[j], s1 += cij * x1[j], s2 += cij * x2[j], s3 += cij * x3[j];
            }
            const REAL inverse = 1 / pivot;
            s0 = solve ? (x0[i] - s0) * inverse : s0 + pivot * x0[i];
            s1 = solve ? (x1[i] - s1) * inverse : s1 + pivot * x1[i];
            s2 = solve ? (x2[i] - s2) * inverse : s2 + pivot * x2[i];
            s3 = solve ? (x3[i] - s3) * inverse : s3 + pivot * x3[i];
            x3[i] = s3, x2[i] = s2, x1[i] = s1, x0[i] = s0; /* repeated columns are stored first */
        }
    }
}

static void NAME(lower_multiply)(const REAL *c, vec *x, size_t k)
{
    NAME(triangular)(c, x, k, 0, 0);
}

static void NAME(lower_solve)(const REAL *c, vec *x, size_t k)
{
    NAME(triangular)(c, x, k, 0, 1);
}

static void NAME(upper_multiply)(const REAL *c, vec *x, size_t k)
{
    NAME(triangular)(c, x, k, 1, 0);
}

static void NAME(upper_solve)(const REAL *c, vec *x, size_t k)
{
    NAME(triangular)(c, x, k, 1, 1);
}
