/* The algorithms of a kernel for both precisions, and the way from Python to the best version of them.
 *
 * Include after defining ALGORITHMS, the name of a header that is included once for each precision (DOUBLE) and width of
 * vectors (BYTES) and names its functions with ARCHITECTURE; `workers`, a struct of functions; and WORKERS(x), its members
 * for the ending x.
 *
 * One binary for every machine: on x86 the algorithms are compiled twice, and the best is picked when the module is loaded.
 * Vectors are as wide as the processor's: wider ones would be taken apart number by number.  Double precision comes first:
 * single precision may use it.
 */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define ARCHITECTURE(x) x##_avx2
#define BYTES 32
#define ROUGH_INVERSE(x) __builtin_ia32_rcpps256(x)
#define ROUGH_INVERSE_ROOT(x) __builtin_ia32_rsqrtps256(x)
#define DOUBLE 1
#include ALGORITHMS
#define DOUBLE 0
#include ALGORITHMS
#undef ARCHITECTURE
#undef BYTES
#undef ROUGH_INVERSE
#undef ROUGH_INVERSE_ROOT
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#define ARCHITECTURE(x) x
#define BYTES 16
#define DOUBLE 1
#include ALGORITHMS
#define DOUBLE 0
#include ALGORITHMS

static workers in_float = WORKERS(f32), in_double = WORKERS(f64);

static void find_best(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        in_float = (workers)WORKERS(f32_avx2);
        in_double = (workers)WORKERS(f64_avx2);
    }
#endif
}

#define POINTER(x) ((void *)(uintptr_t)(x))
typedef unsigned long long address;

#define WORKER(name) (itemsize == 4 ? in_float.name : in_double.name)
