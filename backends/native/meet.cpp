// How ranks in processes of their own begin a call together: each says what it means in a page that the others read, and
// waits until all have. See meeting.py; this is the part that is in a hurry. cpu.h comes before it.

struct Slot {
    unsigned long long call;  // the last one that is said here, as a whole
    int sleepers;             // who waits for the next without looking
    unsigned length;
    char said[];
};

// What a rank has, in its own process. Slots are used in turn: one is written again two calls later, when all have begun
// the call between, and so have read it.
struct Ranks {
    Slot* const* slots;  // [2 * rank + call % 2]
    int ranks, rank;
    const int* gone;     // by rank: whether its process has ended
    int looks;           // at a slot before its reader sleeps
};

extern "C" void schedlang_say(const Ranks* all, unsigned long long call, const char* what, unsigned length) {
    Slot* slot = all->slots[2 * all->rank + call % 2];
    memcpy(slot->said, what, length);
    slot->length = length;
    __atomic_store_n(&slot->call, call, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&slot->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &slot->call, FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}

// Waits until a rank has said what it means by a call: 0; 1 if that takes longer than `patience` nanoseconds, 2 if the
// rank has ended.
extern "C" int schedlang_hear(const Ranks* all, int peer, unsigned long long call, long long patience) {
    Slot* slot = all->slots[2 * peer + call % 2];
    const long long end = now() + patience;
    for (int looks = 0;; ++looks) {
        const unsigned long long seen = __atomic_load_n(&slot->call, __ATOMIC_ACQUIRE);
        if (seen == call) return 0;
        if (looks < all->looks) {
            sched_yield();
            continue;
        }
        __atomic_fetch_add(&slot->sleepers, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&slot->call, __ATOMIC_SEQ_CST) == seen) {
            const timespec limit = {0, 20000000};
            syscall(SYS_futex, &slot->call, FUTEX_WAIT, (unsigned)seen, &limit, nullptr, 0);
        }
        __atomic_fetch_sub(&slot->sleepers, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(&slot->call, __ATOMIC_ACQUIRE) == call) return 0;
        if (__atomic_load_n(&all->gone[peer], __ATOMIC_RELAXED)) return 2;
        if (now() > end) return 1;
    }
}

// Says and hears. `meaning` and `places`: where in what ranks say is what must be alike, and what is behind it; all that
// they said last is in `known`, one after the other, each `length` bytes: 0 if what they mean is alike and all places are
// as they were, 3 if not; -1 - peer if a rank is not heard.
extern "C" int schedlang_meet(const Ranks* all, unsigned long long call, const char* what, unsigned length, unsigned from,
                              unsigned until, unsigned places, const char* known, long long patience) {
    schedlang_say(all, call, what, length);
    bool same = true;
    for (int peer = 0; peer < all->ranks; ++peer) {
        if (schedlang_hear(all, peer, call, patience)) return -1 - peer;
        const Slot* slot = all->slots[2 * peer + call % 2];
        same = same && slot->length == length && !memcmp(slot->said + from, what + from, until - from) && known &&
               !memcmp(slot->said + places, known + (size_t)peer * (length - places), length - places);
    }
    return same ? 0 : 3;
}
