/* The algorithms of _filters.c for one precision (DOUBLE) and one width of vectors (BYTES); included once for each. */
#if DOUBLE
#define REAL double
#define INTEGER int64_t
#define TINY DBL_MIN
#define LARGEST DBL_MAX
#define NAME(x) ARCHITECTURE(x##_f64)
#else
#define REAL float
#define INTEGER int32_t
#define TINY FLT_MIN
#define LARGEST FLT_MAX
#define NAME(x) ARCHITECTURE(x##_f32)
#endif
#if BYTES == 32 && !DOUBLE
#define WIDTH 8
#define LOW4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH4 4, 5, 6, 7, 12, 13, 14, 15
#define LOW2 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH2 2, 3, 10, 11, 6, 7, 14, 15
#define LOW1 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH1 1, 9, 3, 11, 5, 13, 7, 15
#elif BYTES == 32 || !DOUBLE
#define WIDTH 4
#define LOW2 0, 1, 4, 5
#define HIGH2 2, 3, 6, 7
#define LOW1 0, 4, 2, 6
#define HIGH1 1, 5, 3, 7
#else
#define WIDTH 2
#define LOW1 0, 2
#define HIGH1 1, 3
#endif
#define VEC ((size_t)WIDTH)
#define ROUNDED(n) (((n) + VEC - 1) / VEC * VEC)
#define vec NAME(vector)
#define loose NAME(unaligned)
#define mask NAME(integers)
typedef REAL vec __attribute__((vector_size(BYTES), may_alias));
typedef INTEGER mask __attribute__((vector_size(BYTES), may_alias));
typedef REAL loose __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));

INLINE double NAME(total)(vec x)
{
    double sum = 0;
    for (size_t l = 0; l < VEC; l++) sum += x[l];
    return sum;
}

