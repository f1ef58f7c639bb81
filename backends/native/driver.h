// Runs a kernel: schedlang_launch, and the two ways to run its threads.
#pragma once

extern "C" void schedlang_kernel(const Args args);

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Here state;
    const Flag* flag = nullptr;        // what it waits for: this to have
    unsigned long long value = 0;      // that value,
    const Block* block = nullptr;      // or the barrier of its block
    unsigned generation = 0;           // to have been passed so often
    bool ended = false;

    bool can_go_on() const {
        if (ended) return false;
        if (flag) return __atomic_load_n(&flag->value, __ATOMIC_ACQUIRE) >= value;
        return !block || block->generation != generation;
    }
};

static thread_local ucontext_t scheduler;

static void give_turn_away(Fiber* fiber) {
    swapcontext(&fiber->context, &scheduler);
    fiber->flag = nullptr;
    fiber->block = nullptr;
}

static void await(const Flag* flag, unsigned long long value) {
    here->fiber->flag = flag;
    here->fiber->value = value;
    give_turn_away(here->fiber);
}

static void wait_at_barrier(Block* block, unsigned generation) {
    if (Fiber* fiber = here->fiber) {
        fiber->block = block;
        fiber->generation = generation;
        return give_turn_away(fiber);
    }
    for (unsigned looks = 0; __atomic_load_n(&block->generation, __ATOMIC_ACQUIRE) == generation; ++looks) {
        if (look(here->stop) != GO) return;
        if (looks % 64 == 63 && late()) tell(here->stop, TIMEOUT);
        sched_yield();
    }
}

static void delay() {
    if (here->fiber)
        give_turn_away(here->fiber);
    else if (here->mode->delay)
        usleep(chance(here->random, here->mode->delay));
}

static void start_fiber(unsigned low, unsigned high) {
    const Args* args = (const Args*)((unsigned long long)high << 32 | low);
    schedlang_kernel(*args);
    here->fiber->ended = true;
    swapcontext(&here->fiber->context, &scheduler);
}

// Where a thread of the kernel is.
static Here place(const Args* args, const Mode* mode, int block, int thread, Block* shared, long long deadline) {
    const unsigned long long number = (unsigned long long)block * mode->threads + thread;
    return {{(unsigned)thread}, {(unsigned)block}, {(unsigned)mode->threads}, shared, mode, &args->watch->stop,
            deadline, mode->seed * 0x2545f4914f6cdd1dull + number, nullptr};
}

static void run_fibers(const Args* args, int blocks, const Mode* mode, long long deadline) {
    std::vector<Block> shared(blocks);
    std::vector<Fiber> fibers((size_t)blocks * mode->threads);
    const size_t stack = 128 << 10;
    for (size_t k = 0; k < fibers.size(); ++k) {
        Fiber& fiber = fibers[k];
        const int block = k / mode->threads;
        shared[block].threads = mode->threads;
        fiber.state = place(args, mode, block, k % mode->threads, &shared[block], deadline);
        fiber.state.fiber = &fiber;
        fiber.stack.reset(new char[stack]);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = stack;
        fiber.context.uc_link = nullptr;
        const unsigned long long address = (unsigned long long)args;
        makecontext(&fiber.context, (void (*)())start_fiber, 2, (unsigned)address, (unsigned)(address >> 32));
    }
    unsigned long long random = mode->seed;
    std::vector<Fiber*> ready;
    for (size_t left = fibers.size(); left;) {
        const bool stop = look(&args->watch->stop) != GO;
        ready.clear();
        for (Fiber& fiber : fibers)
            if (fiber.can_go_on() || (stop && !fiber.ended)) ready.push_back(&fiber);
        if (ready.empty()) {
            for (Fiber& fiber : fibers)
                if (fiber.block && !fiber.state.thread.x) {
                    Waiting* waiting = (Waiting*)(args->watch + 1) + fiber.state.block.x;
                    tell(&waiting->kind, BARRIER);
                }
            tell(&args->watch->stop, DEADLOCK);
            continue;
        }
        if (deadline && now() > deadline && !stop) tell(&args->watch->stop, TIMEOUT);
        Fiber* next = ready[chance(random, ready.size())];
        here = &next->state;
        swapcontext(&scheduler, &next->context);
        left -= next->ended;
    }
    here = nullptr;
}

// One thread of the kernel, on this thread of the system.
static void run_here(const Args* args, const Mode* mode, int block, int thread, Block* shared, long long deadline) {
    Here state = place(args, mode, block, thread, shared, deadline);
    here = &state;
    schedlang_kernel(*args);
    here = nullptr;
}

