"""Which specialised kernel serves a call, and its launch; numbers only."""

from dataclasses import dataclass

from pgbb_fast.kernels.scalar.losses import CONSTANTS, LOCATION, WITH_SCALE

MAX_FEATURES = 32      # up to as many, the number of features is written into the kernel ...
SAMPLED_FEATURES = 24   # ... and into that of a minibatch, which needs registers for a cipher block
MAX_SUMS = 60          # in a thread's registers: 128 hold them, the features and what is on the way ...
SAMPLED_SUMS = 48       # ... and, for a minibatch, a cipher block
MAX_DRAWS = 10         # of a kernel
MAX_WEIGHTS = 4_096    # that a block of threads keeps in shared memory; more are read through the cache
AHEAD_REGISTERS = 72    # sums, features and features ahead up to which the next record is loaded ahead


@dataclass(frozen=True)
class Kind:
    """What a specialised kernel is made for; ``features`` 0 means any number."""

    loss: str
    intercept: bool
    features: int
    draws: int
    sampled: bool
    mapped: bool
    blocks: int             # weights of a draw in shared memory, with padding; 0: any number, read through the cache
    packed: str = ""        # type of the integers in each 32-bit word, or "" for one number at a time
    parts: int = 1          # blocks of draws that a block of threads works on
    encodings: tuple[str, str] = ("", "")   # of features and response: "float16", "bfloat16"; "": the array's own type

    def __post_init__(self) -> None:
        if self.loss not in CONSTANTS:
            raise ValueError(f"no such loss: {self.loss}")

    @property
    def regression(self) -> bool:
        """Whether the loss has a linear predictor."""
        return self.loss not in {f.__name__ for f in LOCATION}

    @property
    def first(self) -> int:
        """Place of the first slope in theta."""
        return int(self.intercept and self.regression)

    @property
    def scale(self) -> int:
        """1 if theta ends with a scale."""
        return int(self.loss in WITH_SCALE)

    def sums(self, block: int) -> int:
        """Sums of one draw: theta's coordinates, with ``block`` features of any number."""
        return self.first + (self.features or block) + self.scale

    @property
    def row(self) -> int:
        """Numbers of one draw's theta and three constants, a multiple of 4; without the features if any number."""
        size = self.first + self.features + self.scale + 3
        return -(-size // 4) * 4 if self.features else size

    @property
    def per_word(self) -> int:
        """Numbers in a 32-bit word."""
        return {"": 1, "int8": 4, "uint8": 4, "int16": 2, "uint16": 2}[self.packed]

    @property
    def ahead(self) -> bool:
        """Whether a thread loads its next record before it works on this one: when registers are left for that."""
        small = self.draws * self.sums(0) + 2 * self.features <= AHEAD_REGISTERS
        return not self.sampled and not self.packed and self.features > 0 and small

    @property
    def name(self) -> str:
        """Part of the kernel's name."""
        flags = "".join(f for f, on in (("i", self.intercept), ("s", self.sampled), ("m", self.mapped)) if on)
        sizes = f"p{self.features}_k{self.parts}x{self.draws}_b{self.blocks}"
        return "_".join(filter(None, (self.loss, sizes, flags, self.packed, *self.encodings)))


def split(K: int, sums: int, room: int, warps: int) -> tuple[int, int]:
    """(draws of a thread, parts): as few blocks of draws as registers allow, of sizes that differ by as little as can
    be; as many of them in a block of threads as add at most a fifth in padding and leave a thread's draws alone."""
    fewest = -(-K // max(1, min(MAX_DRAWS, room // sums)))
    most = -(-K // fewest)
    for parts in (4, 2):
        blocks = fewest + -fewest % parts
        draws = -(-K // blocks)
        if parts <= min(warps, fewest) and 5 * blocks * draws <= 6 * fewest * most and 4 * draws >= 3 * most:
            return draws, parts
    return most, 1


def kind_of(
    loss: str, intercept: bool, p: int, K: int, *,
    S: int, sampled: bool, mapped: bool, packed: str, block: int, warps: int, encodings: tuple[str, str] = ("", ""),
) -> Kind:  # fmt: skip
    """The kernel for ``p`` features and ``K`` draws over ``S`` blocks; ``block`` features at once where p is large."""
    features = p if p <= (SAMPLED_FEATURES if sampled else MAX_FEATURES) else 0
    packed = packed if features and not sampled else ""
    one = Kind(loss, intercept, features, 1, sampled, mapped, 0, packed)
    draws, parts = split(K, one.sums(block), SAMPLED_SUMS if sampled else MAX_SUMS, warps)
    padded = -(-(S + 1) // 8) * 8
    blocks = padded if draws * parts * padded <= MAX_WEIGHTS else 0
    return Kind(loss, intercept, features, draws, sampled, mapped, blocks, packed, parts, encodings)
