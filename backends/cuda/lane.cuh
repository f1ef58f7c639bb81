// What a lane does.
//
// A message is read where it stands, in the memory of its sender: whoever sends sets a flag `ready` in the memory of
// the receiver, who waits for it, takes the message, and sets a flag `done` in the memory of the sender, who waits for
// that where it would write over the message (`settle`). Between streams of a rank there are flags for events. Flags
// only rise: a message's number counts on from launch to launch, so nothing is ever set back.
//
// Blocks of a lane never wait for each other: a place in a chunk belongs to the same block in all chunks, and every
// block has flags of its own. In a block thread 0 sets flags and waits for them; a barrier stands between that and what
// the other threads read and write.

// A flag has a cache line of its own. `sleepers` counts those who wait and do not look (on a CPU).
struct alignas(64) Flag {
    unsigned long long value;
    int sleepers, unused[13];
};

// Chunk `chunk` of a buffer.
struct Place {
    int buffer;
    long long chunk;
};

// How a buffer divides into chunks: by a table of where each starts, or in blocks of `parts` chunks of `each` elements,
// the first `longer` of which have one more.
struct Cut {
    const long long* table;
    long long block, parts, each, longer;

    __device__ long long start(long long chunk) const {
        if (table) return table[chunk];
        long long whole = chunk < parts ? 0 : chunk / parts, part = chunk - whole * parts;
        return whole * block + part * each + (part < longer ? part : longer);
    }

    __device__ long long length(long long chunk) const {
        if (table) return table[chunk + 1] - table[chunk];
        return each + ((chunk < parts ? chunk : chunk % parts) < longer);
    }
};

// What a block waits for, if it waits long: a message from `peer` (its slice `slice`), that `peer` takes one, or event
// number `message`; BARRIER: some of its threads wait for the others (on a CPU).
enum { NOTHING, MESSAGE, TAKEN, EVENT, BARRIER };
struct Waiting {
    int kind, peer, tag, message, slice, unused[3];
};

// What the host sees, and writes. Unless `stop` is 0, all blocks end soon, whatever they wait for; then flags must be
// set to 0 on all ranks before the next launch. ASKED is the host's word; the others only a CPU writes: time is over,
// none can go on, memory of another process could not be read (`error` is the system's number for why, `by` the rank).
// Behind it stands a Waiting for each block, lane by lane.
enum { GO, ASKED, TIMEOUT, DEADLOCK, UNREADABLE };
struct Watch {
    int stop, error, by, unused[5];
};

// Memory of a rank that is read through the system (only on a CPU): in process `process` buffer b is at `buffers[b]`.
// Ranks with process 0 are read directly.
struct Reach {
    long long process;
    const T* const* buffers;
};

// What a launch is told. All pointers are those of this device.
struct Args {
    T* const* buffers;   // [rank * BUFFERS + buffer]; null where a rank has none
    Flag* const* flags;  // [rank]: blocks * FLAGS of them, at first all 0
    const Cut* cuts;     // [buffer], or [rank * BUFFERS + buffer] if PER_RANK
    Cut values;          // values.length(c): how many elements a value of length class c has
    long long slice;     // elements of a slice of a chunk; to use all blocks evenly, the longest chunk / slices
    int slices;          // slices of the longest chunk, at least 1
    int blocks;          // of a lane
    const int* lanes;    // [2 * lane], [2 * lane + 1]: its rank and program
    Watch* watch;
    const Reach* reach;  // [rank], or null
};

// The flags of a block on a rank: `ready` and `done` by tag and peer, then events, then how many launches a stream has
// had.
constexpr int DONE = TAGS * RANKS, EVENT_FLAGS = 2 * DONE, EPOCHS = EVENT_FLAGS + EVENTS, FLAGS = EPOCHS + STREAMS;

// Blocks part a chunk at multiples of a cache line, in elements.
constexpr int GRAIN = 128 / sizeof(T);

// A block has no more threads than this, so that each has registers enough.
constexpr int MOST_THREADS = 512;

