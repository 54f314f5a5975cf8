/* Runs a job on many items with the threads of torch, each of which works on whole blocks of LANES items.
 *
 * Include after defining LANES.
 */
#include <stdint.h>
#ifndef _WIN32
#include <dlfcn.h>
#include <pthread.h>
#endif

#define MAX_THREADS 64
typedef void *(*worker)(void *); /* its argument is a slice */

/* The items of a job that one thread works on. */
typedef struct {
    const void *arguments; /* of the job, the same for all slices */
    size_t first, last;    /* items first .. last - 1 */
    size_t failures;       /* result: number of items that failed */
    int out_of_memory;     /* result */
} slice;

typedef struct {
    worker work;
    slice slices[MAX_THREADS];
    int count;
} job;

#ifdef _WIN32
static void run_slices(job *all)
{
    for (int t = 0; t < all->count; t++) all->work(&all->slices[t]);
}
#else
/* The OpenMP runtime that torch has loaded, if any (GNU's or a compatible one).  Its threads spin for a while after each
 * parallel operation of torch, so that threads of our own would have to share the cores with them. */
static void (*omp_run)(void (*)(void *), void *, unsigned, unsigned);
static int (*omp_rank)(void), (*omp_size)(void);

static void find_runtime(void)
{
    *(void **)&omp_run = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    *(void **)&omp_rank = dlsym(RTLD_DEFAULT, "omp_get_thread_num");
    *(void **)&omp_size = dlsym(RTLD_DEFAULT, "omp_get_num_threads");
    if (!omp_rank || !omp_size) omp_run = NULL;
}

static void run_in_openmp(void *argument)
{
    job *all = (job *)argument;
    for (int t = omp_rank(); t < all->count; t += omp_size()) all->work(&all->slices[t]);
}

static void run_slices(job *all)
{
    if (all->count > 1 && omp_run) {
        omp_run(run_in_openmp, all, (unsigned)all->count, 0);
        return;
    }
    pthread_t thread[MAX_THREADS];
    int started[MAX_THREADS] = {0};
    for (int t = 1; t < all->count; t++)
        started[t] = pthread_create(&thread[t], NULL, all->work, &all->slices[t]) == 0;
    all->work(&all->slices[0]);
    for (int t = 1; t < all->count; t++) {
        if (started[t]) pthread_join(thread[t], NULL);
        else all->work(&all->slices[t]);
    }
}
#endif

/* Run a job on the items with at most so many threads; `failures`, unless NULL, counts the items that failed.  Returns
 * whether memory ran out. */
static int run(worker work, const void *arguments, size_t items, int threads, size_t *failures)
{
    job all = {.work = work};
    const size_t blocks = (items + LANES - 1) / LANES;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads < 1 || blocks == 0) threads = 1;
    else if ((size_t)threads > blocks) threads = (int)blocks;
    all.count = threads;
    for (int t = 0; t < all.count; t++) {
        slice *one = &all.slices[t];
        one->arguments = arguments;
        one->first = blocks * (size_t)t / (size_t)all.count * LANES;
        one->last = blocks * (size_t)(t + 1) / (size_t)all.count * LANES;
        if (one->last > items) one->last = items;
    }
    run_slices(&all);
    int out_of_memory = 0;
    for (int t = 0; t < all.count; t++) {
        out_of_memory |= all.slices[t].out_of_memory;
        if (failures) *failures += all.slices[t].failures;
    }
    return out_of_memory;
}
