/* The algorithms of _jacobi.c for one precision (DOUBLE) and one width of vectors (BYTES); included once for each.
 *
 * A vector holds one number of each of VEC matrices.  A matrix in lanes is k x k vectors, column after column.  A block,
 * which is decomposed at once, is PARTS of them, one after the other: LANES matrices.
 */
#if DOUBLE
#define REAL double
#define WIDTH (BYTES / 8)
#define INTEGER int64_t
#define EPSILON DBL_EPSILON
#define SQRT sqrt
#define ABS fabs
#define LOG log
#define EXP exp
#define POW pow
#define NAME(x) ARCHITECTURE(x##_f64)
#define TINY DBL_MIN
#define UNIT 1.0        /* largest entry of a matrix that is decomposed: room for products of squared lengths */
#define SMALLEST 1e-140 /* squared length of a column, relative to UNIT^2, that is too short to be normalised */
#else
#define REAL float
#define WIDTH (BYTES / 4)
#define INTEGER int32_t
#define EPSILON FLT_EPSILON
#define SQRT sqrtf
#define ABS fabsf
#define LOG logf
#define EXP expf
#define POW powf
#define NAME(x) ARCHITECTURE(x##_f32)
#define TINY FLT_MIN
#define UNIT 0x1p24f
#define SMALLEST 1e-26f
#endif
#define RECOVERABLE (1 / (16 * EPSILON)) /* condition up to which right singular vectors follow from the left ones */
#define VEC ((size_t)WIDTH)
#define PARTS (LANES / VEC)
#define vec NAME(vector)
#define mask NAME(integers)
typedef REAL vec __attribute__((vector_size(BYTES), may_alias));
typedef INTEGER mask __attribute__((vector_size(BYTES), may_alias));

/* ------------------------------------------------------------------------------------------------- vectors and products */

INLINE vec NAME(choose)(mask which, vec x, vec y)
{
    return (vec)(((mask)x & which) | ((mask)y & ~which));
}

INLINE vec NAME(larger)(vec x, vec y)
{
    return NAME(choose)((mask)(x > y), x, y);
}

/* Whether any lane is set. */
INLINE int NAME(some)(mask m)
{
    int64_t words[BYTES / sizeof(int64_t)], any = 0;
    memcpy(words, &m, sizeof(m));
    for (size_t i = 0; i < BYTES / sizeof(int64_t); i++) any |= words[i];
    return any != 0;
}

INLINE vec NAME(root)(vec x)
{
    REAL y[VEC];
    memcpy(y, &x, sizeof(x));
    for (size_t l = 0; l < VEC; l++) y[l] = SQRT(y[l]);
    memcpy(&x, y, sizeof(x));
    return x;
}

INLINE vec NAME(all)(REAL x)
{
    return x - (vec){0};
}

/* Whether any lane is above the limit, or not a number. */
INLINE int NAME(exceeds)(vec x, REAL limit)
{
    int any = 0;
    for (size_t l = 0; l < VEC; l++) any |= !(x[l] <= limit);
    return any;
}

/* out_ip = sum over j of a_(i ai + j aj) b_(p bp + j bj), three rows by three columns at a time: all in registers.  One
 * half is enough if it is known to be symmetric. */
INLINE void NAME(product)(const vec *restrict a, size_t ai, size_t aj, const vec *restrict b, size_t bp, size_t bj,
                          vec *restrict out, size_t k, int symmetric)
{
    for (size_t p = 0; p < k; p += 3) {
        const size_t p1 = p + 1 < k ? p + 1 : p, p2 = p + 2 < k ? p + 2 : p; /* beyond the last: the first again */
        const vec *b0 = b + p * bp, *b1 = b + p1 * bp, *b2 = b + p2 * bp;
        for (size_t i = symmetric ? p : 0; i < k; i += 3) {
            const size_t i1 = i + 1 < k ? i + 1 : i, i2 = i + 2 < k ? i + 2 : i;
            const vec *a0 = a + i * ai, *a1 = a + i1 * ai, *a2 = a + i2 * ai;
            vec c00 = {0}, c01 = {0}, c02 = {0}, c10 = {0}, c11 = {0}, c12 = {0}, c20 = {0}, c21 = {0}, c22 = {0};
            for (size_t j = 0; j < k; j++) {
                vec x0 = a0[j * aj], x1 = a1[j * aj], x2 = a2[j * aj];
                vec y0 = b0[j * bj], y1 = b1[j * bj], y2 = b2[j * bj];
                c00 += x0 * y0, c10 += x1 * y0, c20 += x2 * y0;
                c01 += x0 * y1, c11 += x1 * y1, c21 += x2 * y1;
                c02 += x0 * y2, c12 += x1 * y2, c22 += x2 * y2;
            }
            if (symmetric && i == p) c01 = c10, c02 = c20, c12 = c21; /* one rounding for both */
            out[p2 * k + i2] = c22, out[p2 * k + i1] = c12, out[p2 * k + i] = c02;
            out[p1 * k + i2] = c21, out[p1 * k + i1] = c11, out[p1 * k + i] = c01;
            out[p * k + i2] = c20, out[p * k + i1] = c10, out[p * k + i] = c00;
            if (!symmetric) continue;
            out[i2 * k + p2] = c22, out[i1 * k + p2] = c12, out[i * k + p2] = c02;
            out[i2 * k + p1] = c21, out[i1 * k + p1] = c11, out[i * k + p1] = c01;
            out[i2 * k + p] = c20, out[i1 * k + p] = c10, out[i * k + p] = c00;
        }
    }
}

/* out_(c rows + r) = sum over j of x_(r xr + j xj) w_(c wc + j wj), for one matrix w in memory, four rows by three columns at
 * a time */
static void NAME(common_product)(const vec *restrict x, size_t xr, size_t xj, const REAL *restrict w, size_t wc, size_t wj,
                                 vec *restrict out, size_t rows, size_t columns, size_t inner)
{
    for (size_t c = 0; c < columns; c += 3) {
        const size_t c1 = c + 1 < columns ? c + 1 : c, c2 = c + 2 < columns ? c + 2 : c;
        const REAL *w0 = w + c * wc, *w1 = w + c1 * wc, *w2 = w + c2 * wc;
        for (size_t r = 0; r < rows; r += 4) {
            const size_t r1 = r + 1 < rows ? r + 1 : r, r2 = r + 2 < rows ? r + 2 : r, r3 = r + 3 < rows ? r + 3 : r;
            const vec *x0 = x + r * xr, *x1 = x + r1 * xr, *x2 = x + r2 * xr, *x3 = x + r3 * xr;
            vec s00 = {0}, s10 = {0}, s20 = {0}, s30 = {0}, s01 = {0}, s11 = {0}, s21 = {0}, s31 = {0};
            vec s02 = {0}, s12 = {0}, s22 = {0}, s32 = {0};
            for (size_t j = 0; j < inner; j++) {
                const vec y0 = x0[j * xj], y1 = x1[j * xj], y2 = x2[j * xj], y3 = x3[j * xj];
                const REAL z0 = w0[j * wj], z1 = w1[j * wj], z2 = w2[j * wj];
                s00 += y0 * z0, s10 += y1 * z0, s20 += y2 * z0, s30 += y3 * z0;
                s01 += y0 * z1, s11 += y1 * z1, s21 += y2 * z1, s31 += y3 * z1;
                s02 += y0 * z2, s12 += y1 * z2, s22 += y2 * z2, s32 += y3 * z2;
            }
            vec *o0 = out + c * rows, *o1 = out + c1 * rows, *o2 = out + c2 * rows; /* last first: the repeated go under */
            o2[r3] = s32, o2[r2] = s22, o2[r1] = s12, o2[r] = s02;
            o1[r3] = s31, o1[r2] = s21, o1[r1] = s11, o1[r] = s01;
            o0[r3] = s30, o0[r2] = s20, o0[r1] = s10, o0[r] = s00;
        }
    }
}

