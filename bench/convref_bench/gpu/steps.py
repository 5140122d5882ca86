"""The steps of `make gpu`, each run in a child: they append what they measure as they go."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from convref import dispatch
from convref.case import Call, parse
from convref.ops import FAMILY

from .. import options, records
from ..suites import suite
from ..timing.measure import measure
from ..timing.point import Place, layout_of, point
from ..timing.watch import FATAL, Watch
from .ahead import prefetch
from .runner import ABSENT, LOST, PARTIAL, launch_command, our_backends
from .step_run import NothingToDo, OutOfTime, StepRun

BATCHES = {"resnet50": 32, "yolo11n": 8, "mobilenet_v3_large": 32, "efficientnet_b0": 32}
BATCHES |= {"convnext_tiny": 32, "sd_unet": 2, "stress": 16, "wavenet": 4}
DTYPES, MATH = "bf16,f16,f32", "tf32,ieee"
ANCHORS = 8  # layers of ResNet-50
CUDNN = ("torch", "torch.nchw", "torch.nhwc", "torch.deterministic")
REFERENCE = ("torch", "torch.nchw", "torch.nhwc")
EPILOGUES = ("relu", "silu", "add_relu")
FUSED = tuple(f"{arm}+{e}" for e in EPILOGUES for arm in ("cudnn", "compile", "eager"))
OTHERS = tuple(op for op in FAMILY if op not in ("conv", "unfold", "fold"))
COPIED = 2**28  # numbers of four bytes: 1 GiB
MULTIPLIED = 8192  # rows and columns of the matrix product whose rate is a peak
ACCUMULATED = (512, 4608, 25088, 100352)  # lengths of sums; the last is a wgrad of ResNet-50
PACKAGES = ("numpy", "hypothesis", "pytest", "rich", "ml_dtypes", "matplotlib")
TUNED = ("resnet50", "yolo11n", "mobilenet_v3_large", "convnext_tiny", "sd_vae_decoder")
TRAINED = ((640, 16), (320, 64))  # height and width of images, and the batch
JOBS = 16  # processes that compile; two fewer while another process times
COMPILED_CALLS = 12  # calls that are compiled before the first of them is timed
TESTS = Path(__file__).resolve().parents[3] / "tests"
# The tests of kernels that might hang; a kernel is timed if its tests passed.
PROOF = {
    "tests/triton/test_gluon_gpu.py": ("gluon_fprop", "gluon_wgrad"),
    "tests/triton/test_gluon_halo_gpu.py": ("gluon_halo", "gluon_halo_wgrad"),
    "tests/triton/test_im2col_gpu.py": ("im2col",),
}
TEST_FILES = 8  # files of tests that run at a time
FILE_S = 240.0  # for one of them
STEP_TIMEOUT = "no end before the step's"
PASSED = (0, 5)  # exit status of pytest: 5 where a file is skipped as a whole
MARK = "pytest.mark.gpu"  # in a file of tests, or in the conftest.py of its folder

Point = tuple[str, suite.Layer, Call]  # suite, layer, call


def versions(step: StepRun) -> None:
    import torch

    from . import tuner

    card = torch.cuda.get_device_properties(0)
    step.add(
        "machine",
        **(tuner.machine() | tuner.card()),
        date=time.strftime("%Y-%m-%d"),
        l2_bytes=card.L2_cache_size,
        memory_bytes=card.total_memory,
        packages={name: records.version(name) for name in PACKAGES},
        kernels={name: found for name, found in _fingerprints() if "missing" not in found},
    )


def _fingerprints() -> Iterator[tuple[str, dict[str, str]]]:
    for name in our_backends():
        yield name, dispatch.load(name).fingerprint()


def compile_for(names: Iterable[str], calls: Sequence[Call], jobs: int = JOBS) -> None:
    for name in names:
        if hook := getattr(dispatch.load(name), "compile_all", None):
            hook(_arch(), jobs, calls)


def _arch() -> str:
    import torch

    return "sm_{}{}".format(*torch.cuda.get_device_capability())


def peaks(step: StepRun) -> None:
    from .cuda import Cuda

    device = Cuda()
    bytes_s = _copy_rate(device)
    flops = {name: _product_rate(device, name) for name in ("bf16", "f16", "tf32", "f32")}
    step.add("peaks", flops=flops, bytes_s=bytes_s, card=device.name)


def _copy_rate(device: Any) -> float:
    import torch

    from .cuda import POINT

    source = torch.empty(COPIED, device=device.where).normal_()
    target = torch.empty_like(source)
    took = measure({"copy": lambda: target.copy_(source)}, device, POINT)["copy"]
    return 2 * source.nbytes / (took.low_ms / 1e3)


def _product_rate(device: Any, name: str) -> float:
    import torch

    from .cuda import POINT

    torch.backends.cuda.matmul.fp32_precision = "tf32" if name == "tf32" else "ieee"
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(name, torch.float32)
    size = MULTIPLIED // 2 if name == "f32" else MULTIPLIED
    a, b = (torch.randn(size, size, device=device.where).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    took = measure({"mm": lambda: torch.mm(a, b, out=out)}, device, POINT)["mm"]
    return 2 * size**3 / (took.low_ms / 1e3)


def truncation(step: StepRun) -> None:
    """Record how tensor cores truncate sums, in cuBLAS and in a Triton loop."""
    from . import accumulate

    for row in accumulate.rows(ACCUMULATED):
        step.add("accumulator", **row)
        step.check_time()


def points(
    names: Sequence[str],
    dtypes: str,
    math: str = "ieee",
    bias: bool = False,
    ops: tuple[str, ...] = ("conv",),
) -> Iterator[Point]:
    """Yield every (suite, layer, call) once: type by type, the suites in turns, heaviest first.

    With `bias`, convolutions have one, and only fprop is yielded.
    """
    seen: set[Call] = set()
    for key in options.keys(dtypes, math, "cuda"):
        for name, layer in in_turns(names, ops):
            for pass_ in layer.passes(("fprop",) if bias else suite.PASSES):
                call = layer.call(pass_, BATCHES.get(name, 1), layer.keys(key))
                if (call.op, pass_) == ("conv", "fprop"):
                    call = replace(call, problem=replace(call.conv, bias=bias))
                if call not in seen:
                    seen.add(call)
                    yield name, layer, call


def in_turns(
    names: Sequence[str], ops: tuple[str, ...] = ("conv",)
) -> Iterator[tuple[str, suite.Layer]]:
    """Yield (suite, layer), a layer of each suite in turn: a timeout affects all alike."""
    ordered = sorted(names, key=lambda name: name != "resnet50")
    lists = [
        [(name, layer) for layer in suite.by_weight(suite.load(name, ops), BATCHES.get(name, 1))]
        for name in ordered
    ]
    for turn in zip_longest(*lists):
        yield from filter(None, turn)


def time_points(
    step: StepRun, calls: Iterable[Point], names: Sequence[str], place: Place | None = None
) -> None:
    """Judge, time and record calls on the arms of `names` that the file lacks."""
    place = place or watched_device(step)
    mine = [name for name in our_backends() if name in names]

    def arms_of(call: Call) -> list[str]:
        return [arm for arm in names if arm != f"torch.{layout_of(call)}"]  # that is "torch"

    def compile_chunk(chunk: Sequence[Point]) -> None:
        compile_for(mine, [call for _, _, call in chunk], JOBS - 2)

    left = [one for one in calls if any((str(one[2]), a) not in step.seen for a in arms_of(one[2]))]
    for name, layer, call in prefetch(left, compile_chunk, COMPILED_CALLS, step.check_time):
        step.check_time()
        arms = [arm for arm in arms_of(call) if (str(call), arm) not in step.lost]
        try:
            for row in point(place, call, arms, step.roof()):
                step.add(suite=name, layer=layer.name, times=layer.times, **row)
        except RuntimeError as error:
            if not step.is_lost():  # no single arm is the cause: the next run leaves the call out
                why = f"{FATAL[1]}: {type(error).__name__}: {error}"[:300]
                for arm in arms:
                    step.refuse(str(call), arm, why)
            raise


def watched_device(step: StepRun) -> Place:
    """Return the device with a watch: an arm that hangs or loses it is recorded and left out."""
    from convref.conformance.workers.device import is_lost

    from .cuda import Cuda, CudaPlace

    device = Cuda()
    watch = Watch(step.refuse, partial(is_lost, device.settle), LOST)
    return CudaPlace(device, watch=watch)


def _heaviest(name: str, count: int, bias: bool = False) -> list[Point]:
    return list(points((name,), "bf16", bias=bias))[:count]


# The steps that time points: which calls, on which arms.
TIMED: dict[str, Callable[[], tuple[Iterable[Point], Sequence[str]]]] = {
    "canary": lambda: (_heaviest("stress", 3), our_backends()),
    "anchors": lambda: (
        _heaviest("resnet50", ANCHORS * len(suite.CONV)),
        (*our_backends(), "auto", *REFERENCE),
    ),
    "suites": lambda: (points(suite.names(), DTYPES, MATH), (*our_backends(), "auto", *REFERENCE)),
    "fused": lambda: (
        _heaviest("resnet50", 2 * ANCHORS, bias=True),
        (*(f"{name}+{e}" for name in our_backends() for e in EPILOGUES), *FUSED),
    ),
    "cudnn": lambda: (points(suite.names(), "bf16"), CUDNN),
    "cudnn-rest": lambda: (points(suite.names(), "f16,f32", MATH), CUDNN),
    "others": lambda: (
        points(suite.names(), DTYPES, ops=OTHERS),
        (*our_backends(), *REFERENCE),
    ),
}


def training(step: StepRun) -> None:
    import torch

    from ..timing import training
    from .cuda import Cuda

    if training.network() is None:
        raise NothingToDo("no yolo11n.py next to the package")
    for size, batch in TRAINED:
        setting = training.Setting("cuda", torch.bfloat16, size, batch)
        for row in training.rows(Cuda(), setting, ("auto", *our_backends())):
            step.add(**row)
        step.check_time()


def properties(step: StepRun) -> None:
    """Check every kernel against the oracle on a fixed list of small problems of many sizes."""
    from . import properties

    calls = [parse(line).call for line in properties.lines()]
    able = [
        n for n in our_backends() if any(dispatch.load(n).supports(call) is None for call in calls)
    ]
    compile_for(able, calls)
    wrong = [row for name in able for row in properties.check(step, name)]
    if wrong:
        raise SystemExit(f"{len(wrong)} lines are wrong, the first: {wrong[0]['line']}")


def marked(step: StepRun, tests: Path = TESTS) -> None:
    """Run the tests marked `gpu`: graphs of every op, over 2**31 elements, PTX micro-tests.

    Each file runs in its own process, several at a time: compilers share the processors, and a
    file that hangs or loses the device fails alone. Files that passed are not run again.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # more threads than cores only spin
    every = {path.relative_to(tests.parent).as_posix(): path for path in marked_files(tests)}
    left = every.keys() - {
        r["file"] for r in step.records_of("marked-file") if r["status"] in PASSED
    }
    first = sorted(left, key=lambda name: (name not in PROOF, name))
    bad: list[str] = []
    late = False
    with ThreadPoolExecutor(TEST_FILES) as pool:
        for done in as_completed([pool.submit(_test, step, name, every[name]) for name in first]):
            row, output = done.result()
            print(output, flush=True)
            if any(STEP_TIMEOUT in line for line in row["failed"]):
                late = True  # the next run has its result
            else:
                step.add("marked-file", **row)
                bad += row["failed"]
    if late:
        raise OutOfTime
    step.add("marked", status=int(bool(bad)), said=[f"{len(left)} files"], failed=sorted(bad))
    if bad:
        raise SystemExit(f"{len(bad)} tests failed, the first: {min(bad)}")


