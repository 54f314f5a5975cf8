/* Work on many items, cut into parts of whole blocks, over the threads that torch has.
 *
 * Include after defining `task`, a struct with the members `size_t first, last` (the items of one part) and
 * `int out_of_memory`, and LANES, the items of a block.
 */
#include <stdint.h>
#ifndef _WIN32
#include <dlfcn.h>
#include <pthread.h>
#endif

#define MAX_THREADS 64
typedef void *(*worker)(void *);

typedef struct {
    worker work;
    task part[MAX_THREADS];
    int parts;
} job;

#ifdef _WIN32
static void spread(job *all)
{
    for (int t = 0; t < all->parts; t++) all->work(&all->part[t]);
}
#else
/* The OpenMP runtime that torch has loaded, if any (GNU's or one that speaks its language).  Its threads spin for a
 * while after each parallel operation of torch, so that threads of our own would have to share the cores with them. */
static void (*omp_run)(void (*)(void *), void *, unsigned, unsigned);
static int (*omp_rank)(void), (*omp_size)(void);

static void find_runtime(void)
{
    *(void **)&omp_run = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    *(void **)&omp_rank = dlsym(RTLD_DEFAULT, "omp_get_thread_num");
    *(void **)&omp_size = dlsym(RTLD_DEFAULT, "omp_get_num_threads");
    if (!omp_rank || !omp_size) omp_run = NULL;
}

static void share(void *argument)
{
    job *all = (job *)argument;
    for (int t = omp_rank(); t < all->parts; t += omp_size()) all->work(&all->part[t]);
}

static void spread(job *all)
{
    if (all->parts > 1 && omp_run) {
        omp_run(share, all, (unsigned)all->parts, 0);
        return;
    }
    pthread_t thread[MAX_THREADS];
    int started[MAX_THREADS] = {0};
    for (int t = 1; t < all->parts; t++)
        started[t] = pthread_create(&thread[t], NULL, all->work, &all->part[t]) == 0;
    all->work(&all->part[0]);
    for (int t = 1; t < all->parts; t++) {
        if (started[t]) pthread_join(thread[t], NULL);
        else all->work(&all->part[t]);
    }
}
#endif

/* Work on the items with at most so many threads; what they say is in the parts of the job.  Returns whether memory ran
 * out. */
static int run(job *all, worker work, const task *whole, size_t items, int threads)
{
    const size_t blocks = (items + LANES - 1) / LANES;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads < 1 || blocks == 0) threads = 1;
    else if ((size_t)threads > blocks) threads = (int)blocks;
    all->work = work;
    all->parts = threads;
    for (int t = 0; t < all->parts; t++) {
        task *part = &all->part[t];
        *part = *whole;
        part->first = blocks * (size_t)t / (size_t)all->parts * LANES;
        part->last = blocks * (size_t)(t + 1) / (size_t)all->parts * LANES;
        if (part->last > items) part->last = items;
    }
    spread(all);
    int out_of_memory = 0;
    for (int t = 0; t < all->parts; t++) out_of_memory |= all->part[t].out_of_memory;
    return out_of_memory;
}