// What is done with a value that comes in; Op, which the schedule has chosen, is the other such thing.
struct Copy {
    template <class V>
    __device__ static V of(V, V from) { return from; }
};

#ifdef SCHEDLANG_CPU
#include "lane.h"  // the same for a CPU
#else
#define SHARED(type, name, count) __shared__ type name[count]

__device__ inline unsigned long long acquire(const Flag* flag) {
    unsigned long long value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(&flag->value) : "memory");
    return value;
}

__device__ inline void release(Flag* flag, unsigned long long value) {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(&flag->value), "l"(value) : "memory");
}

// Words that the host reads and writes while the kernel runs.
__device__ inline int look(const int* word) {
    int value;
    asm volatile("ld.relaxed.sys.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void tell(int* word, int value) {
    asm volatile("st.relaxed.sys.s32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

// Lets time pass between two looks at a flag; whether it is time to look round for other things, too.
__device__ inline bool pause(const Flag*, unsigned long long, unsigned looks) {
    if (looks > 64) __nanosleep(looks < 1024 ? 32 : 256);
    return looks % 256 == 255;
}

// 16 bytes, the most that a thread reads at once.
struct alignas(16) Pack {
    unsigned words[4];
};
constexpr int PACK = 16 / sizeof(T);

template <class Operation>
__device__ inline Pack combined(Pack own, Pack from) {
    T a[PACK], b[PACK];
    memcpy(a, &own, 16);
    memcpy(b, &from, 16);
#pragma unroll
    for (int i = 0; i < PACK; ++i) a[i] = Operation::of(a[i], b[i]);
    memcpy(&own, a, 16);
    return own;
}
template <>
__device__ inline Pack combined<Copy>(Pack, Pack from) { return from; }

// The block puts `own` (operation) `from`, n elements, in `into`, which may be `own`. It does so by packs where all
// addresses are as far from a multiple of 16, and one by one at both ends and elsewhere. No address is __restrict__,
// nor read as if nobody wrote there: peers do.
template <class Operation>
__device__ inline void move(T* into, const T* own, const T* from, long long n) {
    constexpr int AT_ONCE = 4;  // loads under way in each thread
    __builtin_assume(__isGlobal(into));
    __builtin_assume(__isGlobal(own));
    __builtin_assume(__isGlobal(from));
    const int threads = blockDim.x, thread = threadIdx.x;
    const unsigned odd = (unsigned long long)into & 15;
    const bool alike = odd == ((unsigned long long)from & 15) && odd == ((unsigned long long)own & 15);
    long long head = alike ? (16 - odd) % 16 / sizeof(T) : n;
    if (head > n) head = n;
    const long long packs = (n - head) / PACK, tail = head + packs * PACK;
    for (long long i = thread; i < head; i += threads) into[i] = Operation::of(own[i], from[i]);
    Pack* to = (Pack*)(into + head);
    const Pack *a = (const Pack*)(own + head), *b = (const Pack*)(from + head);
    long long i = thread;
    for (; i + (AT_ONCE - 1) * threads < packs; i += AT_ONCE * threads) {  // all loads, then all stores
        Pack result[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) result[k] = combined<Operation>(a[i + k * threads], b[i + k * threads]);
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) to[i + k * threads] = result[k];
    }
    for (; i < packs; i += threads) to[i] = combined<Operation>(a[i], b[i]);
    for (i = tail + thread; i < n; i += threads) into[i] = Operation::of(own[i], from[i]);
}
#endif

// Where a place of a rank starts in its buffer, and where that is.
__device__ inline long long offset(const Args& args, int rank, Place place) {
    return args.cuts[PER_RANK ? rank * BUFFERS + place.buffer : place.buffer].start(place.chunk);
}
__device__ inline T* address(const Args& args, int rank, Place place) {
    return args.buffers[rank * BUFFERS + place.buffer] + offset(args, rank, place);
}

// What a block does of slice `k` of a chunk of `length` elements: where it starts, and how long it is; `share`: its
// longest.
struct Part {
    long long start, length;

    __device__ Part(const Args& args, int block, long long share, long long length, int k)
        : start((k * (long long)args.blocks + block) * share) {
        const long long left = length - start;
        this->length = left < 0 ? 0 : left < share ? left : share;
    }
};

// A send: to whom, with what tag, and its number of this launch.
struct Sent {
    int peer, tag, message;
};

// What follows is not put in where it is called, which is in many places of an irregular schedule.

// Waits for a value of a flag, or a later one, and returns what it has then; 0 if it is told to stop.
__device__ __noinline__ unsigned long long wait_for(const Flag* flag, unsigned long long value, Waiting what,
                                                     Watch* watch) {
    bool told = false;
    Waiting* mine = (Waiting*)(watch + 1) + blockIdx.x;
    unsigned looks = 0;
    unsigned long long seen;
    while ((seen = acquire(flag)) < value) {
        if (!pause(flag, value, looks++)) continue;
        if (!told) {
            tell(&mine->peer, what.peer);
            tell(&mine->tag, what.tag);
            tell(&mine->message, what.message);
            tell(&mine->slice, what.slice);
            tell(&mine->kind, what.kind);
            told = true;
        }
        if (look(&watch->stop) != GO) return 0;
    }
    if (told) tell(&mine->kind, NOTHING);
    return seen;
}

// Waits until messages [from, upto) of `sent` have been taken; false if it is told to stop. `done`: the flags; `first`:
// the number of the first message of this launch.
__device__ __noinline__ bool wait_for_all(const Sent* sent, int from, int upto, const Flag* done,
                                          unsigned long long first, Watch* watch) {
    for (int k = from; k < upto; ++k) {
        const Sent send = sent[k % QUEUE];
        if (!wait_for(done + send.tag * RANKS + send.peer, (first + send.message + 1) << 20,
                      {TAKEN, send.peer, send.tag, send.message, 0, {}}, watch))
            return false;
    }
    return true;
}

// The block's part of slice `p` of a message comes from `theirs` on `peer`: mine = operand (operation) theirs. False if
// it cannot be read.
template <class Operation>
__device__ __noinline__ bool receive(const Args& args, int rank, int block, long long share, int p, int peer,
                                     Place theirs, Place mine, Place operand, long long like) {
    const int k = p / args.slices;
    theirs.chunk += k;
    mine.chunk += k;
    operand.chunk += k;
    const Part part(args, block, share, args.values.length(like + k), p - k * args.slices);
    if (!part.length) return true;
    T* into = address(args, rank, mine) + part.start;
    const T* own = address(args, rank, operand) + part.start;
#ifdef SCHEDLANG_CPU
    if (args.reach && args.reach[peer].process) {
        const T* from = args.reach[peer].buffers[theirs.buffer] + offset(args, peer, theirs) + part.start;
        return fetch<Operation>(into, own, from, part.length, args.reach[peer].process, peer, args.watch);
    }
#endif
    move<Operation>(into, own, address(args, peer, theirs) + part.start, part.length);
    return true;
}

// The block's part of `count` chunks: into = into (operation) from.
template <class Operation>
__device__ __noinline__ void apply(const Args& args, int rank, int block, long long share, Place from, Place into,
                                   int count, long long like) {
    for (int k = 0; k < count; ++k, ++from.chunk, ++into.chunk) {
        const long long length = args.values.length(like + k);
        T* to = address(args, rank, into);
        const T* source = address(args, rank, from);
        for (int s = 0; s < args.slices; ++s) {
            const Part part(args, block, share, length, s);
            if (part.length) move<Operation>(to + part.start, to + part.start, source + part.start, part.length);
        }
    }
}

// Where a schedule calls what a lane does in many places, putting it in there takes compilers too long.
#if SCHEDLANG_CALLS > 60
#define METHOD __device__ __noinline__
#else
#define METHOD __device__
#endif

// A block of a lane. All threads call the same functions in the same order; all fields but `epoch`, `seen` and what
// `sent` points to, which are thread 0's, are the same in all threads. Messages of one source, destination and tag are
// posted one after the other in the order of their numbers (a fused one as a whole), and taken completely in that
// order.
struct Lane {
    const Args& args;
    int rank, program;

    __device__ explicit Lane(const Args& args) : args(args), posted(0), settled(0), dirty(false), stopped(false) {
        const int lane = blockIdx.x / args.blocks;
        block = blockIdx.x % args.blocks;
        rank = args.lanes[2 * lane];
        program = args.lanes[2 * lane + 1];
        const long long all = (long long)args.blocks * GRAIN;
        share = (args.slice + all - 1) / all * GRAIN;
        SHARED(Sent, queue, QUEUE);
        sent = queue;
        if (threadIdx.x == 0) {
            epoch = own(EPOCHS + program % STREAMS)->value;
            seen = 0;
            seen_on = nullptr;
        }
#ifdef SCHEDLANG_FAULT_EARLY_RESET
        if (threadIdx.x == 0)
            for (int flag = 0; flag < FLAGS; ++flag) own(flag)->value = 0;
#endif
    }

    // How often the parts of messages of `count` chunks at most are gone through.
    __device__ int slices(int count) const { return stopped ? 0 : count * args.slices; }

    // The message of that number to `peer` is ready as a whole.
    METHOD void post(int peer, int tag, int message) {
        if (stopped) return;
        enqueue(peer, tag, message);
        together();
        if (threadIdx.x == 0) set_ready(peer, tag, (number(message) + 1) << 20);
    }

    // Slice `p` of a message of `count` chunks is ready.
    METHOD void pass(int peer, int tag, int message, int p, int count) {
        const int last = count * args.slices - 1;
        if (stopped || p > last) return;
        if (p == 0) enqueue(peer, tag, message);
        together();
        if (threadIdx.x == 0)
            set_ready(peer, tag, p == last ? (number(message) + 1) << 20 : (number(message) << 20) + p + 1);
    }

    // Takes slice `p` of a message of `count` chunks, which stands at `theirs` in the memory of `peer`, to `mine`.
    METHOD void take(int peer, int tag, int message, int p, Place theirs, Place mine, int count, long long like) {
        accept<Copy>(peer, tag, message, p, theirs, mine, mine, count, like);
    }

    // The same, for mine = operand (op) theirs.
    METHOD void take_reduce(int peer, int tag, int message, int p, Place theirs, Place mine, Place operand, int count,
                                long long like) {
        accept<Op>(peer, tag, message, p, theirs, mine, operand, count, like);
    }

    // The same where the message stands at the sender where it goes to here, and is combined with what is there.
    METHOD void take(int peer, int tag, int message, int p, Place place, int count, long long like) {
        accept<Copy>(peer, tag, message, p, place, place, place, count, like);
    }
    METHOD void take_reduce(int peer, int tag, int message, int p, Place place, int count, long long like) {
        accept<Op>(peer, tag, message, p, place, place, place, count, like);
    }

    // Copies `count` chunks on this rank.
    METHOD void copy(Place from, Place into, int count, long long like) { locally<Copy>(from, into, count, like); }

    // into = into (op) from.
    METHOD void reduce(Place from, Place into, int count, long long like) { locally<Op>(from, into, count, like); }

    // Waits until all sends but the last `pending` have been taken: what they read may be written from here on. Where
    // `pending` is less than 0, nothing has to be waited for.
    METHOD void settle(int pending) {
#ifndef SCHEDLANG_FAULT_NO_SETTLE
        const int upto = posted - pending;
        if (pending < 0 || stopped || settled >= upto) return;
        bool fine = true;
        if (threadIdx.x == 0) fine = wait_for_all(sent, settled, upto, own(DONE), number(0), args.watch);
        settled = upto;
        meet(fine);
#endif
    }

    // What this lane has done so far is done, for those who wait for the event.
    METHOD void record(int event) {
        if (stopped) return;
        together();
        if (threadIdx.x == 0) release(own(EVENT_FLAGS + event), epoch + 1);
    }

    METHOD void wait(int event) {
        if (stopped) return;
        bool fine = true;
        if (threadIdx.x == 0) fine = until(own(EVENT_FLAGS + event), epoch + 1, {EVENT, rank, 0, event, 0, {}});
        meet(fine);
    }

    // The end of the lane: nobody reads its memory any more.
    __device__ void finish() {
        settle(0);
#ifndef SCHEDLANG_FAULT_EARLY_RESET
        if (!stopped && threadIdx.x == 0) own(EPOCHS + program % STREAMS)->value = epoch + 1;
#endif
    }

private:
    int block, posted, settled;  // sends so far, and how many of them have been taken for certain
    bool dirty;                  // threads have written what others may not see yet
    bool stopped;
    long long share;             // elements of a slice that are this block's
    unsigned long long epoch;    // launches before this one
    Sent* sent;                  // the last QUEUE sends
    const Flag* seen_on;         // the flag that was waited for last,
    unsigned long long seen;     // and its value

    __device__ Flag* flag(int of, int number) const { return args.flags[of] + ((long long)block * FLAGS + number); }
    __device__ Flag* own(int number) const { return flag(rank, number); }
    __device__ unsigned long long number(int message) const { return epoch * MESSAGES + message; }

    // What the threads of the block have written is seen by all of them.
    METHOD void together() {
#ifndef SCHEDLANG_FAULT_NO_BARRIER
        if (dirty) __syncthreads();
#endif
        dirty = false;
    }

    // After thread 0 has waited: all go on, or none.
    __device__ void meet(bool fine) {
#ifndef SCHEDLANG_FAULT_NO_BARRIER
        stopped = __syncthreads_or(!fine);
#else
        stopped = !fine;
#endif
        dirty = false;
    }

    __device__ void set_ready(int peer, int tag, unsigned long long value) {
#ifndef SCHEDLANG_FAULT_RELAXED_READY
        release(flag(peer, tag * RANKS + rank), value);
#else
        set_relaxed(flag(peer, tag * RANKS + rank), value);
#endif
    }

    // Thread 0 waits; false if it is told to stop.
    __device__ bool until(const Flag* flag, unsigned long long value, Waiting what) {
        if (seen_on == flag && seen >= value) return true;
        seen = wait_for(flag, value, what, args.watch);
        seen_on = flag;
        return seen != 0;
    }

    // Remembers a send. Where too many are under way the oldest is waited for, which is one of an earlier step.
    __device__ void enqueue(int peer, int tag, int message) {
        if (posted - settled == QUEUE) settle(QUEUE - 1);
        if (threadIdx.x == 0) sent[posted % QUEUE] = {peer, tag, message};
        ++posted;
    }

    template <class Operation>
    METHOD void accept(int peer, int tag, int message, int p, Place theirs, Place mine, Place operand, int count,
                           long long like) {
        const int last = count * args.slices - 1;
        if (stopped || p > last) return;
        bool fine = true;
#ifndef SCHEDLANG_FAULT_NO_WAIT
        if (threadIdx.x == 0)
            fine = until(own(tag * RANKS + peer), (number(message) << 20) + p + 1,
                         {MESSAGE, peer, tag, message, p, {}});
#endif
        meet(fine);
        if (stopped) return;
        stopped = !receive<Operation>(args, rank, block, share, p, peer, theirs, mine, operand, like);
        dirty = true;
        if (stopped || p < last) return;
        together();
        if (threadIdx.x == 0) release(flag(peer, DONE + tag * RANKS + rank), (number(message) + 1) << 20);
    }

    template <class Operation>
    METHOD void locally(Place from, Place into, int count, long long like) {
        if (stopped) return;
        together();
        apply<Operation>(args, rank, block, share, from, into, count, like);
        dirty = true;
    }
};

#ifdef SCHEDLANG_CPU
#include "driver.h"  // which runs the kernel
#endif
