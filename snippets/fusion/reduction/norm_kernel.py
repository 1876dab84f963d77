"""Layer norm and RMS norm in Triton, forward and backward. Needs triton, and a GPU or TRITON_INTERPRET=1.

x and dy: (rows, columns), contiguous; weight and bias: (columns,); mean and rstd: (rows, 1) in fp32. Without a bias it
is the RMS norm, which subtracts no mean. Arithmetic is in fp32.
"""
# ruff: noqa: PLR0917  (a kernel takes its arguments by position)
import torch
import triton
import triton.language as tl


# --8<-- [start:forward]
@triton.jit
def forward_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, columns, eps, LAYER: tl.constexpr, BLOCK: tl.constexpr):
    """One program, one row: the row stays in registers while its mean, its variance and the result are computed."""
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + start + column, mask=inside, other=0.0).to(tl.float32)  # reads 2 bytes an element
    if LAYER:
        x = tl.where(inside, x - tl.sum(x, 0) / columns, 0.0)
    rstd = tl.rsqrt(tl.sum(x * x, 0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)  # from L2 in all rows but the first
    y = x * rstd * weight
    if LAYER:
        y += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + start + column, y, mask=inside)  # writes 2


def norm(x, weight, bias=None, eps=1e-5):
    """Layer norm of each row; without a bias, RMS norm."""
    rows, columns = x.shape
    y, block = torch.empty_like(x), triton.next_power_of_2(columns)
    warps = min(16, max(1, block // 1024)) if rows > 1024 else 4  # few rows: more of a row in flight for each thread
    forward_kernel[(rows,)](x, weight, weight if bias is None else bias, y, columns, eps, LAYER=bias is not None, BLOCK=block,
                            num_warps=warps)
    return y
# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit
def backward_kernel(dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, part_ptr, rows, columns,
                    LAYER: tl.constexpr, BLOCK: tl.constexpr):
    """A few programs, many rows each: dx row by row, and this program's share of dweight and dbias in registers."""
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros([BLOCK], tl.float32)
    dbias = tl.zeros([BLOCK], tl.float32)
    for row in range(program, rows, programs):
        at = row * columns + column
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)  # reads 2 bytes an element
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)  # reads 2
        rstd = tl.load(rstd_ptr + row)
        if LAYER:
            x -= tl.load(mean_ptr + row)
        x_hat = x * rstd
        g = dy * weight
        dx = g - x_hat * (tl.sum(g * x_hat, 0) / columns)
        dweight += dy * x_hat
        if LAYER:
            dx -= tl.sum(g, 0) / columns
            dbias += dy
        tl.store(dx_ptr + at, dx * rstd, mask=inside)  # writes 2
    tl.store(part_ptr + program * columns + column, dweight, mask=inside)
    if LAYER:
        tl.store(part_ptr + (programs + program) * columns + column, dbias, mask=inside)


@triton.jit
def add_parts_kernel(part_ptr, out_ptr, parts, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum over a block of columns of `parts` rows; the second index of the grid picks dweight or dbias."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    which = tl.program_id(1)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, parts, ROWS):
        part = first + tl.arange(0, ROWS)
        inside = (part < parts)[:, None] & (column < columns)[None, :]
        total += tl.load(part_ptr + (which * parts + part)[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(out_ptr + which * columns + column, tl.sum(total, 0), mask=column < columns)


def norm_backward(dy, x, weight, mean, rstd):
    """dx and dweight of the RMS norm; with a mean dx, dweight and dbias of the layer norm."""
    layer, block, columns = mean is not None, triton.next_power_of_2(x.shape[1]), x.shape[1]
    parts = min(x.shape[0], multiprocessors(x)) if block <= 8192 else 8
    dx = torch.empty_like(x)
    part = torch.empty(1 + layer, parts, columns, dtype=torch.float32, device=x.device)
    out = torch.empty(1 + layer, columns, dtype=weight.dtype, device=x.device)
    mean = mean if layer else rstd  # never read
    if block <= 8192:
        backward_kernel[(parts,)](dy, x, weight, mean, rstd, dx, part, *x.shape, LAYER=layer, BLOCK=block,
                                  num_warps=max(1, block // 512))
    else:  # the sums would not fit beside a row
        dx_kernel[(x.shape[0],)](dy, x, weight, mean, rstd, dx, columns, LAYER=layer, BLOCK=block, num_warps=16)
        columns_kernel[(triton.cdiv(columns, 128), parts)](dy, x, mean, rstd, part, *x.shape, LAYER=layer, ROWS=16, COLUMNS=128)
    add_parts_kernel[(triton.cdiv(columns, 64), 1 + layer)](part, out, parts, columns, ROWS=32, COLUMNS=64)
    return dx, *out


def multiprocessors(x):
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4
# --8<-- [end:backward]


# --8<-- [start:long]
@triton.jit
def dx_kernel(dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, columns, LAYER: tl.constexpr, BLOCK: tl.constexpr):
    """One program, one row: dx alone."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = row.to(tl.int64) * columns + column
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)  # reads 2 bytes an element
    g = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)  # reads 2
    g *= tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    x_hat = (x - tl.load(mean_ptr + row)) * rstd if LAYER else x * rstd
    dx = g - x_hat * (tl.sum(g * x_hat, 0) / columns)
    if LAYER:
        dx -= tl.sum(g, 0) / columns
    tl.store(dx_ptr + at, dx * rstd, mask=inside)  # writes 2


@triton.jit
def columns_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, part_ptr, rows, columns,
                   LAYER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One program, a block of columns and a share of the rows: x and dy are read once more, from L2 as far as they are there."""
    share, shares = tl.program_id(1), tl.num_programs(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    dweight = tl.zeros([ROWS, COLUMNS], tl.float32)
    dbias = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(share * ROWS, rows, shares * ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)  # reads 2
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)  # reads 2
        if LAYER:
            x -= tl.load(mean_ptr + row, mask=row < rows, other=0.0)[:, None]
            dbias += dy
        dweight += dy * x * tl.load(rstd_ptr + row, mask=row < rows, other=0.0)[:, None]
    tl.store(part_ptr + share * columns + column, tl.sum(dweight, 0), mask=column < columns)
    if LAYER:
        tl.store(part_ptr + (shares + share) * columns + column, tl.sum(dbias, 0), mask=column < columns)
# --8<-- [end:long]


# --8<-- [start:softmax]
@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, columns, BLOCK: tl.constexpr):
    """dx = y (dy - sum(dy y)), a row in registers."""
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + start + column, mask=column < columns, other=0.0).to(tl.float32)  # reads 2 bytes an element
    y = tl.load(y_ptr + start + column, mask=column < columns, other=0.0).to(tl.float32)  # reads 2
    tl.store(dx_ptr + start + column, y * (dy - tl.sum(dy * y, 0)), mask=column < columns)  # writes 2


def softmax_backward(dy, y):
    dx, block = torch.empty_like(dy), triton.next_power_of_2(dy.shape[1])
    softmax_backward_kernel[(dy.shape[0],)](dy, y, dx, dy.shape[1], BLOCK=block, num_warps=min(16, max(1, block // 1024)))
    return dx
# --8<-- [end:softmax]
