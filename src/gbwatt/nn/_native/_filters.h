/* The algorithms of _filters.c for one precision (DOUBLE) and one width of vectors (BYTES); included for each combination. */
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

/* Exchange the off-diagonal blocks of h numbers of rows a and b. */
#define EXCHANGE(a, b, h)                                                                                            \
    do {                                                                                                             \
        const vec low = SHUFFLE(v[a], v[b], LOW##h), high = SHUFFLE(v[a], v[b], HIGH##h);                            \
        v[a] = low, v[b] = high;                                                                                     \
    } while (0)

/* Transpose VEC numbers of each of VEC rows. */
INLINE void NAME(transpose)(const REAL *from, size_t stride, REAL *to, size_t out)
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

/* A transform is computed for VEC complex sequences at once, one in each lane: number n is z[2 n] + i z[2 n + 1].
 * Frequencies are not sorted; place gives their positions.  The factors of the stage for n numbers start at n / 2: w^k,
 * w^2k, w^3k for k < n / 4, with w = exp(-2 pi i / n). */
static void NAME(fourier_factors)(REAL *to, size_t size)
{
    for (size_t n = size; n >= 4; n /= 4)
        for (size_t k = 0; k < n / 4; k++)
            for (size_t power = 1; power < 4; power++) {
                const double angle = -2 * PI * (double)(power * k) / (double)n;
                to[n / 2 + 6 * k + 2 * power - 2] = (REAL)cos(angle);
                to[n / 2 + 6 * k + 2 * power - 1] = (REAL)sin(angle);
            }
}

/* The stage of radix 2 for sizes that are not a power of 4: the last one, or the first one of the inverse. */
INLINE void NAME(radix_2)(vec *z, size_t size)
{
    for (vec *a = z; a < z + 2 * size; a += 4) {
        const vec re = a[2], im = a[3];
        a[2] = a[0] - re, a[3] = a[1] - im;
        a[0] += re, a[1] += im;
    }
}

/* The stage of radix 4 for n numbers, or its inverse. */
INLINE void NAME(radix_4)(vec *restrict z, size_t size, size_t n, const REAL *factors, int inverse)
{
    const size_t q = n / 4;
    for (size_t k = 0; k < q; k++) {
        const REAL *w = factors + n / 2 + 6 * k;
        const REAL r1 = w[0], i1 = w[1], r2 = w[2], i2 = w[3], r3 = w[4], i3 = w[5];
        for (size_t start = k; start < size; start += n) {
            vec *a = z + 2 * start, *b = a + 2 * q, *c = b + 2 * q, *d = c + 2 * q;
            if (inverse) {
                const vec br = r2 * b[0] + i2 * b[1], bi = r2 * b[1] - i2 * b[0];
                const vec cr = r1 * c[0] + i1 * c[1], ci = r1 * c[1] - i1 * c[0];
                const vec er = r3 * d[0] + i3 * d[1], ei = r3 * d[1] - i3 * d[0];
                const vec sr = a[0] + br, si = a[1] + bi, tr = a[0] - br, ti = a[1] - bi;
                const vec ur = cr + er, ui = ci + ei, vr = cr - er, vi = ci - ei;
                a[0] = sr + ur, a[1] = si + ui;
                b[0] = tr - vi, b[1] = ti + vr;
                c[0] = sr - ur, c[1] = si - ui;
                d[0] = tr + vi, d[1] = ti - vr;
            } else {
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
}

static void NAME(transform)(vec *restrict z, size_t size, const REAL *factors)
{
    size_t n = size;
    for (; n >= 4; n /= 4) NAME(radix_4)(z, size, n, factors, 0);
    if (n == 2) NAME(radix_2)(z, size);
}

/* The inverse, times size. */
static void NAME(inverse_transform)(vec *restrict z, size_t size, const REAL *factors)
{
    size_t n = size;
    while (n >= 4) n /= 4;
    if (n == 2) NAME(radix_2)(z, size);
    for (n *= 4; n <= size; n *= 4) NAME(radix_4)(z, size, n, factors, 1);
}

/* ------------------------------------------------------------------------------------------------------- spectra */

/* Blocks of a trial are transformed in pairs, one as the real part of a sequence and the next as the imaginary part; they
 * do not mix, because filters are real.  If a trial is one block, half of the frequencies suffice.  Blocks of different
 * trials are never paired, because rounding errors and NaN would pass from one to the other.  Row (frequency, pair) of
 * spectra consists of `channels` real parts, rounded up to vectors, and as many imaginary parts. */
typedef struct {
    size_t size, step, blocks, pairs, all; /* samples of a block; its results; blocks and pairs of a trial; all pairs */
    size_t rows, *at, *mirror;             /* frequencies; their positions in a transform, and those of their negatives */
    REAL *factors;
    vec *z;    /* one transform */
    REAL *row; /* 2 VEC rows of size + VEC samples, to be transposed into vectors */
} NAME(plan);

/* Position of a frequency in a transform. */
static size_t NAME(place)(size_t frequency, size_t size)
{
    static const size_t quarter[4] = {0, 2, 1, 3};
    size_t place = 0;
    for (; size >= 4; size /= 4, frequency /= 4) place += quarter[frequency % 4] * (size / 4);
    return place + (size == 2 ? frequency : 0);
}

static int NAME(prepare)(NAME(plan) *p, const epochs *e, const filters *w)
{
    p->size = w->size, p->step = w->size - w->length + 1;
    p->blocks = blocks_of(w);
    p->pairs = (p->blocks + 1) / 2;
    p->all = e->batch * p->pairs;
    p->rows = FREQUENCIES(p->size, p->blocks);
    p->z = new(sizeof(vec), 2, p->size, 1);
    p->factors = new(sizeof(REAL), 2, p->size, 1);
    p->row = new(sizeof(REAL), 2 * VEC, p->size + VEC, 1);
    p->at = new(sizeof(size_t), p->size, 1, 1), p->mirror = new(sizeof(size_t), p->size, 1, 1);
    if (!p->z || !p->factors || !p->row || !p->at || !p->mirror) return 0;
    NAME(fourier_factors)(p->factors, p->size);
    for (size_t f = 0; f < p->size; f++) {
        p->at[f] = NAME(place)(f, p->size);
        p->mirror[f] = NAME(place)((p->size - f) % p->size, p->size);
    }
    return 1;
}

static void NAME(release)(NAME(plan) *p)
{
    delete(p->z), delete(p->factors), delete(p->row), delete(p->at), delete(p->mirror);
}

/* Spectra row by row from a transform, conjugate if sign is -1; `next` numbers from one row to the next. */
INLINE void NAME(put)(const NAME(plan) *p, REAL *to, size_t next, size_t imaginary, REAL sign)
{
    for (size_t f = 0; f < p->rows; f++, to += next) {
        const vec *z = p->z + 2 * p->at[f];
        *(vec *)to = z[0], *(vec *)(to + imaginary) = sign * z[1];
    }
}

/* The transform from its spectra. */
INLINE void NAME(get)(const NAME(plan) *p, const REAL *from, size_t next, size_t imaginary)
{
    for (size_t f = 0; f < p->rows; f++, from += next) {
        vec *z = p->z + 2 * p->at[f], *opposite = p->z + 2 * p->mirror[f];
        const vec re = *(const vec *)from, im = *(const vec *)(from + imaginary);
        if (p->rows < p->size) opposite[0] = re, opposite[1] = -im;
        z[0] = re, z[1] = im;
    }
}

/* A block of a pair, or NOWHERE. */
INLINE size_t NAME(block_of)(const NAME(plan) *p, size_t pair, size_t part)
{
    const size_t block = 2 * (pair % p->pairs) + part;
    return pair < p->all && block < p->blocks ? pair / p->pairs * p->blocks + block : NOWHERE;
}

/* Epochs with zeros before and after them. */
typedef struct {
    const epochs *e;
    size_t padding;
} NAME(padded);

/* Samples of a channel in a block of padded epochs. */
static void NAME(read_epochs)(const NAME(plan) *p, const void *source, size_t block, size_t channel, REAL *to)
{
    const NAME(padded) *t = source;
    const epochs *e = t->e;
    const size_t trial = block / p->blocks;
    const ptrdiff_t start = (ptrdiff_t)(block % p->blocks * p->step) - (ptrdiff_t)t->padding;
    const ptrdiff_t times = (ptrdiff_t)e->times - start, size = (ptrdiff_t)p->size;
    ptrdiff_t first = start < 0 ? -start : 0, last = times < size ? times : size;
    if (first > size) first = size;
    if (last < first) last = first;
    const REAL *x = (const REAL *)e->x + (ptrdiff_t)trial * e->stride[0] + (ptrdiff_t)channel * e->stride[1];
    memset(to, 0, sizeof(REAL) * (size_t)first);
    if (e->stride[2] == 1) memcpy(to + first, x + start + first, sizeof(REAL) * (size_t)(last - first));
    else
        for (ptrdiff_t n = first; n < last; n++) to[n] = x[(start + n) * e->stride[2]];
    memset(to + last, 0, sizeof(REAL) * (size_t)(size - last));
}

/* Derivatives in the results before their normalisation, with sums over trials (n_out, width + 1). */
typedef struct {
    const filter_gradient_arguments *t;
    double *sums;
} NAME(derivatives);

/* Derivatives in the results of a block; they are added to the sums over trials. */
static void NAME(read_derivatives)(const NAME(plan) *p, const void *source, size_t block, size_t channel, REAL *to)
{
    const NAME(derivatives) *d = source;
    const filter_gradient_arguments *t = d->t;
    const size_t width = t->f.width, start = block % p->blocks * p->step, left = width - start;
    const size_t n = left < p->step ? left : p->step, at = (block / p->blocks * t->f.n_out + channel) * width + start;
    const REAL *g = (const REAL *)t->grad + at;
    double *sum = d->sums + channel * (width + 1) + start;
    if (t->y) {
        const REAL *y = (const REAL *)t->y + at, *c = (const REAL *)t->coefficients + 4 * channel;
        const REAL scale = c[0], slope = c[1], centre = c[2], shift = c[3];
        for (size_t i = 0; i < n; i++) to[i] = scale * g[i] + (slope * (y[i] - centre) + shift);
    } else memcpy(to, g, sizeof(REAL) * n);
    for (size_t i = 0; i < n; i++) sum[i] += to[i];
    memset(to + n, 0, sizeof(REAL) * (p->size - n));
}

typedef void (*NAME(reader))(const NAME(plan) *, const void *, size_t, size_t, REAL *);

/* Spectra of `count` pairs of blocks; conjugate ones if sign is -1. */
static void NAME(spectra)(const NAME(plan) *p, NAME(reader) read, const void *source, size_t pair, size_t count,
                          size_t room, size_t channels, REAL *to, REAL sign)
{
    const size_t rounded = ROUNDED(channels), wide = p->size + VEC;
    for (size_t g = 0; g < count; g++)
        for (size_t c = 0; c < channels; c += VEC) {
            for (size_t l = 0; l < 2 * VEC; l++) { /* both blocks of a channel, which are adjacent */
                const size_t block = NAME(block_of)(p, pair + g, l % 2), channel = c + l / 2;
                REAL *row = p->row + (l % 2 * VEC + l / 2) * wide;
                if (block != NOWHERE && channel < channels) read(p, source, block, channel, row);
                else memset(row, 0, sizeof(REAL) * p->size);
            }
            for (size_t n = 0; n < p->size; n += VEC)
                for (size_t part = 0; part < 2; part++)
                    NAME(transpose)(p->row + part * VEC * wide + n, wide, (REAL *)(p->z + 2 * n + part), 2 * VEC);
            NAME(transform)(p->z, p->size, p->factors);
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

/* Conjugate responses of the filters, divided by the size: (frequency, n_in) x outputs.  Items are inputs. */
static void *NAME(responses)(void *argument)
{
    slice *own = (slice *)argument;
    const correlation_arguments *t = own->arguments;
    const epochs *e = &t->e;
    const filters *w = &t->f;
    const size_t rounded = ROUNDED(w->n_out), inputs = inputs_of(e, w);
    NAME(plan) p = {0};
    if (!NAME(prepare)(&p, e, w)) own->out_of_memory = 1;
    for (size_t i = own->first; i < own->last && !own->out_of_memory; i++)
        for (size_t c = 0; c < w->n_out; c += VEC) {
            REAL *z = (REAL *)p.z;
            memset(z, 0, sizeof(vec) * 2 * p.size);
            for (size_t l = 0; l < VEC && c + l < w->n_out; l++) {
                const REAL *kernel = (const REAL *)t->kernel + ((c + l) * inputs + i) * w->length;
                for (size_t s = 0; s < w->length; s++) z[s * 2 * VEC + l] = kernel[s] / (REAL)p.size;
            }
            NAME(transform)(p.z, p.size, p.factors);
            NAME(put)(&p, (REAL *)t->spectrum + i * 2 * rounded + c, e->n_in * 2 * rounded, rounded, -1);
        }
    NAME(release)(&p);
    return NULL;
}

/* What filters make of a constant 1 that stops at the ends of the epochs, if they have this input, plus the bias: (n_out,
 * width). */
static void *NAME(constants)(void *argument)
{
    slice *own = (slice *)argument;
    const correlation_arguments *t = own->arguments;
    const epochs *e = &t->e;
    const filters *w = &t->f;
    double *sums = new(sizeof(double), w->length + 1, 1, 1);
    if (!sums) own->out_of_memory = 1;
    for (size_t o = 0; o < w->n_out && sums; o++) {
        const REAL *kernel = (const REAL *)t->kernel + ((o + 1) * inputs_of(e, w) - 1) * w->length;
        const double bias = t->bias ? ((const REAL *)t->bias)[o] : 0;
        sums[0] = 0;
        for (size_t s = 0; s < w->length; s++) sums[s + 1] = w->constant ? sums[s] + kernel[s] : 0;
        for (size_t n = 0; n < w->width; n++) {
            const size_t end = e->times + w->padding, least = n < w->padding ? w->padding - n : 0;
            size_t most = n < end ? end - n : 0;
            if (most > w->length) most = w->length;
            ((REAL *)t->ends)[o * w->width + n] = (REAL)(bias + (least < most ? sums[most] - sums[least] : 0));
        }
    }
    delete(sums);
    return NULL;
}

/* Results of a block for VEC outputs, from the transform. */
static void NAME(write)(const NAME(plan) *p, const correlation_arguments *t, size_t block, size_t output, size_t part)
{
    const filters *w = &t->f;
    const size_t start = block % p->blocks * p->step, left = w->width - start, n = left < p->step ? left : p->step;
    const size_t wide = p->size + VEC;
    for (size_t i = 0; i < n; i += VEC) NAME(transpose)((REAL *)(p->z + 2 * i + part), 2 * VEC, p->row + i, wide);
    for (size_t l = 0; l < VEC && output + l < w->n_out; l++) {
        REAL *restrict to = (REAL *)t->out + (block / p->blocks * w->n_out + output + l) * w->width + start;
        const REAL *restrict row = p->row + l * wide, *ends = (const REAL *)t->ends + (output + l) * w->width + start;
        if (!t->ends) memcpy(to, row, sizeof(REAL) * n);
        else
            for (size_t i = 0; i < n; i++) to[i] = row[i] + ends[i];
    }
}

/* Items are groups of PAIRS pairs of blocks. */
static void *NAME(correlations)(void *argument)
{
    slice *own = (slice *)argument;
    const correlation_arguments *t = own->arguments;
    const epochs *e = &t->e;
    const filters *w = &t->f;
    const size_t in = 2 * ROUNDED(e->n_in), out = 2 * ROUNDED(w->n_out);
    const NAME(padded) source = {e, w->padding};
    NAME(plan) p = {0};
    const int ready = NAME(prepare)(&p, e, w);
    REAL *x = new(sizeof(REAL), p.rows, PAIRS, in), *y = new(sizeof(REAL), p.rows, PAIRS, out);
    if (!ready || !x || !y) own->out_of_memory = 1;
    for (size_t item = own->first; item < own->last && !own->out_of_memory; item++) {
        const size_t pair = item * PAIRS, left = p.all - pair, count = left < PAIRS ? left : PAIRS;
        NAME(spectra)(&p, NAME(read_epochs), &source, pair, count, PAIRS, e->n_in, x, 1);
        for (size_t f = 0; f < p.rows; f++)
            for (size_t c = 0; c < out / 2; c += VEC)
                for (size_t g = 0; g < count; g += 5) {
                    vec sums[10];
                    NAME(five)(x + (f * PAIRS + g) * in, 1, in, in / 2,
                               (const REAL *)t->spectrum + f * e->n_in * out + c, out, out / 2, e->n_in, sums);
                    for (size_t r = 0; r < 5; r++) {
                        vec *row = (vec *)(y + (f * PAIRS + g + r) * out + c);
                        row[0] = sums[2 * r], row[out / 2 / VEC] = sums[2 * r + 1];
                    }
                }
        for (size_t g = 0; g < count; g++)
            for (size_t c = 0; c < w->n_out; c += VEC) {
                NAME(get)(&p, y + g * out + c, PAIRS * out, out / 2);
                NAME(inverse_transform)(p.z, p.size, p.factors);
                for (size_t part = 0; part < 2; part++) {
                    const size_t block = NAME(block_of)(&p, pair + g, part);
                    if (block != NOWHERE) NAME(write)(&p, t, block, c, part);
                }
            }
    }
    NAME(release)(&p), delete(x), delete(y);
    return NULL;
}

/* The derivative in the filters of a constant input: for each lag, the sum over the results that it reaches.  `sum` holds
 * sums over trials, and is overwritten. */
static void NAME(constant_taps)(const epochs *e, const filters *w, double *sum, double *to)
{
    for (size_t o = 0; o < w->n_out; o++, sum += w->width + 1) {
        double *row = to + ((o + 1) * (e->n_in + 1) - 1) * w->length, before = 0;
        for (size_t n = 0; n <= w->width; n++) {
            const double here = sum[n];
            sum[n] = before, before += here;
        }
        for (size_t s = 0; s < w->length; s++) {
            const size_t first = s < w->padding ? w->padding - s : 0, end = e->times + w->padding;
            const size_t most = s < end ? end - s : 0, last = most < w->width ? most : w->width;
            row[s] = first < last ? sum[last] - sum[first] : 0;
        }
    }
}

/* Filters (n_out, n_in, length) from sums of products of spectra: the real part of the inverse transform. */
static void NAME(taps)(const NAME(plan) *p, const epochs *e, const filters *w, const REAL *sums, double *to)
{
    const size_t in = 2 * ROUNDED(e->n_in), inputs = inputs_of(e, w);
    for (size_t o = 0; o < w->n_out; o++)
        for (size_t c = 0; c < e->n_in; c += VEC) {
            NAME(get)(p, sums + o * in + c, w->n_out * in, in / 2);
            NAME(inverse_transform)(p->z, p->size, p->factors);
            const REAL *z = (const REAL *)p->z;
            for (size_t l = 0; l < VEC && c + l < e->n_in; l++)
                for (size_t s = 0; s < w->length; s++)
                    to[(o * inputs + c + l) * w->length + s] = z[s * 2 * VEC + l] / (double)p->size;
        }
}

/* Sums of products of the conjugate spectra d (frequency, pair, output) and x (frequency, pair, input). */
static void NAME(add_products)(size_t n_in, size_t n_out, size_t rows, const REAL *d, const REAL *x, size_t count,
                               int first, REAL *sums)
{
    const size_t in = 2 * ROUNDED(n_in), out = 2 * ROUNDED(n_out);
    for (size_t f = 0; f < rows; f++)
        for (size_t c = 0; c < in / 2; c += VEC)
            for (size_t o = 0; o < n_out; o += 5) {
                vec part[10];
                NAME(five)(d + f * DEPTH * out + o, out, 1, out / 2, x + f * DEPTH * in + c, in, in / 2, count, part);
                for (size_t r = 0; r < 5 && o + r < n_out; r++) {
                    vec *re = (vec *)(sums + (f * n_out + o + r) * in + c), *im = re + in / 2 / VEC;
                    if (first) *re = part[2 * r], *im = part[2 * r + 1];
                    else *re += part[2 * r], *im += part[2 * r + 1];
                }
            }
}

/* Derivatives in the filters, in `pieces` parts of the sum over pairs of blocks.  Items are pieces, so that the sums do not
 * depend on the number of threads. */
static void *NAME(filter_gradients)(void *argument)
{
    slice *own = (slice *)argument;
    const filter_gradient_arguments *t = own->arguments;
    const epochs *e = &t->e;
    const filters *w = &t->f;
    const size_t in = 2 * ROUNDED(e->n_in), out = 2 * ROUNDED(w->n_out), inputs = inputs_of(e, w);
    const NAME(padded) source = {e, w->padding};
    NAME(derivatives) d = {t, NULL};
    NAME(plan) p = {0};
    const int ready = NAME(prepare)(&p, e, w);
    const size_t reach = w->n_out * (w->width + 1), pairs = p.all;
    REAL *x = new(sizeof(REAL), p.rows, DEPTH, in), *y = new(sizeof(REAL), p.rows * DEPTH * out + 8, 1, 1);
    REAL *sums = new(sizeof(REAL), p.rows, w->n_out, in);
    d.sums = new(sizeof(double), reach, 1, 1);
    if (!ready || !x || !y || !sums || !d.sums) own->out_of_memory = 1;
    for (size_t item = own->first; item < own->last && !own->out_of_memory; item++) {
        double *to = t->out + item * w->n_out * inputs * w->length;
        const size_t start = pairs * item / t->pieces, last = pairs * (item + 1) / t->pieces;
        memset(d.sums, 0, sizeof(double) * reach);
        for (size_t pair = start; pair < last; pair += DEPTH) {
            const size_t count = last - pair < DEPTH ? last - pair : DEPTH;
            NAME(spectra)(&p, NAME(read_epochs), &source, pair, count, DEPTH, e->n_in, x, 1);
            NAME(spectra)(&p, NAME(read_derivatives), &d, pair, count, DEPTH, w->n_out, y, -1);
            NAME(add_products)(e->n_in, w->n_out, p.rows, y, x, count, pair == start, sums);
        }
        NAME(taps)(&p, e, w, sums, to);
        if (w->constant) NAME(constant_taps)(e, w, d.sums, to);
    }
    NAME(release)(&p), delete(x), delete(y), delete(sums), delete(d.sums);
    return NULL;
}

/* -------------------------------------------------------------------------------------------------- normalisation */

/* Mean of each row of results, and sum of squares around it: (batch, n_out, 2).  Items are trials. */
static void *NAME(row_moments)(void *argument)
{
    slice *own = (slice *)argument;
    const normalise_arguments *t = own->arguments;
    const results *r = &t->r;
    for (size_t row = own->first * r->n_out; row < own->last * r->n_out; row++) {
        const REAL *y = (const REAL *)r->y + row * r->width, near = y[r->width / 2]; /* any of them, to avoid cancellation */
        vec first = {0}, second = {0}, third = {0}, fourth = {0};
        double sum = 0, square = 0;
        size_t n = 0;
        for (; n + 2 * VEC <= r->width; n += 2 * VEC) {
            const vec a = *(const loose *)(y + n) - near, b = *(const loose *)(y + n + VEC) - near;
            first += a, second += a * a, third += b, fourth += b * b;
        }
        for (; n < r->width; n++) sum += y[n] - near, square += (double)(y[n] - near) * (y[n] - near);
        sum += NAME(total)(first) + NAME(total)(third);
        square += NAME(total)(second) + NAME(total)(fourth);
        t->rows[2 * row] = near + sum / (double)r->width;
        t->rows[2 * row + 1] = square - sum * sum / (double)r->width;
    }
    return NULL;
}

/* Means and variances (n_out, 2) of all trials, and the coefficients of the normalisation: scale, centre, shift. */
static void *NAME(normalisation)(void *argument)
{
    slice *own = (slice *)argument;
    const normalise_arguments *t = own->arguments;
    const results *r = &t->r;
    const double width = (double)r->width, batch = (double)r->batch;
    for (size_t o = 0; o < r->n_out; o++) {
        double mean = 0, square = 0;
        for (size_t b = 0; b < r->batch; b++) mean += t->rows[2 * (b * r->n_out + o)];
        mean /= batch;
        for (size_t b = 0; b < r->batch; b++) {
            const double *row = t->rows + 2 * (b * r->n_out + o), apart = row[0] - mean;
            square += row[1] + width * apart * apart;
        }
        t->moments[2 * o] = mean, t->moments[2 * o + 1] = square / (width * batch);
        REAL *c = (REAL *)t->coefficients + 3 * o;
        c[0] = (REAL)(((const REAL *)t->weight)[o] / sqrt(t->moments[2 * o + 1] + t->eps));
        c[1] = (REAL)mean, c[2] = ((const REAL *)t->bias)[o];
    }
    return NULL;
}

/* out = scale (y - centre) + shift.  Items are trials. */
static void *NAME(affine)(void *argument)
{
    slice *own = (slice *)argument;
    const normalise_arguments *t = own->arguments;
    const results *r = &t->r;
    for (size_t row = own->first * r->n_out; row < own->last * r->n_out; row++) {
        const REAL *restrict y = (const REAL *)r->y + row * r->width;
        const REAL *c = (const REAL *)t->coefficients + 3 * (row % r->n_out);
        REAL *restrict out = (REAL *)t->out + row * r->width;
        const REAL scale = c[0], centre = c[1], shift = c[2];
        for (size_t n = 0; n < r->width; n++) out[n] = scale * (y[n] - centre) + shift;
    }
    return NULL;
}

/* Sums over the rows of grad, and of grad (y - mean): (batch, n_out, 2).  Items are trials. */
static void *NAME(row_products)(void *argument)
{
    slice *own = (slice *)argument;
    const normalise_gradient_arguments *t = own->arguments;
    const results *r = &t->r;
    for (size_t row = own->first * r->n_out; row < own->last * r->n_out; row++) {
        const REAL *y = (const REAL *)r->y + row * r->width, *g = (const REAL *)t->grad + row * r->width;
        const REAL mean = (REAL)t->moments[2 * (row % r->n_out)];
        vec sum = {0}, product = {0}, sum2 = {0}, product2 = {0};
        double one = 0, two = 0;
        size_t n = 0;
        for (; n + 2 * VEC <= r->width; n += 2 * VEC) {
            const vec a = *(const loose *)(g + n), b = *(const loose *)(g + n + VEC);
            sum += a, product += a * (*(const loose *)(y + n) - mean);
            sum2 += b, product2 += b * (*(const loose *)(y + n + VEC) - mean);
        }
        for (; n < r->width; n++) one += g[n], two += (double)g[n] * (y[n] - mean);
        t->rows[2 * row] = one + NAME(total)(sum) + NAME(total)(sum2);
        t->rows[2 * row + 1] = two + NAME(total)(product) + NAME(total)(product2);
    }
    return NULL;
}

/* Derivatives in the weight and the bias of a normalisation, (2, n_out), and the coefficients of the derivative in its
 * input: scale grad + slope (y - centre) + shift. */
static void *NAME(normalisation_gradient)(void *argument)
{
    slice *own = (slice *)argument;
    const normalise_gradient_arguments *t = own->arguments;
    const results *r = &t->r;
    const double count = (double)r->width * (double)r->batch;
    for (size_t o = 0; o < r->n_out; o++) {
        double sum = 0, product = 0;
        for (size_t b = 0; b < r->batch; b++) {
            sum += t->rows[2 * (b * r->n_out + o)];
            product += t->rows[2 * (b * r->n_out + o) + 1];
        }
        const double inverse = 1 / sqrt(t->moments[2 * o + 1] + t->eps);
        const double scale = ((const REAL *)t->weight)[o] * inverse;
        REAL *c = (REAL *)t->coefficients + 4 * o;
        c[0] = (REAL)scale;
        c[1] = (REAL)(-scale * inverse * inverse * product / count);
        c[2] = (REAL)t->moments[2 * o];
        c[3] = (REAL)(-scale * sum / count);
        ((REAL *)t->out)[o] = (REAL)(product * inverse);
        ((REAL *)t->out)[r->n_out + o] = (REAL)sum;
    }
    return NULL;
}

/* -------------------------------------------------------------------------------------------- products of rows */

/* out_ij += sum over n of a_in a_jn, for rows of whole vectors; the lower triangle, with whole blocks on the diagonal. */
static void NAME(gram)(const REAL *a, size_t stride, size_t n, size_t samples, double *out)
{
    for (size_t j = 0; j < n; j += 3) {
        const size_t j1 = j + 1 < n ? j + 1 : j, j2 = j + 2 < n ? j + 2 : j; /* beyond the last: repeated */
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
 * sums in the last column.  In double precision, because filters may cancel most of the variance that channels share.  Items are
 * pieces. */
static void *NAME(channel_moments)(void *argument)
{
    slice *own = (slice *)argument;
    const channel_moments_arguments *t = own->arguments;
    const epochs *e = &t->e;
    const size_t n = e->n_in, stride = (e->times + 3) / 4 * 4;
    double *x = new(sizeof(double), n, stride, 1), *products = new(sizeof(double), n, n, 1);
    if (!x || !products) own->out_of_memory = 1;
    for (size_t item = own->first; item < own->last && !own->out_of_memory; item++) {
        double *to = t->out + item * n * (n + 1);
        memset(products, 0, sizeof(double) * n * n);
        memset(to, 0, sizeof(double) * n * (n + 1));
        for (size_t b = e->batch * item / t->pieces; b < e->batch * (item + 1) / t->pieces; b++) {
            for (size_t i = 0; i < n; i++) {
                const REAL *from = (const REAL *)e->x + (ptrdiff_t)b * e->stride[0] + (ptrdiff_t)i * e->stride[1];
                double *row = x + i * stride, sum[4] = {0};
                if (e->stride[2] == 1)
                    for (size_t s = 0; s < e->times; s++) row[s] = from[s];
                else
                    for (size_t s = 0; s < e->times; s++) row[s] = from[(ptrdiff_t)s * e->stride[2]];
                for (size_t s = e->times; s < stride; s++) row[s] = 0;
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

/* A window, times a factor and centred, as rows of whole vectors padded with zeros.  A window of which the mean is
 * embedded is not centred; its last row is the factor. */
static void NAME(rows)(const windows *t, const REAL *x, size_t samples, size_t stride, REAL factor, REAL *to)
{
    const int centred = t->size == t->n;
    for (size_t i = 0; i < t->n; i++, x += t->times, to += stride) {
        vec sum = {0};
        double mean = 0;
        size_t s = 0;
        for (; s + VEC <= samples; s += VEC) {
            const vec v = *(const loose *)(x + s) * factor;
            *(vec *)(to + s) = v;
            sum += v;
        }
        for (; s < samples; s++) to[s] = x[s] * factor, mean += to[s];
        const REAL m = centred ? (REAL)((mean + NAME(total)(sum)) / (double)samples) : 0;
        for (s = 0; s < samples; s++) to[s] -= m;
        for (; s < stride; s++) to[s] = 0;
    }
    if (!centred)
        for (size_t s = 0; s < stride; s++) to[s] = s < samples ? factor : 0;
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

/* The rows of a window.  Returns the trace of their products.  A window whose squares would overflow or underflow is first
 * divided by its largest amplitude; factor is the number that it was multiplied with. */
static double NAME(window)(const windows *t, const REAL *x, size_t samples, size_t stride, REAL *to, REAL *factor)
{
    double trace = 0;
    *factor = 1;
    NAME(rows)(t, x, samples, stride, 1, to);
    for (size_t i = 0; i < t->size; i++) trace += NAME(squares)(to + i * stride, stride);
    if (trace > 1e6 * TINY && trace < LARGEST / 1e6) return trace;
    REAL largest = t->size == t->n ? 0 : 1;
    for (size_t i = 0; i < t->n; i++)
        for (size_t s = 0; s < samples; s++) {
            const REAL size = x[i * t->times + s] < 0 ? -x[i * t->times + s] : x[i * t->times + s];
            if (!(size <= largest)) largest = size; /* true for NaN */
        }
    *factor = 1 / (largest > TINY || largest != largest ? largest : TINY);
    NAME(rows)(t, x, samples, stride, *factor, to);
    trace = 0;
    for (size_t i = 0; i < t->size; i++) trace += NAME(squares)(to + i * stride, stride);
    return trace;
}

/* Start and length of window w: the first windows are one sample longer if the times are not a multiple of their
 * number. */
INLINE size_t NAME(span)(const windows *t, size_t w, size_t *samples)
{
    const size_t length = t->times / t->windows, longer = t->times % t->windows;
    *samples = length + (w < longer ? 1 : 0);
    return w * length + (w < longer ? w : longer);
}

/* keep / trace times the products of the rows of windows, plus lift on the diagonal: (item, windows, size, size).  Items
 * are features (n, times) of a branch of a trial. */
static void *NAME(covariances)(void *argument)
{
    slice *own = (slice *)argument;
    const covariance_arguments *t = own->arguments;
    const windows *in = &t->s;
    const size_t n = in->size, stride = ROUNDED(in->times / in->windows + 1);
    REAL *y = new(sizeof(REAL), n, stride, 1);
    double *product = new(sizeof(double), n, n, 1);
    if (!y || !product) own->out_of_memory = 1;
    for (size_t item = own->first; item < own->last && !own->out_of_memory; item++)
        for (size_t w = 0; w < in->windows; w++) {
            size_t samples, start = NAME(span)(in, w, &samples);
            const REAL *x = (const REAL *)in->x + item * in->n * in->times + start;
            REAL *out = (REAL *)t->out + (item * in->windows + w) * n * n, factor;
            double trace = 0;
            NAME(window)(in, x, samples, stride, y, &factor);
            memset(product, 0, sizeof(double) * n * n);
            NAME(gram)(y, stride, n, stride, product);
            for (size_t i = 0; i < n; i++) trace += product[i * n + i];
            const double scale = t->keep / (trace > TINY || trace != trace ? trace : TINY); /* 0 for a constant window */
            for (size_t i = 0; i < n; i++) {
                for (size_t j = 0; j < i; j++) out[i * n + j] = out[j * n + i] = (REAL)(product[i * n + j] * scale);
                out[i * n + i] = (REAL)(product[i * n + i] * scale + t->lift);
            }
        }
    delete(y), delete(product);
    return NULL;
}

/* out = s y for four rows of s, stored column by column, and `count` vectors of the rows y. */
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

/* z = s y, for `rows` rows of s in groups of four, each stored column by column. */
static void NAME(multiply_rows)(const REAL *s, const REAL *y, size_t stride, size_t rows, size_t n, REAL *z)
{
    for (size_t i = 0; i < rows; i += 4, s += 4 * n, z += 4 * stride) {
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
    slice *own = (slice *)argument;
    const covariance_gradient_arguments *t = own->arguments;
    const windows *in = &t->s;
    const size_t n = in->size, stride = ROUNDED(in->times / in->windows + 1), rows = (n + 3) / 4 * 4;
    REAL *y = new(sizeof(REAL), n, stride, 1), *z = new(sizeof(REAL), rows, stride, 1), *s = new(sizeof(REAL), rows, n, 1);
    if (!y || !z || !s) own->out_of_memory = 1;
    else memset(s, 0, sizeof(REAL) * rows * n);
    for (size_t item = own->first; item < own->last && !own->out_of_memory; item++)
        for (size_t w = 0; w < in->windows; w++) {
            size_t samples, start = NAME(span)(in, w, &samples);
            const REAL *x = (const REAL *)in->x + item * in->n * in->times + start;
            const REAL *g = (const REAL *)t->grad + (item * in->windows + w) * n * n;
            REAL *out = (REAL *)t->out + item * in->n * in->times + start, factor;
            const double trace = NAME(window)(in, x, samples, stride, y, &factor);
            for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < n; j++)
                    s[(i / 4 * n + j) * 4 + i % 4] = (REAL)t->keep * (g[i * n + j] + g[j * n + i]);
            NAME(multiply_rows)(s, y, stride, n, n, z);
            double inner = 0;
            for (size_t i = 0; i < n; i++) {
                vec sum = {0};
                for (size_t l = 0; l < stride; l += VEC)
                    sum += *(const vec *)(y + i * stride + l) * *(const vec *)(z + i * stride + l);
                inner += NAME(total)(sum);
            }
            const int constant = trace <= TINY;
            const REAL scale = constant ? 0 : (REAL)(factor / trace), along = constant ? 0 : (REAL)(inner / trace);
            for (size_t i = 0; i < in->n; i++)
                for (size_t l = 0; l < samples; l++)
                    out[i * in->times + l] = scale * (z[i * stride + l] - along * y[i * stride + l]);
        }
    delete(y), delete(z), delete(s);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------- spatial filters */

/* The channels of a trial as rows of whole vectors, padded with zeros. */
static void NAME(channels)(const epochs *e, size_t trial, size_t stride, REAL *to)
{
    for (size_t i = 0; i < e->n_in; i++, to += stride) {
        const REAL *x = (const REAL *)e->x + (ptrdiff_t)trial * e->stride[0] + (ptrdiff_t)i * e->stride[1];
        if (e->stride[2] == 1) memcpy(to, x, sizeof(REAL) * e->times);
        else
            for (size_t s = 0; s < e->times; s++) to[s] = x[(ptrdiff_t)s * e->stride[2]];
        memset(to + e->times, 0, sizeof(REAL) * (stride - e->times));
    }
}

/* Filters of channels, w x + offset: (batch, n_out, times).  Items are trials. */
static void *NAME(mixtures)(void *argument)
{
    slice *own = (slice *)argument;
    const mixture_arguments *t = own->arguments;
    const epochs *e = &t->e;
    const size_t n = e->n_in, stride = ROUNDED(e->times), rows = (t->n_out + 3) / 4 * 4;
    REAL *x = new(sizeof(REAL), n, stride, 1), *y = new(sizeof(REAL), rows, stride, 1), *w = new(sizeof(REAL), rows, n, 1);
    if (!x || !y || !w) own->out_of_memory = 1;
    else {
        memset(w, 0, sizeof(REAL) * rows * n);
        for (size_t o = 0; o < t->n_out; o++)
            for (size_t i = 0; i < n; i++) w[(o / 4 * n + i) * 4 + o % 4] = ((const REAL *)t->w)[o * n + i];
    }
    for (size_t item = own->first; item < own->last && !own->out_of_memory; item++) {
        NAME(channels)(e, item, stride, x);
        NAME(multiply_rows)(w, x, stride, t->n_out, n, y);
        for (size_t o = 0; o < t->n_out; o++) {
            const REAL offset = ((const REAL *)t->offset)[o], *restrict row = y + o * stride;
            REAL *restrict to = (REAL *)t->out + (item * t->n_out + o) * e->times;
            for (size_t s = 0; s < e->times; s++) to[s] = row[s] + offset;
        }
    }
    delete(x), delete(y), delete(w);
    return NULL;
}

/* out_oi = sum over samples of g_o x_i, added to vectors of partial sums; three rows by three. */
static void NAME(add_row_products)(const REAL *g, size_t n_out, const REAL *x, size_t n_in, size_t stride, vec *out)
{
    for (size_t o = 0; o < n_out; o += 3) {
        const size_t o1 = o + 1 < n_out ? o + 1 : o, o2 = o + 2 < n_out ? o + 2 : o; /* beyond the last: repeated */
        const vec *g0 = (const vec *)(g + o * stride), *g1 = (const vec *)(g + o1 * stride);
        const vec *g2 = (const vec *)(g + o2 * stride);
        for (size_t i = 0; i < n_in; i += 3) {
            const size_t i1 = i + 1 < n_in ? i + 1 : i, i2 = i + 2 < n_in ? i + 2 : i;
            const vec *x0 = (const vec *)(x + i * stride), *x1 = (const vec *)(x + i1 * stride);
            const vec *x2 = (const vec *)(x + i2 * stride);
            vec c00 = {0}, c01 = {0}, c02 = {0}, c10 = {0}, c11 = {0}, c12 = {0}, c20 = {0}, c21 = {0}, c22 = {0};
            for (size_t s = 0; s < stride / VEC; s++) {
                const vec a0 = g0[s], a1 = g1[s], a2 = g2[s], b0 = x0[s], b1 = x1[s], b2 = x2[s];
                c00 += a0 * b0, c10 += a1 * b0, c20 += a2 * b0;
                c01 += a0 * b1, c11 += a1 * b1, c21 += a2 * b1;
                c02 += a0 * b2, c12 += a1 * b2, c22 += a2 * b2;
            }
            const vec block[9] = {c00, c01, c02, c10, c11, c12, c20, c21, c22};
            for (size_t r = 0; r < 3 && o + r < n_out; r++)
                for (size_t q = 0; q < 3 && i + q < n_in; q++) out[(o + r) * n_in + i + q] += block[3 * r + q];
        }
    }
}

/* Derivatives in filters of channels and, in the last column, in their offsets, in `pieces` parts of the sum over trials,
 * (pieces, n_out, n_in + 1).  Items are pieces. */
static void *NAME(mixture_gradients)(void *argument)
{
    slice *own = (slice *)argument;
    const mixture_gradient_arguments *t = own->arguments;
    const epochs *e = &t->e;
    const size_t n = e->n_in + 1, stride = ROUNDED(e->times);
    const ptrdiff_t times = (ptrdiff_t)e->times;
    REAL *x = new(sizeof(REAL), n, stride, 1), *g = new(sizeof(REAL), t->n_out, stride, 1);
    vec *sums = new(sizeof(vec), t->n_out, n, 1);
    if (!x || !g || !sums) own->out_of_memory = 1;
    else
        for (size_t s = 0; s < stride; s++) x[e->n_in * stride + s] = 1; /* the input of the offsets */
    for (size_t item = own->first; item < own->last && !own->out_of_memory; item++) {
        memset(sums, 0, sizeof(vec) * t->n_out * n);
        for (size_t b = e->batch * item / t->pieces; b < e->batch * (item + 1) / t->pieces; b++) {
            const epochs grad = {t->grad, e->batch, t->n_out, e->times, {(ptrdiff_t)t->n_out * times, times, 1}};
            NAME(channels)(e, b, stride, x);
            NAME(channels)(&grad, b, stride, g);
            NAME(add_row_products)(g, t->n_out, x, n, stride, sums);
        }
        for (size_t i = 0; i < t->n_out * n; i++) t->out[item * t->n_out * n + i] = NAME(total)(sums[i]);
    }
    delete(x), delete(g), delete(sums);
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