def marked_files(tests: Path) -> list[Path]:
    """Return the files of tests that need a GPU; where a conftest.py marks them, the folder."""
    found = (path for path in tests.rglob("*.py") if MARK in path.read_text("utf-8"))
    return sorted(path.parent if path.name == "conftest.py" else path for path in found)


def _test(step: StepRun, name: str, path: Path) -> tuple[dict[str, Any], str]:
    command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "-p", "no:cacheprovider"]
    command += ["--durations=3", str(path)]
    if path.is_dir() and find_spec("xdist"):  # whose workers are replaced when they lose the device
        command += ["-n", str(TEST_FILES), "-p", "no:benchmark"]  # which warns about xdist
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        left_s = max(1.0, step.end - time.monotonic())
        status, _ = launch_command(command, min(left_s, FILE_S), log, cwd=TESTS.parent)
        output = log.read_text("utf-8", errors="replace")
    lines = output.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if status not in PASSED and (status is None or not failed):
        late = STEP_TIMEOUT if left_s < FILE_S else f"no end in {FILE_S:g} s"
        reason = late if status is None else f"exit {status}"
        failed.append(f"ERROR {name}: {reason}: {lines[-1] if lines else 'no output'}"[:300])
    return {"file": name, "status": status, "said": lines[-12:], "failed": failed}, output


