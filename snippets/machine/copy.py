"""How many bytes a second this GPU's memory moves at best: a copy of a tensor much larger than L2.

The copy reads each byte once and writes it once, so it moves twice the tensor's size.
"""
import torch

needs = {"memory_bytes": 8 * 2**30}


def inputs(mib=1024, device="cuda"):
    source = torch.randn(mib * 2**18, device=device)  # float32: 2**18 numbers are 1 MiB; random, never zeros
    return torch.empty_like(source), source


def copy(target, source):
    return target.copy_(source)


def reference(target, source):
    return source.double()


variants = {"copy_": copy}
cases = {f"mib_{mib}": {"mib": mib} for mib in (128, 256, 512, 1024, 2048)}
small = {"mib": 1}
tolerance = {torch.float32: 0.0}


def minimum_bytes(target, source):
    return source.nbytes + target.nbytes  # read once, written once
