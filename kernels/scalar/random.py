"""Counter-based random bits: ChaCha20, and what the mechanism makes of its words.

A *block* is 16 words of 32 bits, a pure function of (key, purpose, step, index), so a minibatch or a noise
vector can be recomputed by any thread of any device.  Words live in plain (64-bit) integers; every result is
masked to 32 bits, so the same source runs in Python, under Numba and on CUDA.

Source of the cipher: RFC 8439, section 2.3.
"""

import math

MASK32 = 0xFFFFFFFF
WORDS = 16              # words of one block
NORMALS = 6             # standard normals made of one block
PURPOSE_SAMPLE = 1      # the minibatch
PURPOSE_NOISE = 2       # the Gaussian perturbation


def rotate_left(x: int, r: int) -> int:
    """Rotation of a 32-bit word."""
    return ((x << r) | (x >> (32 - r))) & MASK32


def quarter_round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    """ChaCha's quarter round (RFC 8439, section 2.1)."""
    a = (a + b) & MASK32
    d = rotate_left(d ^ a, 16)
    c = (c + d) & MASK32
    b = rotate_left(b ^ c, 12)
    a = (a + b) & MASK32
    d = rotate_left(d ^ a, 8)
    c = (c + d) & MASK32
    b = rotate_left(b ^ c, 7)
    return a, b, c, d


def random_block(key, c0, c1, c2, c3, out):  # type: ignore[no-untyped-def]
    """Write ChaCha20's block for ``key`` (8 words) and counter words ``c0..c3`` into ``out`` (16 words).

    ``c0`` is RFC 8439's block counter and ``c1..c3`` its nonce (section 2.3).
    """
    x0, x1, x2, x3 = 0x61707865, 0x3320646E, 0x79622D32, 0x6B206574
    x4, x5, x6, x7 = key[0], key[1], key[2], key[3]
    x8, x9, x10, x11 = key[4], key[5], key[6], key[7]
    x12, x13, x14, x15 = c0, c1, c2, c3
    for _ in range(10):
        x0, x4, x8, x12 = quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = quarter_round(x3, x4, x9, x14)
    out[0] = (x0 + 0x61707865) & MASK32
    out[1] = (x1 + 0x3320646E) & MASK32
    out[2] = (x2 + 0x79622D32) & MASK32
    out[3] = (x3 + 0x6B206574) & MASK32
    out[4] = (x4 + key[0]) & MASK32
    out[5] = (x5 + key[1]) & MASK32
    out[6] = (x6 + key[2]) & MASK32
    out[7] = (x7 + key[3]) & MASK32
    out[8] = (x8 + key[4]) & MASK32
    out[9] = (x9 + key[5]) & MASK32
    out[10] = (x10 + key[6]) & MASK32
    out[11] = (x11 + key[7]) & MASK32
    out[12] = (x12 + c0) & MASK32
    out[13] = (x13 + c1) & MASK32
    out[14] = (x14 + c2) & MASK32
    out[15] = (x15 + c3) & MASK32


def block_of(key, purpose, step, index, out):  # type: ignore[no-untyped-def]
    """The block number ``index`` (up to 2^52) of ``purpose`` at ``step`` (up to 2^32), in ``out``."""
    random_block(key, index & MASK32, (index >> 32) & 0xFFFFF, step & MASK32, purpose, out)


def uniform96(a: int, b: int, c: int) -> float:
    """A uniform in (0, 1) from three words, fine near zero: (a 2^64 + b 2^32 + c + 1/2) / 2^96."""
    return (a + (b + (c + 0.5) * 2.0**-32) * 2.0**-32) * 2.0**-32


def normal_pair(words, first):  # type: ignore[no-untyped-def]
    """Two independent standard normals from words ``first .. first + 4`` (Box and Muller 1958).

    The radius uses 96 bits, so that the tail reaches 11.6 standard deviations: the law's distance in total
    variation from the normal's, from truncation, is below 1e-30.
    """
    radius = math.sqrt(-2.0 * math.log(uniform96(words[first], words[first + 1], words[first + 2])))
    angle = 2.0 * math.pi * ((words[first + 3] + (words[first + 4] + 0.5) * 2.0**-32) * 2.0**-32)
    return radius * math.cos(angle), radius * math.sin(angle)