def tuner(step: StepRun) -> None:
    """Search the configurations of every backend that offers them, most weighted layers first.

    Every line has its most promising configurations timed before any line has the rest.
    """
    from . import tuner

    able = [name for name in our_backends() if tuner.is_tunable(name)]
    if not able:
        raise NothingToDo(f"{', '.join(our_backends())}: no configurations(call)")
    place, calls = watched_device(step), list(points(TUNED, "bf16"))
    searches = [tuner.Search(n, place, step.out, step.key, proven=proven(step)) for n in able]
    for part in (tuner.FIRST, tuner.REST):
        for search in searches:
            left = [given for given in calls if not search.is_timed(given[2], part)]
            compile_chunk = partial(_compile_part, search, part)
            for given in prefetch(left, compile_chunk, COMPILED_CALLS, step.check_time):
                step.check_time()
                search.add(*given, part)


def _compile_part(search: Any, part: str, chunk: Sequence[Point]) -> None:
    if hook := getattr(dispatch.load(search.backend), "compile_some", None):
        wanted = [(call, search.untimed(call, part)) for _, _, call in chunk]
        hook(_arch(), JOBS - 2, wanted)


def proven(step: StepRun) -> set[str]:
    """Return the kernels whose tests ran on this card without a failure."""
    last = {row["file"]: row["status"] for row in step.records_of("marked-file")}
    return {kernel for file, kernels in PROOF.items() if last.get(file) == 0 for kernel in kernels}


