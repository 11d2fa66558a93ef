"""Counter-based random bits: ChaCha20.

A *block* is 16 words of 32 bits, a pure function of (key, purpose, step, index), so a minibatch or a noise
vector can be recomputed by any thread of any device.  Words live in plain (64-bit) integers; every result is
masked to 32 bits, so the same source runs in Python, under Numba and on CUDA.

Source of the cipher: RFC 8439, section 2.3.
"""

from pgbb_fast.kernels.scalar.arithmetic import MASK32, add32, xor32

WORDS = 16              # words of one block
SIGMA0, SIGMA1, SIGMA2, SIGMA3 = 0x61707865, 0x3320646E, 0x79622D32, 0x6B206574    # "expand 32-byte k"
PURPOSE_SAMPLE = 1      # the minibatch
PURPOSE_NOISE = 2       # the Gaussian perturbation (scalar.normal)
PURPOSE_SKIP = 3        # the minibatch, by geometric skips


def rotate_left(x: int, r: int) -> int:
    """Rotation of a 32-bit word."""
    return ((x << r) | (x >> (32 - r))) & MASK32


def quarter_round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    """ChaCha's quarter round (RFC 8439, section 2.1)."""
    a = add32(a, b)
    d = rotate_left(xor32(d, a), 16)
    c = add32(c, d)
    b = rotate_left(xor32(b, c), 12)
    a = add32(a, b)
    d = rotate_left(xor32(d, a), 8)
    c = add32(c, d)
    b = rotate_left(xor32(b, c), 7)
    return a, b, c, d


def double_round(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15):  # type: ignore[no-untyped-def]
    """A column round and a diagonal round (RFC 8439, section 2.3)."""
    x0, x4, x8, x12 = quarter_round(x0, x4, x8, x12)
    x1, x5, x9, x13 = quarter_round(x1, x5, x9, x13)
    x2, x6, x10, x14 = quarter_round(x2, x6, x10, x14)
    x3, x7, x11, x15 = quarter_round(x3, x7, x11, x15)
    x0, x5, x10, x15 = quarter_round(x0, x5, x10, x15)
    x1, x6, x11, x12 = quarter_round(x1, x6, x11, x12)
    x2, x7, x8, x13 = quarter_round(x2, x7, x8, x13)
    x3, x4, x9, x14 = quarter_round(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


def random_words(k0, k1, k2, k3, k4, k5, k6, k7, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    """The 16 words of ChaCha20's block for key words ``k0..k7`` and counter words ``c0..c3``.

    ``c0`` is RFC 8439's block counter and ``c1..c3`` its nonce (section 2.3).
    """
    start = (SIGMA0, SIGMA1, SIGMA2, SIGMA3, k0, k1, k2, k3, k4, k5, k6, k7, c0, c1, c2, c3)
    x = double_round(*double_round(*double_round(*double_round(*double_round(*start)))))
    x = double_round(*double_round(*double_round(*double_round(*double_round(*x)))))
    return (
        add32(x[0], SIGMA0), add32(x[1], SIGMA1), add32(x[2], SIGMA2), add32(x[3], SIGMA3),
        add32(x[4], k0), add32(x[5], k1), add32(x[6], k2), add32(x[7], k3),
        add32(x[8], k4), add32(x[9], k5), add32(x[10], k6), add32(x[11], k7),
        add32(x[12], c0), add32(x[13], c1), add32(x[14], c2), add32(x[15], c3),
    )  # fmt: skip


def random_block(key, c0, c1, c2, c3, out):  # type: ignore[no-untyped-def]
    """:func:`random_words` for ``key`` (8 words), into ``out`` (16 words)."""
    words = random_words(key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7], c0, c1, c2, c3)
    for i in range(WORDS):
        out[i] = words[i]


def block_of(key, purpose, step, index, out):  # type: ignore[no-untyped-def]
    """The block number ``index`` (up to 2^52) of ``purpose`` at ``step`` (up to 2^32), in ``out``."""
    random_block(key, index & MASK32, (index >> 32) & 0xFFFFF, step & MASK32, purpose, out)
