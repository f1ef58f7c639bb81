// In place of a lane that does something: one that says what it is told, a line each.
#include <cstdio>

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(threads)

struct Place {
    int buffer;
    long long chunk;
};

struct Args {
    int rank, program;
};

struct Lane {
    int rank, program;
    explicit Lane(const Args& args) : rank(args.rank), program(args.program) {}
    int slices(int count) const { return count; }
    void post(int peer, int tag, int message) { std::printf("post %d %d %d\n", peer, tag, message); }
    void pass(int peer, int tag, int message, int p, int count) {
        if (p < count) std::printf("pass %d %d %d %d %d\n", peer, tag, message, p, count);
    }
    void take(int peer, int tag, int message, int p, Place from, Place into, int count, long long like) {
        if (p < count)
            std::printf("take %d %d %d %d %d %lld %d %lld %d %lld\n", peer, tag, message, p, from.buffer, from.chunk,
                        into.buffer, into.chunk, count, like);
    }
    void take(int peer, int tag, int message, int p, Place place, int count, long long like) {
        take(peer, tag, message, p, place, place, count, like);
    }
    void take_reduce(int peer, int tag, int message, int p, Place from, Place into, Place own, int count, long long like) {
        if (p < count)
            std::printf("take_reduce %d %d %d %d %d %lld %d %lld %d %lld %d %lld\n", peer, tag, message, p, from.buffer,
                        from.chunk, into.buffer, into.chunk, own.buffer, own.chunk, count, like);
    }
    void take_reduce(int peer, int tag, int message, int p, Place place, int count, long long like) {
        take_reduce(peer, tag, message, p, place, place, place, count, like);
    }
    void copy(Place from, Place into, int count, long long like) { local("copy", from, into, count, like); }
    void reduce(Place from, Place into, int count, long long like) { local("reduce", from, into, count, like); }
    void settle(int pending) {
        if (pending >= 0) std::printf("settle %d\n", pending);
    }
    void record(int event) { std::printf("record %d\n", event); }
    void wait(int event) { std::printf("wait %d\n", event); }
    void finish() {}

private:
    void local(const char* what, Place from, Place into, int count, long long like) {
        std::printf("%s %d %lld %d %lld %d %lld\n", what, from.buffer, from.chunk, into.buffer, into.chunk, count, like);
    }
};
