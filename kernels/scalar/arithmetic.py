"""The two operations that plain Python lacks; every device binds them to one instruction of its own."""

MASK32 = 0xFFFFFFFF


def fma(a: float, b: float, c: float) -> float:
    """``a * b + c``; rounded once on the devices (IEEE 754-2008, 5.4.1), so that all of them give the same bits."""
    return a * b + c


def add32(a: int, b: int) -> int:
    """Sum of two 32-bit words, modulo 2^32."""
    return (a + b) & MASK32


def xor32(a: int, b: int) -> int:
    """Bitwise exclusive or of two 32-bit words."""
    return a ^ b
