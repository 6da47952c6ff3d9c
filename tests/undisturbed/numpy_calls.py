"""NumPy and memoryviews over memory that the device reaches: results, errors, types, references."""

from __future__ import annotations

import io
import operator
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

device = sys.argv[1]
pinned = device != "cpu"
host = torch.zeros(64, pin_memory=pinned)
host.copy_(torch.arange(64.0, device=device), non_blocking=pinned)
if pinned:
    torch.cuda.synchronize()
array: Any = host.numpy()
view: Any = memoryview(array)


class Named(np.ndarray):
    """An array of a class of the program's, whose operators it makes itself."""

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object
    ) -> object:
        print("ufunc", ufunc.__name__, method, len(inputs), sorted(kwargs))
        plain = [np.asarray(one) if isinstance(one, Named) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)


def show(name: str, call: Callable[[], object]) -> None:
    before = sys.getrefcount(array)
    try:
        result = call()
        print(name, type(result).__name__, result)
        del result
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        print(name, repr(error), [frame.name for frame in frames])
        del error, frames
    print(name, "references", sys.getrefcount(array) - before)


add: Any = np.add
named: Any = array.view(Named)
CALLS: dict[str, Callable[[], object]] = {
    "element": lambda: array[3],
    "slice": lambda: array[3:6],
    "mask": lambda: array[array > 60],
    "beyond": lambda: array[640],
    "no field": lambda: array["x"],
    "truth": lambda: bool(array),
    "axis": lambda: array.sum(axis=3),
    "total": lambda: (array.sum(), np.mean(array), array.max(), np.add.reduce(array)),
    "operators": lambda: (
        (array + 1)[:2].tolist() + (2 * array)[:2].tolist() + (-array)[:2].tolist()
    ),
    "no operator": lambda: array + "x",
    "matrix": lambda: array @ array,
    "shapes": lambda: np.concatenate([array, np.zeros((2, 2))]),
    "missing": lambda: add(array),
    "keyword": lambda: add(array, 1, nothing=2),
    "out": lambda: np.add(array, 0, out=array) is array,
    "methods": lambda: (array.item(3), array.argmax(), array.tobytes()[:8], array.dtype.name),
    "bytes": lambda: (bytes(array[:2]), io.BytesIO().write(array), bytes(view[:4])),
    "memoryview": lambda: (view[3], view[2:4].tolist(), view.obj is array, view == array),
    "no index": lambda: view[640],
    "iteration": lambda: [float(one) for one in array[:3]] + list(view[:2]),
    "named": lambda: (named[1], type(named[1:]).__name__, np.add(named, 1)[1], named.sum()),
    "pickle": lambda: np.array_equal(pickle.loads(pickle.dumps(array)), array),
    "text": lambda: str(array[:3]) + repr(array[:3]),
    "identity": lambda: (np.ndarray.tolist, np.add, operator.getitem(array, 5)),
    "names": lambda: (np.ndarray.__getitem__.__name__, np.add.reduce.__name__, np.dot.__module__),
}
for name, call in CALLS.items():
    show(name, call)


def interrupt(*_: object) -> None:
    raise TimeoutError("out of time")


signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    while True:
        array.sum()
        array[5]
except TimeoutError as error:
    print(repr(error))
