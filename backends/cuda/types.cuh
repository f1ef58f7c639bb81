// Types of values and operators. Every operation rounds to the type of its values; integers wrap round.

// What a GPU does in one instruction; for a CPU the native back end's cpu.h has the same.
#ifndef SCHEDLANG_CPU
__device__ inline float half_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ inline unsigned short float_to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif

// IEEE 754 binary16. Two of them added or multiplied in float and rounded once more are rounded right.
struct Half {
    unsigned short bits;

    Half() = default;
    __device__ explicit Half(float value) : bits(float_to_half(value)) {}
    __device__ operator float() const { return half_to_float(bits); }
};

// The upper half of a float. Rounds to nearest, ties to even; a NaN becomes the quiet one of its sign.
struct Bfloat16 {
    unsigned short bits;

    Bfloat16() = default;
    __device__ explicit Bfloat16(float value) {
        unsigned whole = __float_as_uint(value);
        unsigned rounded = (whole + 0x7fff + (whole >> 16 & 1)) >> 16;
        bits = (unsigned short)(value == value ? rounded : (whole >> 16 & 0x8000) | 0x7fc0);
    }
    __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};

// A value as it is added and multiplied: integers without sign, as those wrap round, also when they are multiplied.
__device__ inline float number(float value) { return value; }
__device__ inline double number(double value) { return value; }
__device__ inline float number(Half value) { return value; }
__device__ inline float number(Bfloat16 value) { return value; }
__device__ inline unsigned long long number(long long value) { return (unsigned long long)value; }
__device__ inline unsigned long long number(unsigned long long value) { return value; }
template <class V>
__device__ inline unsigned number(V value) { return (unsigned)value; }

// The operators. The result of Min and Max is NaN where a value is.
struct Sum {
    template <class V>
    __device__ static V of(V a, V b) { return V(number(a) + number(b)); }
};
struct Prod {
    template <class V>
    __device__ static V of(V a, V b) { return V(number(a) * number(b)); }
};
struct Min {
    template <class V>
    __device__ static V of(V a, V b) { return a < b || a != a ? a : b; }
};
struct Max {
    template <class V>
    __device__ static V of(V a, V b) { return a > b || a != a ? a : b; }
};
struct Band {
    template <class V>
    __device__ static V of(V a, V b) { return V(a & b); }
};
struct Bor {
    template <class V>
    __device__ static V of(V a, V b) { return V(a | b); }
};
struct Bxor {
    template <class V>
    __device__ static V of(V a, V b) { return V(a ^ b); }
};
