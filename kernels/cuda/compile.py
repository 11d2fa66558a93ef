"""Compilation for the GPU, and what NUMBA_ENABLE_CUDASIM puts in its place.

Kernels are written as templates with small loops over registers.  :func:`expand` writes those loops out, because a GPU
has no addressable registers: an array indexed by a loop variable would live in (slow) local memory.
"""

import ast
import copy
import inspect
import textwrap
import types
import warnings
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

from numba import cuda
from numba.core import config

SIMULATED = bool(config.ENABLE_CUDASIM)
THREADS = 64 if SIMULATED else 128      # of a block; four blocks of 128 with 128 registers fill a multiprocessor
WARP = 32
WARPS = THREADS // WARP
WAVES = 4               # blocks for each one that a device can hold at least: evens out their ends
BLOCKS_PER_SM = 4       # at least; bounds the registers of a thread by 65536 / (128 * 4) = 128


def device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that kernels call, always inlined.  The simulator calls it as it is, unless it uses ``cuda``."""
    if SIMULATED:
        return cuda.jit(function, device=True) if "cuda" in function.__code__.co_names else function
    return cuda.jit(function, device=True, forceinline=True, lto=False)  # type: ignore[no-any-return]


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`device`, but for the compiler to inline or not: for what is seldom run and would be inlined often."""
    if SIMULATED:
        return device(function)
    return cuda.jit(function, device=True, lto=False)  # type: ignore[no-any-return]


def kernel(function: Callable[..., Any]) -> Any:
    """A kernel of :data:`THREADS` threads a block, at most 128 registers each.  IEEE arithmetic: no fastmath, which
    would license the compiler to assume that there are no nans."""
    if SIMULATED:
        return cuda.jit(function)
    return cuda.jit(function, launch_bounds=(THREADS, BLOCKS_PER_SM), lto=False)


class Launch:
    """A kernel with its grid and stream, ready to be called.  Small grids are meant, so Numba's warning is left out."""

    def __init__(self, made: Any, grid: Any, stream: Any = 0, shared_bytes: int = 0) -> None:
        self.kernel, self.where, self.ready = made, (grid, THREADS, stream, shared_bytes), None
        if not SIMULATED:       # the simulator's kernels remember one grid only
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.ready = made[self.where]

    def __call__(self, *arguments: Any) -> None:
        (self.kernel[self.where] if self.ready is None else self.ready)(*arguments)


@cache
def _most_groups() -> int:
    """Blocks of threads of a launch, at most."""
    return 3 if SIMULATED else WAVES * BLOCKS_PER_SM * int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def groups_for(units: int) -> int:
    """Blocks of threads for ``units`` pieces of work."""
    return max(1, min(units, _most_groups()))


def unrolled(count: int) -> Iterable[int]:
    """``range(count)`` that :func:`expand` writes out; ``count`` is known when the kernel is made."""
    return range(count)


def static(condition: Any) -> bool:
    """A condition that :func:`expand` decides."""
    return bool(condition)


class _Expansion(ast.NodeTransformer):
    """Writes out ``for i in unrolled(...)``, decides ``if static(...)``, and turns ``r[i, j]`` of each name in
    ``registers`` into a variable ``r_i_j``."""

    def __init__(self, known: dict[str, Any], registers: Collection[str]) -> None:
        self.known, self.registers = known, registers

    def _value(self, node: ast.expr) -> Any:
        expression = ast.fix_missing_locations(ast.Expression(node))
        return eval(compile(expression, "<expand>", "eval"), {"__builtins__": {}}, self.known)

    @staticmethod
    def _call(node: ast.expr, name: str) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name

    def _body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            result = self.visit(statement)
            out += result if isinstance(result, list) else [result]
        return out

    def visit_For(self, node: ast.For) -> Any:
        if not self._call(node.iter, "unrolled"):
            return self.generic_visit(node)
        assert isinstance(node.iter, ast.Call)
        assert isinstance(node.target, ast.Name)
        out: list[ast.stmt] = []
        outer = dict(self.known)
        for value in range(self._value(node.iter.args[0])):
            self.known = {**outer, node.target.id: value}
            out += self._body([copy.deepcopy(statement) for statement in node.body])
        self.known = outer
        return out

    def visit_If(self, node: ast.If) -> Any:
        if not self._call(node.test, "static"):
            return self.generic_visit(node)
        assert isinstance(node.test, ast.Call)
        return self._body(node.body if self._value(node.test.args[0]) else node.orelse)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not (isinstance(node.value, ast.Name) and node.value.id in self.registers):
            return self.generic_visit(node)
        index = self._value(node.slice)
        numbers = index if isinstance(index, tuple) else (index,)
        name = "_".join([node.value.id, *map(str, numbers)])
        return ast.copy_location(ast.Name(name, node.ctx), node)

    def visit_Name(self, node: ast.Name) -> Any:
        value = self.known.get(node.id)
        if isinstance(node.ctx, ast.Load) and type(value) in (int, bool):
            return ast.copy_location(ast.Constant(value), node)
        return node


def expand(
    template: Callable[..., Any], name: str, registers: Collection[str], known: dict[str, Any], **bindings: object
) -> types.FunctionType:
    """``template`` with its loops over ``registers`` written out for the integers ``known`` (and those among its
    module's names), its other global names bound to ``bindings``, under a name of its own."""
    assert isinstance(template, types.FunctionType)
    lines, first = inspect.getsourcelines(template)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.name = f"{template.__name__.strip('_')}_{name}"
    function.returns, function.decorator_list = None, []
    for argument in function.args.args:
        argument.annotation = None
    integers = {key: value for key, value in template.__globals__.items() if type(value) in (int, bool)}
    expansion = _Expansion({**integers, **known}, frozenset(registers))
    function.body = expansion._body(function.body)
    ast.increment_lineno(ast.fix_missing_locations(tree), first - 1)
    scope: dict[str, Any] = {**template.__globals__, **bindings}
    exec(compile(tree, template.__code__.co_filename, "exec"), scope)
    made: types.FunctionType = scope[function.name]
    made.__module__ = template.__module__
    return made
