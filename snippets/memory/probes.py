"""CUDA C kernels that each look at one level of the memory, and how Python compiles and starts them.

CUDA C, because Triton hides what is looked at here: single threads, shared memory, and which cache a load may use.
Where `asm volatile` stands, the compiler must keep the load and its order. What a kernel sums up it writes out only if
the sum is a number that never occurs: so the loads cannot be dropped, and nothing is written.
`torch.cuda._compile_kernel` is private; it is in torch 2.11 to 2.13, and a later torch may rename it.
"""
import os

import torch

# --8<-- [start:chase]
CHASE = r"""
typedef unsigned long long u64;

// One thread follows addresses through memory: no load can begin before the one before it has answered.
extern "C" __global__ void chase(const u64 *start, int warm, int steps, u64 *out) {
    u64 at = (u64)start, begin_ns, end_ns;
    for (int i = 0; i < warm; ++i)                  // not timed: brings the set into whatever cache can hold it
        asm volatile("ld.global.u64 %0, [%0];" : "+l"(at) :: "memory");
    u64 begin = clock64();                          // in cycles of this SM
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin_ns));
    for (int i = 0; i < steps; ++i)
        asm volatile("ld.global.u64 %0, [%0];" : "+l"(at) :: "memory");
    out[2] = at;                                    // waits for the last answer
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end_ns));
    out[0] = clock64() - begin;
    out[1] = end_ns - begin_ns;
}
"""
# --8<-- [end:chase]

# --8<-- [start:near]
CHASE_SHARED = r"""
typedef unsigned long long u64;

// The same chase through shared memory.
extern "C" __global__ void chase_shared(const int *next, int count, int steps, u64 *out) {
    extern __shared__ unsigned room[];
    unsigned at = (unsigned)__cvta_generic_to_shared(room);
    for (int i = 0; i < count; ++i) room[i] = at + 4 * next[i];
    u64 begin_ns, end_ns, begin = clock64();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin_ns));
    for (int i = 0; i < steps; ++i)
        asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at) :: "memory");
    out[2] = at;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end_ns));
    out[0] = clock64() - begin;
    out[1] = end_ns - begin_ns;
}
"""

CHAIN = r"""
typedef unsigned long long u64;

// Multiply-adds that each need the result of the one before: nothing leaves the registers.
extern "C" __global__ void chain(int steps, u64 *out) {
    float x = steps, half = 0.5f;
    u64 begin_ns, end_ns, begin = clock64();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin_ns));
    #pragma unroll 64
    for (int i = 0; i < steps; ++i)
        asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(half));
    out[2] = (u64)x;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end_ns));
    out[0] = clock64() - begin;
    out[1] = end_ns - begin_ns;
}
"""
# --8<-- [end:near]

HITS = r"""
typedef unsigned long long u64;

// The chase again, past the L1 (`.cg` caches in L2 only), with the clock read before and after every single load.
extern "C" __global__ void hits(const u64 *start, int warm, int steps, int *cycles) {
    u64 at = (u64)start;
    for (int i = 0; i < warm; ++i)
        asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at) :: "memory");
    for (int i = 0; i < steps; ++i) {
        unsigned begin, end;
        asm volatile("mov.u32 %0, %clock;" : "=r"(begin) :: "memory");
        asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at) :: "memory");
        if (at == 1) return;                        // never true; it waits for the load
        asm volatile("mov.u32 %0, %clock;" : "=r"(end) :: "memory");
        cycles[i] = end - begin;
    }
}
"""

# --8<-- [start:reread]
VECTOR = r"""
// Sixteen bytes in one instruction; LOAD says where from, and which caches may keep them.
__device__ __forceinline__ float4 load(ADDRESS at) {
    float4 v;
    asm volatile(LOAD ".v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : SPACE(at));
    return v;
}
__device__ __forceinline__ float add(float4 v) { return v.x + v.y + v.z + v.w; }
"""