// What the threads of one launch have in common.
struct Launch {
    const Args* args;
    const Mode* mode;
    long long deadline;
    std::vector<Block> shared;
    int left;  // threads of the pool that have not ended
    std::mutex mutex;
    std::condition_variable ended;
};

// Threads of the system that stay for the next launch. There are as many as were ever needed at once.
class Pool {
    struct Worker {
        std::mutex mutex;
        std::condition_variable wake;
        Launch* launch = nullptr;  // and which of its threads this one is
        int block = 0, thread = 0;
    };
    std::mutex mutex;
    std::vector<Worker*> idle;

    void serve(Worker* worker) {
        for (;;) {
            Launch* launch;
            int block, thread;
            {
                std::unique_lock<std::mutex> lock(worker->mutex);
                worker->wake.wait(lock, [worker] { return worker->launch; });
                launch = worker->launch, block = worker->block, thread = worker->thread;
                worker->launch = nullptr;
            }
            run_here(launch->args, launch->mode, block, thread, &launch->shared[block], launch->deadline);
            give_back({worker});  // first, so that the next launch finds it
            std::lock_guard<std::mutex> lock(launch->mutex);
            if (!--launch->left) launch->ended.notify_one();
        }
    }

    void give_back(const std::vector<Worker*>& workers) {
        std::lock_guard<std::mutex> lock(mutex);
        idle.insert(idle.end(), workers.begin(), workers.end());
    }

    // So many workers, or an exception where the system has no more threads.
    std::vector<Worker*> hire(size_t many) {
        std::vector<Worker*> found;
        {
            std::lock_guard<std::mutex> lock(mutex);
            const size_t ready = std::min(many, idle.size());
            found.assign(idle.end() - ready, idle.end());
            idle.resize(idle.size() - ready);
        }
        try {
            while (found.size() < many) {
                std::unique_ptr<Worker> worker(new Worker);
                std::thread([this, worker = worker.get()] { serve(worker); }).detach();
                found.push_back(worker.release());
            }
        } catch (...) {
            give_back(found);
            throw;
        }
        return found;
    }

public:
    // The pool of this process: threads do not survive a fork, so a child has its own.
    static Pool& mine() {
        static std::mutex mutex;
        static Pool* pool;
        static pid_t owner;
        std::lock_guard<std::mutex> lock(mutex);
        if (owner != getpid()) {
            pool = new Pool;  // never freed: its threads may run while the process ends
            owner = getpid();
        }
        return *pool;
    }

    // All threads of all blocks; the first on the calling thread.
    void run(Launch* launch) {
        const int blocks = launch->shared.size(), threads = launch->mode->threads;
        const std::vector<Worker*> workers = hire((size_t)blocks * threads - 1);
        launch->left = workers.size();
        for (size_t k = 0; k < workers.size(); ++k) {
            std::lock_guard<std::mutex> lock(workers[k]->mutex);
            workers[k]->launch = launch;
            workers[k]->block = (k + 1) / threads;
            workers[k]->thread = (k + 1) % threads;
            workers[k]->wake.notify_one();
        }
        run_here(launch->args, launch->mode, 0, 0, &launch->shared[0], launch->deadline);
        std::unique_lock<std::mutex> lock(launch->mutex);
        launch->ended.wait(lock, [launch] { return !launch->left; });
    }
};

// Runs args->lanes[0..2 * lanes), and comes back when all have ended: 0 if they are done, 1 if they were stopped
// (args->watch says why), 2 if none could go on (found by fibers), 3 if the system has not got the memory or the
// threads.
extern "C" int schedlang_launch(const Args* args, int lanes, const Mode* mode) {
    const long long deadline = mode->timeout ? now() + mode->timeout : 0;
    const int blocks = lanes * args->blocks;
    Here* const outer = here;
    try {
        if (mode->kind == FIBERS) {
            run_fibers(args, blocks, mode, deadline);
        } else if (blocks == 1 && mode->threads == 1) {
            static thread_local Block shared;
            run_here(args, mode, 0, 0, &shared, deadline);
        } else if (blocks) {
            Launch launch{args, mode, deadline, std::vector<Block>(blocks), 0, {}, {}};
            for (Block& block : launch.shared) block.threads = mode->threads;
            Pool::mine().run(&launch);
        }
    } catch (const std::exception&) {
        here = outer;
        return 3;
    }
    const int stop = look(&args->watch->stop);
    return stop == GO ? 0 : stop == DEADLOCK ? 2 : 1;
}

// For whoever calls: how many flags a block needs on a rank.
extern "C" int schedlang_flags() { return FLAGS; }
