"""Softmax over row lengths at constant bytes, fp16, times alone: by the library, compiled, and our own. Needs triton."""
from functools import partial

import torch

from fusion.reduction.softmax import inputs, library, minimum_bytes, naive, own, reference
from fusion.reduction.softmax_kernel import softmax

count_traffic = False
ELEMENTS = 2**27  # 256 MiB
variants = {"torch.softmax": library, "own": own(softmax)}
compiled = {"compiled": partial(torch.compile, naive)}
cases = {f"row_{columns}": {"rows": ELEMENTS // columns, "columns": columns} for columns in (256, 1024, 4096, 16384, 65536)}
small = {"rows": 7, "columns": 70}
tolerance = {torch.float16: 4e-3}
__all__ = ["inputs", "minimum_bytes", "reference"]
