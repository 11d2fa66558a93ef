"""Random bits against published vectors."""

import numpy as np
import pytest

from pgbb_fast.kernels import reference
from pgbb_fast.kernels.cpu import sampling
from pgbb_fast.kernels.scalar import random as scalar

SEQUENTIAL_KEY = np.frombuffer(bytes(range(32)), dtype="<u4").astype(np.int64)
ZERO_KEY = np.zeros(8, dtype=np.int64)

# (key, words 12..15, expected words) from RFC 8439: section 2.3.2, and appendix A.1 vectors 1, 2 and 5
VECTORS = [
    (
        SEQUENTIAL_KEY,
        (1, 0x09000000, 0x4A000000, 0),
        "e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3"
        " 466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2",
    ),
    (
        ZERO_KEY,
        (0, 0, 0, 0),
        "ade0b876 903df1a0 e56a5d40 28bd8653 b819d2bd 1aed8da0 ccef36a8 c70d778b"
        " 7c5941da 8d485751 3fe02477 374ad8b8 f4b8436a 1ca11815 69b687c3 8665eeb2",
    ),
    (
        ZERO_KEY,
        (1, 0, 0, 0),
        "bee7079f 7a385155 7c97ba98 0d082d73 a0290fcb 6965e348 3e53c612 ed7aee32"
        " 7621b729 434ee69c b03371d5 d539d874 281fed31 45fb0a51 1f0ae1ac 6f4d794b",
    ),
    (
        ZERO_KEY,
        (0, 0, 0, 0x02000000),
        "374dc6c2 3736d58c b904e24a cd3f93ef 88228b1a 96a4dfb3 5b76ab72 c727ee54"
        " 0e0e978a f3145c95 1b748ea8 f786c297 99c28f5f 628314e8 398a19fa 6ded1b53",
    ),
]


def _plain(key: np.ndarray, counter: tuple[int, ...]) -> list[int]:
    out = [0] * 16
    scalar.random_block([int(k) for k in key], *counter, out)
    return out


def _compiled(key: np.ndarray, counter: tuple[int, ...]) -> list[int]:
    """The first of the sixteen blocks that the CPU computes at once."""
    out = np.zeros(256, dtype=np.uint32)
    sampling.random_lanes(key, counter[3], counter[2], counter[0] + (counter[1] << 32), out)
    return out[::16].tolist()


@pytest.mark.parametrize("block", [_plain, _compiled])
@pytest.mark.parametrize(("key", "counter", "words"), VECTORS)
def test_blocks_match_the_rfc(block, key, counter, words):
    assert block(key, counter) == [int(word, 16) for word in words.split()]


def test_reference_matches_the_rfc():
    for key, (index, high, step, purpose), words in VECTORS:
        got = reference.words(key, purpose, step, np.array([index + (high << 32)]))
        assert got[0].tolist() == [int(word, 16) for word in words.split()]


@pytest.mark.parametrize("index", [0, 1, 2**32 - 1, 2**32, 2**40 + 5])
@pytest.mark.parametrize("step", [0, 9_999, 2**32 - 1])
def test_scalar_compiled_and_reference_agree(index, step):
    key = np.random.default_rng(3).integers(0, 2**32, 8)
    out = np.zeros(256, dtype=np.uint32)
    sampling.random_lanes(key, scalar.PURPOSE_NOISE, step, index, out)
    lanes = out.reshape(16, 16).T
    plain = [0] * 16
    for lane in range(16):
        scalar.block_of([int(k) for k in key], scalar.PURPOSE_NOISE, step, index + lane, plain)
        assert lanes[lane].tolist() == plain
    assert np.array_equal(lanes, reference.words(key, 2, step, index + np.arange(16)))
