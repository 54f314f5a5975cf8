/* First differences of functions of eigenvalues.  Part of _jacobi.h. */

/* sinh(x) / x, for |x| up to 1 */
INLINE vec NAME(sinhc)(vec x)
{
    const vec y = x * x;
    vec sum = NAME(all)(1);
    for (int n = DOUBLE ? 16 : 8; n > 0; n -= 2) sum = 1 + sum * y * (1 / (REAL)(n * (n + 1))); /* a constant factor */
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
 * which avoids cancellation.  x: 3 k vectors of scratch. */
static void NAME(power_quotients)(const vec *a, REAL p, vec *x, vec *out, size_t k)
{
    vec *logs = x, *roots = x + k, *powers = x + 2 * k;
    for (size_t i = 0; i < k; i++) {
        for (size_t l = 0; l < VEC; l++) {
            const REAL log_a = LOG(a[i][l]);
            logs[i][l] = log_a;
            roots[i][l] = EXP((p - 1) / 2 * log_a);
        }
        powers[i] = a[i] * roots[i] * roots[i];
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

/* The same for log(max(a, floor)).  x: k vectors of scratch. */
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
