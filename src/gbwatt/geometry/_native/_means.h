/* Bures-Wasserstein means: the way to one, and its derivative.  Part of _jacobi.h. */

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
        int good[LANES] = {0}; /* where it fails, frames do not fit, and the step says so */
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

/* ------------------------------------------------------------------------------------ the derivative of a mean */

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

/* The same of affine-invariant means: with the first difference d_ij of the logarithm at the squares of a, the curvature is
 * d_ij (a_i^2 + a_j^2) / 2, and the response d_ij a_j.  x: 2 k vectors of scratch. */
static void NAME(logarithmic)(const vec *a, vec *x, vec *out, size_t k, int response)
{
    for (size_t i = 0; i < k; i++) x[i] = a[i] * a[i];
    NAME(log_quotients)(x, 0, x + k, out, k);
    for (size_t p = 0; p < k; p++)
        for (size_t i = 0; i < k; i++) {
            if (response) out[p * k + i] *= a[p];
            else out[p * k + i] *= (x[i] + x[p]) / 2;
        }
}

/* log(a) */
INLINE vec NAME(logs)(vec a)
{
    for (size_t l = 0; l < VEC; l++) a[l] = LOG(a[l]);
    return a;
}