def names(step: StepRun) -> None:
    """Record the kernels that each arm launches; a profiler may slow all launches after it."""
    from .cuda import launched

    seen = {(row["line"], row["arm"]) for row in step.records_of("kernels")}
    for _, _, call in points(suite.names(), "bf16"):
        for name in (*our_backends(), *REFERENCE):
            if (str(call), name) not in seen and name != f"torch.{layout_of(call)}":
                step.check_time()
                step.add("kernels", line=str(call), arm=name, **launched(name, call))


def run(name: str, *, out: Path, seconds: float = 60.0, key: str = "") -> None:
    """Run a step and end the process at once: Python would wait for threads that compile."""
    status = main(name, out, seconds, key)
    sys.stdout.flush()
    os._exit(status)


def main(name: str, out: Path, seconds: float, key: str) -> int:
    """Run a step; exit status 0 done, 3 out of time, 4 nothing to do here, 5 the device is lost."""
    step = StepRun(out, seconds, key)
    try:
        if name in TIMED:  # else a step is the function of its name
            time_points(step, *TIMED[name]())
        else:
            globals()[name](step)
    except OutOfTime:
        print(f"{name}: time limit reached")
        return PARTIAL
    except NothingToDo as reason:
        print(reason)
        return ABSENT
    except RuntimeError as error:
        if step.is_lost():
            print(f"{type(error).__name__}: {error}")
            return LOST
        raise
    return 0
