// Two small kernels. The one of mode streams: into = own (op) from.
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

// An average of a sum: floats round once, integers truncate toward zero.
__device__ inline float quotient(float value, long long by) { return value / (float)by; }
__device__ inline double quotient(double value, long long by) { return value / (double)by; }
__device__ inline Half quotient(Half value, long long by) { return Half((float)value / (float)by); }
__device__ inline Bfloat16 quotient(Bfloat16 value, long long by) { return Bfloat16((float)value / (float)by); }
template <class V>
__device__ inline V quotient(V value, long long by) {
    return (V)-1 < (V)0 ? V((long long)value / by) : V((unsigned long long)value / (unsigned long long)by);
}

// into = from / by.
struct Average {
    T* into;
    const T* from;
    long long count, share, by;
};

extern "C" __global__ void __launch_bounds__(MOST_THREADS) schedlang_average(const Average average) {
    const long long start = blockIdx.x * average.share, end = start + average.share;
    for (long long i = start + threadIdx.x; i < end && i < average.count; i += blockDim.x)
        average.into[i] = quotient(average.from[i], average.by);
}
