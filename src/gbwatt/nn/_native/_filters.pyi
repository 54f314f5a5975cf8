INTERFACE: int
MAX_CHANNELS: int

# Address of an array, and number of bytes from there to the end of its memory; see __init__.py.
_Array = tuple[int, int]
_Sizes = tuple[int, int, int]

def levels() -> tuple[str, ...]: ...
def level() -> str: ...
def set_level(name: str, /) -> None: ...
def correlate(
    x: _Array,
    kernel: _Array,
    bias: _Array,
    out: _Array,
    shape: _Sizes,
    stride: _Sizes,
    filters: _Sizes,
    size: int,
    constant: bool,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def filter_gradient(
    x: _Array,
    y: _Array,
    grad: _Array,
    coefficients: _Array,
    out: _Array,
    shape: _Sizes,
    stride: _Sizes,
    filters: _Sizes,
    size: int,
    constant: bool,
    pieces: int,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def mix(
    x: _Array,
    w: _Array,
    offset: _Array,
    out: _Array,
    shape: _Sizes,
    stride: _Sizes,
    n_out: int,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def mix_gradient(
    x: _Array,
    grad: _Array,
    out: _Array,
    shape: _Sizes,
    stride: _Sizes,
    n_out: int,
    pieces: int,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def channel_moments(
    x: _Array, out: _Array, shape: _Sizes, stride: _Sizes, pieces: int, itemsize: int, threads: int, /
) -> None: ...
def normalise(
    y: _Array,
    weight: _Array,
    bias: _Array,
    coefficients: _Array,
    moments: _Array,
    out: _Array,
    shape: _Sizes,
    eps: float,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def normalise_gradient(
    y: _Array,
    grad: _Array,
    weight: _Array,
    moments: _Array,
    coefficients: _Array,
    out: _Array,
    shape: _Sizes,
    eps: float,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
def covariances(
    x: _Array,
    grad: _Array,
    out: _Array,
    shape: _Sizes,
    windows: int,
    keep: float,
    lift: float,
    embed_mean: bool,
    itemsize: int,
    threads: int,
    /,
) -> None: ...
