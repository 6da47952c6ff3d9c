"""torch.distributed works as before under the patches of the CUDA recorder: tried with gloo."""

from __future__ import annotations

import subprocess
import sys

from tests.virtual.programs import ENVIRONMENT

PROGRAM = """
import warnings

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from streamsan.model import records as r
from streamsan.record.cuda._recorder import CudaRecorder
from streamsan.record.cuda._nccl_groups import install_collectives
from streamsan.record._observer import Observer
from streamsan.virtual.face.collective_ops import form_of
from tests.unit.fake_collectives import NATIVE

warnings.simplefilter("ignore")
for name, answer in NATIVE.items():
    setattr(torch._C, name, answer)
seen, observer = [], Observer()
observer.begin(seen.append, r.Header("cuda", {}, (), {}), ())
recorder = CudaRecorder(observer)
symmetric = torch._C._distributed_c10d._SymmetricMemory
symmetric.rendezvous = lambda tensor, group: "shared"
install_collectives(recorder)


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if form_of(func) is not None:
            print("seen", func._schema.name)
            return recorder.collectives.run(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x, y = torch.ones(4), torch.zeros(4)
with Mode():
    work = dist.all_reduce(x, async_op=True)
    print(work.wait(timeout=__import__("datetime").timedelta(seconds=20)), work.is_completed())
    dist.all_gather_into_tensor(y, x)
    print(y.tolist())
    future = dist.broadcast(x, src=0, async_op=True).get_future()
    print(all(hasattr(getattr(type(future), name), "__wrapped__") for name in ("then", "wait")))
    print(future.then(lambda done: done.value()[0].sum().item()).wait())
    failing = future.then(lambda done: 1 / 0)
    try:
        failing.wait()
    except RuntimeError as error:
        print("division by zero" in str(error))
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    manager.wait()
    dist.barrier()
    try:
        dist.all_reduce(x, op="nonsense")
    except TypeError:
        print("refused")
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    print(group.allreduce([x]).wait(), group.broadcast(tensor=x, root=0).wait())
    try:
        group.allreduce(3)
    except TypeError as error:
        print("incompatible function arguments" in str(error))
plain = torch.futures.Future()
plain.add_done_callback(lambda done: print("called", done.value()))
plain.set_result(3)
print(plain.wait())
dist.destroy_process_group()
print([symmetric.rendezvous(x, "0") for _ in range(2)])
print([note.text for note in seen if isinstance(note, r.Note)])
"""

EXPECTED = """\
seen c10d::allreduce_
True True
seen c10d::_allgather_base_
[1.0, 1.0, 1.0, 1.0]
seen c10d::broadcast_
True
4.0
True
seen c10d::allreduce_coalesced_
seen c10d::barrier
refused
True True
True
called 3
3
['shared', 'shared']
["what other ranks read and write of this one's symmetric memory"]
"""


def test_programs_see_what_they_saw_before() -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr
