/* The algorithms of _jacobi.c for one precision (DOUBLE) and one width of vectors (BYTES); included for each combination.
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
#define CBRT cbrt
#define LOG log
#define EXP exp
#define POW pow
#define TANH tanh
#define NAME(x) ARCHITECTURE(x##_f64)
#define TINY DBL_MIN
#define SQUARABLE 1e-3 /* least relative singular value of matrices that may be squared */
#define NEAR 7e-7     /* |x^T x - 1|^2 for which four terms of a series, or two (NEARLY), give full precision */
#define NEARLY 4e-11
#define UNIT 1.0        /* largest entry of a scaled matrix, so that products of squared lengths stay in range */
#define SMALLEST 1e-140 /* squared length of a column, relative to UNIT^2, that is too small to be normalised */
#else
#define REAL float
#define WIDTH (BYTES / 4)
#define INTEGER int32_t
#define EPSILON FLT_EPSILON
#define SQRT sqrtf
#define CBRT cbrtf
#define LOG logf
#define EXP expf
#define POW powf
#define TANH tanhf
#define NAME(x) ARCHITECTURE(x##_f32)
#define TINY FLT_MIN
#define SQUARABLE 3e-3
#define NEAR 2e-3f
#define NEARLY 2e-5f
#define UNIT 0x1p24f
#define SMALLEST 1e-26f
#endif
#define RECOVERABLE (1 / (16 * EPSILON)) /* condition up to which right singular vectors are computed from the left ones */
#define VEC ((size_t)WIDTH)
#define PARTS (LANES / VEC)
#define vec NAME(vector)
#define mask NAME(integers)
typedef REAL vec __attribute__((vector_size(BYTES), may_alias));
typedef INTEGER mask __attribute__((vector_size(BYTES), may_alias));

#include "_lanes.h"
#include "_svd.h"
#include "_polar.h"
#include "_functions.h"
#include "_means.h"
#include "_jobs.h"

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
#undef CBRT
#undef SQUARABLE
#undef NEAR
#undef NEARLY
#undef LOG
#undef EXP
#undef POW
#undef TANH
#undef NAME
#undef UNIT
#undef TINY
#undef SMALLEST
#undef RECOVERABLE
