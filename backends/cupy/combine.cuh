// The only kernel of mode streams: into = own (op) from.
struct Combine {
    T* into;
    const T *own, *from;
    long long count, share;  // elements in all, and of a block
};

extern "C" __global__ void __launch_bounds__(MOST_THREADS) schedlang_combine(const Combine combine) {
    const long long start = blockIdx.x * combine.share, left = combine.count - start;
    if (left > 0)
        move<Op>(combine.into + start, combine.own + start, combine.from + start, left < combine.share ? left : combine.share);
}
