"""Each format of `convref grade`: a right solution passes, a wrong and a cheating one do not."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("psutil", reason="psutil is not installed")

import hostile_solutions as hostile  # noqa: E402

from convref import ConvrefError, Numerics, UnsupportedError  # noqa: E402
from convref.cli.commands import app  # noqa: E402
from convref.grade import certify, check_implementation, grade, grading, load  # noqa: E402
from convref.grade.problem import TEST, Solution, Trial  # noqa: E402
from convref.grade.serve import load_solution, run_solution, triton_on_cpu  # noqa: E402
from convref.grade.session import EndedError, Limits, Session  # noqa: E402
from convref.grade.wire import pack, unpack  # noqa: E402

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

GPU_MODE = """
import torch
from task import SCALE

def generate_input(m, k, seed, kind="normal", scaled=True, shape=(2, "x")):
    assert (kind, scaled, list(shape)) == ("normal", True, [2, "x"])
    random = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(m, k, generator=random, device="cuda")
    return x, torch.empty(m, device="cuda")

def ref_kernel(data):
    x, output = data
    output[...] = x.sum(1) * SCALE
    return output
"""
TASK = """
tests:
  - {"m": 5, "k": 33, "seed": 1}
  - {m: 7, k: 64, seed: 2, kind: normal, scaled: true, shape: [2, "x"]}
benchmarks:
  - {"m": 4096, "k": 4096, "seed": 3}
"""
KERNEL = "import torch\n\ndef custom_kernel(data):\n    x, output = data\n    return {}\n"

TRACE = """
Operator: aten.add.Tensor
cnt: 3, ((T([512, 96], f32), T([96], f32)), {'alpha': 2})
cnt: 1, ((T([33], f32, [2]), 4), {})
"""
IMPLEMENTATION = "def add__Tensor_kernel_impl(x, y, *, alpha=1):\n    return {}\n"

REFERENCE = """
import torch

@torch.no_grad()
def run(x, weight, eps):
    assert x.shape[-1] == 96
    rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * rstd * weight, rstd
"""
DEFINITION = {
    "name": "rms_norm_n96",
    "axes": {
        "batch": {"type": "var"},
        "n": {"type": "const", "value": 96},
        "one": {"type": "expr", "expression": "n // n"},
    },
    "inputs": {
        "x": {"shape": ["batch", "n"], "dtype": "float32"},
        "weight": {"shape": ["n"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["batch", "n"], "dtype": "float32"},
        "rstd": {"shape": ["batch", "one"], "dtype": "float32"},
    },
    "reference": REFERENCE,
}
WORKLOAD = {
    "uuid": "1",
    "axes": {"batch": 512},
    "inputs": {"x": {"type": "random"}, "weight": {"type": "random"}}
    | {"eps": {"type": "scalar", "value": 1e-5}},
}
RUN = """
from helper import rstd_of

def kernel(x, weight, eps, y, rstd):
    rstd[:] = rstd_of(x, eps)
    y[:] = {}
"""
HELPER = "def rstd_of(x, eps):\n    return (x.square().sum(-1, keepdim=True) / 96 + eps).rsqrt()\n"

BENCHMARK = """
import torch
from kernels.benchmark import Benchmark

class SiluBenchmark(Benchmark):
    seed = 42

    def setup_large(self):
        self.x = torch.randn(640, 2 * 96, device=self.device)
        self.out = torch.empty(640, 96, device=self.device)

    def benchmark_large(self):
        self.kernel.silu_and_mul(self.out, self.x)

    def verify_large(self):
        x, y = self.x.chunk(2, -1)
        return torch.nn.functional.silu(x) * y
