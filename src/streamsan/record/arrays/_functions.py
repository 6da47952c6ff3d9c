"""The functions of NumPy and of memoryview that are listened to, and which arguments they write.

Most functions of NumPy are made of these: ``mean`` divides what ``add.reduce`` gives, and printing
takes elements one by one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Use:
    """What a function does with arrays: it reads those that it is not said to write.

    `out` is the position of a result that a caller may supply, `self` being the first; `where`, of
    a mask that chooses elements; `target`, of an argument that is written, of which `partly` says
    that some may be left as it is, and `kept` that it is read as well. Where it `shares`, a result
    in the same memory is a view, and nothing was read; where it `lends`, it uses no buffer by
    itself.
    """

    out: int | None = None
    where: int | None = None
    target: int | None = None
    partly: bool = False
    kept: bool = False
    shares: bool = False
    lends: bool = False


_READS, _SHARES = Use(), Use(shares=True)

METHODS = {
    "__array__": _SHARES, "__complex__": _READS, "__copy__": _READS, "__deepcopy__": _READS,
    "__reduce__": _READS, "__reduce_ex__": _READS, "argmax": Use(out=2), "argmin": Use(out=2),
    "argpartition": _READS, "argsort": _READS, "astype": _SHARES, "choose": Use(out=2),
    "compress": Use(out=3), "copy": _READS, "dot": Use(out=2), "fill": Use(target=0),
    "flatten": _READS, "item": _READS, "itemset": Use(target=0, partly=True), "nonzero": _READS,
    "partition": Use(target=0, kept=True), "put": Use(target=0, partly=True), "ravel": _SHARES,
    "repeat": _READS, "reshape": _SHARES, "searchsorted": _READS,
    "setfield": Use(target=0, partly=True), "sort": Use(target=0, kept=True), "take": Use(out=3),
    "tobytes": _READS, "tofile": _READS, "tolist": _READS,
}  # fmt: skip
"""Of ``numpy.ndarray``."""

FUNCTIONS = {
    "_place": Use(target=0, partly=True), "array": _SHARES, "asanyarray": _SHARES,
    "asarray": _SHARES, "ascontiguousarray": _SHARES, "asfortranarray": _SHARES,
    "bincount": _READS, "c_einsum": _READS, "concatenate": Use(out=2),
    "copyto": Use(target=0, where=3), "correlate": _READS, "count_nonzero": _READS,
    "dot": Use(out=2), "frombuffer": Use(lends=True), "inner": _READS, "interp": _READS,
    "lexsort": _READS, "packbits": _READS, "putmask": Use(target=0, partly=True),
    "unpackbits": _READS, "vdot": _READS, "where": _READS,
}  # fmt: skip
"""Of NumPy's own module in C."""

UFUNC_METHODS = {
    "accumulate": Use(out=3), "at": Use(target=0, partly=True, kept=True),
    "outer": _READS, "reduce": Use(out=3, where=6), "reduceat": Use(out=4),
}  # fmt: skip
"""Of ``numpy.ufunc``; a call of one is told by itself."""

MEMORYVIEW = {"hex": _READS, "tobytes": _READS, "tolist": _READS}
"""Methods of ``memoryview``."""

FIELDS = {
    "mp_subscript": "__getitem__", "mp_ass_subscript": "__setitem__", "sq_item": "__getitem__",
    "bf_getbuffer": "__buffer__",
}  # fmt: skip
"""What types have in fields of C, by the name that Python has for it: of both."""

NUMBER_FIELDS = {
    "nb_bool": "__bool__", "nb_int": "__int__", "nb_float": "__float__", "nb_index": "__index__",
}  # fmt: skip
"""The same, of arrays."""

MEMORYVIEW_FIELDS = {"tp_richcompare": "__eq__", "tp_iter": "__iter__"}
"""The same, of memoryviews."""

SHARING_FIELDS = ("mp_subscript", "sq_item")
"""Those whose result may be a view."""
