"""A pickle reader that can make tensors, arrays and plain containers, and calls nothing else.

Promises: a name that is not on the list below ends the reading with ValueError, before anything is called; classes
of frameworks become a `Shell`, which only holds the state that was stored. Tensors inside are rebuilt by torch's
own functions from storages that are read with torch's weights-only reader.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection
from typing import IO, Any

_PLAIN: dict[tuple[str, str], Any] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): bytearray,
    ("builtins", "complex"): complex,
    ("builtins", "slice"): slice,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): defaultdict,
}
_NUMPY = {"_reconstruct", "_frombuffer", "scalar", "ndarray", "dtype"}
_TORCH_TYPES = frozenset(
    ["float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"]
)  # torch.<name> is a value, not a function


class Shell(dict):  # type: ignore[type-arg]
    """Stands for an object of a framework: `state` is what was stored of it; a dictionary keeps its items."""

    def __init__(self, *stored: Any) -> None:
        super().__init__()
        self.state: Any = stored[-1] if stored else None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read(file: IO[bytes], shells: Collection[tuple[str, str]]) -> Any:
    """The object in a pickle. `shells`: (end of a module's name, name) of classes and rebuild functions that become
    a Shell. Raises ValueError, with the reason."""
    try:
        return _Unpickler(file, shells).load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"refused: {error}") from None
    except (EOFError, ImportError, AttributeError, IndexError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        raise ValueError(f"is no readable pickle: {type(error).__name__}") from None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], shells: Collection[tuple[str, str]]) -> None:
        super().__init__(file)
        self._shells = shells

    def find_class(self, module: str, name: str) -> Any:
        plain = _PLAIN.get((module, name))
        if plain is not None:
            return plain
        if any(module.endswith(end) and name == known for end, known in self._shells):
            return Shell
        found = _numpy(module, name) if module.partition(".")[0] == "numpy" else _torch(module, name)
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, expected tensors and plain containers")
        return found

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it points outside of itself")


def _numpy(module: str, name: str) -> Any:
    import numpy as np

    if name not in _NUMPY or module not in (
        "numpy",
        "numpy.core.multiarray",
        "numpy._core.multiarray",
        "numpy.core.numeric",
        "numpy._core.numeric",
    ):
        return None
    if name in ("ndarray", "dtype"):
        return getattr(np, name)
    from importlib import import_module

    core = "numpy._core" if int(np.__version__.partition(".")[0]) >= 2 else "numpy.core"
    found = getattr(import_module(f"{core}.{module.rpartition('.')[2]}"), name)
    return _of_numbers(found)


def _of_numbers(make: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; an array of objects, whose elements are pickles of their own, is refused.

    Made anew for each reading: a pickle can set attributes of a function that it is given.
    """

    def checked(*arguments: Any) -> Any:
        if any(getattr(a, "hasobject", False) for a in arguments):
            raise pickle.UnpicklingError("it holds an array of objects")
        return make(*arguments)

    return checked


def _torch(module: str, name: str) -> Any:
    if module.partition(".")[0] != "torch":
        return None
    import torch

    if module == "torch" and (name in _TORCH_TYPES or name in ("device", "Size")):
        return getattr(torch, name)
    if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
        from torch._utils import _rebuild_tensor_v2

        return _of_numbers(_rebuild_tensor_v2)
    if (module, name) == ("torch.storage", "_load_from_bytes"):
        return _of_numbers(_storage)
    return None


def _storage(content: bytes) -> Any:
    """What torch's own pickling of a tensor calls; torch's function of that name would run code, this does not."""
    import torch

    # torch writes a single storage in its old form; newer torch reads that form without its old hole only
    if tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2]) < (2, 6):
        raise pickle.UnpicklingError("tensors in a pickle need torch 2.6 or later to be read safely")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
