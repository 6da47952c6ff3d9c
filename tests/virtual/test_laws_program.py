"""Law 1: a program prints, raises and exits as it does without StreamSan.

Each program runs under plain Python on the CPU and sanitized on the virtual GPU. ``DEVICE`` is
where it works; what it prints must not tell the two apart.
"""

from __future__ import annotations

import os
import signal
import textwrap
import time
from pathlib import Path

import pytest

from tests.virtual.programs import Programs

HEAD = """\
import os, sys, threading, time
import torch
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
def work(number=1): return (torch.ones(4, device=DEVICE) * number).sum().item()
"""

PROGRAMS = {
    "error of an operator": """
        def f():
            return torch.ones(3, device=DEVICE) @ torch.ones(4, device=DEVICE)
        f()
        """,
    "error in a hook": """
        def hook(gradient):
            raise KeyError("hook")
        x = torch.ones(3, device=DEVICE, requires_grad=True)
        x.register_hook(hook)
        (x * 2).sum().backward()
        """,
    "error in a module": """
        class Net(torch.nn.Module):
            def forward(self, x):
                raise ValueError(x.shape)
        Net().to(DEVICE)(torch.ones(2, device=DEVICE))
        """,
    "error with a cause": """
        try:
            torch.ones(3, device=DEVICE).view(2)
        except RuntimeError as error:
            raise LookupError("wrapped") from error
        """,
    "error in a thread": """
        def f():
            torch.ones(3, device=DEVICE).view(2)
        thread = threading.Thread(target=f, name="worker")
        thread.start()
        thread.join()
        print("main goes on", work())
        """,
    "thread hook": """
        threading.excepthook = lambda args: print("hook", args.exc_type, args.thread.name)
        thread = threading.Thread(target=lambda: 1 / 0, name="worker")
        thread.start()
        thread.join()
        """,
    "exit with a status": "work(); sys.exit(7)",
    "exit with a message": "work(); sys.exit('enough')",
    "exit at once": "print(work(), flush=True); os._exit(5)",
    "exit in a thread": """
        def f():
            print(work())
            sys.exit(4)
        thread = threading.Thread(target=f)
        thread.start()
        thread.join()
        print("end")
        """,
    "keyboard interrupt": "work(); raise KeyboardInterrupt",
    "killed": "import signal; work(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "handler of a signal": """
        import signal
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        def stop(number, frame):
            print("stopped", work(2))
            raise SystemExit(3)
        signal.signal(signal.SIGTERM, stop)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        """,
    "fork": """
        x = torch.ones(3, device=DEVICE)
        child = os.fork()
        if not child:
            print("child", (torch.ones(2) + 1).sum().item(), flush=True)
            os._exit(3)
        print("parent", os.waitpid(child, 0)[1] >> 8, (x + 1).sum().item())
        """,
    "fork that ends in order": """
        import atexit
        work()
        atexit.register(lambda: print("bye", os.getpid() == main, flush=True))
        main = os.getpid()
        sys.stdout.flush()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        """,
    "fork before the GPU is used": """
        child = os.fork()
        if not child:
            print("child", work(2), flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], work(3))
        """,
    "multiprocessing": """
        import multiprocessing
        def child(queue):
            queue.put((torch.ones(2) + 1).sum().item())
        if __name__ == "__main__":
            work()
            for method in ("fork", "spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                queue = context.Queue()
                process = context.Process(target=child, args=(queue,))
                process.start()
                print(method, queue.get(timeout=50))
                process.join()
                print(process.exitcode)
        """,
    "threads": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(3) as pool:
            print(list(pool.map(work, range(6))))
        def fail():
            raise ValueError("x")
        with ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(fail).result()
            except ValueError:
                import traceback
                traceback.print_exc()
        timer = threading.Timer(0.01, lambda: print("timer", work(2)))
        timer.start()
        timer.join()
        print(threading.active_count(), [t.name for t in threading.enumerate()])
        """,
    "a thread that outlives the main one": """
        def f():
            threading.main_thread().join()
            print("late", work(3))
        threading.Thread(target=f).start()
        print("main ends")
        """,
    "loader": """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
        for options in (
            {"num_workers": 0},
            {"num_workers": 2},
            {"num_workers": 2, "persistent_workers": True},
        ):
            loader = DataLoader(data, batch_size=2, pin_memory=DEVICE == "cuda", **options)
            for epoch in range(2):
                print([(x.to(DEVICE, non_blocking=True).sum().item(), y.tolist())
                       for x, y in loader])
            del loader
        """,
    "spawned loader": """
        from torch.utils.data import DataLoader, TensorDataset
        if __name__ == "__main__":
            data = TensorDataset(torch.arange(6.0))
            loader = DataLoader(
                data, batch_size=3, num_workers=1, multiprocessing_context="spawn",
                pin_memory=DEVICE == "cuda",
            )
            print([x.to(DEVICE).sum().item() for x, in loader])
        """,
    "loader that fails": """
        from torch.utils.data import DataLoader, Dataset
        class Data(Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): raise IndexError("no sample")
        work()
        try:
            list(DataLoader(Data(), num_workers=1))
        except IndexError as error:
            print(str(error).splitlines()[-1])
        """,
    "exit handlers": """
        import atexit
        atexit.register(lambda: print("first", work(1)))
        atexit.register(lambda: print("second", work(2)))
        sys.exit(6)
        """,
    "warnings and logging": """
        import logging, warnings
        warnings.simplefilter("always")
        warnings.warn("careful")
        logging.basicConfig(level=logging.INFO)
        logging.info("hello %s", work())
        with warnings.catch_warnings(record=True) as caught:
            work(2)
        print(len(caught))
        """,
    "tracing and profiling": """
        seen = []
        def trace(frame, event, argument):
            seen.append(frame.f_code.co_name)
        sys.settrace(trace); work(); print(sys.gettrace() is trace); sys.settrace(None)
        print("work" in seen)
        seen.clear()
        def profile(frame, event, argument):
            seen.append((frame.f_code.co_name, event))
        sys.setprofile(profile); work(); print(sys.getprofile() is profile); sys.setprofile(None)
        print(("work", "call") in seen, ("work", "return") in seen)
        """,
    "own modes": """
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode
        class Dispatch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                print(func)
                return func(*args, **(kwargs or {}))
        class Function(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                print(func.__name__)
                return func(*args, **(kwargs or {}))
        x = torch.ones(3, device=DEVICE, requires_grad=True)
        with Dispatch():
            (x * 2 + 1).sum().backward()
            torch.zeros(4, device=DEVICE).copy_(torch.ones(4)).sum().item()
        with Function():
            y = x + 1
            y.sum().item(); y.cpu(); y.to(DEVICE); y.device; y.is_cuda; y.is_pinned()
            y.detach().tolist(); y.detach().cpu().numpy(); y.type(torch.float64); y[0]
            y.sum().backward()
        """,
    "subclasses": """
        class Plain(torch.Tensor):
            pass
        class Loud(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                print(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})
        for kind in (Plain, Loud):
            x = torch.ones(3, device=DEVICE).as_subclass(kind)
            print(type(x + 1), type(x.cpu()), type(x.double()), x.device.type == DEVICE)
        """,
    "profiler of torch": """
        from torch.profiler import ProfilerActivity, profile
        os.close(2)
        with profile(activities=[ProfilerActivity.CPU]) as found:
            work()
        names = {event.key for event in found.key_averages()}
        print({"aten::ones", "aten::mul", "aten::sum"} <= names)
        """,
    "other programs": """
        import subprocess
        work()
        done = subprocess.run([sys.executable, "-c", "print(1 + 1)"], stdout=subprocess.PIPE)
        print(done.stdout, flush=True)
        os.system("echo shell")
        """,
    "another program takes over": """
        work()
        os.environ["PYTHONPATH"] = ""
        try:
            os.execv("missing", ["missing"])
        except OSError as error:
            print(error, flush=True)
        code = "print('taken over'); raise SystemExit(4)"
        os.execvp(sys.executable, [sys.executable, "-c", code])
        """,
    "deep recursion": """
        def down(depth):
            return down(depth + 1) if depth else down(1)
        try:
            down(1)
        except RecursionError:
            print("too deep", work())
        """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_behaves_as_under_python(programs: Programs, name: str) -> None:
    text = HEAD + textwrap.dedent(PROGRAMS[name])
    expected = programs.plain(text)
    done = programs.run(text)
    assert done.stdout == expected.stdout
    assert done.status == expected.status
    assert done.stderr == expected.stderr
    if name != "killed":  # nobody can report then; the trace is there as far as it goes
        assert done.report["verdict"] == "clean"
        assert done.report["summary"]["complete"]
        assert done.errors == []


DAEMONS = """
begun = threading.Barrier(4)
def f():
    begun.wait()
    while True:
        work(3)
for _ in range(3):
    threading.Thread(target=f, daemon=True).start()
begun.wait()
print("end")
sys.exit(9)
"""


def test_daemon_threads_at_work_do_not_abort_the_end(programs: Programs) -> None:
    done = programs.run(HEAD + DAEMONS)
    assert (done.status, done.stdout, done.stderr) == (9, "end\n", "")
    assert done.errors == []


FORKED = """
x = torch.ones(3, device="cuda")
pinned = torch.ones(3, pin_memory=True)
child = os.fork()
if not child:
    for attempt in (
        lambda: torch.ones(2, device="cuda"), lambda: torch.tensor([1.0], device="cuda"),
        lambda: torch.ones(2).cuda(), lambda: torch.ones(2).to("cuda"),
        lambda: torch.ones(2).pin_memory(), torch.cuda.synchronize, torch.cuda.Stream,
        torch.cuda.current_stream, lambda: torch.cuda.set_device(0),
        lambda: x + 1, lambda: x.add_(1), x.cpu, lambda: x[0].item(), x.tolist, lambda: print(x),
        x.clone, lambda: x.copy_(torch.ones(3)),
    ):
        try:
            attempt()
        except RuntimeError as error:
            print(str(error)[:31], flush=True)
        else:
            print("done", flush=True)
    print(torch.cuda.is_available(), (pinned + 1).tolist(), x.shape, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(x.sum().item())
"""


def test_a_forked_child_gets_the_errors_of_a_cuda_build(programs: Programs) -> None:
    lines = programs.run(HEAD + FORKED).stdout.splitlines()
    assert lines[:9] == ["Cannot re-initialize CUDA in forked"[:31]] * 9
    assert lines[9:17] == ["CUDA error: initialization error"[:31]] * 8
    assert lines[17:] == ["True [2.0, 2.0, 2.0] torch.Size([3])", "3.0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_from_outside(programs: Programs, number: int) -> None:
    started = programs.folder / "started"

    def interrupt(process: int) -> None:
        while not started.exists():
            time.sleep(0.01)
        os.kill(process, number)

    # what runs in the background of a shell ignores interrupts, and so do its children
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    text = heard + HEAD + f"work()\nopen({str(started)!r}, 'w').close()\ntime.sleep(60)\n"
    done = programs.run(text, meanwhile=interrupt)
    assert done.status == -number
    if number == signal.SIGINT:
        assert done.stderr.endswith("KeyboardInterrupt\n")
        assert "streamsan" not in done.stderr
        assert done.report["summary"]["complete"]


def test_a_killed_program_leaves_a_trace(programs: Programs) -> None:
    text = HEAD + RACE + "import signal; time.sleep(1.2); os.kill(os.getpid(), signal.SIGKILL)\n"
    done = programs.run(text, options=("--trace", "t"))
    assert (done.status, done.report) == (-signal.SIGKILL, {})
    check = programs.streamsan("check", "t")
    assert check.status == 3
    assert "race 1 of 1" in check.stdout
    assert "stops before its program ended" in check.stderr


RACE = """
side = torch.cuda.Stream()
data = torch.zeros(1024, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    data.add_(1)
data.mul_(2)
"""


def test_stop_at_the_first_race(programs: Programs) -> None:
    text = HEAD + "print('before')\n" + RACE + "print('after')\n"
    done = programs.run(text, options=("--fail-fast", "--trace", "t"))
    assert (done.status, done.stdout, done.lines) == (66, "before\n", [(11, 12)])
    assert programs.streamsan("check", "t").status == 66


def test_module_and_text(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    programs.write("", "package/__init__.py")
    programs.write(HEAD + RACE, "package/train.py")
    done = programs.streamsan("run", "--device", "virtual", "-m", "package.train")
    assert done.status == 66
    assert "package/train.py:10 in <module>" in done.stderr
    assert "│ data.add_(1)" in done.stderr
    done = programs.streamsan("run", "--device", "virtual", "-c", HEAD + RACE + "sys.exit(8)")
    assert done.status == 8
    assert "<string>:10 in <module>" in done.stderr
