# Addresses and sizes are integers; _native.py says what they are of.
_Sizes = tuple[int, int, int]

def correlate(
    x: int,
    kernel: int,
    bias: int,
    out: int,
    shape: _Sizes,
    stride: _Sizes,
    filters: _Sizes,
    size: int,
    constant: int,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def filter_gradient(
    x: int,
    y: int,
    grad: int,
    coefficients: int,
    out: int,
    shape: _Sizes,
    stride: _Sizes,
    filters: _Sizes,
    size: int,
    constant: int,
    pieces: int,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def channel_moments(
    x: int, out: int, shape: _Sizes, stride: _Sizes, pieces: int, itemsize: int, threads: int, /
) -> None: ...
def normalise(
    y: int,
    weight: int,
    bias: int,
    coefficients: int,
    moments: int,
    out: int,
    shape: _Sizes,
    eps: float,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def normalise_gradient(
    y: int,
    grad: int,
    weight: int,
    moments: int,
    coefficients: int,
    out: int,
    shape: _Sizes,
    eps: float,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def covariances(
    x: int, grad: int, out: int, shape: _Sizes, windows: int, keep: float, lift: float, itemsize: int, threads: int, /
) -> None: ...
