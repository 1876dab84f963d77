"""Numbers as pages print them, with units: GB/s is 1e9 bytes a second, GiB a size."""


def us(value: float) -> str:
    """Microseconds; milliseconds from 10 ms on."""
    if value >= 1e4:
        return f"{value / 1e3:.1f} ms"
    return f"{value:.1f} µs" if value < 1000 else f"{value:,.0f} µs"


def size(value: float) -> str:
    """A size in memory, binary units."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.0f} B"


def traffic(value: float) -> str:
    """Bytes moved, decimal units as bandwidth has."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    """A number of things, in millions from a million on."""
    return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{value:,.0f}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def short(value: float) -> str:
    """A label of an axis: 250, 10 k, 2 M, 0.5."""
    for unit, factor in ((" T", 1e12), (" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def plain(value: float) -> str:
    """A cell of a chart's table: whole numbers with separators, others with four digits."""
    return f"{value:,.0f}" if float(value).is_integer() or value >= 1000 else f"{value:.4g}"