/* Rows a and b with what lies off the diagonal in blocks of h numbers exchanged. */
#define EXCHANGE(a, b, h)                                                                                            \
    do {                                                                                                             \
        const vec low = SHUFFLE(v[a], v[b], LOW##h), high = SHUFFLE(v[a], v[b], HIGH##h);                            \
        v[a] = low, v[b] = high;                                                                                     \
    } while (0)

/* VEC numbers of each of VEC rows become VEC rows of VEC numbers. */
INLINE void NAME(flip)(const REAL *from, size_t stride, REAL *to, size_t out)
{
    vec v[VEC];
    for (size_t l = 0; l < VEC; l++) v[l] = *(const loose *)(from + l * stride);
#if WIDTH == 8
    EXCHANGE(0, 4, 4); EXCHANGE(1, 5, 4); EXCHANGE(2, 6, 4); EXCHANGE(3, 7, 4);
    EXCHANGE(4, 6, 2); EXCHANGE(5, 7, 2); EXCHANGE(4, 5, 1); EXCHANGE(6, 7, 1);
#endif
#if WIDTH >= 4
    EXCHANGE(0, 2, 2); EXCHANGE(1, 3, 2); EXCHANGE(2, 3, 1);
#endif
    EXCHANGE(0, 1, 1);
    for (size_t l = 0; l < VEC; l++) *(loose *)(to + l * out) = v[l];
}

/* --------------------------------------------------------------------------------------------- Fourier transforms */

/* A transform is of VEC complex sequences at once, one in each lane: number n is z[2 n] + i z[2 n + 1].  Frequencies
 * stay where radix 4 leaves them (place says where), which saves sorting them.  The turns of the stage for n
 * numbers stand at n / 2: w^k, w^2k, w^3k for k < n / 4, with w = exp(-2 pi i / n). */
static void NAME(turns)(REAL *to, size_t size)
{
    for (size_t n = size; n >= 4; n /= 4)
        for (size_t k = 0; k < n / 4; k++)
            for (size_t power = 1; power < 4; power++) {
                const double angle = -2 * PI * (double)(power * k) / (double)n;
                to[n / 2 + 6 * k + 2 * power - 2] = (REAL)cos(angle);
                to[n / 2 + 6 * k + 2 * power - 1] = (REAL)sin(angle);
            }
}

/* The last stage where the size is no power of 4, and the first one back. */
INLINE void NAME(halves)(vec *z, size_t size)
{
    for (vec *a = z; a < z + 2 * size; a += 4) {
        const vec re = a[2], im = a[3];
        a[2] = a[0] - re, a[3] = a[1] - im;
        a[0] += re, a[1] += im;
    }
}

static void NAME(transform)(vec *restrict z, size_t size, const REAL *turns)
{
    size_t n = size;
    for (; n >= 4; n /= 4) {
        const size_t q = n / 4;
        for (size_t k = 0; k < q; k++) {
            const REAL *w = turns + n / 2 + 6 * k;
            const REAL r1 = w[0], i1 = w[1], r2 = w[2], i2 = w[3], r3 = w[4], i3 = w[5];
            for (size_t start = k; start < size; start += n) {
                vec *a = z + 2 * start, *b = a + 2 * q, *c = b + 2 * q, *d = c + 2 * q;
                const vec sr = a[0] + c[0], si = a[1] + c[1], tr = b[0] + d[0], ti = b[1] + d[1];
                const vec dr = a[0] - c[0], di = a[1] - c[1], er = b[0] - d[0], ei = b[1] - d[1];
                const vec ur = sr - tr, ui = si - ti, vr = dr + ei, vi = di - er, xr = dr - ei, xi = di + er;
                a[0] = sr + tr, a[1] = si + ti;
                b[0] = r2 * ur - i2 * ui, b[1] = r2 * ui + i2 * ur;
                c[0] = r1 * vr - i1 * vi, c[1] = r1 * vi + i1 * vr;
                d[0] = r3 * xr - i3 * xi, d[1] = r3 * xi + i3 * xr;
            }
        }
    }
    if (n == 2) NAME(halves)(z, size);
}

/* The way back, times size. */
static void NAME(restore)(vec *restrict z, size_t size, const REAL *turns)
{
    size_t n = size;
    while (n >= 4) n /= 4;
    if (n == 2) NAME(halves)(z, size);
    for (n *= 4; n <= size; n *= 4) {
        const size_t q = n / 4;
        for (size_t k = 0; k < q; k++) {
            const REAL *w = turns + n / 2 + 6 * k;
            const REAL r1 = w[0], i1 = w[1], r2 = w[2], i2 = w[3], r3 = w[4], i3 = w[5];
            for (size_t start = k; start < size; start += n) {
                vec *a = z + 2 * start, *b = a + 2 * q, *c = b + 2 * q, *d = c + 2 * q;
                const vec br = r2 * b[0] + i2 * b[1], bi = r2 * b[1] - i2 * b[0];
                const vec cr = r1 * c[0] + i1 * c[1], ci = r1 * c[1] - i1 * c[0];
                const vec er = r3 * d[0] + i3 * d[1], ei = r3 * d[1] - i3 * d[0];
                const vec sr = a[0] + br, si = a[1] + bi, tr = a[0] - br, ti = a[1] - bi;
                const vec ur = cr + er, ui = ci + ei, vr = cr - er, vi = ci - ei;
                a[0] = sr + ur, a[1] = si + ui;
                b[0] = tr - vi, b[1] = ti + vr;
                c[0] = sr - ur, c[1] = si - ui;
                d[0] = tr + vi, d[1] = ti - vr;
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------------- spectra */

/* Blocks of a trial go in pairs, one as the real part of a sequence and the next as the imaginary one: filters are
 * real, so that they never mix.  Where a trial is one block, half of the frequencies tell all.  Trials do not meet:
 * one would leave its rounding errors, or what is not a number, in another. Row (frequency, pair) of spectra is
 * `channels` real parts, rounded up to vectors, and as many imaginary ones. */
typedef struct {
    size_t size, step, blocks, pairs, all; /* samples of a block; its results; blocks and pairs of a trial; all pairs */
    size_t rows, *at, *mirror;             /* frequencies; where in a transform they stand, and their opposites */
    REAL *turns;
    vec *z;    /* one transform */
    REAL *row; /* 2 VEC rows of size + VEC samples: before they become vectors */
} NAME(plan);

/* Where radix 4 leaves a frequency. */
static size_t NAME(place)(size_t frequency, size_t size)
{
    static const size_t quarter[4] = {0, 2, 1, 3};
    size_t place = 0;
    for (; size >= 4; size /= 4, frequency /= 4) place += quarter[frequency % 4] * (size / 4);
    return place + (size == 2 ? frequency : 0);
}

static int NAME(prepare)(NAME(plan) *p, const task *t)
{
    p->size = t->size, p->step = t->size - t->length + 1;
    p->blocks = (t->width + p->step - 1) / p->step;
    p->pairs = (p->blocks + 1) / 2;
    p->all = t->batch * p->pairs;
    p->rows = FREQUENCIES(p->size, p->blocks);
    p->z = new(sizeof(vec), 2, p->size, 1);
    p->turns = new(sizeof(REAL), 2, p->size, 1);
    p->row = new(sizeof(REAL), 2 * VEC, p->size + VEC, 1);
    p->at = new(sizeof(size_t), p->size, 1, 1), p->mirror = new(sizeof(size_t), p->size, 1, 1);
    if (!p->z || !p->turns || !p->row || !p->at || !p->mirror) return 0;
    NAME(turns)(p->turns, p->size);
    for (size_t f = 0; f < p->size; f++) {
        p->at[f] = NAME(place)(f, p->size);
        p->mirror[f] = NAME(place)((p->size - f) % p->size, p->size);
    }
    return 1;
}

static void NAME(release)(NAME(plan) *p)
{
    delete(p->z), delete(p->turns), delete(p->row), delete(p->at), delete(p->mirror);
}

/* Spectra row by row from a transform, conjugate if sign is -1; `next` numbers from one row to the next. */
INLINE void NAME(put)(const NAME(plan) *p, REAL *to, size_t next, size_t imaginary, REAL sign)
{
    for (size_t f = 0; f < p->rows; f++, to += next) {
        const vec *z = p->z + 2 * p->at[f];
        *(vec *)to = z[0], *(vec *)(to + imaginary) = sign * z[1];
    }
}

/* The transform of which these are the spectra. */
INLINE void NAME(get)(const NAME(plan) *p, const REAL *from, size_t next, size_t imaginary)
{
    for (size_t f = 0; f < p->rows; f++, from += next) {
        vec *z = p->z + 2 * p->at[f], *opposite = p->z + 2 * p->mirror[f];
        const vec re = *(const vec *)from, im = *(const vec *)(from + imaginary);
        if (p->rows < p->size) opposite[0] = re, opposite[1] = -im;
        z[0] = re, z[1] = im;
    }
}

/* A block of a pair, or `nowhere`. */
INLINE size_t NAME(block_of)(const NAME(plan) *p, size_t pair, size_t part)
{
    const size_t block = 2 * (pair % p->pairs) + part;
    return pair < p->all && block < p->blocks ? pair / p->pairs * p->blocks + block : NOWHERE;
}

/* Samples of a channel in a block of epochs, with zeros around them. */
static void NAME(cut)(const NAME(plan) *p, const task *t, size_t block, size_t channel, REAL *to)
{
    const size_t trial = block / p->blocks;
    const ptrdiff_t start = (ptrdiff_t)(block % p->blocks * p->step) - (ptrdiff_t)t->padding;
    const ptrdiff_t times = (ptrdiff_t)t->times - start, size = (ptrdiff_t)p->size;
    ptrdiff_t first = start < 0 ? -start : 0, last = times < size ? times : size;
    if (first > size) first = size;
    if (last < first) last = first;
    const REAL *x = (const REAL *)t->x + (ptrdiff_t)trial * t->stride[0] + (ptrdiff_t)channel * t->stride[1];
    memset(to, 0, sizeof(REAL) * (size_t)first);
    if (t->stride[2] == 1) memcpy(to + first, x + start + first, sizeof(REAL) * (size_t)(last - first));
    else
        for (ptrdiff_t n = first; n < last; n++) to[n] = x[(start + n) * t->stride[2]];
    memset(to + last, 0, sizeof(REAL) * (size_t)(size - last));
}

/* Derivatives in the results of a block, from those behind the normalisation; sums over trials are added up. */
static void NAME(differentiate)(const NAME(plan) *p, const task *t, size_t block, size_t channel, REAL *to)
{
    const size_t start = block % p->blocks * p->step, left = t->width - start, n = left < p->step ? left : p->step;
    const size_t at = (block / p->blocks * t->n_out + channel) * t->width + start;
    const REAL *g = (const REAL *)t->grad + at;
    double *sum = t->reached + channel * (t->width + 1) + start;
    if (t->y) {
        const REAL *y = (const REAL *)t->y + at, *c = (const REAL *)t->coefficients + 4 * channel;
        const REAL scale = c[0], slope = c[1], centre = c[2], shift = c[3];
        for (size_t i = 0; i < n; i++) to[i] = scale * g[i] + (slope * (y[i] - centre) + shift);
    } else memcpy(to, g, sizeof(REAL) * n);
    for (size_t i = 0; i < n; i++) sum[i] += to[i];
    memset(to + n, 0, sizeof(REAL) * (p->size - n));
}

typedef void (*NAME(reader))(const NAME(plan) *, const task *, size_t, size_t, REAL *);

/* Spectra of `count` pairs of blocks; conjugate ones if sign is -1. */
static void NAME(spectra)(const NAME(plan) *p, const task *t, NAME(reader) read, size_t pair, size_t count, size_t room,
                          size_t channels, REAL *to, REAL sign)
{
    const size_t rounded = ROUNDED(channels), wide = p->size + VEC;
    for (size_t g = 0; g < count; g++)
        for (size_t c = 0; c < channels; c += VEC) {
            for (size_t l = 0; l < 2 * VEC; l++) { /* both blocks of a channel, which are neighbours */
                const size_t block = NAME(block_of)(p, pair + g, l % 2), channel = c + l / 2;
                REAL *row = p->row + (l % 2 * VEC + l / 2) * wide;
                if (block != NOWHERE && channel < channels) read(p, t, block, channel, row);
                else memset(row, 0, sizeof(REAL) * p->size);
            }
            for (size_t n = 0; n < p->size; n += VEC)
                for (size_t part = 0; part < 2; part++)
                    NAME(flip)(p->row + part * VEC * wide + n, wide, (REAL *)(p->z + 2 * n + part), 2 * VEC);
            NAME(transform)(p->z, p->size, p->turns);
            NAME(put)(p, to + g * 2 * rounded + c, room * 2 * rounded, rounded, sign);
        }
}

/* out_r = sum over k of a_kr b_k for five rows r: complex, the real parts of a row first.  The imaginary parts of a
 * and b stand ai and bi behind the real ones. */
INLINE void NAME(five)(const REAL *a, size_t ak, size_t ar, size_t ai, const REAL *b, size_t bk, size_t bi,
                       size_t depth, vec *restrict out)
{
    vec r0 = {0}, r1 = {0}, r2 = {0}, r3 = {0}, r4 = {0}, i0 = {0}, i1 = {0}, i2 = {0}, i3 = {0}, i4 = {0};
    for (size_t k = 0; k < depth; k++, a += ak, b += bk) {
        const vec br = *(const vec *)b, bi_ = *(const vec *)(b + bi);
        const REAL *re = a, *im = a + ai;
        r0 += re[0] * br, i0 += re[0] * bi_, r1 += re[ar] * br, i1 += re[ar] * bi_;
        r2 += re[2 * ar] * br, i2 += re[2 * ar] * bi_, r3 += re[3 * ar] * br, i3 += re[3 * ar] * bi_;
        r4 += re[4 * ar] * br, i4 += re[4 * ar] * bi_;
        r0 -= im[0] * bi_, i0 += im[0] * br, r1 -= im[ar] * bi_, i1 += im[ar] * br;
        r2 -= im[2 * ar] * bi_, i2 += im[2 * ar] * br, r3 -= im[3 * ar] * bi_, i3 += im[3 * ar] * br;
        r4 -= im[4 * ar] * bi_, i4 += im[4 * ar] * br;
    }
    out[0] = r0, out[1] = i0, out[2] = r1, out[3] = i1, out[4] = r2;
    out[5] = i2, out[6] = r3, out[7] = i3, out[8] = r4, out[9] = i4;
}

/* ---------------------------------------------------------------------------------------------------- correlation */

/* Responses (frequency, n_in) x outputs of the filters, conjugate and divided by the size: what spectra are multiplied
 * with.  Items are inputs. */
static void *NAME(responses)(void *argument)
{
    task *t = (task *)argument;
    const size_t rounded = ROUNDED(t->n_out), inputs = t->n_in + (t->constant ? 1 : 0);
    NAME(plan) p = {0};
    if (!NAME(prepare)(&p, t)) t->out_of_memory = 1;
    for (size_t i = t->first; i < t->last && !t->out_of_memory; i++)
        for (size_t c = 0; c < t->n_out; c += VEC) {
            REAL *z = (REAL *)p.z;
            memset(z, 0, sizeof(vec) * 2 * p.size);
            for (size_t l = 0; l < VEC && c + l < t->n_out; l++) {
                const REAL *kernel = (const REAL *)t->kernel + ((c + l) * inputs + i) * t->length;
                for (size_t s = 0; s < t->length; s++) z[s * 2 * VEC + l] = kernel[s] / (REAL)p.size;
            }
            NAME(transform)(p.z, p.size, p.turns);
            NAME(put)(&p, (REAL *)t->spectrum + i * 2 * rounded + c, t->n_in * 2 * rounded, rounded, -1);
        }
    NAME(release)(&p);
    return NULL;
}

/* What filters make of a constant 1 that stops at the ends of the epochs, plus the bias: (n_out, width). */
static void *NAME(constants)(void *argument)
{
    task *t = (task *)argument;
    double *sums = new(sizeof(double), t->length + 1, 1, 1);
    if (!sums) t->out_of_memory = 1;
    for (size_t o = 0; o < t->n_out && sums; o++) {
        const REAL *kernel = (const REAL *)t->kernel + ((o + 1) * (t->n_in + 1) - 1) * t->length;
        const double bias = t->bias ? ((const REAL *)t->bias)[o] : 0;
        sums[0] = 0;
        for (size_t s = 0; s < t->length; s++) sums[s + 1] = sums[s] + kernel[s];
        for (size_t n = 0; n < t->width; n++) {
            const size_t end = t->times + t->padding, least = n < t->padding ? t->padding - n : 0;
            size_t most = n < end ? end - n : 0;
            if (most > t->length) most = t->length;
            ((REAL *)t->ends)[o * t->width + n] = (REAL)(bias + (least < most ? sums[most] - sums[least] : 0));
        }
    }
    delete(sums);
    return NULL;
}

/* Results of a block for VEC outputs, from the transform. */
static void NAME(write)(const NAME(plan) *p, const task *t, size_t block, size_t output, size_t part)
{
    const size_t start = block % p->blocks * p->step, left = t->width - start, n = left < p->step ? left : p->step;
    const size_t wide = p->size + VEC;
    for (size_t i = 0; i < n; i += VEC) NAME(flip)((REAL *)(p->z + 2 * i + part), 2 * VEC, p->row + i, wide);
    for (size_t l = 0; l < VEC && output + l < t->n_out; l++) {
        REAL *restrict to = (REAL *)t->out + (block / p->blocks * t->n_out + output + l) * t->width + start;
        const REAL *restrict row = p->row + l * wide, *ends = (const REAL *)t->ends + (output + l) * t->width + start;
        if (!t->ends) memcpy(to, row, sizeof(REAL) * n);
        else
            for (size_t i = 0; i < n; i++) to[i] = row[i] + ends[i];
    }
}

/* Items are groups of PAIRS pairs of blocks. */
static void *NAME(correlations)(void *argument)
{
    task *t = (task *)argument;
    const size_t in = 2 * ROUNDED(t->n_in), out = 2 * ROUNDED(t->n_out);
    NAME(plan) p = {0};
    const int ready = NAME(prepare)(&p, t);
    REAL *x = new(sizeof(REAL), p.rows, PAIRS, in), *y = new(sizeof(REAL), p.rows, PAIRS, out);
    if (!ready || !x || !y) t->out_of_memory = 1;
    for (size_t item = t->first; item < t->last && !t->out_of_memory; item++) {
        const size_t pair = item * PAIRS, left = p.all - pair, count = left < PAIRS ? left : PAIRS;
        NAME(spectra)(&p, t, NAME(cut), pair, count, PAIRS, t->n_in, x, 1);
        for (size_t f = 0; f < p.rows; f++)
            for (size_t c = 0; c < out / 2; c += VEC)
                for (size_t g = 0; g < count; g += 5) {
                    vec sums[10];
                    NAME(five)(x + (f * PAIRS + g) * in, 1, in, in / 2,
                               (const REAL *)t->spectrum + f * t->n_in * out + c, out, out / 2, t->n_in, sums);
                    for (size_t r = 0; r < 5; r++) {
                        vec *row = (vec *)(y + (f * PAIRS + g + r) * out + c);
                        row[0] = sums[2 * r], row[out / 2 / VEC] = sums[2 * r + 1];
                    }
                }
        for (size_t g = 0; g < count; g++)
            for (size_t c = 0; c < t->n_out; c += VEC) {
                NAME(get)(&p, y + g * out + c, PAIRS * out, out / 2);
                NAME(restore)(p.z, p.size, p.turns);
                for (size_t part = 0; part < 2; part++) {
                    const size_t block = NAME(block_of)(&p, pair + g, part);
                    if (block != NOWHERE) NAME(write)(&p, t, block, c, part);
                }
            }
    }
    NAME(release)(&p), delete(x), delete(y);
    return NULL;
}

/* The derivative in the filters of a constant input: sums over the results that a lag can reach, of which `sum` holds
 * those over trials.  It is overwritten. */
static void NAME(reach)(const task *t, double *sum, double *to)
{
    for (size_t o = 0; o < t->n_out; o++, sum += t->width + 1) {
        double *row = to + ((o + 1) * (t->n_in + 1) - 1) * t->length, before = 0;
        for (size_t n = 0; n <= t->width; n++) {
            const double here = sum[n];
            sum[n] = before, before += here;
        }
        for (size_t s = 0; s < t->length; s++) {
            const size_t first = s < t->padding ? t->padding - s : 0, end = t->times + t->padding;
            const size_t most = s < end ? end - s : 0, last = most < t->width ? most : t->width;
            row[s] = first < last ? sum[last] - sum[first] : 0;
        }
    }
}

/* Filters (n_out, n_in, length) from sums of products of spectra: the real part of the way back. */
static void NAME(taps)(const NAME(plan) *p, const task *t, const REAL *sums, double *to)
{
    const size_t in = 2 * ROUNDED(t->n_in), inputs = t->n_in + (t->constant ? 1 : 0);
    for (size_t o = 0; o < t->n_out; o++)
        for (size_t c = 0; c < t->n_in; c += VEC) {
            NAME(get)(p, sums + o * in + c, t->n_out * in, in / 2);
            NAME(restore)(p->z, p->size, p->turns);
            const REAL *z = (const REAL *)p->z;
            for (size_t l = 0; l < VEC && c + l < t->n_in; l++)
                for (size_t s = 0; s < t->length; s++)
                    to[(o * inputs + c + l) * t->length + s] = z[s * 2 * VEC + l] / (double)p->size;
        }
}

/* Sums of products of the conjugate spectra d (frequency, pair, output) and x (frequency, pair, input). */
static void NAME(add_products)(const task *t, size_t rows, const REAL *d, const REAL *x, size_t count, int first,
                               REAL *sums)
{
    const size_t in = 2 * ROUNDED(t->n_in), out = 2 * ROUNDED(t->n_out);
    for (size_t f = 0; f < rows; f++)
        for (size_t c = 0; c < in / 2; c += VEC)
            for (size_t o = 0; o < t->n_out; o += 5) {
                vec part[10];
                NAME(five)(d + f * DEPTH * out + o, out, 1, out / 2, x + f * DEPTH * in + c, in, in / 2, count, part);
                for (size_t r = 0; r < 5 && o + r < t->n_out; r++) {
                    vec *re = (vec *)(sums + (f * t->n_out + o + r) * in + c), *im = re + in / 2 / VEC;
                    if (first) *re = part[2 * r], *im = part[2 * r + 1];
                    else *re += part[2 * r], *im += part[2 * r + 1];
                }
            }
}

/* Derivatives in the filters, in `pieces` pieces of the pairs of blocks.  Items are pieces: what they are made of
 * does not depend on the number of threads. */
static void *NAME(filter_gradients)(void *argument)
{
    task *t = (task *)argument;
    const size_t in = 2 * ROUNDED(t->n_in), out = 2 * ROUNDED(t->n_out), inputs = t->n_in + (t->constant ? 1 : 0);
    NAME(plan) p = {0};
    const int ready = NAME(prepare)(&p, t);
    const size_t reach = t->n_out * (t->width + 1), pairs = p.all;
    REAL *x = new(sizeof(REAL), p.rows, DEPTH, in), *d = new(sizeof(REAL), p.rows * DEPTH * out + 8, 1, 1);
    REAL *sums = new(sizeof(REAL), p.rows, t->n_out, in);
    t->reached = new(sizeof(double), reach, 1, 1);
    if (!ready || !x || !d || !sums || !t->reached) t->out_of_memory = 1;
    for (size_t item = t->first; item < t->last && !t->out_of_memory; item++) {
        double *to = (double *)t->out + item * t->n_out * inputs * t->length;
        const size_t start = pairs * item / t->pieces, last = pairs * (item + 1) / t->pieces;
        memset(t->reached, 0, sizeof(double) * reach);
        for (size_t pair = start; pair < last; pair += DEPTH) {
            const size_t count = last - pair < DEPTH ? last - pair : DEPTH;
            NAME(spectra)(&p, t, NAME(cut), pair, count, DEPTH, t->n_in, x, 1);
            NAME(spectra)(&p, t, NAME(differentiate), pair, count, DEPTH, t->n_out, d, -1);
            NAME(add_products)(t, p.rows, d, x, count, pair == start, sums);
        }
        NAME(taps)(&p, t, sums, to);
        if (t->constant) NAME(reach)(t, t->reached, to);
    }
    NAME(release)(&p), delete(x), delete(d), delete(sums), delete(t->reached);
    return NULL;
}

/* -------------------------------------------------------------------------------------------------- normalisation */

/* Mean and sum of squares around it of each row of results: (batch, n_out, 2).  Items are trials. */
static void *NAME(row_moments)(void *argument)
{
    task *t = (task *)argument;
    for (size_t r = t->first * t->n_out; r < t->last * t->n_out; r++) {
        const REAL *y = (const REAL *)t->y + r * t->width, near = y[t->width / 2]; /* any of them will do */
        vec first = {0}, second = {0}, third = {0}, fourth = {0};
        double sum = 0, square = 0;
        size_t n = 0;
        for (; n + 2 * VEC <= t->width; n += 2 * VEC) {
            const vec a = *(const loose *)(y + n) - near, b = *(const loose *)(y + n + VEC) - near;
            first += a, second += a * a, third += b, fourth += b * b;
        }
        for (; n < t->width; n++) sum += y[n] - near, square += (double)(y[n] - near) * (y[n] - near);
        sum += NAME(total)(first) + NAME(total)(third);
        square += NAME(total)(second) + NAME(total)(fourth);
        t->rows[2 * r] = near + sum / (double)t->width;
        t->rows[2 * r + 1] = square - sum * sum / (double)t->width;
    }
    return NULL;
}

/* Means and variances (n_out, 2) of all trials, and the normalisation that follows: scale, centre, shift. */
static void *NAME(normalisation)(void *argument)
{
    task *t = (task *)argument;
    const double width = (double)t->width, batch = (double)t->batch;
    for (size_t o = 0; o < t->n_out; o++) {
        double mean = 0, square = 0;
        for (size_t b = 0; b < t->batch; b++) mean += t->rows[2 * (b * t->n_out + o)];
        mean /= batch;
        for (size_t b = 0; b < t->batch; b++) {
            const double *row = t->rows + 2 * (b * t->n_out + o), apart = row[0] - mean;
            square += row[1] + width * apart * apart;
        }
        t->moments[2 * o] = mean, t->moments[2 * o + 1] = square / (width * batch);
        REAL *c = (REAL *)t->coefficients + 3 * o;
        c[0] = (REAL)(((const REAL *)t->weight)[o] / sqrt(t->moments[2 * o + 1] + t->lift));
        c[1] = (REAL)mean, c[2] = ((const REAL *)t->bias)[o];
    }
    return NULL;
}

/* out = scale (y - centre) + shift.  Items are trials. */
static void *NAME(affine)(void *argument)
{
    task *t = (task *)argument;
    for (size_t r = t->first * t->n_out; r < t->last * t->n_out; r++) {
        const REAL *restrict y = (const REAL *)t->y + r * t->width;
        const REAL *c = (const REAL *)t->coefficients + 3 * (r % t->n_out);
        REAL *restrict out = (REAL *)t->out + r * t->width;
        const REAL scale = c[0], centre = c[1], shift = c[2];
        for (size_t n = 0; n < t->width; n++) out[n] = scale * (y[n] - centre) + shift;
    }
    return NULL;
}

/* Sums over the rows of grad, and of grad (y - mean): (batch, n_out, 2).  Items are trials. */
static void *NAME(row_products)(void *argument)
{
    task *t = (task *)argument;
    for (size_t r = t->first * t->n_out; r < t->last * t->n_out; r++) {
        const REAL *y = (const REAL *)t->y + r * t->width, *g = (const REAL *)t->grad + r * t->width;
        const REAL mean = (REAL)t->moments[2 * (r % t->n_out)];
        vec sum = {0}, product = {0}, sum2 = {0}, product2 = {0};
        double one = 0, two = 0;
        size_t n = 0;
        for (; n + 2 * VEC <= t->width; n += 2 * VEC) {
            const vec a = *(const loose *)(g + n), b = *(const loose *)(g + n + VEC);
            sum += a, product += a * (*(const loose *)(y + n) - mean);
            sum2 += b, product2 += b * (*(const loose *)(y + n + VEC) - mean);
        }
        for (; n < t->width; n++) one += g[n], two += (double)g[n] * (y[n] - mean);
        t->rows[2 * r] = one + NAME(total)(sum) + NAME(total)(sum2);
        t->rows[2 * r + 1] = two + NAME(total)(product) + NAME(total)(product2);
    }
    return NULL;
}

/* Derivatives in the weight and the bias of a normalisation, (2, n_out), and the coefficients of that in its input:
 * scale grad + slope (y - centre) + shift. */
static void *NAME(normalisation_gradient)(void *argument)
{
    task *t = (task *)argument;
    const double count = (double)t->width * (double)t->batch;
    for (size_t o = 0; o < t->n_out; o++) {
        double sum = 0, product = 0;
        for (size_t b = 0; b < t->batch; b++) {
            sum += t->rows[2 * (b * t->n_out + o)];
            product += t->rows[2 * (b * t->n_out + o) + 1];
        }
        const double inverse = 1 / sqrt(t->moments[2 * o + 1] + t->lift);
        const double scale = ((const REAL *)t->weight)[o] * inverse;
        REAL *c = (REAL *)t->coefficients + 4 * o;
        c[0] = (REAL)scale;
        c[1] = (REAL)(-scale * inverse * inverse * product / count);
        c[2] = (REAL)t->moments[2 * o];
        c[3] = (REAL)(-scale * sum / count);
        ((REAL *)t->out)[o] = (REAL)(product * inverse);
        ((REAL *)t->out)[t->n_out + o] = (REAL)sum;
    }
    return NULL;
}

/* -------------------------------------------------------------------------------------------- products of rows */

/* out_ij += sum over n of a_in a_jn, for rows of whole vectors; the half below the diagonal, and in its blocks more. */
static void NAME(gram)(const REAL *a, size_t stride, size_t n, size_t samples, double *out)
{
    for (size_t j = 0; j < n; j += 3) {
        const size_t j1 = j + 1 < n ? j + 1 : j, j2 = j + 2 < n ? j + 2 : j; /* beyond the last: the first again */
        const vec *b0 = (const vec *)(a + j * stride), *b1 = (const vec *)(a + j1 * stride);
        const vec *b2 = (const vec *)(a + j2 * stride);
        for (size_t i = j; i < n; i += 3) {
            const size_t i1 = i + 1 < n ? i + 1 : i, i2 = i + 2 < n ? i + 2 : i;
            const vec *a0 = (const vec *)(a + i * stride), *a1 = (const vec *)(a + i1 * stride);
            const vec *a2 = (const vec *)(a + i2 * stride);
            vec c00 = {0}, c01 = {0}, c02 = {0}, c10 = {0}, c11 = {0}, c12 = {0}, c20 = {0}, c21 = {0}, c22 = {0};
            for (size_t s = 0; s < samples / VEC; s++) {
                const vec x0 = a0[s], x1 = a1[s], x2 = a2[s], y0 = b0[s], y1 = b1[s], y2 = b2[s];
                c00 += x0 * y0, c10 += x1 * y0, c20 += x2 * y0;
                c01 += x0 * y1, c11 += x1 * y1, c21 += x2 * y1;
                c02 += x0 * y2, c12 += x1 * y2, c22 += x2 * y2;
            }
            const vec block[9] = {c00, c01, c02, c10, c11, c12, c20, c21, c22};
            for (size_t r = 0; r < 3 && i + r < n; r++)
                for (size_t q = 0; q < 3 && j + q < n; q++) out[(i + r) * n + j + q] += NAME(total)(block[3 * r + q]);
        }
    }
}

/* Products and sums of channels over trials and times in pieces of the trials, (pieces, n_in, n_in + 1) with the
 * sums in the last column.  In double: filters may take out most of what channels share.  Items are pieces. */
static void *NAME(channel_moments)(void *argument)
{
    task *t = (task *)argument;
    const size_t n = t->n_in, stride = (t->times + 3) / 4 * 4;
    double *x = new(sizeof(double), n, stride, 1), *products = new(sizeof(double), n, n, 1);
    if (!x || !products) t->out_of_memory = 1;
    for (size_t item = t->first; item < t->last && !t->out_of_memory; item++) {
        double *to = (double *)t->out + item * n * (n + 1);
        memset(products, 0, sizeof(double) * n * n);
        memset(to, 0, sizeof(double) * n * (n + 1));
        for (size_t b = t->batch * item / t->pieces; b < t->batch * (item + 1) / t->pieces; b++) {
            for (size_t i = 0; i < n; i++) {
                const REAL *from = (const REAL *)t->x + (ptrdiff_t)b * t->stride[0] + (ptrdiff_t)i * t->stride[1];
                double *row = x + i * stride, sum[4] = {0};
                if (t->stride[2] == 1)
                    for (size_t s = 0; s < t->times; s++) row[s] = from[s];
                else
                    for (size_t s = 0; s < t->times; s++) row[s] = from[(ptrdiff_t)s * t->stride[2]];
                for (size_t s = t->times; s < stride; s++) row[s] = 0;
                for (size_t s = 0; s < stride; s += 4)
                    for (size_t l = 0; l < 4; l++) sum[l] += row[s + l];
                to[i * (n + 1) + n] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
            }
            ARCHITECTURE(gram_f64)(x, stride, n, stride, products);
        }
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j <= i; j++) to[i * (n + 1) + j] = to[j * (n + 1) + i] = products[i * n + j];
    }
    delete(x), delete(products);
    return NULL;
}

/* ------------------------------------------------------------------------------------------- covariances of windows */

/* A window, centred, as rows of whole vectors with zeros behind.  Where squares would leave the range of numbers it is
 * divided by its largest amplitude first. */
static void NAME(centre)(const REAL *x, size_t times, size_t n, size_t samples, size_t stride, REAL factor, REAL *to)
{
    for (size_t i = 0; i < n; i++, x += times, to += stride) {
        vec sum = {0};
        double mean = 0;
        size_t s = 0;
        for (; s + VEC <= samples; s += VEC) {
            const vec v = *(const loose *)(x + s) * factor;
            *(vec *)(to + s) = v;
            sum += v;
        }
        for (; s < samples; s++) to[s] = x[s] * factor, mean += to[s];
        const REAL m = (REAL)((mean + NAME(total)(sum)) / (double)samples);
        for (s = 0; s < samples; s++) to[s] -= m;
        for (; s < stride; s++) to[s] = 0;
    }
}

static double NAME(squares)(const REAL *x, size_t count)
{
    vec a = {0}, b = {0};
    double sum = 0;
    size_t s = 0;
    for (; s + 2 * VEC <= count; s += 2 * VEC) {
        const vec u = *(const vec *)(x + s), v = *(const vec *)(x + s + VEC);
        a += u * u, b += v * v;
    }
    for (; s < count; s++) sum += (double)x[s] * x[s];
    return sum + NAME(total)(a) + NAME(total)(b);
}

/* Centre a window.  Returns the trace of its products; factor is what it was multiplied with. */
static double NAME(window)(const REAL *x, size_t times, size_t n, size_t samples, size_t stride, REAL *to, REAL *factor)
{
    double trace = 0;
    *factor = 1;
    NAME(centre)(x, times, n, samples, stride, 1, to);
    for (size_t i = 0; i < n; i++) trace += NAME(squares)(to + i * stride, stride);
    if (trace > 1e6 * TINY && trace < LARGEST / 1e6) return trace;
    REAL largest = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < samples; s++) {
            const REAL size = x[i * times + s] < 0 ? -x[i * times + s] : x[i * times + s];
            if (!(size <= largest)) largest = size; /* and what is not a number */
        }
    *factor = 1 / (largest > TINY || largest != largest ? largest : TINY);
    NAME(centre)(x, times, n, samples, stride, *factor, to);
    trace = 0;
    for (size_t i = 0; i < n; i++) trace += NAME(squares)(to + i * stride, stride);
    return trace;
}

/* Where window w of m begins, and how long it is: the first ones are one sample longer where the times do not
 * divide. */
INLINE size_t NAME(span)(const task *t, size_t w, size_t *samples)
{
    const size_t length = t->times / t->windows, longer = t->times % t->windows;
    *samples = length + (w < longer ? 1 : 0);
    return w * length + (w < longer ? w : longer);
}

/* keep / trace times the products of centred rows, plus lift on the diagonal: (item, windows, n, n).  Items are
 * features (n, times) of a branch of a trial. */
static void *NAME(covariances)(void *argument)
{
    task *t = (task *)argument;
    const size_t n = t->n_in, stride = ROUNDED(t->times / t->windows + 1);
    REAL *y = new(sizeof(REAL), n, stride, 1);
    double *product = new(sizeof(double), n, n, 1);
    if (!y || !product) t->out_of_memory = 1;
    for (size_t item = t->first; item < t->last && !t->out_of_memory; item++)
        for (size_t w = 0; w < t->windows; w++) {
            size_t samples, start = NAME(span)(t, w, &samples);
            const REAL *x = (const REAL *)t->x + item * n * t->times + start;
            REAL *out = (REAL *)t->out + (item * t->windows + w) * n * n, factor;
            double trace = 0;
            NAME(window)(x, t->times, n, samples, stride, y, &factor);
            memset(product, 0, sizeof(double) * n * n);
            NAME(gram)(y, stride, n, stride, product);
            for (size_t i = 0; i < n; i++) trace += product[i * n + i];
            const double scale = t->keep / (trace > TINY || trace != trace ? trace : TINY); /* silence gives 0 */
            for (size_t i = 0; i < n; i++) {
                for (size_t j = 0; j < i; j++) out[i * n + j] = out[j * n + i] = (REAL)(product[i * n + j] * scale);
                out[i * n + i] = (REAL)(product[i * n + i] * scale + t->lift);
            }
        }
    delete(y), delete(product);
    return NULL;
}

/* out = s y for four rows of s, whose columns stand in s one after the other, and `count` vectors of the rows y. */
INLINE void NAME(four)(const REAL *s, const REAL *y, size_t stride, size_t n, size_t count, REAL *out)
{
    vec a0 = {0}, a1 = {0}, a2 = {0}, b0 = {0}, b1 = {0}, b2 = {0}, c0 = {0}, c1 = {0}, c2 = {0};
    vec d0 = {0}, d1 = {0}, d2 = {0};
    for (size_t j = 0; j < n; j++, s += 4, y += stride) {
        const vec *v = (const vec *)y, y0 = v[0], y1 = count > 1 ? v[1] : y0, y2 = count > 2 ? v[2] : y0;
        a0 += s[0] * y0, b0 += s[1] * y0, c0 += s[2] * y0, d0 += s[3] * y0;
        if (count > 1) a1 += s[0] * y1, b1 += s[1] * y1, c1 += s[2] * y1, d1 += s[3] * y1;
        if (count > 2) a2 += s[0] * y2, b2 += s[1] * y2, c2 += s[2] * y2, d2 += s[3] * y2;
    }
    vec *a = (vec *)out, *b = (vec *)(out + stride), *c = (vec *)(out + 2 * stride), *d = (vec *)(out + 3 * stride);
    a[0] = a0, b[0] = b0, c[0] = c0, d[0] = d0;
    if (count > 1) a[1] = a1, b[1] = b1, c[1] = c1, d[1] = d1;
    if (count > 2) a[2] = a2, b[2] = b2, c[2] = c2, d[2] = d2;
}

/* z = s y, for s in groups of four rows, column by column. */
static void NAME(turn)(const REAL *s, const REAL *y, size_t stride, size_t n, REAL *z)
{
    for (size_t i = 0; i < n; i += 4, s += 4 * n, z += 4 * stride) {
        size_t at = 0;
        for (; at + 3 * VEC <= stride; at += 3 * VEC) NAME(four)(s, y + at, stride, n, 3, z + at);
        if (stride - at == 2 * VEC) NAME(four)(s, y + at, stride, n, 2, z + at);
        else if (at < stride) NAME(four)(s, y + at, stride, n, 1, z + at);
    }
}

/* Derivatives in the features, from those in the covariances: with S = keep (G + G^T), (S y - <y, S y> y / trace) /
 * trace. */
static void *NAME(covariance_gradients)(void *argument)
{
    task *t = (task *)argument;
    const size_t n = t->n_in, stride = ROUNDED(t->times / t->windows + 1), rows = (n + 3) / 4 * 4;
    REAL *y = new(sizeof(REAL), n, stride, 1), *z = new(sizeof(REAL), rows, stride, 1), *s = new(sizeof(REAL), rows, n, 1);
    if (!y || !z || !s) t->out_of_memory = 1;
    else memset(s, 0, sizeof(REAL) * rows * n);
    for (size_t item = t->first; item < t->last && !t->out_of_memory; item++)
        for (size_t w = 0; w < t->windows; w++) {
            size_t samples, start = NAME(span)(t, w, &samples);
            const REAL *x = (const REAL *)t->x + item * n * t->times + start;
            const REAL *g = (const REAL *)t->grad + (item * t->windows + w) * n * n;
            REAL *out = (REAL *)t->out + item * n * t->times + start, factor;
            const double trace = NAME(window)(x, t->times, n, samples, stride, y, &factor);
            for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < n; j++)
                    s[(i / 4 * n + j) * 4 + i % 4] = (REAL)t->keep * (g[i * n + j] + g[j * n + i]);
            NAME(turn)(s, y, stride, n, z);
            double inner = 0;
            for (size_t i = 0; i < n; i++) {
                vec sum = {0};
                for (size_t l = 0; l < stride; l += VEC)
                    sum += *(const vec *)(y + i * stride + l) * *(const vec *)(z + i * stride + l);
                inner += NAME(total)(sum);
            }
            const int silent = trace <= TINY;
            const REAL scale = silent ? 0 : (REAL)(factor / trace), along = silent ? 0 : (REAL)(inner / trace);
            for (size_t i = 0; i < n; i++)
                for (size_t l = 0; l < samples; l++)
                    out[i * t->times + l] = scale * (z[i * stride + l] - along * y[i * stride + l]);
        }
    delete(y), delete(z), delete(s);
    return NULL;
}

#undef REAL
#undef INTEGER
#undef EXCHANGE
#undef LOW1
#undef HIGH1
#undef LOW2
#undef HIGH2
#undef LOW4
#undef HIGH4
#undef WIDTH
#undef mask
#undef TINY
#undef LARGEST
#undef NAME
#undef VEC
#undef ROUNDED
#undef vec
#undef loose
#undef DOUBLE
