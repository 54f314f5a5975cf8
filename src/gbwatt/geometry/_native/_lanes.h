/* Vectors with one number of each matrix, products of matrices in lanes, and transfers from and to memory.
 * Part of _jacobi.h. */

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

/* Whether any lane exceeds the limit or is NaN. */
INLINE int NAME(exceeds)(vec x, REAL limit)
{
    int any = 0;
    for (size_t l = 0; l < VEC; l++) any |= !(x[l] <= limit);
    return any;
}

/* out_ip = sum over j of a_(i ai + j aj) b_(p bp + j bj), three rows by three columns at a time, in registers.  Only
 * one triangle is computed if the result is symmetric. */
INLINE void NAME(product)(const vec *restrict a, size_t ai, size_t aj, const vec *restrict b, size_t bp, size_t bj,
                          vec *restrict out, size_t k, int symmetric)
{
    for (size_t p = 0; p < k; p += 3) {
        const size_t p1 = p + 1 < k ? p + 1 : p, p2 = p + 2 < k ? p + 2 : p; /* beyond the last: repeated */
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
            if (symmetric && i == p) c01 = c10, c02 = c20, c12 = c21; /* exactly symmetric */
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

/* out_(r yr + c yc) = sum over j of x_(r xr + j xj) w_(c wc + j wj), for one matrix w in memory, four rows by three columns
 * at a time */
static void NAME(common_product)(const vec *restrict x, size_t xr, size_t xj, const REAL *restrict w, size_t wc, size_t wj,
                                 vec *restrict out, size_t yr, size_t yc, size_t rows, size_t columns, size_t inner)
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
            vec *o0 = out + c * yc, *o1 = out + c1 * yc, *o2 = out + c2 * yc; /* repeated ones are stored first */
            o2[r3 * yr] = s32, o2[r2 * yr] = s22, o2[r1 * yr] = s12, o2[r * yr] = s02;
            o1[r3 * yr] = s31, o1[r2 * yr] = s21, o1[r1 * yr] = s11, o1[r * yr] = s01;
            o0[r3 * yr] = s30, o0[r2 * yr] = s20, o0[r1 * yr] = s10, o0[r * yr] = s00;
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

/* out = a^T b and out = a b^T, if they are symmetric */
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

/* out = x y, element by element */
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
    vec a = {0}, b = {0}, c = {0}, d = {0}; /* independent sums */
    size_t i = 0;
    for (; i + 3 < k * k; i += 4)
        a += x[i] * y[i], b += x[i + 1] * y[i + 1], c += x[i + 2] * y[i + 2], d += x[i + 3] * y[i + 3];
    if (i < k * k) a += x[i] * y[i]; /* k k modulo 4 is 0 or 1 */
    return (a + b) + (c + d);
}

/* sum of (x - y)^2 */
static vec NAME(distance)(const vec *x, const vec *y, size_t k)
{
    vec sum = {0}, more = {0};
    size_t i = 0;
    for (; i + 1 < k * k; i += 2) {
        const vec a = x[i] - y[i], b = x[i + 1] - y[i + 1];
        sum += a * a, more += b * b;
    }
    if (i < k * k) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum + more;
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

/* Transpose a matrix of WIDTH x WIDTH numbers. */
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
        size_t e = 0, at = 0; /* index in row-major order, and position in lanes */
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
