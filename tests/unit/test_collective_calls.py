"""What collectives do with their arguments, held against the schemas and signatures of torch."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.virtual.face.collective_ops import FORMS, METHODS, MethodCall

NATIVE: Any = torch._C._distributed_c10d
CLASSES = (NATIVE.ProcessGroup, NATIVE.Backend)
SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*)\) -> c10d::Work$", re.MULTILINE)
PARAMETER = re.compile(r"(?:^|, )(\w+): ([\w.\[\]]+)")
X, Y, Z = (torch.ones(1) for _ in range(3))


def test_forms_name_the_first_arguments_of_their_operators() -> None:
    for name, form in FORMS.items():
        declared = [a.name for a in getattr(torch.ops.c10d, name).default._schema.arguments]
        assert declared[: len(form.modes)] == list(form.modes)
        assert form.others is None or list(form.others) == list(form.modes)


def test_every_operator_of_a_group_has_a_form() -> None:
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("c10d::")]
    groups = [s for s in schemas if any(a.name == "process_group" for a in s.arguments)]
    assert {schema.name.removeprefix("c10d::") for schema in groups} == FORMS.keys()


def signatures(kind: Any) -> dict[str, list[list[tuple[str, str]]]]:
    """Of each method of a class that returns a handle: names and types of the parameters."""
    found: dict[str, list[list[tuple[str, str]]]] = {}
    for member in vars(kind).values():
        for name, parameters in SIGNATURE.findall(getattr(member, "__doc__", None) or ""):
            found.setdefault(name, []).append(PARAMETER.findall(parameters)[1:])
    return found


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_methods_take_the_tensors_of_their_form_first(kind: Any) -> None:
    found = signatures(kind)
    found.pop("_end_coalescing")
    assert found.keys() <= METHODS.keys()
    assert len(found) >= 17
    for method, overloads in found.items():
        names = list(FORMS[METHODS[method]].modes)
        for parameters in overloads:
            tensors = [name for name, type_ in parameters if "torch.Tensor" in type_]
            assert [name for name, _ in parameters[: len(tensors)]] == tensors
            assert len(tensors) == len(names)
            if tensors != ["arg0"]:  # which nobody names
                assert [name[:2] for name in tensors] == [name[:2] for name in names]


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "wanted"),
    [
        ("allreduce", ([X, Y],), {}, {"tensors": [X, Y]}),
        ("allreduce", (X,), {}, {"tensors": [X]}),
        ("allreduce", (), {"tensor": X, "op": None}, {"tensors": [X]}),
        ("allgather", ([[X, Y]], [Z]), {}, {"output_tensors": [X, Y], "input_tensors": [Z]}),
        (
            "allgather",
            ([X, Y],),
            {"input_tensor": Z},
            {"output_tensors": [X, Y], "input_tensors": [Z]},
        ),
        (
            "_reduce_scatter_base",
            (),
            {"outputTensor": X, "inputTensor": Y},
            {"output_tensor": [X], "input_tensor": [Y]},
        ),
        (
            "alltoall_base",
            (),
            {"output_split_sizes": [1], "input_split_sizes": [1], "output": X, "input": Y},
            {"output": [X], "input": [Y]},
        ),
        ("send", ([X], 1, 0), {}, {"tensors": [X]}),
        ("barrier", (), {}, {}),
        ("allreduce", (3,), {}, {"tensors": []}),
        ("allreduce", (), {}, {"tensors": []}),
    ],
)
def test_tensors_by_place_and_by_name(
    method: str, args: tuple[Any, ...], kwargs: dict[str, Any], wanted: dict[str, list[Any]]
) -> None:
    call = MethodCall(method, args, kwargs)
    for name, tensors in wanted.items():
        found = call.tensors(name)
        assert [id(tensor) for tensor in found] == [id(tensor) for tensor in tensors]
    assert list(call.form.modes) == list(wanted)


def options(root: int) -> Any:
    made = NATIVE.BroadcastOptions()
    made.rootRank = root
    return made


@pytest.mark.parametrize(
    ("args", "kwargs", "root"),
    [
        ((X, 3), {}, 3),
        ((X,), {"root": 2}, 2),
        (([X], options(1)), {}, 1),
        (([X],), {"opts": options(4)}, 4),
        (([X],), {}, 0),
    ],
)
def test_root(args: tuple[Any, ...], kwargs: dict[str, Any], root: int) -> None:
    call = MethodCall("broadcast", args, kwargs)
    assert call.root == root
    assert call.form.modes_of(call.root == 0)["tensors"] == (
        r.Mode.READ if root == 0 else r.Mode.WRITE
    )


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "peer"),
    [
        ("send", ([X], 5, 0), {}, 5),
        ("recv", ([X],), {"srcRank": 4, "tag": 0}, 4),
        ("send", (), {"tensors": [X], "dstRank": 3, "tag": 0}, 3),
        ("recv_anysource", ([X], 7), {}, None),  # that is a tag
        ("reduce", (X, 1), {}, None),
    ],
)
def test_peer(method: str, args: tuple[Any, ...], kwargs: dict[str, Any], peer: int | None) -> None:
    assert MethodCall(method, args, kwargs).peer == peer


def test_device_of_a_barrier() -> None:
    assert MethodCall("barrier", (), {}).device is None
    made = NATIVE.BarrierOptions()
    assert MethodCall("barrier", (made,), {}).device is None
    made.device_ids = [2]
    assert MethodCall("barrier", (made,), {}).device == 2
    made.device = torch.device("cuda", 1)
    assert MethodCall("barrier", (), {"opts": made}).device == 1
