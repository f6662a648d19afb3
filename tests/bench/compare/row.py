"""What is compared, as data. A row names a program of this tree, the shapes and types to run it with, the peers, and
the work that it does; how it is run is none of its business. Shapes of tensors come from the kernel's own signature."""
import dataclasses
import fnmatch

# Where results come out, how far they may be from the reference: ||out - ref|| / ||ref||, and 16 times as much for one
# element, relative to that element plus the reference's root mean square. Integers are exact. It follows from the
# type of the output or, for tf32 and fp8, of the operands. A wrong index or a missing tile is 100 times beyond.
TOLERANCES = {"f32": 2e-5, "tf32": 1e-3, "f16": 2e-3, "bf16": 6e-3, "f8e4m3": 1e-2, "i8": 0.0}

SIZES = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "i16": 2, "i8": 1, "u8": 1, "u4": 0.5}


@dataclasses.dataclass(frozen=True)
class Step:
    """One launch: a kernel of a program, which is a path from the root of the repository."""
    program: str
    kernel: str = None
    consts: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
    group: str          # which plot and table it is in
    shape: str          # as people write it
    type: str           # key of TOLERANCES
    steps: tuple        # of Step; a tensor that two steps name alike is the same tensor
    dims: dict          # every dimension of every step
    output: str         # the parameter that is checked
    reference: str      # a name in the device's REFERENCES
    peers: tuple        # names in the device's PEERS
    device: str = "cuda"
    types: dict = dataclasses.field(default_factory=dict)    # type symbol: element type
    scalars: dict = dataclasses.field(default_factory=dict)  # run-time scalar: value
    fills: dict = dataclasses.field(default_factory=dict)    # parameter: name in FILLS, or (name, arguments...)
    flops: float = 0    # of one call; 0: the row is judged by its bytes
    bytes: float = 0    # that one call must move at least
    tolerance: float = None  # None: that of the type
    threads: int = 0    # CPU only
    quick: bool = False  # is part of --quick
    note: str = ""

    @property
    def name(self):
        return " ".join([self.group, self.shape, self.type] + ([f"{self.threads}t"] if self.threads else []))

    @property
    def allowed_error(self):
        return TOLERANCES[self.type] if self.tolerance is None else self.tolerance

    def rate(self, microseconds):
        """TFLOP/s, or TB/s where bytes are what counts."""
        return (self.flops or self.bytes) / microseconds / 1e6

    @property
    def unit(self):
        return "TFLOP/s" if self.flops else "TB/s"


def only_peers(rows, patterns):
    """The rows beside those peers alone that a glob takes; all without patterns. Raises ValueError where none is left."""
    if not patterns:
        return rows
    kept = [dataclasses.replace(row, peers=tuple(
        peer for peer in row.peers if any(fnmatch.fnmatch(peer, pattern) for pattern in patterns))) for row in rows]
    if not any(row.peers for row in kept):
        raise ValueError(f"no row has a peer that matches {','.join(patterns)!r}")
    return kept


def select(rows, device, patterns=(), quick=False):
    """The rows of a device that a pattern (a group, or a glob over names) takes; all without patterns. Raises
    ValueError for a pattern that takes none, so that a misspelt one is not an empty result."""
    mine = [row for row in rows if row.device == device]
    chosen = []
    for pattern in patterns:
        hits = [row for row in mine if row.group == pattern or fnmatch.fnmatch(row.name, pattern)]
        if not hits:
            groups = ", ".join(dict.fromkeys(row.group for row in mine))
            raise ValueError(f"no row for {device} matches {pattern!r}; groups: {groups}; or a glob such as '*4096*'")
        chosen += [row for row in hits if row not in chosen]
    chosen = chosen if patterns else mine
    return [row for row in chosen if row.quick] if quick else chosen