/* out = a^T b */
static void NAME(inner)(const vec *a, const vec *b, vec *out, size_t k, size_t parts)
{
    for (size_t h = 0; h < parts * k * k; h += k * k) NAME(product)(a + h, k, 1, b + h, k, 1, out + h, k, 0);
}

/* out = a b */
static void NAME(multiply)(const vec *a, const vec *b, vec *out, size_t k, size_t parts)
{
    for (size_t h = 0; h < parts * k * k; h += k * k) NAME(product)(a + h, 1, k, b + h, k, 1, out + h, k, 0);
}

/* out = a b^T */
static void NAME(outer)(const vec *a, const vec *b, vec *out, size_t k, size_t parts)
{
    for (size_t h = 0; h < parts * k * k; h += k * k) NAME(product)(a + h, 1, k, b + h, 1, k, out + h, k, 0);
}

/* out = a^T b and out = a b^T, where they are symmetric */
static void NAME(symmetric_inner)(const vec *a, const vec *b, vec *out, size_t k)
{
    NAME(product)(a, k, 1, b, k, 1, out, k, 1);
}

static void NAME(symmetric_outer)(const vec *a, const vec *b, vec *out, size_t k)
{
    NAME(product)(a, 1, k, b, 1, k, out, k, 1);
}

/* y += w x */
static void NAME(add)(const vec *x, const vec *w, vec *y, size_t k, size_t parts)
{
    for (size_t h = 0; h < parts; h++)
        for (size_t i = h * k * k; i < (h + 1) * k * k; i++) y[i] += w[h] * x[i];
}

/* out = x y, number by number */
static void NAME(times)(const vec *x, const vec *y, vec *out, size_t k)
{
    for (size_t i = 0; i < k * k; i++) out[i] = x[i] * y[i];
}

/* x_ij -> (x_ij + x_ji) factor */
static void NAME(symmetrise)(vec *x, size_t k, REAL factor)
{
    for (size_t p = 0; p < k; p++)
        for (size_t i = 0; i <= p; i++) x[p * k + i] = x[i * k + p] = (x[p * k + i] + x[i * k + p]) * factor;
}

static vec NAME(dot)(const vec *x, const vec *y, size_t k)
{
    vec sum = {0}, more = {0};
    for (size_t i = 0; i + 1 < k * k; i += 2) sum += x[i] * y[i], more += x[i + 1] * y[i + 1];
    if (k % 2) sum += x[k * k - 1] * y[k * k - 1];
    return sum + more;
}

/* sum of (x - y)^2 */
static vec NAME(distance)(const vec *x, const vec *y, size_t k)
{
    vec sum = {0};
    for (size_t i = 0; i < k * k; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum;
}

/* Make the largest entry one, times unit; scale undoes it. */
static void NAME(normalise)(vec *f, vec *scale, REAL unit, size_t k, size_t parts)
{
    for (size_t h = 0; h < parts; h++, f += k * k) {
        vec largest = {0};
        for (size_t i = 0; i < k * k; i++) largest = NAME(larger)(NAME(larger)(f[i], -f[i]), largest);
        for (size_t l = 0; l < VEC; l++) largest[l] = largest[l] > 0 ? largest[l] : 1;
        const vec factor = unit / largest;
        for (size_t i = 0; i < k * k; i++) f[i] *= factor;
        scale[h] = largest / unit;
    }
}

static void NAME(identity)(vec *x, size_t k, size_t parts)
{
    memset(x, 0, sizeof(vec) * k * k * parts);
    for (size_t h = 0; h < parts; h++)
        for (size_t p = 0; p < k; p++) x[(h * k + p) * k + p] = NAME(all)(1);
}

/* Turn over a matrix of WIDTH x WIDTH numbers. */
#define SWAP(i, j, first, second)                                                                                    \
    do {                                                                                                             \
        const vec one = x[i], two = x[j];                                                                            \
        x[i] = first, x[j] = second;                                                                                 \
    } while (0)
#define MIX(...) __builtin_shufflevector(one, two, __VA_ARGS__)
INLINE void NAME(transpose)(vec *x)
{
#if !SHUFFLES
    vec y[WIDTH];
    for (size_t i = 0; i < VEC; i++)
        for (size_t l = 0; l < VEC; l++) y[i][l] = x[l][i];
    memcpy(x, y, sizeof(y));
#elif WIDTH == 8
    for (size_t i = 0; i < 4; i++) SWAP(i, i + 4, MIX(0, 1, 2, 3, 8, 9, 10, 11), MIX(4, 5, 6, 7, 12, 13, 14, 15));
    for (size_t i = 0; i < 8; i += 1 + i % 2 * 2)
        SWAP(i, i + 2, MIX(0, 1, 8, 9, 4, 5, 12, 13), MIX(2, 3, 10, 11, 6, 7, 14, 15));
    for (size_t i = 0; i < 8; i += 2) SWAP(i, i + 1, MIX(0, 8, 2, 10, 4, 12, 6, 14), MIX(1, 9, 3, 11, 5, 13, 7, 15));
#elif WIDTH == 4
    for (size_t i = 0; i < 2; i++) SWAP(i, i + 2, MIX(0, 1, 4, 5), MIX(2, 3, 6, 7));
    for (size_t i = 0; i < 4; i += 2) SWAP(i, i + 1, MIX(0, 4, 2, 6), MIX(1, 5, 3, 7));
#else
    SWAP(0, 1, MIX(0, 2), MIX(1, 3));
#endif
}
#undef SWAP
#undef MIX

/* Matrices, one for each lane, from row-major memory into lanes, and back: VEC numbers of each matrix at a time. */
static void NAME(load)(const REAL *const *from, vec *to, size_t k, size_t parts)
{
    for (size_t h = 0; h < parts; h++, from += VEC, to += k * k) {
        size_t e = 0, at = 0; /* number in row-major order, and its place in lanes */
        for (; e + VEC <= k * k; e += VEC) {
            vec x[WIDTH];
            for (size_t l = 0; l < VEC; l++) memcpy(x + l, from[l] + e, sizeof(vec));
            NAME(transpose)(x);
            for (size_t l = 0; l < VEC; l++) to[at] = x[l], at = at + k < k * k ? at + k : at + k - k * k + 1;
        }
        for (; e < k * k; e++, at = at + k < k * k ? at + k : at + k - k * k + 1)
            for (size_t l = 0; l < VEC; l++) to[at][l] = from[l][e];
    }
}

static void NAME(store)(const vec *from, REAL *const *to, size_t k, size_t count)
{
    for (size_t first = 0; first < count; first += VEC, from += k * k, to += VEC) {
        const size_t lanes = count - first < VEC ? count - first : VEC;
        size_t e = 0, at = 0;
        for (; e + VEC <= k * k; e += VEC) {
            vec x[WIDTH];
            for (size_t l = 0; l < VEC; l++) x[l] = from[at], at = at + k < k * k ? at + k : at + k - k * k + 1;
            NAME(transpose)(x);
            for (size_t l = 0; l < lanes; l++) memcpy(to[l] + e, x + l, sizeof(vec));
        }
        for (; e < k * k; e++, at = at + k < k * k ? at + k : at + k - k * k + 1)
            for (size_t l = 0; l < lanes; l++) to[l][e] = from[at][l];
    }
}

/* -------------------------------------------------------------------------------------------- singular value decomposition */

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

/* c / (d + sqrt(d^2 + c^2)) for d >= 0, the tangent of half an angle, of which a few digits are enough; and 1 / sqrt(x), of
 * which all are needed, or rotations would change lengths. */
#if defined(ROUGH_INVERSE_ROOT) && !DOUBLE
INLINE vec NAME(tangent)(vec d, vec c)
{
    const vec x = d * d + c * c;
    return c * (vec)ROUGH_INVERSE(d + x * (vec)ROUGH_INVERSE_ROOT(x));
}

INLINE vec NAME(inverse_root)(vec x)
{
    vec y = (vec)ROUGH_INVERSE_ROOT(x);
    y *= (REAL)1.5 - (REAL)0.5 * x * y * y;
    return y * ((REAL)1.5 - (REAL)0.5 * x * y * y);
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

/* Rotations that make two columns with the squared lengths a, b and the product c orthogonal, the longer one first; the
 * lengths follow.  Returns whether any lane was not orthogonal yet. */
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
        /* never swapped without a rotation: a sweep that did nothing has then seen every pair */
        const mask swap = (mask)(d > 0) & off[h];
        const vec longer = NAME(choose)(swap, b[h], a[h]), shorter = NAME(choose)(swap, a[h], b[h]);
        cosine[h] = NAME(choose)(swap, sn, cs);
        sine[h] = -NAME(choose)(swap, cs, sn); /* where b is the longer one the angle has the other sign */
        a[h] = longer + change;
        b[h] = shorter - change;
    }
    return 1;
}