"""
PACKAGE = "from .silu import silu_and_mul\n"
SILU = "import torch\n\ndef silu_and_mul(out, x):\n    n = x.shape[1] // 2\n    out[:] = {}\n"


def gpu_mode(folder, body):
    (folder / "task.py").write_text("SCALE = 2", "utf-8")
    (folder / "task.yml").write_text(TASK, "utf-8")
    return written(folder, "reference.py", GPU_MODE), written(folder, "k.py", KERNEL.format(body))


def backend_bench(folder, body):
    text = IMPLEMENTATION.format(body)
    return written(folder, "add.txt", TRACE), written(folder, "add__Tensor_implementation.py", text)


def definition(folder, body):
    """Write a definition as FlashInfer-Bench does, and a solution of two files."""
    (folder / "definitions").mkdir(exist_ok=True)
    (folder / "workloads").mkdir(exist_ok=True)
    written(folder, "workloads/rms.jsonl", json.dumps({"workload": WORKLOAD, "solution": None}))
    sources = {"kernel.py": RUN.format(body), "helper.py": HELPER}
    answer = {
        "spec": {"entry_point": "kernel.py::kernel"},
        "sources": [{"path": path, "content": text} for path, text in sources.items()],
    }
    problem = written(folder, "definitions/rms.json", json.dumps(DEFINITION))
    return problem, written(folder, "solution.json", json.dumps(answer))


def returning(folder, body):
    """Write a definition as SOL-ExecBench does, and a file whose function returns a dict."""
    written(folder, "workload.jsonl", json.dumps(WORKLOAD))
    returns = f"return {{'rstd': rstd, 'y': {body}}}"
    text = f"{HELPER}\ndef run(x, weight, eps):\n    rstd = rstd_of(x, eps)\n    {returns}\n"
    answer = {
        "spec": {"entry_point": "main.py::run", "destination_passing_style": False},
        "sources": [{"path": "main.py", "content": text}],
    }
    problem = written(folder, "definition.json", json.dumps(DEFINITION))
    return problem, written(folder, "solution.json", json.dumps(answer))


def hugging_face(folder, body):
    (folder / "kernel").mkdir(exist_ok=True)
    written(folder, "kernel/__init__.py", PACKAGE)
    written(folder, "kernel/silu.py", SILU.format(body))
    return written(folder, "benchmark.py", BENCHMARK), folder / "kernel"


def written(folder, name, text):
    (folder / name).write_text(text, "utf-8")
    return folder / name


STALE = "KEPT.setdefault('first', {})"
# By format: how its files are written, and bodies that are right, wrong and cheating.
FORMATS = {
    "gpumode": (
        gpu_mode,
        "x.flip(1).sum(1) * 2",
        "x.bfloat16().sum(1).float() * 2",
        "output",  # as it was given: what the last kernel left in it
    ),
    "backendbench": (
        backend_bench,
        "y * alpha + x",
        "y + x",
        "globals().setdefault('kept', x + alpha * y)",
    ),
    "flashinfer-bench": (
        definition,
        "weight * rstd * x",
        "(x.half() * rstd.half() * weight.half()).float()",
        "y.nan_to_num()",
    ),
    "sol-execbench": (returning, "weight * rstd * x", "x * rstd", "x"),
    "huggingface": (
        hugging_face,
        "x[:, n:] * x[:, :n] / (1 + torch.exp(-x[:, :n]))",
        "x[:, n:] * x[:, :n] / (1 + torch.exp(-x[:, :n])).half()",
        "globals().setdefault('kept', torch.nn.functional.silu(x[:, :n]) * x[:, n:]).mean()",
    ),
}


class Here:
    """A session in this process: what travels is packed and read, without a process or limits."""

    isolation, triton, folder = (), "", None

    def __init__(self, solution, device, limits):
        self.solution, self.device = solution, device

    def __enter__(self):
        return self

    def __exit__(self, *_):
        sys.path.remove(str(self.folder))
        for name in ("helper", "solution", "solution.silu"):
            sys.modules.pop(name, None)

    def start(self):
        for name, data in self.solution.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        self.loaded = load_solution(self.folder / self.solution.main, self.solution.entry)

    def call(self, request):
        try:
            return unpack(pack(run_solution(self.loaded, unpack(pack(request)), self.device)))
        except Exception as error:
            raise EndedError("raises", f"{type(error).__name__}: {error}") from None


@pytest.mark.parametrize("name", FORMATS)
def test_solutions_of_each_format_are_graded(name, tmp_path, monkeypatch):
    write, *bodies = FORMATS[name]
    if not NIGHTLY:  # a process costs seconds
        monkeypatch.setattr(grading, "Session", Here)
    for number, (body, kind) in enumerate(zip(bodies, ("pass", "wrong", "wrong"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        problem, solution = write(folder, body)
        monkeypatch.setattr(Here, "folder", tmp_path / f"run{number}")
        found = grade(name, problem, solution, seed=1)
        assert found.verdict == kind, f"{body}: {found}"
        if kind == "pass":
            assert len({str(draw.sizes) for draw in found.draws}) > 1
            assert found.score > 0.9, found.power
    assert not {"task", "helper", "kernels"} & set(sys.modules)


def test_a_certificate_finds_the_problems_of_its_format(tmp_path):
    for name, problem, refused in (
        ("gpumode", "gpumode", []),
        ("sol-execbench", "rms_norm_n96", ["solution"]),  # which is JSON too
    ):
        write, body, *_ = FORMATS[name]
        (tmp_path / name).mkdir()
        write(tmp_path / name, body)
        found = list(certify(name, tmp_path / name))
        assert [each.problem for each in found if each.refused] == refused
        (one,) = (each for each in found if not each.refused)
        assert one.problem == problem
        assert len(one.mutations) >= 4
        assert one.judge == ()


def test_the_judge_is_a_check_of_gpu_mode():
    x = torch.randn(9, 33)
    right = check_implementation(lambda data: data.sum(1), x, x.flip(1).sum(1))
    assert right == (True, "")
    is_right, reason = check_implementation(lambda data: data.sum(1), x, x[:, 1:].sum(1))
    assert not is_right
    assert "needs" in reason
    assert check_implementation(lambda data: data.zero_(), x, x * 0)[0]
    form = check_implementation(lambda data: data.sum(1), x, [1.0])
    assert form == (False, "it returns a float, needs a tensor")


def test_bad_problems_are_refused(tmp_path, monkeypatch):
    for name, file, text, says in (
        ("backendbench", "a", "Operator: aten.add.Tensor", "needs one and its cnt"),
        ("backendbench", "a", "Operator: aten.add.X\ncnt: 1, ((), {})", "no overload aten.add.X"),
        ("sol-execbench", "a", "{", "is not JSON"),
        ("sol-execbench", "a", '{"axes": {}}', "has no inputs, outputs, reference"),
        ("sol-execbench", "a", json.dumps(DEFINITION), "needs .*workload.jsonl or"),
        ("huggingface", "a", "x = 1", "no class with benchmark_X and verify_X"),
        ("huggingface", "a", "1 / 0", "a raises ZeroDivisionError"),
    ):
        with pytest.raises(ConvrefError, match=says):
            load(name, written(tmp_path, file, text))
    problem, solution = definition(tmp_path, "x")
    facts = json.loads(solution.read_text("utf-8"))
    facts["spec"]["entry_point"] = "kernel.cu::run"
    facts["sources"].append({"path": "kernel.cu", "content": ""})
    solution.write_text(json.dumps(facts), "utf-8")
    with pytest.raises(UnsupportedError, match=r"kernel\.cu is not Python"):
        grade("flashinfer-bench", problem, solution)
    for path in ("/tmp/x.py", "../x.py", "a/../../x.py", "a\0.py", ""):
        with pytest.raises(ConvrefError, match="is no path inside of a folder"):
            Solution({path: b""}, path, "run")
    with pytest.raises(ConvrefError, match="is none of the solution's files"):
        Solution({"a.py": b""}, "../b.py", "run")
    spec, bad = '{"spec": {"entry_point": "a.py::f"}', '"content": "\\ud800"'
    for text in (
        *("[" * 100_000, '{"spec": []}', '{"spec": {"entry_point": "a"}, "sources": [1]}'),
        *(
            f'{spec}, "sources": [{{"path": {p}}}]}}'
            for p in (f'"a.py", {bad}', '1, "content": ""')
        ),
    ):
        solution.write_text(text, "utf-8")
        with pytest.raises(ConvrefError, match=r"needs spec\.entry_point|is not JSON|is none of"):
            grade("flashinfer-bench", problem, solution)
    for entry in ("a\0", "f()"):
        with pytest.raises(ConvrefError, match="needs the name of a function"):
            Solution({"a.py": b""}, "a.py", entry)
    for name in ("a", "a" * 999):
        files = {name: b"", "a/b.py": b""}
        with pytest.raises(ConvrefError, match="files cannot be written"):
            Session(Solution(files, "a/b.py", "f"), "cpu", Limits())
    monkeypatch.setattr(grading, "Session", Here)
    monkeypatch.setattr(Here, "folder", tmp_path / "run")
    paths = definition(tmp_path, "x")
    with pytest.raises(ConvrefError, match="backward needs a solution that returns"):
        grade("flashinfer-bench", *paths, backward=True)
    problem, solution = gpu_mode(tmp_path, "x")
    solution.write_text("load_inline(cuda_sources=[])", "utf-8")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for found, missing in ((None, "nvcc"), ("/usr/bin/nvcc", "a CUDA device")):
        monkeypatch.setattr("shutil.which", lambda name, found=found: found)
        with pytest.raises(UnsupportedError, match=f"needs {missing}: not found"):
            grade("gpumode", problem, solution)


PACKED = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        linear = torch.nn.Linear(n, n)
        self.packed = torch.nn.Parameter(torch.cat([linear.weight.t(), linear.bias[None]]))

    def forward(self, x):
        return torch.relu(torch.nn.functional.pad(x, (0, 1), value={}) @ self.packed)
"""


