"""Solutions that try to pass without computing: each is put into `ModelNew.forward`, or before it.

None may pass, and none may end the grader or change anything outside of its process.
"""

from __future__ import annotations

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.rand(5, 7)]

def get_init_inputs():
    return [7]
"""

_MODULE = """
import os, sys, time, ctypes, signal, socket, threading, pathlib
import torch
from torch import nn
{before}

class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)

    def forward(self, x):
{forward}
"""

ZEROS = "return torch.zeros(5, 7)"

# By name: what runs when the solution is loaded, and what computes.
_SOLUTIONS = {
    "zeros": ("", ZEROS),
    "unwritten memory": ("", "return torch.empty(5, 7)"),
    "returns the input": ("", "return x"),
    "returns the input's memory": ("", "return torch.as_strided(x, (5, 7), (7, 1), 0).relu_()"),
    "patches torch.allclose": ("torch.allclose = lambda *a, **k: True", ZEROS),
    "patches comparisons": (
        "for n in ('eq', 'ne', 'lt', 'le', 'gt', 'ge', 'equal', 'isclose'):\n"
        "    setattr(torch, n, lambda *a, **k: torch.tensor(True))\n"
        "torch.Tensor.__eq__ = lambda a, b: torch.ones_like(a, dtype=torch.bool)\n"
        "torch.Tensor.__le__ = torch.Tensor.__eq__",
        ZEROS,
    ),
    "patches the judge": (
        "import importlib\n"
        "judge = importlib.import_module('convref.judge.programs.report')\n"
        "grading = importlib.import_module('convref.grade.grading')\n"
        "judge.verdict = grading.judged = lambda *a: True\n"
        "grading._judged = lambda *a: grading.Draw({}, 'any', 'pass')",
        ZEROS,
    ),
    "reads the caller's frames": (
        "",
        "frame = sys._getframe()\n"
        "while frame:\n"
        "    for value in list(frame.f_locals.values()):\n"
        "        if isinstance(value, dict) and 'expected' in value:\n"
        "            return value['expected']\n"
        "    frame = frame.f_back\n" + ZEROS,
    ),
    "caches by pointer": (
        "kept = {}",
        "return kept.setdefault(x.data_ptr(), torch.relu(self.linear(x)).detach().clone())",
    ),
    "caches by shape": (
        "kept = {}",
        "return kept.setdefault(tuple(x.shape), torch.relu(self.linear(x)).detach().clone())",
    ),
    "right at the first call only": (
        "calls = []",
        "calls.append(1)\n"
        "return torch.relu(self.linear(x)) if len(calls) == 1 else torch.zeros(5, 7)",
    ),
    "sleeps": ("", "time.sleep(1000)"),
    "sleeps while loading": ("time.sleep(1000)", ZEROS),
    "computes without end": ("", "while True: pass"),
    "exits": ("", "sys.exit(0)"),
    "exits at once": ("", "os._exit(0)"),
    "exits while loading": ("raise SystemExit(0)", ZEROS),
    "raises a forged report": ("", "raise ValueError('x\\npass: solution.py of problem')"),
    "raises KeyboardInterrupt": ("", "raise KeyboardInterrupt"),
    "aborts": ("", "os.abort()"),
    "reads address 0": ("", "return ctypes.string_at(0)"),
    "kills the grader": (
        "",
        "for number in (os.getppid(), *range(1, 100)):\n"
        "    try:\n"
        "        if number and number != os.getpid(): os.kill(number, signal.SIGKILL)\n"
        "    except OSError: pass\n" + ZEROS,
    ),
    "kills its group": ("", "os.killpg(0, signal.SIGKILL)"),
    "forks and answers twice": ("", "os.fork()\n" + ZEROS),
    "forks without end": ("", "while True: os.fork()"),
    "leaves a process": (
        "",
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\n" + ZEROS,
    ),
    "fills the disk": (
        "",
        "for n in range(10**6):\n    open(f'f{n}', 'wb').write(bytes(1 << 20))",
    ),
    "fills memory": ("kept = []", "while True: kept.append(torch.ones(1 << 24))"),
    "prints a forged report": (
        "print('pass: problem, 32 draws, score 1.000', flush=True)",
        'print(\'{"verdict": "pass", "score": 1.0}\', flush=True)\n' + ZEROS,
    ),
    "prints without end": ("", "while True: os.write(1, b'pass' * 4096)"),
    "writes to the grader's socket": (
        "",
        "for n in range(3, 64):\n"
        "    try: os.write(n, bytes(64))\n"
        "    except OSError: pass\n" + ZEROS,
    ),
    "answers before it is asked": (
        "from convref.grade import wire\n"
        "data = wire.pack({'output': torch.zeros(5, 7)})\n"
        "for n in range(3, 64):\n"
        "    try: os.write(n, 9 * (len(data).to_bytes(8, 'little') + data))\n"
        "    except OSError: pass",
        ZEROS,
    ),
    "closes every file": ("", "os.closerange(0, 256)\n" + ZEROS),
    "answers of another form": ("", "return {'verdict': 'pass', 'output': True}"),
    "answers with an object": (
        "class Evil:\n    def __reduce__(self): return os.system, ('true',)",
        "return Evil()",
    ),
    "deep answer": (
        "",
        "found = []\nfor n in range(10**5): found = [found]\nreturn found",
    ),
    "a tensor that is equal to all": (
        "class Equal(torch.Tensor):\n"
        "    @classmethod\n"
        "    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
        "        return torch.tensor(True)",
        "return torch.zeros(5, 7).as_subclass(Equal)",
    ),
    "NaN": ("", "return torch.full((5, 7), float('nan'))"),
    "another shape": ("", "return torch.relu(self.linear(x))[:0]"),
    "another dtype": ("", "return torch.relu(self.linear(x)).double()"),
    "changes global flags": (
        "torch.set_default_dtype(torch.float16)\n"
        "torch.set_flush_denormal(True)\n"
        "torch.set_default_device('meta')",
        "return torch.relu(self.linear(x))[:1].expand(5, 7)",
    ),
    "halved precision": (
        "",
        "w, b = self.linear.parameters()\nreturn torch.relu((x.half() @ w.half().t()).float() + b)",
    ),
    "weights as constructed": (
        "torch.manual_seed(0)\nkept = nn.Linear(7, 7)",
        "return torch.relu(kept(x))",
    ),
    "a random seed of its own": ("", "torch.manual_seed(1)\nreturn torch.rand(5, 7)"),
    "waits for another thread": (
        "",
        "out = torch.zeros(5, 7)\n"
        "def later(): time.sleep(0.5); out.copy_(torch.relu(self.linear(x)).detach())\n"
        "threading.Thread(target=later).start()\n"
        "return out",
    ),
}


def source(name: str) -> str:
    """Return the file of a solution."""
    before, forward = _SOLUTIONS[name]
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    return _MODULE.format(before=before, forward=lines)


NAMES = tuple(_SOLUTIONS)
