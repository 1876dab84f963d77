"""How long a load takes and how many bytes a second come back, from registers, shared memory, L1, L2 and HBM.

Measures on an NVIDIA GPU; what lays out the working sets runs anywhere. Times are samples of CUDA events, in us.
"""
import torch

from memory import probes

needs = {"memory_bytes": 16 * 2**30, "capability": (8, 0), "packages": ["triton"]}

KIB, MIB = 2**10, 2**20
STEPS = 2**15  # loads that a chase times
WARM = 2**20  # loads before that, at most: a whole round of the sets up to 128 MiB
NEAR = [kib * KIB for kib in (8, 16, 20, 24, 28, 32, 40, 48, 64, 128, 192, 208, 224, 240, 256, 288, 320, 384, 512)]
FAR = [mib * MIB for mib in (1, 2, 4, 8, 16, 24, 28, 32, 36, 40, 48, 56, 60, 64, 80, 96, 128, 256, 512, 1024)]
SLICES = [kib * KIB for kib in (64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 768, 1024, 2048, 4096, 8192, 16384)]


# --8<-- [start:cycle]
LINE = 128  # bytes of a cache line


def cycle(count, device="cpu"):
    """[count] indices: from each place the next one to visit, in random order, through all of them and back."""
    order = torch.randperm(count, device=device)
    after = torch.empty_like(order)
    after[order] = order.roll(-1)  # the place visited i-th leads to the one visited next
    return after