/* Squared length of a column. */
INLINE vec NAME(length)(const vec *x, size_t k)
{
    vec sum = {0}, more = {0};
    for (size_t i = 0; i + 1 < k; i += 2) sum += x[i] * x[i], more += x[i + 1] * x[i + 1];
    return k % 2 ? sum + more + x[k - 1] * x[k - 1] : sum + more;
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

/* One sweep over all pairs of columns.  Returns whether any lane still had to be rotated.  lengths: k PARTS of scratch. */
static int NAME(sweep)(vec *f, vec *v, vec *lengths, size_t k, REAL tolerance)
{
    const size_t square = k * k;
    int rotated = 0;
    for (size_t p = 0; p < k; p++)
        for (size_t h = 0; h < PARTS; h++) lengths[p * PARTS + h] = NAME(length)(f + h * square + p * k, k);
    for (size_t p = 0; p + 1 < k; p++)
        for (size_t q = p + 1; q < k; q++) {
            vec c[PARTS], cosine[PARTS], sine[PARTS];
            NAME(cross)(f + p * k, f + q * k, c, k);
            if (!NAME(angle)(lengths + p * PARTS, lengths + q * PARTS, c, cosine, sine, tolerance)) continue;
            rotated = 1;
            for (size_t h = 0; h < PARTS; h++) {
                NAME(rotate)(f + h * square + p * k, f + h * square + q * k, cosine[h], sine[h], k);
                if (v) NAME(rotate)(v + h * square + p * k, v + h * square + q * k, cosine[h], sine[h], k);
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

/* Whether right singular vectors can be had from the left ones: the values fall, and not too far. */
static int NAME(recoverable)(const vec *s, size_t k)
{
    for (size_t p = 1; p < k; p++)
        if (NAME(exceeds)(s[p] - 2 * s[p - 1], 0)) return 0;
    return !NAME(exceeds)(s[0] - (REAL)RECOVERABLE * s[k - 1], 0);
}

/* v <- v^T u with orthonormal columns: those of large values, which have more digits, come first.  x is scratch. */
static void NAME(recover)(const vec *u, vec *v, vec *x, size_t k)
{
    NAME(inner)(v, u, x, k, 1);
    for (size_t p = 0; p < k; p++) {
        vec *y = x + p * k;
        for (size_t q = 0; q < p; q++) {
            const vec *z = v + q * k;
            vec c = {0};
            for (size_t i = 0; i < k; i++) c += y[i] * z[i];
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

/* u and s of a block, and v from them, which is half the work; f is in v, too.  Returns whether that was possible, and puts
 * f back if not. */
static int NAME(left_first)(vec *f, vec *v, vec *s, vec *spare, const vec *scale, size_t k, REAL tolerance, int *good)
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
    for (size_t h = 0; h < PARTS; h++) NAME(recover)(f + h * square, v + h * square, spare, k);
    return 1;
}

/* f = u diag(s) v^T, of a block.  u replaces f.  What is in v before: FRESH, nothing, it will be v; COMPANION, any
 * matrix, turned along with f.  v NULL: not wanted.  good is cleared for the lanes that are singular or not finite.
 * spare: scratch, a matrix. */
static void NAME(decompose)(vec *f, vec *v, vec *s, vec *spare, size_t k, int before, REAL tolerance, int *good)
{
    const REAL rounding = EPSILON * SQRT((REAL)k);
    vec scale[PARTS];
    NAME(normalise)(f, scale, UNIT, k, PARTS);
    if (v && before == FRESH) {
        if (tolerance <= rounding && NAME(left_first)(f, v, s, spare, scale, k, rounding, good)) return;
        NAME(identity)(v, k, PARTS);
    }
    if (!NAME(orthogonalise)(f, v, s, k, tolerance > rounding ? tolerance : rounding)) EACH_LANE good[l] = 0;
    NAME(measure)(f, s, scale, k, good);
}

/* ------------------------------------------------------------------------------------------------ triangular factors */

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

/* x <- c x, c^-1 x, c^T x and c^-T x, for one lower triangular matrix c in row-major memory */
static void NAME(lower_multiply)(const REAL *c, vec *x, size_t k)
{
    for (size_t p = 0; p < k; p++, x += k)
        for (size_t i = k; i-- > 0;) {
            vec sum = c[i * k + i] * x[i];
            for (size_t j = 0; j < i; j++) sum += c[i * k + j] * x[j];
            x[i] = sum;
        }
}

static void NAME(lower_solve)(const REAL *c, vec *x, size_t k)
{
    for (size_t p = 0; p < k; p++, x += k)
        for (size_t i = 0; i < k; i++) {
            vec sum = x[i];
            for (size_t j = 0; j < i; j++) sum -= c[i * k + j] * x[j];
            x[i] = sum / c[i * k + i];
        }
}

static void NAME(upper_multiply)(const REAL *c, vec *x, size_t k)
{
    for (size_t p = 0; p < k; p++, x += k)
        for (size_t i = 0; i < k; i++) {
            vec sum = c[i * k + i] * x[i];
            for (size_t j = i + 1; j < k; j++) sum += c[j * k + i] * x[j];
            x[i] = sum;
        }
}

static void NAME(upper_solve)(const REAL *c, vec *x, size_t k)
{
    for (size_t p = 0; p < k; p++, x += k)
        for (size_t i = k; i-- > 0;) {
            vec sum = x[i];
            for (size_t j = i + 1; j < k; j++) sum -= c[j * k + i] * x[j];
            x[i] = sum / c[i * k + i];
        }
}

/* ------------------------------------------------------------------------------------------------- the way to a mean */

/* With m = u^T n^T b nearly diagonal, the skew omega for which u (1 + omega) turns it symmetric, to first order.  Returns
 * the sum of its squares; error is the sum weighted with the squared lengths of the columns of b: what the turn does to
 * b u^T.  least is the smallest number on the diagonal, bent what the turn leaves of itself, squared: it is right for a
 * diagonal m. */
static vec NAME(skew)(const vec *m, const vec *lengths, vec *omega, size_t k, vec *error, vec *least, vec *bent)
{
    vec square = {0}, weighted = {0}, even = {0}, most = NAME(all)(-INFINITY);
    for (size_t p = 0; p < k; p++) {
        const vec diagonal = m[p * k + p];
        most = NAME(larger)(-diagonal, most);
        omega[p * k + p] = (vec){0};
        for (size_t i = 0; i < p; i++) {
            const vec inverse = 1 / (m[i * k + i] + diagonal);
            const vec x = (m[p * k + i] - m[i * k + p]) * inverse, y = (m[p * k + i] + m[i * k + p]) * inverse;
            omega[p * k + i] = x;
            omega[i * k + p] = -x;
            square += x * x;
            even += y * y;
            weighted += (lengths[i] + lengths[p]) * (x * x);
        }
    }
    *error = weighted;
    *least = -most;
    *bent = 2 * (even + square);
    return 2 * square;
}

/* Turn u by omega + sqrt(1 + omega^2), which is orthogonal: as many terms of the root, lane by lane, as leave less than
 * enough; what is left is added to defect.  x, y are scratch, omega is overwritten. */
static void NAME(turn)(vec *u, vec *omega, vec square, vec *defect, REAL enough, vec *x, vec *y, size_t k)
{
    vec second, fourth;
    for (size_t l = 0; l < VEC; l++) {
        const REAL o = square[l], quartic = o * o / 4;
        second[l] = o > enough ? (REAL)-0.5 : 0; /* of omega^T omega */
        fourth[l] = quartic > enough ? (REAL)-0.125 : 0;
        (*defect)[l] += o <= enough ? o : quartic <= enough ? quartic : o * quartic / 2;
    }
    if (NAME(exceeds)(square, enough)) {
        NAME(symmetric_inner)(omega, omega, x, k);
        NAME(add)(x, &second, omega, k, 1);
        if (NAME(exceeds)(square * square / 4, enough)) {
            NAME(symmetric_inner)(x, x, y, k);
            NAME(add)(y, &fourth, omega, k, 1);
        }
    }
    const vec one = NAME(all)(1);
    NAME(multiply)(u, omega, x, k, 1);
    NAME(add)(x, &one, u, k, 1);
}

/* u <- u (3 - u^T u) / 2 in the lanes whose defect, the distance from orthogonality, is more than enough. */
static void NAME(straighten)(vec *u, vec *defect, REAL enough, vec *x, vec *y, size_t k)
{
    vec half;
    for (size_t l = 0; l < VEC; l++) {
        half[l] = (*defect)[l] > enough ? (REAL)0.5 : 0;
        if (half[l] > 0) (*defect)[l] *= (*defect)[l];
    }
    NAME(symmetric_inner)(u, u, x, k);
    for (size_t i = 0; i < k * k; i++) x[i] = -x[i];
    for (size_t p = 0; p < k; p++) x[p * k + p] += NAME(all)(1);
    NAME(multiply)(u, x, y, k, 1);
    NAME(add)(y, &half, u, k, 1);
}

/* Anderson's method with two past steps: n <- the combination of the last steps that would make their move smallest if the
 * problem were linear.  move and new are those of the steps before, the last one first, and then of this one.  past is how
 * many there are in each lane; the lanes in stay are left where they are. */
static void NAME(mix)(vec *n, const vec *next, vec *move, vec *new, size_t k, const int *past, mask stay)
{
    const size_t square = k * k;
    vec aa = {0}, ab = {0}, bb = {0}, af = {0}, bf = {0};
    for (size_t i = 0; i < square; i++) {
        const vec f = next[i] - n[i], a = f - move[i], b = move[i] - move[square + i];
        aa += a * a, ab += a * b, bb += b * b, af += a * f, bf += b * f;
    }
    mask one, two; /* lanes that have one past step, and two; there may be anything in what is not used */
    for (size_t l = 0; l < VEC; l++) one[l] = past[l] > 0 ? -1 : 0, two[l] = past[l] > 1 ? -1 : 0;
    const REAL ridge = 1 + 10 * EPSILON;
    const vec det = ridge * ridge * (aa * bb) - ab * ab;
    two &= (mask)(det > 0), one &= (mask)(aa > 0);
    const vec alpha = NAME(choose)(two, (ridge * (af * bb) - bf * ab) / det, af / aa);
    const vec beta = (ridge * (bf * aa) - af * ab) / det;
    for (size_t i = 0; i < square; i++) {
        const vec last = (vec)((mask)(alpha * (next[i] - new[i])) & one);
        const vec before = (vec)((mask)(beta * (new[i] - new[square + i])) & two), moved = next[i] - n[i];
        n[i] = NAME(choose)(stay, n[i], next[i] - last - before);
        move[square + i] = move[i], move[i] = moved;
        new[square + i] = new[i], new[i] = next[i];
    }
}

/* VEC problems on their way. */
typedef struct {
    vec *n, *next, *move, *new, *x, *y, *z; /* iterate, the step from it, (2) last steps' moves and ends, scratch */
    vec *u, *b, *lengths;                   /* (m) frames, points and squared lengths of the points' columns (k) */
    vec *weights, *defect;                  /* (m) */
    size_t k, m;
    REAL enough; /* distance from orthogonality that is as good as none */
} NAME(way);

/* What is known of a point in a new frame, which some lanes have. */
static void NAME(begin)(const NAME(way) *a, size_t j, mask which)
{
    for (size_t p = 0; p < a->k; p++) a->lengths[j * a->k + p] = NAME(length)(a->b + (j * a->k + p) * a->k, a->k);
    a->defect[j] = (vec)((mask)a->defect[j] & ~which);
}

/* The step from n in the frames u, which follow.  Returns the norm of what they were turned by, as the next iterate feels
 * it, and in rest an estimate of what they still ought to be turned by; fit is cleared for the lanes where the turn was too
 * large for a correction, crooked is the largest defect. */
static vec NAME(stride)(const NAME(way) *a, int *fit, vec *crooked, vec *rest)
{
    const size_t k = a->k;
    vec error = {0}, remains = {0};
    *crooked = (vec){0};
    memset(a->next, 0, sizeof(vec) * k * k);
    for (size_t j = 0; j < a->m; j++) {
        vec *u = a->u + j * k * k, *b = a->b + j * k * k, *defect = a->defect + j, part, least, bent;
        if (NAME(exceeds)(*defect, a->enough)) NAME(straighten)(u, defect, a->enough, a->x, a->y, k);
        NAME(inner)(a->n, b, a->x, k, 1);
        NAME(inner)(u, a->x, a->y, k, 1);
        const vec square = NAME(skew)(a->y, a->lengths + j * k, a->x, k, &part, &least, &bent);
        for (size_t l = 0; l < VEC; l++) fit[l] &= least[l] > 0 && square[l] < 1; /* false for NaN */
        NAME(turn)(u, a->x, square, defect, a->enough, a->y, a->z, k);
        NAME(outer)(b, u, a->y, k, 1);
        NAME(add)(a->y, a->weights + j, a->next, k, 1);
        error += a->weights[j] * part;
        remains += a->weights[j] * part * bent;
        *crooked = NAME(larger)(*defect, *crooked);
    }
    *rest = NAME(root)(remains);
    return NAME(root)(error);
}

/* Frames of all points at n, exactly, and points turned into them, in some lanes. */
static void NAME(rebase)(const NAME(way) *a, vec *f, vec *v, vec *s, mask which)
{
    const size_t k = a->k, square = k * k;
    for (size_t j = 0; j < a->m; j += PARTS) { /* so many points at a time, the last one repeated */
        int good[LANES];
        for (size_t h = 0; h < PARTS; h++) {
            const vec *b = a->b + (j + h < a->m ? j + h : a->m - 1) * square;
            NAME(inner)(a->n, b, f + h * square, k, 1);
            memcpy(v + h * square, b, sizeof(vec) * square);
        }
        NAME(decompose)(f, v, s, NULL, k, COMPANION, 0, good);
        for (size_t h = 0; h < PARTS && j + h < a->m; h++) {
            vec *u = a->u + (j + h) * square, *b = a->b + (j + h) * square;
            for (size_t i = 0; i < square; i++) {
                u[i] = NAME(choose)(which, f[h * square + i], u[i]);
                b[i] = NAME(choose)(which, v[h * square + i], b[i]);
            }
            NAME(begin)(a, j + h, which);
        }
    }
}

/* ------------------------------------------------------------------------------------------- the derivative of a mean */

/* Solve scale * (sum of w u (h * (u^T e u)) u^T) = right with e = scale * z, by conjugate gradients in each lane; right is
 * replaced by the residual, z by e; good is cleared for the lanes that did not get there. */
typedef struct {
    const vec *u, *h, *w; /* (m) matrices, `stride` vectors apart, (m) matrices, (m) vectors */
    const vec *scale;
    vec *p, *q, *x, *y; /* scratch */
    size_t k, m, stride;
} NAME(equation);

static void NAME(apply)(const NAME(equation) *e, vec *spare)
{
    const size_t k = e->k;
    NAME(times)(e->scale, e->p, spare, k);
    memset(e->q, 0, sizeof(vec) * k * k);
    for (size_t j = 0; j < e->m; j++) {
        const vec *u = e->u + j * e->stride;
        NAME(multiply)(spare, u, e->x, k, 1);
        NAME(symmetric_inner)(u, e->x, e->y, k);
        NAME(times)(e->y, e->h + j * k * k, e->x, k);
        NAME(multiply)(u, e->x, e->y, k, 1);
        NAME(symmetric_outer)(e->y, u, e->x, k);
        NAME(add)(e->x, e->w + j, e->q, k, 1);
    }
    NAME(times)(e->q, e->scale, e->q, k);
}

static void NAME(conjugate)(const NAME(equation) *e, vec *right, vec *z, vec *spare, REAL tolerance, int *good)
{
    const size_t k = e->k;
    vec unit;
    NAME(times)(right, e->scale, right, k);
    NAME(normalise)(right, &unit, 1, k, 1);
    memcpy(e->p, right, sizeof(vec) * k * k);
    memset(z, 0, sizeof(vec) * k * k);
    vec rr = NAME(dot)(right, right, k), target = tolerance * tolerance * rr;
    for (size_t iteration = 0; iteration < 4 * k + 20 && NAME(exceeds)(rr - target, 0); iteration++) {
        NAME(apply)(e, spare);
        const vec pq = NAME(dot)(e->p, e->q, k);
        vec step, minus, ratio;
        for (size_t l = 0; l < VEC; l++) step[l] = rr[l] > target[l] && pq[l] > 0 ? rr[l] / pq[l] : 0;
        minus = -step;
        NAME(add)(e->p, &step, z, k, 1);
        NAME(add)(e->q, &minus, right, k, 1);
        const vec now = NAME(dot)(right, right, k);
        for (size_t l = 0; l < VEC; l++) {
            ratio[l] = rr[l] > target[l] ? now[l] / rr[l] : 0;
            rr[l] = rr[l] > target[l] ? now[l] : rr[l];
        }
        memcpy(spare, right, sizeof(vec) * k * k);
        NAME(add)(e->p, &ratio, spare, k, 1);
        memcpy(e->p, spare, sizeof(vec) * k * k);
    }
    for (size_t l = 0; l < VEC; l++) good[l] &= rr[l] <= target[l];
    for (size_t i = 0; i < k * k; i++) z[i] *= unit * e->scale[i];
}

/* out_ij = a_i a_j / (a_i + a_j), which is the curvature, or, with the factor a_i left out, the response to a point */
static void NAME(harmonic)(const vec *a, vec *out, size_t k, int response)
{
    for (size_t p = 0; p < k; p++)
        for (size_t i = 0; i <= p; i++) {
            vec inverse = 1 / (a[i] + a[p]);
            out[p * k + i] = a[p] * inverse;
            out[i * k + p] = a[i] * inverse;
            if (!response) out[p * k + i] *= a[i], out[i * k + p] = out[p * k + i]; /* a_i a_j may leave the range */
        }
}

/* --------------------------------------------------------------------------------- first differences of functions */

/* sinh(x) / x, for |x| up to 1 */
INLINE vec NAME(sinhc)(vec x)
{
    const vec y = x * x;
    vec sum = NAME(all)(1);
    for (int n = DOUBLE ? 16 : 8; n > 0; n -= 2) sum = 1 + sum * y / (REAL)(n * (n + 1));
    return sum;
}

/* atanh(x) / x, for |x| up to 1/4 */
INLINE vec NAME(atanhc)(vec x)
{
    const vec y = x * x;
    vec sum = {0};
    for (int n = DOUBLE ? 25 : 11; n > 0; n -= 2) sum = sum * y + 1 / (REAL)n;
    return sum;
}

/* out_ij = (a_i^p - a_j^p) / (a_i - a_j): with h half of log(a_i / a_j) it is (a_i a_j)^((p - 1) / 2) sinh(p h) / sinh(h),
 * which does not cancel.  x: 3 k vectors of scratch. */
static void NAME(power_quotients)(const vec *a, REAL p, vec *x, vec *out, size_t k)
{
    vec *logs = x, *roots = x + k, *powers = x + 2 * k;
    for (size_t i = 0; i < k; i++)
        for (size_t l = 0; l < VEC; l++) {
            const REAL log_a = LOG(a[i][l]);
            logs[i][l] = log_a;
            roots[i][l] = EXP((p - 1) / 2 * log_a);
            powers[i][l] = POW(a[i][l], p);
        }
    for (size_t j = 0; j < k; j++)
        for (size_t i = 0; i <= j; i++) {
            const vec h = (logs[i] - logs[j]) / 2, size = NAME(larger)(h, -h);
            const mask close = (mask)(size < (REAL)0.5) & (mask)(size * (p < 0 ? -p : p) < 1);
            const vec gap = NAME(choose)(close, NAME(all)(1), a[i] - a[j]);
            const vec near = p * NAME(sinhc)(p * h) / NAME(sinhc)(h) * (roots[i] * roots[j]);
            out[j * k + i] = out[i * k + j] = NAME(choose)(close, near, (powers[i] - powers[j]) / gap);
        }
}

/* The same of log(max(a, floor)).  x: k vectors of scratch. */
static void NAME(log_quotients)(const vec *a, REAL floor, vec *x, vec *out, size_t k)
{
    const vec least = NAME(all)(floor), one = NAME(all)(1);
    for (size_t i = 0; i < k; i++)
        for (size_t l = 0; l < VEC; l++) x[i][l] = LOG(a[i][l] > floor ? a[i][l] : floor);
    for (size_t j = 0; j < k; j++)
        for (size_t i = 0; i <= j; i++) {
            const vec b = NAME(larger)(a[i], least), c = NAME(larger)(a[j], least), z = (b - c) / (b + c);
            const mask close = (mask)(NAME(larger)(z, -z) < (REAL)0.25);
            const vec gap = NAME(choose)(close, one, b - c);
            const vec log = NAME(choose)(close, 2 * NAME(atanhc)(z) / (b + c), (x[i] - x[j]) / gap);
            const mask above_i = (mask)(a[i] > least), above_j = (mask)(a[j] > least), mixed = above_i ^ above_j;
            const vec rise = (b - c) / NAME(choose)(mixed, a[i] - a[j], one);
            out[j * k + i] = out[i * k + j] = log * NAME(choose)(mixed, rise, NAME(choose)(above_i, one, (vec){0}));
        }
}

/* ------------------------------------------------------------------------------------------------------------ the jobs */

/* A thread's memory, so many matrices and vectors, then block after block; lanes beyond the last item repeat it. */
#define BEGIN(job, matrices, vectors)                                                                                \
    static void *NAME(job)(void *argument)                                                                           \
    {                                                                                                                \
        task *t = (task *)argument;                                                                                  \
        const size_t k = t->k, m = t->m, square = k * k, size = square * PARTS;                                      \
        char *raw = malloc(((matrices) * square + (vectors)) * sizeof(vec) + ALIGNMENT);                             \
        t->out_of_memory = raw == NULL;                                                                              \
        if (!raw) return NULL;                                                                                       \
        vec *buffer = (vec *)(((uintptr_t)raw + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);                             \
        vec *s = buffer + (matrices) * square;                                                                       \
        (void)m, (void)s, (void)size;                                                                                \
        for (size_t start = t->first; start < t->last; start += LANES) {                                             \
            const size_t count = t->last - start < LANES ? t->last - start : LANES;                                  \
            const REAL *from[LANES];                                                                                 \
            REAL *to[LANES];                                                                                         \
            int good[LANES];                                                                                         \
            (void)to;                                                                                                \
            EACH_LANE good[l] = 1;
#define END                                                                                                          \
            for (size_t l = 0; l < count; l++) t->failed[start + l] = !good[l];                                      \
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

#define LANES_OF(h) (count > (h) / square * VEC ? (count - (h) / square * VEC < VEC ? count - (h) / square * VEC : VEC) : 0)
#define PUT_VALUES(x, to)                                                                                            \
    for (size_t l = 0; l < count; l++)                                                                               \
        for (size_t p = 0; p < k; p++) ((REAL *)(to))[(start + l) * k + p] = (x)[l / VEC * k + p][l % VEC]
#define GET_VALUES(from, x)                                                                                          \
    EACH_LANE for (size_t p = 0; p < k; p++) (x)[l / VEC * k + p][l % VEC] = ((const REAL *)(from))[ITEM(l) * k + p]

BEGIN(svd, 2 * PARTS + 1, PARTS * k)
    vec *f = BLOCK(0), *v = t->v ? BLOCK(1) : NULL;
    LOAD(t->a, ITEM(l), f);
    NAME(decompose)(f, v, s, BLOCK(2), k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    if (v) STORE(v, ITEM(l), t->v);
    PUT_VALUES(s, t->s);
END

/* w^T x w, with w of n x k numbers, the same for all symmetric x of n x n */
BEGIN(maps, (t->n * t->n + t->n * k + square + square - 1) / square, 0)
    const size_t n = t->n;
    vec *x = buffer, *xw = x + n * n, *out = xw + n * k;
    for (size_t first = 0; first < count; first += VEC) {
        for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->a + ITEM(first + l) * n * n;
        NAME(load)(from, x, n, 1);
        NAME(common_product)(x, 1, n, t->b, 1, k, xw, n, k, n);
        NAME(common_product)(xw, n, 1, t->b, 1, k, out, k, k, n);
        NAME(symmetrise)(out, k, (REAL)0.5);
        for (size_t l = 0; l < VEC; l++) to[l] = (REAL *)t->out + ITEM(first + l) * square;
        NAME(store)(out, to, k, count - first < VEC ? count - first : VEC);
    }
END

/* The derivatives in x and, summed over a block, in w */
BEGIN(map_adjoints, (2 * t->n * t->n + 2 * t->n * k + square + square - 1) / square, 0)
    const size_t n = t->n;
    vec *x = buffer, *xw = x + n * n, *g = xw + n * k, *wg = g + square, *out = wg + n * k;
    REAL *sum = (REAL *)t->turned + start / LANES * n * k;
    memset(sum, 0, sizeof(REAL) * n * k);
    for (size_t first = 0; first < count; first += VEC) {
        const size_t lanes = count - first < VEC ? count - first : VEC;
        for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->a + ITEM(first + l) * n * n;
        NAME(load)(from, x, n, 1);
        for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->grad + ITEM(first + l) * square;
        NAME(load)(from, g, k, 1);
        NAME(symmetrise)(g, k, (REAL)0.5);
        NAME(common_product)(g, k, 1, t->b, k, 1, wg, k, n, k);
        NAME(common_product)(wg, k, 1, t->b, k, 1, out, n, n, k);
        for (size_t l = 0; l < VEC; l++) to[l] = (REAL *)t->out + ITEM(first + l) * n * n;
        NAME(store)(out, to, n, lanes);
        NAME(common_product)(x, 1, n, t->b, 1, k, xw, n, k, n);
        for (size_t i = 0; i < n; i++)
            for (size_t p = 0; p < k; p++) {
                vec y = {0};
                for (size_t q = 0; q < k; q++) y += xw[q * n + i] * g[p * k + q];
                for (size_t l = 0; l < lanes; l++) sum[i * k + p] += 2 * y[l];
            }
    }
END

/* Eigenvectors and eigenvalues of positive definite matrices */
BEGIN(eigen, PARTS, PARTS * k)
    vec *f = BLOCK(0);
    LOAD(t->a, ITEM(l), f);
    for (size_t h = 0; h < PARTS; h++) NAME(cholesky)(f + h * square, k, good + h * VEC);
    NAME(decompose)(f, NULL, s, NULL, k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    for (size_t p = 0; p < k * PARTS; p++) s[p] *= s[p];
    PUT_VALUES(s, t->s);
END

/* u diag(s) u^T */
BEGIN(composites, 3 * PARTS, PARTS * k)
    vec *u = BLOCK(0), *x = BLOCK(1), *y = BLOCK(2);
    LOAD(t->u, ITEM(l), u);
    GET_VALUES(t->s, s);
    for (size_t h = 0; h < PARTS; h++) {
        for (size_t p = 0; p < k; p++)
            for (size_t i = 0; i < k; i++) x[h * square + p * k + i] = u[h * square + p * k + i] * s[h * k + p];
        NAME(symmetric_outer)(x + h * square, u + h * square, y + h * square, k);
    }
    STORE(y, ITEM(l), t->out);
END

/* u (b * (u^T g u)) u^T, with the symmetric part g of the derivative and first differences b at the values s */
BEGIN(derivatives, 4 * PARTS + 1, 4 * k)
    vec *u = BLOCK(0), *g = BLOCK(1), *x = BLOCK(2), *y = BLOCK(3), *b = BLOCK(4);
    LOAD(t->u, ITEM(l), u);
    LOAD(t->grad, ITEM(l), g);
    for (size_t h = 0; h < size; h += square) {
        for (size_t p = 0; p < k; p++)
            for (size_t l = 0; l < VEC; l++)
                s[p][l] = ((const REAL *)t->s)[ITEM(h / square * VEC + l) * k + p];
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
END

/* Eigenvalues from singular values of a factor: not below rounding of the largest one, and their powers.  good is cleared
 * where they must be above it, and are not. */
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

/* c^-1 u diag(s^p), for a = u diag(s) u^T: a factor of c^-1 a^2p c^-T, up to an orthogonal matrix on the right */
BEGIN(charts, PARTS, 2 * PARTS * k)
    vec *f = BLOCK(0), *power = s + PARTS * k;
    LOAD(t->a, ITEM(l), f);
    for (size_t h = 0; h < PARTS; h++) {
        NAME(symmetrise)(f + h * square, k, (REAL)0.5);
        NAME(cholesky)(f + h * square, k, good + h * VEC);
    }
    NAME(decompose)(f, NULL, s, NULL, k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    for (size_t h = 0; h < PARTS; h++)
        NAME(powers)(s + h * k, power + h * k, (REAL)t->parameter, t->function, k, good + h * VEC);
    PUT_VALUES(s, t->s);
    for (size_t p = 0; p < k * PARTS; p++)
        for (size_t i = 0; i < k; i++) f[p * k + i] *= power[p];
    for (size_t h = 0; h < PARTS; h++) NAME(lower_solve)(t->b, f + h * square, k);
    STORE(f, ITEM(l), t->out);
END

/* The derivative of a function of the factors c^-1 u diag(s^p) that does not change when they are turned */
BEGIN(chart_adjoints, 3 * PARTS + 2, PARTS * k + 3 * k)
    vec *u = BLOCK(0), *g = BLOCK(1), *a = BLOCK(2), *x = BLOCK(3), *b = x + square, *scratch = s + PARTS * k;
    REAL *sum = (REAL *)t->turned + start / LANES * square;
    LOAD(t->u, ITEM(l), u);
    LOAD(t->grad, ITEM(l), g);
    LOAD(t->a, ITEM(l), a);
    GET_VALUES(t->s, s);
    memset(sum, 0, sizeof(REAL) * square);
    for (size_t h = 0; h < size; h += square) {
        const vec *values = s + h / square * k;
        vec slope = {0};
        NAME(upper_solve)(t->b, g + h, k);
        NAME(add_outer)(g + h, a + h, x, sum, -1, LANES_OF(h), k);
        NAME(inner)(u + h, g + h, x, k, 1);
        NAME(symmetrise)(x, k, (REAL)0.5);
        NAME(power_quotients)(values, (REAL)t->parameter, scratch, b, k);
        for (size_t p = 0; p < k; p++) slope += x[p * k + p] * scratch[p] * scratch[2 * k + p]; /* logs, powers */
        for (size_t l = 0; l < LANES_OF(h); l++) ((REAL *)t->value)[start + h / square * VEC + l] = slope[l];
        NAME(times)(x, b, x, k);
        NAME(multiply)(u + h, x, b, k, 1);
        NAME(symmetric_outer)(b, u + h, g + h, k);
    }
    STORE(g, ITEM(l), t->out);
END

/* (c a a^T c^T)^p */
BEGIN(uncharts, 2 * PARTS + 1, 2 * PARTS * k)
    vec *f = BLOCK(0), *out = BLOCK(1), *x = BLOCK(2), *power = s + PARTS * k;
    LOAD(t->a, ITEM(l), f);
    for (size_t h = 0; h < size; h += square) NAME(lower_multiply)(t->b, f + h, k);
    NAME(decompose)(f, NULL, s, NULL, k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    for (size_t h = 0; h < PARTS; h++)
        NAME(powers)(s + h * k, power + h * k, (REAL)t->parameter, t->function, k, good + h * VEC);
    PUT_VALUES(s, t->s);
    for (size_t h = 0; h < PARTS; h++) {
        for (size_t i = 0; i < square; i++) x[i] = f[h * square + i] * power[h * k + i / k];
        NAME(symmetric_outer)(x, f + h * square, out + h * square, k);
    }
    STORE(out, ITEM(l), t->out);
END

BEGIN(unchart_adjoints, 3 * PARTS + 2, PARTS * k + 3 * k)
    vec *u = BLOCK(0), *g = BLOCK(1), *a = BLOCK(2), *x = BLOCK(3), *b = x + square, *scratch = s + PARTS * k;
    REAL *sum = (REAL *)t->turned + start / LANES * square;
    LOAD(t->u, ITEM(l), u);
    LOAD(t->grad, ITEM(l), g);
    LOAD(t->a, ITEM(l), a);
    GET_VALUES(t->s, s);
    memset(sum, 0, sizeof(REAL) * square);
    for (size_t h = 0; h < size; h += square) {
        const vec *values = s + h / square * k;
        vec slope = {0};
        NAME(symmetrise)(g + h, k, 1); /* twice the symmetric part */
        NAME(multiply)(g + h, u + h, b, k, 1);
        NAME(symmetric_inner)(u + h, b, x, k);
        NAME(power_quotients)(values, (REAL)t->parameter, scratch, b, k);
        for (size_t p = 0; p < k; p++) slope += x[p * k + p] * scratch[p] * scratch[2 * k + p];
        for (size_t l = 0; l < LANES_OF(h); l++) ((REAL *)t->value)[start + h / square * VEC + l] = slope[l] / 2;
        NAME(times)(x, b, x, k);
        NAME(multiply)(u + h, x, b, k, 1);
        NAME(symmetric_outer)(b, u + h, x, k);
        memcpy(b, a + h, sizeof(vec) * square);
        NAME(lower_multiply)(t->b, b, k);
        NAME(multiply)(x, b, g + h, k, 1); /* the derivative in c a */
        NAME(add_outer)(g + h, a + h, x, sum, 1, LANES_OF(h), k);
        NAME(upper_multiply)(t->b, g + h, k);
    }
    STORE(g, ITEM(l), t->out);
END

BEGIN(pairs, 6 * PARTS, PARTS * k)
    vec *a = BLOCK(0), *b = BLOCK(1), *f = BLOCK(2), *v = BLOCK(3), *q = BLOCK(4), *x = BLOCK(5);
    LOAD(t->a, (size_t)t->ia[ITEM(l)], a);
    LOAD(t->b, (size_t)t->ib[ITEM(l)], b);
    NAME(inner)(b, a, f, k, PARTS);
    NAME(decompose)(f, v, s, q, k, FRESH, 0, good);
    NAME(outer)(f, v, q, k, PARTS);
    NAME(multiply)(b, q, x, k, PARTS);
    for (size_t i = 0; i < size; i++) x[i] = a[i] - x[i];
    for (size_t h = 0; h < PARTS; h++) {
        const vec value = NAME(dot)(x + h * square, x + h * square, k);
        for (size_t l = h * VEC; l < (h + 1) * VEC && l < count; l++) ((REAL *)t->value)[start + l] = value[l % VEC];
    }
    if (t->out) {
        STORE(x, ITEM(l), t->out);
        NAME(outer)(a, q, x, k, PARTS);
        for (size_t i = 0; i < size; i++) x[i] = b[i] - x[i];
        STORE(x, ITEM(l), t->turned);
    }
END

/* A factor of the mean of b b^T over the points */
BEGIN(starts, 3, 0)
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
        for (size_t l = 0; l < VEC; l++) to[l] = (REAL *)t->out + ITEM(first + l) * square;
        NAME(store)(sum, to, k, count - first < VEC ? count - first : VEC);
    }
END

BEGIN(frames, 5 * PARTS, PARTS * k)
    vec *n = BLOCK(0), *b = BLOCK(1), *f = BLOCK(2), *v = BLOCK(3), *x = BLOCK(4);
    LOAD(t->a, ITEM(l) / m, n);
    LOAD(t->b, ITEM(l), b);
    NAME(inner)(n, b, f, k, PARTS);
    NAME(decompose)(f, v, s, x, k, FRESH, 0, good);
    STORE(f, ITEM(l), t->u);
    STORE(v, ITEM(l), t->v);
    NAME(multiply)(b, v, x, k, PARTS);
    STORE(x, ITEM(l), t->turned);
    NAME(outer)(x, f, b, k, PARTS);
    STORE(b, ITEM(l), t->out);
END

BEGIN(steps, 5 * PARTS, PARTS * k)
    vec *n = BLOCK(0), *b = BLOCK(1), *f = BLOCK(2), *aligned = BLOCK(3), *next = BLOCK(4);
    vec weight[PARTS];
    LOAD(t->a, ITEM(l), n);
    memset(next, 0, sizeof(vec) * size);
    for (size_t j = 0; j < m; j++) { /* points are only known up to rotations of their columns, and come back turned */
        EACH_LANE ((REAL *)weight)[l] = ((const REAL *)t->w)[ITEM(l) * m + j];
        LOAD(t->b, ITEM(l) * m + j, b);
        NAME(inner)(n, b, f, k, PARTS);
        NAME(decompose)(f, b, s, NULL, k, COMPANION, (REAL)t->tolerance, good);
        NAME(outer)(b, f, aligned, k, PARTS);
        NAME(add)(aligned, weight, next, k, PARTS);
        STORE(b, ITEM(l) * m + j, t->turned);
    }
    STORE(next, ITEM(l), t->out);
    for (size_t h = 0; h < PARTS; h++) {
        vec change = NAME(distance)(next + h * square, n + h * square, k);
        vec length = NAME(dot)(n + h * square, n + h * square, k), value = NAME(root)(change / length);
        for (size_t l = h * VEC; l < (h + 1) * VEC && l < count; l++) ((REAL *)t->value)[start + l] = value[l % VEC];
    }
END

/* All steps to a mean, in frames of a common start: the points are turned so that u^T n^T b is nearly diagonal, and stay so;
 * u follows n.  Where that does not lead to the mean fast, frames are made anew, and if it still does not, the lane is given
 * up. */
BEGIN(walks, 9 + 2 * m + 2 * PARTS, m * k + 2 * m + PARTS * k)
    NAME(way) a = {.n = buffer, .next = buffer + square, .move = buffer + 2 * square, .new = buffer + 4 * square,
                   .x = buffer + 6 * square, .y = buffer + 7 * square, .z = buffer + 8 * square, .u = buffer + 9 * square,
                   .b = buffer + (9 + m) * square, .lengths = s, .weights = s + m * k, .defect = s + m * k + m, .k = k,
                   .m = m, .enough = (REAL)t->tolerance / 10 > EPSILON ? (REAL)t->tolerance / 10 : EPSILON};
    vec *f = buffer + (9 + 2 * m) * square, *v = f + size, *values = s + m * k + 2 * m;
    for (size_t first = 0; first < count; first += VEC) { /* one vector of problems at a time */
        REAL last[VEC], before[VEC], doubt[VEC]; /* residuals of the last step and of the one before */
        int fit[VEC], open[VEC], past[VEC], tried[VEC], left = 0; /* past: steps in these frames; tried: new ones */
        for (size_t l = 0; l < VEC; l++) {
            left += open[l] = fit[l] = first + l < count;
            past[l] = tried[l] = 0;
            last[l] = before[l] = doubt[l] = INFINITY;
            from[l] = (const REAL *)t->a + ITEM(first + l) * square;
        }
        NAME(load)(from, a.n, k, 1);
        for (size_t j = 0; j < m; j++) {
            for (size_t l = 0; l < VEC; l++) a.weights[j][l] = ((const REAL *)t->w)[ITEM(first + l) * m + j];
            for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->u + (ITEM(first + l) / t->q * m + j) * square;
            NAME(load)(from, a.u + j * square, k, 1);
            for (size_t l = 0; l < VEC; l++) from[l] = (const REAL *)t->b + (ITEM(first + l) / t->q * m + j) * square;
            NAME(load)(from, a.b + j * square, k, 1);
            NAME(begin)(&a, j, ~(mask){0});
        }
        for (size_t taken = 0; left; taken++) {
            vec crooked, rest, error = NAME(stride)(&a, fit, &crooked, &rest);
            vec change = NAME(root)(NAME(distance)(a.next, a.n, k)), norm = NAME(root)(NAME(dot)(a.n, a.n, k));
            mask stuck = {0};
            for (size_t l = 0; l < VEC; l++) {
                if (!open[l]) continue;
                /* what frames may still be wrong by counts, too; they converge at least as fast as the turns have */
                const REAL rate = error[l] < doubt[l] ? error[l] / doubt[l] : 1, wrong = rate * error[l];
                const REAL residual = (change[l] + (wrong < rest[l] ? wrong : rest[l])) / norm[l], slow = SLOW * before[l];
                before[l] = last[l], last[l] = residual, doubt[l] = error[l];
                const size_t item = start + first + l;
                good[first + l] = fit[l] && residual <= (REAL)t->tolerance && crooked[l] <= a.enough;
                if (!good[first + l] && taken < t->max_steps) {
                    if (fit[l] && residual <= slow) continue;
                    if (!tried[l] || past[l] > 2) { /* the step is in doubt: take it again, in new frames */
                        stuck[l] = -1, fit[l] = tried[l] = 1, past[l] = -1;
                        last[l] = before[l] = doubt[l] = INFINITY;
                        continue;
                    }
                }
                for (size_t i = 0; i < k; i++) /* as far as it got, if it can be trusted */
                    for (size_t p = 0; p < k; p++)
                        ((REAL *)t->out)[(item * k + i) * k + p] =
                            fit[l] ? a.n[p * k + i][l] : ((const REAL *)t->a)[(item * k + i) * k + p];
                ((REAL *)t->value)[item] = residual;
                t->steps[item] = (int64_t)taken;
                open[l] = 0, left--;
            }
            if (NAME(some)(stuck)) NAME(rebase)(&a, f, v, values, stuck);
            NAME(mix)(a.n, a.next, a.move, a.new, k, past, stuck);
            for (size_t l = 0; l < VEC; l++) past[l]++;
        }
    }
END

/* The derivative of a mean, for a factor with nearly orthogonal columns, in which the equation is nearly diagonal: N turned
 * by an orthogonal matrix is a factor of the same mean.  The frame of the first point is a good start. */
BEGIN(adjoints, PARTS * (4 + 2 * m) + 8 + m, PARTS * (m + 1) * k + m)
    vec *n = BLOCK(0), *b = BLOCK(1), *turn = BLOCK(2), *grad = BLOCK(3), *u = BLOCK(4), *v = BLOCK(4 + m);
    vec *h = BLOCK(4 + 2 * m), *right = h + m * square, *z = right + square, *scale = z + square, *spare = scale + square;
    vec *x = spare + square, *y = x + square, *p = y + square, *q = p + square;
    vec *values = s + PARTS * k, *weights = values + PARTS * m * k;
    const REAL exactness = (REAL)t->tolerance / 100; /* of frames: ill-conditioned points multiply its effect */
    LOAD(t->a, ITEM(l), n);
    for (size_t j = 0; j < m; j++) {
        LOAD(t->b, ITEM(l) / t->q * m + j, b);
        NAME(inner)(n, b, u + j * size, k, PARTS);
        NAME(decompose)(u + j * size, v + j * size, values + j * PARTS * k, h, k, FRESH, exactness, good);
        if (j > 0) continue;
        memcpy(turn, u, sizeof(vec) * size);
        NAME(multiply)(n, turn, b, k, PARTS);
        NAME(decompose)(b, turn, s, NULL, k, COMPANION, (REAL)0.01, good);
        for (size_t i = 0; i < size; i++) n[i] = b[i] * s[i / k];
        NAME(inner)(turn, u, b, k, PARTS);
        memcpy(u, b, sizeof(vec) * size);
        LOAD(t->grad, ITEM(l), b); /* the derivative in the mean */
        NAME(multiply)(b, turn, grad, k, PARTS);
    }
    for (size_t part = 0; part * VEC < count; part++) {
        const size_t at = part * square, lanes = count - part * VEC < VEC ? count - part * VEC : VEC;
        vec *squares = s + part * k;
        NAME(inner)(n + at, grad + at, right, k, 1);
        NAME(symmetrise)(right, k, (REAL)0.25);
        for (size_t i = 0; i < k; i++) squares[i] *= squares[i];
        NAME(harmonic)(squares, scale, k, 0);
        for (size_t i = 0; i < square * VEC; i++) ((REAL *)scale)[i] = 1 / SQRT(((REAL *)scale)[i]);
        for (size_t j = 0; j < m; j++) {
            for (size_t l = 0; l < VEC; l++) weights[j][l] = ((const REAL *)t->w)[ITEM(part * VEC + l) * m + j];
            NAME(harmonic)(values + (j * PARTS + part) * k, h + j * square, k, 0);
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
            for (size_t i = 0; i < k; i++) sum += y[i * k + i] * value[i];
            NAME(harmonic)(value, h, k, 1);
            for (size_t i = 0; i < square; i++) x[i] = twice * y[i] * h[i];
            NAME(multiply)(n + at, uj, y, k, 1);
            NAME(multiply)(y, x, spare, k, 1);
            NAME(outer)(spare, v + j * size + at, y, k, 1);
            for (size_t l = 0; l < lanes; l++) {
                const size_t item = (start + part * VEC + l) * m + j;
                ((REAL *)t->value)[item] = sum[l];
                to[l] = (REAL *)t->out + item * square;
            }
            NAME(store)(y, to, k, lanes);
        }
    }
END

#undef BEGIN
#undef END
#undef BLOCK
#undef ITEM
#undef LOAD
#undef STORE
#undef LANES_OF
#undef PUT_VALUES
#undef GET_VALUES
#undef VEC
#undef WIDTH
#undef PARTS
#undef vec
#undef mask
#undef DOUBLE
#undef REAL
#undef INTEGER
#undef EPSILON
#undef SQRT
#undef LOG
#undef EXP
#undef POW
#undef NAME
#undef ABS
#undef UNIT
#undef TINY
#undef SMALLEST
#undef RECOVERABLE