def test_solutions_that_pack_their_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "Session", Here)
    problem = written(tmp_path, "problem.py", hostile.PROBLEM)
    for value, packed, kind in ((1, True, "pass"), (0, True, "wrong"), (1, False, "raises")):
        monkeypatch.setattr(Here, "folder", tmp_path / f"run {value} {packed}")
        solution = written(tmp_path, "solution.py", PACKED.format(value))
        found = grade("kernelbench", problem, solution, seed=1, packed=packed)
        assert found.verdict == kind, found
    paths = gpu_mode(tmp_path, "x.sum(1) * 2")
    with pytest.raises(ConvrefError, match="packed needs a solution that is a module"):
        grade("gpumode", *paths, packed=True)


def test_what_the_code_of_a_problem_raises_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "Session", Here)
    monkeypatch.setattr(Here, "folder", tmp_path / "run")
    problem, solution = hugging_face(tmp_path, "x[:, n:] * torch.nn.functional.silu(x[:, :n])")
    text = BENCHMARK.replace("        self.kernel.", "        1 / 0\n        self.kernel.")
    with pytest.raises(ConvrefError, match="benchmark raises ZeroDivisionError: division by zero"):
        grade("huggingface", written(tmp_path, "benchmark.py", text), solution)
    problem, solution = gpu_mode(tmp_path, "x.sum(1) * 2")
    text = GPU_MODE.replace("    x, output = data", "    x, output = data\n    assert x.max() < {}")
    problem.write_text(text.format(20), "utf-8")  # not so of data with a large mean
    monkeypatch.setattr(Here, "folder", tmp_path / "again")
    found = grade("gpumode", problem, solution, seed=1)
    assert found.verdict == "pass", found
    assert not any(draw.data.startswith("large mean") for draw in found.draws)
    problem.write_text(text.format(-20), "utf-8")
    monkeypatch.setattr(Here, "folder", tmp_path / "none")
    with pytest.raises(ConvrefError, match="the reference raises AssertionError"):
        grade("gpumode", problem, solution, seed=1)