def lay_out(room, set_bytes, stride_bytes=LINE):
    """Write into the first word of each line of the set the address of the line to visit after it. `room` is int64."""
    words = room[: set_bytes // 8].view(-1, stride_bytes // 8)
    words[:, 0] = room.data_ptr() + stride_bytes * cycle(len(words), room.device)
    return len(words)
# --8<-- [end:cycle]


def per_load(out, steps):
    """Cycles and nanoseconds a load, from what a chase wrote."""
    cycles, ns = out[:2].tolist()
    return {"cycles": round(cycles / steps, 3), "ns": round(ns / steps, 3)}


def chase(room, out, sets, reserved_bytes=0):
    """Latency over working set; `reserved_bytes` of shared memory are taken from the L1 of the SM that runs it."""
    kernel = probes.build(probes.CHASE, "chase")
    kernel.set_shared_memory_config(reserved_bytes)
    found = []
    for set_bytes in sets:
        lines = lay_out(room, set_bytes)
        kernel(args=[room, min(lines, WARM), STEPS, out], shared_mem=reserved_bytes)
        found.append({"set_bytes": set_bytes} | per_load(out, STEPS))
    return found


def chase_spread(room, out, span_bytes, lines=4096):
    """Latency of a few lines that fit in L2, spread evenly over a span of memory."""
    kernel = probes.build(probes.CHASE, "chase")
    lay_out(room, span_bytes, span_bytes // lines)
    kernel(args=[room, 4 * lines, STEPS, out])
    return {"span_bytes": span_bytes} | per_load(out, STEPS)


def near(out, device):
    """Latency in shared memory, and of a multiply-add that waits for the one before it."""
    places = 8 * KIB  # of four bytes: 32 KiB
    shared, chain = probes.build(probes.CHASE_SHARED, "chase_shared"), probes.build(probes.CHAIN, "chain")
    shared(args=[cycle(places, device).int(), places, STEPS, out], shared_mem=4 * places)
    found = {"shared": {"set_bytes": 4 * places} | per_load(out, STEPS)}
    chain(args=[STEPS, out])
    return found | {"register": per_load(out, STEPS)}


def hits(room, sets, bin_cycles=20, bins=50):
    """Histogram of single loads past the L1, by the cycles each took; the last bin holds all longer ones."""
    kernel = probes.build(probes.HITS, "hits")
    cycles = torch.empty(STEPS, dtype=torch.int32, device=room.device)
    found = {"bin_cycles": bin_cycles, "sets": []}
    for set_bytes in sets:
        kernel(args=[room, min(lay_out(room, set_bytes), WARM), STEPS, cycles])
        counts = torch.bincount((cycles // bin_cycles).clamp(max=bins - 1), minlength=bins)
        found["sets"].append({"set_bytes": set_bytes, "mean_cycles": round(cycles.float().mean().item(), 1),
                              "loads_count": counts.tolist()})
    return found


# --8<-- [start:timed]
def timed(call, count=7):
    """Samples in us; a spin kernel holds the device until the host has enqueued the call."""
    call()
    samples = []
    for _ in range(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(400_000)
        begin.record()
        call()
        end.record()
        end.synchronize()
        samples.append(round(begin.elapsed_time(end) * 1e3, 3))
    return samples
# --8<-- [end:timed]


def rate(call, work, **sizes):
    """Samples of a call with this much work, and with half of it: a rate is right if half the work takes half the time."""
    return {**sizes, "samples_us": timed(lambda: call(work)), "half_samples_us": timed(lambda: call(work // 2))}


def passes(set_bytes, total_bytes=16e9):
    """How often to read a set, an even number, so that about `total_bytes` are read in all."""
    return 2 * max(1, round(total_bytes / set_bytes / 2))


def reread(room, sink, sms, words):
    """Every SM reads its own slice of memory again and again: GB/s over the size of the slice."""
    kernel = probes.build(probes.REREAD, "reread", **words)

    def point(slice_bytes):
        count = passes(sms * slice_bytes)
        return rate(lambda n: kernel((sms, 1, 1), (1024, 1, 1), [room, slice_bytes // 16, n, sink]), count,
                    slice_bytes=slice_bytes, read_bytes=sms * slice_bytes * count)
    return [point(slice_bytes) for slice_bytes in SLICES]


def reread_shared(sink, sms):
    """The same from shared memory."""
    kernel = probes.build(probes.REREAD_SHARED, "reread_shared", **probes.SHARED)
    kernel.set_shared_memory_config(192 * KIB)

    def point(slice_bytes):
        count = passes(sms * slice_bytes, 64e9)
        return rate(lambda n: kernel((sms, 1, 1), (1024, 1, 1), [slice_bytes // 16, n, sink], shared_mem=slice_bytes), count,
                    slice_bytes=slice_bytes, read_bytes=sms * slice_bytes * count)
    return [point(kib * KIB) for kib in (64, 128, 192)]


def registers(sink, sms, steps=2**14):
    """Multiply-adds a second with every thread an SM can hold: each reads three registers and writes one."""
    kernel = probes.build(probes.MULTIPLY_ADD, "multiply_add")
    return rate(lambda n: kernel((2 * sms, 1, 1), (1024, 1, 1), [n, sink]), steps, fma_count=2 * sms * 1024 * 16 * steps)


def strided(room, sink, sms):
    """The same number of four-byte loads at growing strides, all from memory that is too large for L2."""
    kernel = probes.build(probes.STRIDED, "strided")
    count = 2 * sms * 1024 * 8 * 32  # 32 rounds of eight loads for every thread: 264 MiB of numbers on 132 SMs
    return [rate(lambda n, stride=stride: kernel((2 * sms, 1, 1), (1024, 1, 1), [room, n, stride, sink]), count,
                 stride_count=stride, useful_bytes=4 * count) for stride in (1, 2, 4, 8, 16, 32)]


def in_flight(room, sink, sms, kind, loads):
    """GB/s from HBM over the number of threads on each SM, each with `loads` loads of a `kind` under way."""
    size_bytes = {"float": 4, "float4": 16}[kind]
    kernel = probes.build(probes.STREAM, "stream", TYPE=kind, LOADS=loads)

    def point(threads):
        blocks = max(1, threads // 1024)
        once = sms * threads * loads  # loads under way at once
        count = 2 * once * (2**29 // (size_bytes * once))  # about 1 GiB, far more than L2 holds
        grid, block = (sms * blocks, 1, 1), (threads // blocks, 1, 1)
        return rate(lambda n: kernel(grid, block, [room, n, sink]), count,
                    threads_count=threads, flight_bytes=size_bytes * once, read_bytes=size_bytes * count)
    return [point(threads) for threads in (64, 128, 256, 512, 1024, 2048)]


def reported():
    """What the device says of itself, by who was asked and under the names used there."""
    from triton.runtime import driver
    device = torch.cuda.get_device_properties(0)
    names = ("multi_processor_count", "warp_size", "max_threads_per_block", "max_threads_per_multi_processor",
             "regs_per_multiprocessor", "shared_memory_per_multiprocessor", "shared_memory_per_block_optin", "L2_cache_size",
             "total_memory")
    return {"torch": {name: getattr(device, name) for name in names},
            "triton": dict(driver.active.utils.get_device_properties(0))}


def capture(device="cuda"):
    torch.manual_seed(0)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    room = torch.zeros(9 * 2**27, dtype=torch.int64, device=device)  # 9 GiB
    out, sink = torch.zeros(4, dtype=torch.int64, device=device), torch.zeros(1, device=device)
    torch.cuda._sleep(400_000_000)  # 0.2 s: brings the clocks up
    latency = {"plain": chase(room, out, NEAR + FAR), "less_l1": chase(room, out, NEAR, 200 * KIB), **near(out, device),
               "spread": [chase_spread(room, out, span) for span in (512 * KIB, 8 * 2**30)]}
    histogram = hits(room, [4 * MIB, 48 * MIB, 1024 * MIB])
    room.random_()  # what follows adds these up, and zeros could be too easy
    bandwidth = {"plain": reread(room, sink, sms, probes.PLAIN), "past_l1": reread(room, sink, sms, probes.PAST_L1),
                 "shared": reread_shared(sink, sms), "register": registers(sink, sms)}
    flight = {f"{kind}_{loads}": in_flight(room, sink, sms, kind, loads)
              for kind, loads in (("float", 1), ("float4", 1), ("float4", 4))}
    return {"reported": reported(), "latency": latency, "hits": histogram, "bandwidth": bandwidth,
            "strided": strided(room, sink, sms), "flight": flight}
