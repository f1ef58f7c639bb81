// What lane.cuh asks of a CPU: flags, waiting, moving.
#pragma once

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a flag's lower half comes first");

// Sleeps while the lower half of a flag is `seen`, at most for `milliseconds`; also between processes.
static inline void sleep_on(const Flag* flag, unsigned seen, int milliseconds) {
#ifdef __linux__
    const timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000l};
    syscall(SYS_futex, &flag->value, FUTEX_WAIT, seen, &limit, nullptr, 0);
#else
    usleep(50);
#endif
}

static inline void wake(Flag* flag) {
#ifdef __linux__
    syscall(SYS_futex, &flag->value, FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
#endif
}

// Something else comes first, now and then (driver.h).
static void delay();

static inline void disturb() {
    if (here->mode->delays && !chance(here->random, here->mode->delays)) delay();
}

static inline unsigned long long acquire(const Flag* flag) {
    disturb();
    return __atomic_load_n(&flag->value, __ATOMIC_ACQUIRE);
}

// The value comes first and whoever sleeps is looked for then; who goes to sleep says so first, and then looks at the
// value. So one of the two sees the other.
static inline void release(Flag* flag, unsigned long long value) {
    disturb();
    __atomic_store_n(&flag->value, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&flag->sleepers, __ATOMIC_SEQ_CST)) wake(flag);
}

// Wrong: it orders nothing (SCHEDLANG_FAULT_RELAXED_READY).
static inline void set_relaxed(Flag* flag, unsigned long long value) {
    disturb();
    __atomic_store_n(&flag->value, value, __ATOMIC_RELAXED);
    if (__atomic_load_n(&flag->sleepers, __ATOMIC_RELAXED)) wake(flag);
}

static inline int look(const int* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

static inline void tell(int* word, int value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

// The fiber gives its turn away until the flag has the value (driver.h).
static void await(const Flag* flag, unsigned long long value);

static inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

static inline bool late() { return here->deadline && now() > here->deadline; }

static inline bool pause(const Flag* flag, unsigned long long value, unsigned looks) {
    const Mode* mode = here->mode;
    if (here->fiber) {
        await(flag, value);
        return true;
    }
    if (looks < (unsigned)mode->looks) {
        if (looks + mode->yields < (unsigned)mode->looks)
            relax();
        else
            sched_yield();
        if (looks % 256 != 255) return false;
    } else {
        int* sleepers = const_cast<int*>(&flag->sleepers);
        __atomic_fetch_add(sleepers, 1, __ATOMIC_SEQ_CST);
        const unsigned long long seen = __atomic_load_n(&flag->value, __ATOMIC_SEQ_CST);
        if (seen < value && look(here->stop) == GO) sleep_on(flag, (unsigned)seen, 20);
        __atomic_fetch_sub(sleepers, 1, __ATOMIC_RELAXED);
    }
    if (late() && look(here->stop) == GO) tell(here->stop, TIMEOUT);
    return true;
}

#if defined(__clang__)
#define NO_ALIAS _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_ALIAS _Pragma("GCC ivdep")
#endif

// n elements: own (operation) from. Loops are for vector units; what a loop writes it reads at most at the same index.
template <class Operation, class V>
static inline void combine(V* into, const V* own, const V* from, long long n) {
    NO_ALIAS
    for (long long i = 0; i < n; ++i) into[i] = Operation::of(own[i], from[i]);
}

// As floats also where one of the two is only chosen: compilers make no vectors of a choice between structs.
template <class Operation>
static inline void combine(Bfloat16* into, const Bfloat16* own, const Bfloat16* from, long long n) {
    NO_ALIAS
    for (long long i = 0; i < n; ++i) into[i] = Bfloat16(Operation::of((float)own[i], (float)from[i]));
}

#ifdef __F16C__
// Nor do they convert several halves at once.
template <class Operation>
static inline void combine(Half* into, const Half* own, const Half* from, long long n) {
    long long i = 0;
    for (; i + 8 <= n; i += 8) {
        float a[8], b[8];
        _mm256_storeu_ps(a, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(own + i))));
        _mm256_storeu_ps(b, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(from + i))));
        for (int k = 0; k < 8; ++k) a[k] = Operation::of(a[k], b[k]);
        _mm_storeu_si128((__m128i*)(into + i), _mm256_cvtps_ph(_mm256_loadu_ps(a), _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; ++i) into[i] = Operation::of(own[i], from[i]);
}
#endif

// The block puts `own` (operation) `from`, n elements, in `into`, which may be `own`; each of its threads does a part.
template <class Operation>
static inline void move(T* into, const T* own, const T* from, long long n) {
    if (blockDim.x > 1) {
        const long long each = (n + blockDim.x - 1) / blockDim.x, start = std::min(n, each * threadIdx.x);
        into += start, own += start, from += start;
        n = std::min(each, n - start);
    }
    if (std::is_same<Operation, Copy>::value) {
        if (into != from && n) memcpy(into, from, n * sizeof(T));
    } else {
        combine<Operation>(into, own, from, n);
    }
}

// The same where `from` is an address in another process; false, and all stop, if it cannot be read there. Only in
// blocks of one thread.
template <class Operation>
static bool fetch(T* into, const T* own, const T* from, long long n, long long process, int peer, Watch* watch) {
    constexpr long long MOST = (1 << 16) / sizeof(T);  // what stays in the nearest caches
    static thread_local char* piece = new char[1 << 16];
    const bool direct = std::is_same<Operation, Copy>::value;
    while (n) {
        const long long now = direct ? n : std::min(n, MOST);
        char* to = direct ? (char*)into : piece;
#ifdef __linux__
        iovec here_ = {to, now * sizeof(T)}, there = {(void*)from, now * sizeof(T)};
        const ssize_t got = process_vm_readv(process, &here_, 1, &there, 1, 0);
        const int cause = got < 0 ? errno : EFAULT;
#else
        const ssize_t got = -1;
        const int cause = ENOSYS;
#endif
        const long long whole = got / (long long)sizeof(T);  // it reads less than asked for where a limit is met
        if (got < (ssize_t)sizeof(T)) {
            tell(&watch->error, cause);
            tell(&watch->by, peer);
            tell(&watch->stop, UNREADABLE);
            return false;
        }
        if (!direct) combine<Operation>(into, own, (const T*)piece, whole);
        into += whole, own += whole, from += whole;
        n -= whole;
    }
    return true;
}
