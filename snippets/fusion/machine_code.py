"""The Triton kernels that a compilation left behind: their code, registers, spills, and their machine code line by line."""
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

KERNEL = re.compile(r"@triton\.jit\n(def (\w+)\(.*?)\n'''", re.S)
CALL = r"\b{}\.run\((.*?), stream="


# --8<-- [start:kernels]
def triton_kernels(code):
    """Of a module that Inductor wrote: each kernel's lines, and which argument each of its pointers is given."""
    found = {}
    for text, name in KERNEL.findall(code):
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        parameters = re.findall(r"(\w+)(?= *[,:)])", lines[0].partition("(")[2])
        given = re.search(CALL.format(name), code)[1].split(", ")
        found[name] = {"lines": lines, "pointers": dict(zip(parameters, given, strict=False))}
    return found


def compiled_kernels(modules):
    """Of the modules that Inductor loaded: registers a thread, bytes spilled, and the machine code of each kernel that ran."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    found = {}
    for name, tuner in [item for module in modules for item in vars(module).items()]:
        if isinstance(tuner, CachingAutotuner):
            launcher = tuner.launchers[0]  # the one that is left when tuning is over
            binary = next(result.kernel for result in tuner.compile_results if result.config is launcher.config)
            found[name] = {"registers": launcher.n_regs, "spills": launcher.n_spills, "shared_bytes": int(binary.metadata.shared),
                           "block": dict(launcher.config.kwargs), "warps_count": int(launcher.config.num_warps),
                           "sass": sass(binary.asm["cubin"], tuner.fn.starting_line_number, tuner.fn.raw_src)}
    return found
# --8<-- [end:kernels]


def cpp_lines(code):
    """The C++ of the first kernel that Inductor wrote for a CPU."""
    found = re.search(r'extern "C" .*?\n}', code, re.S)
    return found[0].splitlines() if found else []


# --8<-- [start:sass]
def sass(cubin, first, source):
    """Every machine instruction with the line of the kernel that the compiler ascribes it to: [(line, instruction), ...]."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([disassembler(), "-g", "-c", file.name], capture_output=True, text=True, check=True).stdout
    return instructions(text, first, source)


def disassembler():
    """Triton brings NVIDIA's disassembler along; else the CUDA toolkit's."""
    import triton
    bundled = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    return bundled if bundled.exists() else shutil.which("nvdisasm") or "/usr/local/cuda/bin/nvdisasm"


def instructions(text, first, source):
    line, found = "", []
    for row in text.splitlines():
        if place := re.search(r'//## File ".*", line (\d+)', row):
            number = int(place[1]) - first
            line = source[number].strip() if 0 <= number < len(source) else ""
        elif code := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", row):
            found.append((line, code[1]))
    while found and found[-1][1] == "NOP":  # the padding after the end
        found.pop()
    return found
# --8<-- [end:sass]


def launched(call, calls=10):
    """The kernels of a call in the order in which they ran: their names, and their times in each of 10 calls."""
    import torch
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            call()
            torch.cuda.synchronize()
    events = [event for event in profile.events()
              if event.device_type == torch.autograd.DeviceType.CUDA and "Sync" not in event.name]
    events.sort(key=lambda event: event.time_range.start)
    count = len(events) // calls
    return [{"name": events[place].name, "time": {"samples_us": [event.time_range.elapsed_us() for event in events[place::count]]}}
            for place in range(count)]