def test_files_of_a_solution_may_have_spaces():
    Solution({"my kernel.py": b"", "a b/c (1).json": b""}, "my kernel.py", "f")


def test_own_sizes_are_those_of_every_test(tmp_path):
    for name, count in (("gpumode", 2), ("backendbench", 2), ("sol-execbench", 1)):
        problem, _ = FORMATS[name][0](tmp_path, "x")
        found = [sizes for sizes, _ in grading.trials(load(name, problem), 1, full=True)]
        assert found == [{TEST: number} for number in range(count)]


def test_mutations_are_judged_with_the_arithmetic_of_the_grade():
    x, w = torch.full((1, 64), 0.3), torch.full((64, 1), 0.7)
    x[0, -1] = 2.0**-12  # between the two bounds
    trial = Trial(lambda inputs, named: inputs[0] @ inputs[1], [x, w], {})
    for name, missed in (("rn32", 0), ("mma32", 1)):
        found = grading.Grade("f", "p", "s", 0, numerics=Numerics(name))
        found.trials.append((trial, ([x, w], {})))
        assert len(found.power.missed) == missed


def test_only_python_is_searched_for_cuda(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    Solution({"a.py": b"", "README.md": b"see softmax.cu"}, "a.py", "f")
    with pytest.raises(UnsupportedError, match="needs nvcc"):
        Solution({"a.py": b"load(sources=['softmax.cu'])"}, "a.py", "f")


def invoke(*words):
    done = CliRunner().invoke(app, ["grade", *map(str, words)])
    return done.exit_code, done.output, done.exception


def test_the_command_ends_with_the_status_of_the_worst_solution(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "Session", Here)
    _, right, wrong, cheating = FORMATS["gpumode"]
    problem, _ = gpu_mode(tmp_path, right)
    answers = []
    for name, body in (("right", right), ("wrong", wrong), ("cheating", cheating)):
        answers.append(written(tmp_path, f"{name}.py", KERNEL.format(body)))
    status = {}
    for path in answers:
        monkeypatch.setattr(Here, "folder", tmp_path / f"run-{path.stem}")
        status[path.stem], output, _ = invoke("gpumode", problem, path, "--seed", 1)
        assert f"{path.name} of " in output
    assert status == {"right": 0, "wrong": 1, "cheating": 1}
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    page, data = tmp_path / "page.html", tmp_path / "grade.json"
    words = ("gpumode", problem, *answers, "--html", page, "--json", data)
    assert invoke(*words)[0] == 1
    kinds = [each["verdict"] for each in json.loads(data.read_text("utf-8"))]
    assert kinds == ["pass", "wrong", "wrong"]
    text = page.read_text("utf-8")
    for path, kind in zip(answers, kinds):
        assert f'<h2>{path.name}: <span class="{kind}">{kind}' in text

    bad = written(tmp_path, "bad.py", "load(sources=['a.cu'])")
    monkeypatch.setattr("shutil.which", lambda name: None)
    for answer, code in ((answers[0], 3), (answers[1], 1), (bad, 3)):
        found, output, _ = invoke("gpumode", problem, bad, answer, "--json", data)
        assert (found, "refused: bad.py: grade: the solution is CUDA C++" in output) == (code, True)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Here, "call", interrupted)
    assert invoke("gpumode", problem, answers[0])[0] == 130


