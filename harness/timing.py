"""Two clocks for one call: the device's (CUDA events) and the host's. Times are in microseconds."""
import statistics
import time

import torch

from harness.record import summarise

SAMPLE_COUNT = 60
UNSTABLE_SHARE = 0.05  # quartile range over the median
FIRST_HIDING_CYCLES = 200_000  # about 0.1 ms
LONGEST_HIDING_CYCLES = 400_000_000  # about 0.2 s: a call that outlasts it waits for the device itself


class Clock:
    """Times calls on the device, each with a cold L2 and with the host's work hidden behind the device's.

    Before each sample a buffer of several times L2 is overwritten, then a spin kernel holds the device while the host
    enqueues the call. A sample counts only if the device had not begun it when the host was done: so no host gap is
    in it. The dirty lines that the flush leaves in L2 stand for those which the preceding work of a program leaves.
    """

    def __init__(self) -> None:
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.flush = torch.empty(max(4 * l2, 2**28), dtype=torch.int8, device="cuda")
        self.cycles = FIRST_HIDING_CYCLES

    def prepare(self) -> None:
        """Cold L2, and a busy device."""
        self.flush.zero_()
        torch.cuda._sleep(self.cycles)  # private, but what PyTorch's own tests hold a stream with

    def sample(self, call) -> tuple[float, bool]:
        """One timing in us, and whether the host was out of it."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.prepare()
        start.record()
        call()
        end.record()
        hidden = not start.query()
        end.synchronize()
        return start.elapsed_time(end) * 1e3, hidden

    def hidden_sample(self, call) -> tuple[float, bool]:
        """One whose host was out of it: the spin grows until it is. Not so where the call itself waits for the device."""
        us, hidden = self.sample(call)
        while not hidden and self.cycles < LONGEST_HIDING_CYCLES:
            self.cycles *= 2
            us, hidden = self.sample(call)
        return us, hidden

    def call_us(self, call) -> dict:
        """Summary of a call's device time; measured again once where its quartile range exceeds 5 % of the median."""
        self.cycles = FIRST_HIDING_CYCLES  # a slow host makes it longer for this call, not for all that follow
        self._warm_up(call)
        summary = self._samples(call)
        if _unstable(summary):
            summary = self._samples(call)
        return {**summary, "unstable": _unstable(summary)}

    def _samples(self, call) -> dict:
        samples: list[float] = []
        gap = False
        while len(samples) < SAMPLE_COUNT and (len(samples) < 15 or sum(samples) < 1e6):
            us, hidden = self.hidden_sample(call)
            samples.append(us)
            gap |= not hidden  # then its gaps are part of it
        return {**summarise(samples), "host_gap": gap}

    def _warm_up(self, call) -> None:
        """Until two batches of calls agree within 2 %, or for one second."""
        before, begun = 0.0, time.perf_counter()
        while time.perf_counter() - begun < 1.0:
            now = statistics.median(self.hidden_sample(call)[0] for _ in range(10))
            if abs(now - before) < 0.02 * now:
                return
            before = now


def _unstable(summary: dict) -> bool:
    return summary["q3"] - summary["q1"] > UNSTABLE_SHARE * summary["median"]


def enqueue_us(call, count: int = 200, limit_s: float = 0.2) -> dict:
    """Summary of the host's time until the call returns, on an idle device; fewer samples where the device is slow."""
    samples = []
    begun = time.perf_counter()
    while len(samples) < count and (len(samples) < 15 or time.perf_counter() - begun < limit_s):
        torch.cuda.synchronize()
        before = time.perf_counter()
        call()
        samples.append((time.perf_counter() - before) * 1e6)
    torch.cuda.synchronize()
    return summarise(samples)
