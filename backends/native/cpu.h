// What the words of CUDA mean on a CPU. This file comes before the source of a kernel; lane.h and driver.h are included
// by that.
//
// A thread of the kernel is a thread of the system or a fiber. Each knows where it is by `here`.
#pragma once

#ifndef SCHEDLANG_CPU
#define SCHEDLANG_CPU
#endif

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#endif
#ifdef __F16C__
#include <immintrin.h>
#endif

// How a kernel is run; the driver's first caller fills it in.
enum { THREADS, FIBERS };
struct Mode {
    int kind;                 // THREADS: each a thread of the system. FIBERS: all take turns on one, by `seed`
    int threads;              // of a block
    int looks;                // at a flag before its thread sleeps
    int yields;               // of the last of these, how many give the processor away each time
    int delays;               // one in so many times that a flag is set or read something else comes first; 0: never
    int delay;                // how long that takes at most, in microseconds (fibers: somebody else's turn)
    unsigned long long seed;  // of all that is random
    long long timeout;        // of a launch in nanoseconds; 0: none
};

struct Index {
    unsigned x;
};

// What the threads of a block share.
struct Block {
    int threads = 1;
    int arrived = 0, any[2] = {0, 0};  // at the barrier
    unsigned generation = 0;           // how often all have met there
    std::mutex mutex;
    std::unique_ptr<char[]> memory;
    size_t bytes = 0;
};

struct Fiber;

struct Here {
    Index thread, block, threads;
    Block* shared;
    const Mode* mode;
    int* stop;               // the host's word (Watch)
    long long deadline;      // on the monotonic clock, in nanoseconds; 0: none
    unsigned long long random;
    Fiber* fiber;            // if this is one
};

static thread_local Here* here;

static inline long long now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// A random number below `bound`.
static inline unsigned long long chance(unsigned long long& state, unsigned long long bound) {
    unsigned long long z = state += 0x9e3779b97f4a7c15ull;  // splitmix64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % bound;
}

// Lets others go on until `generation` of the barrier has passed or all stop (driver.h).
static void wait_at_barrier(Block* block, unsigned generation);

// Whether any of the block's threads came with a value other than 0; 1 if all stop.
static inline int block_barrier(int value) {
    Block* block = here->shared;
    if (block->threads == 1) return value != 0;
    const unsigned generation = __atomic_load_n(&block->generation, __ATOMIC_ACQUIRE);
    int* any = &block->any[generation & 1];
    if (value) __atomic_store_n(any, 1, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&block->arrived, 1, __ATOMIC_ACQ_REL) == block->threads) {
        __atomic_store_n(&block->any[~generation & 1], 0, __ATOMIC_RELAXED);  // which all have read, as all are here
        __atomic_store_n(&block->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&block->generation, generation + 1, __ATOMIC_RELEASE);
    } else {
        wait_at_barrier(block, generation);
        if (__atomic_load_n(&block->generation, __ATOMIC_ACQUIRE) == generation) return 1;
    }
    return __atomic_load_n(any, __ATOMIC_RELAXED);
}

// The memory of a block, for the one array that its threads share.
static inline void* block_memory(size_t bytes) {
    Block* block = here->shared;
    std::lock_guard<std::mutex> lock(block->mutex);
    if (block->bytes < bytes) {
        block->memory.reset(new char[bytes]);
        block->bytes = bytes;
    }
    return block->memory.get();
}

static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// binary16 to float and back, rounded to nearest, ties to even; of a NaN the upper bits stay.
static inline float half_to_float(unsigned short bits) {
#ifdef __F16C__
    return _cvtsh_ss(bits);
#else
    const unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13 | (rest > 0x7c00) << 22);
    const float scaled = __uint_as_float(rest << 13) * 0x1p112f;  // the exponent is biased by 15, not 127
    return __uint_as_float(sign | __float_as_uint(scaled));
#endif
}

static inline unsigned short float_to_half(float value) {
#ifdef __F16C__
    return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
    const unsigned whole = __float_as_uint(value), sign = whole >> 16 & 0x8000, rest = whole & 0x7fffffff;
    if (rest > 0x7f800000) return sign | 0x7e00 | (rest >> 13 & 0x3ff);
    if (rest >= 0x477ff000) return sign | 0x7c00;  // 65520, half way from the largest to the next, and above
    if (rest < 0x38800000)                         // below 2^-14: as a multiple of 2^-24, which adding 0.5 rounds to
        return sign | (__float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000);
    return sign | ((rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13);
#endif
}

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(threads)
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define threadIdx (::here->thread)
#define blockIdx (::here->block)
#define blockDim (::here->threads)
#define __syncthreads() ((void)block_barrier(0))
#define __syncthreads_or(value) block_barrier(value)
#define SHARED(type, name, count) type* name = static_cast<type*>(block_memory(sizeof(type) * (count)))