def test_tests_of_a_task_are_read_or_missed(tmp_path):
    problem, _ = gpu_mode(tmp_path, "x")
    for text, count in ((TASK, 2), (TASK.lstrip(), 2), ("tests:\n  - m: 5\n", 0), ("m: 5", 0)):
        problem.with_name("task.yml").write_text(text, "utf-8")
        if count:
            assert len(list(load("gpumode", problem).sizes())) == count
            continue
        with pytest.raises(ConvrefError, match=r"task.yml has no tests, needs lines as - {n: 64, "):
            load("gpumode", problem)


def test_the_command_refuses_bad_words(tmp_path):
    (tmp_path / "a.py").write_text("x = 1", "utf-8")
    file = tmp_path / "a.py"
    for words, says in (
        (["kernelbench"], "needs a problem and a solution, or --certify FOLDER"),
        (["x", file, file], "format is x, needs kernelbench, gpumode, backendbench"),
        (["kernelbench", tmp_path / "b", file], "b is no file"),
        (["kernelbench", file, file, "--certify", tmp_path], "for problems without a solution"),
        (["kernelbench", "--certify", tmp_path, "--packed"], "the other options are of solutions"),
        (["kernelbench", "--certify", tmp_path / "b"], "b is not a folder"),
        (["gpumode", "--certify", tmp_path], "has no reference.py"),
        (["kernelbench", file, file, "--seconds", "0"], "--seconds is 0, needs a number above 0"),
        (["kernelbench", file, file, "--memory", "inf"], "--memory is inf, needs a number above 0"),
        (["kernelbench", file, file, "--memory", "nan"], "--memory is nan, needs a number above 0"),
        (["kernelbench", file, file], "has no Model, get_inputs, get_init_inputs"),
        (["gpumode", file, file], "a.py needs generate_input, ref_kernel"),
    ):
        status, _, error = invoke(*words)
        assert status != 0
        assert says in str(error), words


def test_triton_runs_on_the_device_of_an_entry_point_else_interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # so that it is restored
    monkeypatch.delenv("TRITON_INTERPRET")
    points = [SimpleNamespace(name="PTX", load=lambda: nullcontext)]
    monkeypatch.setattr("convref.grade.serve.entry_points", lambda group: points)
    assert triton_on_cpu()[0] == "as PTX"
    assert "TRITON_INTERPRET" not in os.environ

    def missing():
        raise ImportError

    points[0].load = missing
    for text, uses in ((b"import torch, triton", True), (b"def triton(): pass", False)):
        assert Solution({"a.py": text}, "a.py", "f").uses_triton is uses
    assert triton_on_cpu()[0] == "in Triton's interpreter"
    assert os.environ["TRITON_INTERPRET"] == "1"
