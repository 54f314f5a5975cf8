# Addresses and sizes are integers; _native.py says what they are of.
def svd(
    f: int, start: int, u: int, s: int, v: int, failed: int, items: int, k: int, itemsize: int, threads: int, /
) -> None: ...
def procrustes(
    a: int,
    b: int,
    ia: int,
    ib: int,
    value: int,
    out: int,
    failed: int,
    items: int,
    k: int,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def bures_step(
    n: int,
    b: int,
    w: int,
    start: int,
    out: int,
    value: int,
    u: int,
    s: int,
    v: int,
    failed: int,
    tolerance: float,
    items: int,
    m: int,
    k: int,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
