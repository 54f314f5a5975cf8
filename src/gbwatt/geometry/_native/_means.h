/* Fréchet means: the iteration in frames, and the derivative.  Part of _jacobi.h. */

/* For m = u^T n^T b, which is nearly diagonal, the skew-symmetric omega for which u (1 + omega) makes it symmetric to first
 * order.  Returns the sum of the squares of omega.  error is that sum weighted with the squared lengths of the columns of b:
 * the change of b u^T.  least is the smallest number on the diagonal.  remainder is the squared relative error of the first
 * order, which is exact for a diagonal m. */
static vec NAME(skew)(const vec *m, const vec *lengths, vec *omega, size_t k, vec *error, vec *least, vec *remainder)
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
    *remainder = 2 * (even + square);
    return 2 * square;
}

/* Rotate u by omega + sqrt(1 + omega^2), which is orthogonal.  Each lane uses as many terms of the square root as are needed
 * for an error below enough, which is added to defect.  x, y are scratch, omega is overwritten. */
static void NAME(rotate_frame)(vec *u, vec *omega, vec square, vec *defect, REAL enough, vec *x, vec *y, size_t k)
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

/* u <- u (3 - u^T u) / 2 in the lanes whose defect, the distance from orthogonality, exceeds enough. */
static void NAME(reorthogonalise)(vec *u, vec *defect, REAL enough, vec *x, vec *y, size_t k)
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

/* Anderson's method with two past steps: n <- the combination of the last steps that would minimise their move if the
 * problem were linear.  move and new hold the moves and ends of past steps, the last one first, and are updated.  past is the
 * number of past steps in each lane; the lanes in stay do not move. */
static void NAME(mix)(vec *n, const vec *next, vec *move, vec *new, size_t k, const int *past, mask stay)
{
    const size_t square = k * k;
    vec aa = {0}, ab = {0}, bb = {0}, af = {0}, bf = {0};
    for (size_t i = 0; i < square; i++) {
        const vec f = next[i] - n[i], a = f - move[i], b = move[i] - move[square + i];
        aa += a * a, ab += a * b, bb += b * b, af += a * f, bf += b * f;
    }
    mask one, two; /* lanes with one past step and with two; unused entries are undefined */
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

/* State of the iteration of VEC problems. */
typedef struct {
    vec *n, *next, *move, *new, *x, *y, *z; /* iterate, next iterate, moves and ends of the last two steps, scratch */
    vec *u, *b, *lengths;                   /* (m) frames, points and squared lengths of the points' columns (k) */
    vec *weights, *defect;                  /* (m) */
    size_t k, m;
    REAL enough; /* distance from orthogonality that is negligible */
} NAME(iteration);

/* Lengths of a point's columns after some lanes got a new frame, whose defect is zero. */
static void NAME(start_frame)(const NAME(iteration) *a, size_t j, mask which)
{
    for (size_t p = 0; p < a->k; p++) a->lengths[j * a->k + p] = NAME(length)(a->b + (j * a->k + p) * a->k, a->k);
    a->defect[j] = (vec)((mask)a->defect[j] & ~which);
}

/* The step from n in the frames u, which are updated.  Returns the norm of the change of the next iterate due to the update,
 * and in rest an estimate of the remaining error of the frames.  fit is cleared for lanes where the rotation was too large
 * for a first-order update; worst is the largest defect. */
static vec NAME(step_in_frames)(const NAME(iteration) *a, int *fit, vec *worst, vec *rest)
{
    const size_t k = a->k;
    vec error = {0}, remains = {0};
    *worst = (vec){0};
    memset(a->next, 0, sizeof(vec) * k * k);
    for (size_t j = 0; j < a->m; j++) {
        vec *u = a->u + j * k * k, *b = a->b + j * k * k, *defect = a->defect + j, part, least, remainder;
        if (NAME(exceeds)(*defect, a->enough)) NAME(reorthogonalise)(u, defect, a->enough, a->x, a->y, k);
        NAME(inner)(a->n, b, a->x, k, 1);
        NAME(inner)(u, a->x, a->y, k, 1);
        const vec square = NAME(skew)(a->y, a->lengths + j * k, a->x, k, &part, &least, &remainder);
        for (size_t l = 0; l < VEC; l++) fit[l] &= least[l] > 0 && square[l] < 1; /* false for NaN */
        NAME(rotate_frame)(u, a->x, square, defect, a->enough, a->y, a->z, k);
        NAME(outer)(b, u, a->y, k, 1);
        NAME(add)(a->y, a->weights + j, a->next, k, 1);
        error += a->weights[j] * part;
        remains += a->weights[j] * part * remainder;
        *worst = NAME(larger)(*defect, *worst);
    }
    *rest = NAME(root)(remains);
    return NAME(root)(error);
}

/* New frames of all points at n, and points rotated into them, in some lanes. */
static void NAME(renew_frames)(const NAME(iteration) *a, vec *f, vec *v, vec *s, mask which)
{
    const size_t k = a->k, square = k * k;
    for (size_t j = 0; j < a->m; j += PARTS) { /* PARTS points at a time, the last one repeated */
        int good[LANES] = {0}; /* not used: a step in wrong frames clears fit */
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
            NAME(start_frame)(a, j + h, which);
        }
    }
}

/* ------------------------------------------------------------------------------------ the derivative of a mean */

/* The equation scale * (sum of w u (h * (u^T e u)) u^T) = right with e = scale * z. */
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

/* Solve the equation by conjugate gradients in each lane.  right is replaced by the residual, z by e; good is cleared for
 * lanes that do not converge. */
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
            if (!response) out[p * k + i] *= a[i], out[i * k + p] = out[p * k + i]; /* a_i a_j may overflow */
        }
}

/* The same for affine-invariant means: with the first difference d_ij of the logarithm at the squares of a, the curvature is
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