REREAD = VECTOR + r"""
// Each block reads its own slice of `count` vectors, `passes` times over. `count` is a multiple of 4 * blockDim.x.
extern "C" __global__ void reread(const float4 *data, int count, int passes, float *out) {
    const float4 *mine = data + (size_t)blockIdx.x * count;
    float sum = 0;
    for (int pass = 0; pass < passes; ++pass)
        #pragma unroll 1
        for (int i = threadIdx.x; i < count; i += 4 * blockDim.x) {
            float4 v[4];                            // four loads under way before the first is needed
            #pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = load(mine + i + j * blockDim.x);
            sum += add(v[0]) + add(v[1]) + add(v[2]) + add(v[3]);
        }
    if (sum == 12345) *out = sum;
}
"""
# --8<-- [end:reread]

REREAD_SHARED = VECTOR + r"""
// As `reread`, from shared memory that the block fills first.
extern "C" __global__ void reread_shared(int count, int passes, float *out) {
    extern __shared__ float4 room[];
    for (int i = threadIdx.x; i < count; i += blockDim.x) room[i] = make_float4(i, 1, 2, 3);
    __syncthreads();                                // no thread of the block reads before all have written
    unsigned mine = (unsigned)__cvta_generic_to_shared(room);
    float sum = 0;
    for (int pass = 0; pass < passes; ++pass)
        #pragma unroll 1
        for (int i = threadIdx.x; i < count; i += 4 * blockDim.x) {
            float4 v[4];
            #pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = load(mine + 16 * (i + j * blockDim.x));
            sum += add(v[0]) + add(v[1]) + add(v[2]) + add(v[3]);
        }
    if (sum == 12345) *out = sum;
}
"""

MULTIPLY_ADD = r"""
// Sixteen independent chains in each thread: as many multiply-adds as the SMs can start.
extern "C" __global__ void multiply_add(int steps, float *out) {
    float x[16], a = threadIdx.x * 1e-6f, b = blockIdx.x;
    for (int j = 0; j < 16; ++j) x[j] = j;
    #pragma unroll 8
    for (int i = 0; i < steps; ++i)
        #pragma unroll
        for (int j = 0; j < 16; ++j) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[j]) : "f"(a), "f"(b));
    float sum = 0;
    for (int j = 0; j < 16; ++j) sum += x[j];
    if (sum == 12345) *out = sum;
}
"""

# --8<-- [start:strided]
STRIDED = r"""
// Each thread adds up numbers that lie `stride` places from its neighbour's. `count` is a multiple of 8 * the threads.
extern "C" __global__ void strided(const float *data, int count, int stride, float *out) {
    int all = gridDim.x * blockDim.x;               // threads in the grid
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int i = first; i < count; i += 8 * all) {
        float v[8];                                 // eight loads under way at once
        #pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = __ldcg(data + (size_t)(i + j * all) * stride);
        #pragma unroll
        for (int j = 0; j < 8; ++j) sum += v[j];
    }
    if (sum == 12345) *out = sum;
}
"""
# --8<-- [end:strided]

# --8<-- [start:stream]
STREAM = r"""
// Each thread has LOADS loads of a TYPE under way, and waits for all before the next. `count`: a multiple of LOADS * threads.
extern "C" __global__ void stream(const TYPE *data, int count, float *out) {
    int all = gridDim.x * blockDim.x;
    float sum = 0;
    #pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += LOADS * all) {
        TYPE v[LOADS];
        #pragma unroll
        for (int j = 0; j < LOADS; ++j) v[j] = __ldcg(data + i + j * all);
        #pragma unroll
        for (int j = 0; j < LOADS * sizeof(TYPE) / 4; ++j) sum += ((float *)v)[j];  // all of it, or less is loaded
    }
    if (sum == 12345) *out = sum;
}
"""
# --8<-- [end:stream]

PLAIN = {"ADDRESS": "const float4 *", "SPACE": '"l"', "LOAD": '"ld.global"'}         # L1, then L2, then HBM
PAST_L1 = {"ADDRESS": "const float4 *", "SPACE": '"l"', "LOAD": '"ld.global.cg"'}    # L2, then HBM
SHARED = {"ADDRESS": "unsigned", "SPACE": '"r"', "LOAD": '"ld.shared"'}


# --8<-- [start:build]
def build(source, name, **words):
    """Compile the kernel called `name`, with some words of the source replaced. Call it with grid, block and args."""
    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")  # asked for headers; these kernels include none
    lines = [f"#define {word} {text}" for word, text in words.items()]
    return torch.cuda._compile_kernel("\n".join([*lines, source]), name)
# --8<-- [end:build]
