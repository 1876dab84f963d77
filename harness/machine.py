"""The machine a record comes from: what matters for its figures, never what identifies it."""
import platform
import re
import shutil
import subprocess
import sys


def has_gpu() -> bool:
    """Whether an NVIDIA driver lists a GPU here; asked of nvidia-smi, so that torch need not be installed."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return False
    found = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    return found.returncode == 0 and "GPU 0" in found.stdout


def describe() -> dict:
    """GPU, sizes in bytes, software versions, and clocks (MHz) and power limit (W) as found. Imports torch."""
    import torch
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": re.sub(r"[^a-z0-9]+", "-", properties.name.lower()).strip("-"),
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
        "cudnn": str(torch.backends.cudnn.version()),
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        **_from_driver(f"GPU-{properties.uuid}"),  # asked by UUID: torch and nvidia-smi may number cards differently
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _from_driver(gpu: str) -> dict:
    """What nvidia-smi alone knows; null where it does not say."""
    fields = {"driver": "driver_version", "sm_clock_max_mhz": "clocks.max.sm", "memory_clock_max_mhz": "clocks.max.mem",
              "sm_clock_found_mhz": "clocks.sm", "power_limit_w": "power.limit"}
    query = subprocess.run(["nvidia-smi", "-i", gpu, f"--query-gpu={','.join(fields.values())}",
                            "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False)
    values = [value.strip() for value in query.stdout.strip().split(",")] if query.returncode == 0 else [""] * len(fields)
    found = dict(zip(fields, values, strict=False))
    number = {key: float(found[key]) if re.fullmatch(r"\d+(\.\d+)?", found.get(key, "")) else None for key in fields}
    return {**number, "driver": found.get("driver") or None}
