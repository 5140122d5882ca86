"""The steps of `make gpu`, each run in a child: they append what they measure as they go."""

from __future__ import annotations

import os
import platform
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
from ..timing.roofline import Roof
from ..timing.watch import FATAL, Watch, is_fatal
from .ahead import ahead
from .runner import ABSENT, LOST, PARTIAL, card_of, launch_command, ours

BATCHES = {"resnet50": 32, "yolo11n": 8, "mobilenet_v3_large": 32, "efficientnet_b0": 32}
BATCHES |= {"convnext_tiny": 32, "sd_unet": 2, "stress": 16, "wavenet": 4}
DTYPES = ("bf16", "fp16", "tf32", "fp32")
ANCHORS = 8  # layers of ResNet-50
CUDNN = ("torch", "torch.nchw", "torch.nhwc", "torch.deterministic")
REFERENCE = ("torch", "torch.nchw", "torch.nhwc")
EPILOGUES = ("relu", "silu", "add_relu")
FUSED = tuple(f"{arm}+{e}" for e in EPILOGUES for arm in ("cudnn", "compile", "eager"))
OTHERS = tuple(op for op in FAMILY if op not in ("conv", "unfold", "fold"))  # ops beside these
COPIED = 2**28  # numbers of four bytes: 1 GiB
MULTIPLIED = 8192  # rows and columns of matrices whose product is a peak
ACCUMULATED = (512, 4608, 25088, 100352)  # lengths of sums; the last is a wgrad of ResNet-50
PACKAGES = ("numpy", "hypothesis", "pytest", "rich", "ml_dtypes", "matplotlib", "flag_gems")
TUNED = ("resnet50", "yolo11n", "mobilenet_v3_large", "convnext_tiny", "sd_vae_decoder")
TRAINED = ((640, 16), (320, 64))  # height and width of images, and how many
JOBS = 16  # processes that compile; beside one that times, two less
TESTS = Path(__file__).resolve().parents[3] / "tests"
# The tests of what might hang, and the kernels that are timed if they went well.
PROOF = {
    "tests/triton/test_gluon_gpu.py": ("gluon_fprop", "gluon_wgrad"),
    "tests/triton/test_gluon_halo_gpu.py": ("gluon_halo", "gluon_halo_wgrad"),
    "tests/triton/test_im2col_gpu.py": ("im2col",),
}
TESTED = 8  # files of tests at a time
FILE_S = 240.0  # for one of them
CUT = "no end before the step's"
PASSED = (0, 5)  # exit status of pytest: 5 where a file is skipped as a whole, and says why
MARK = "pytest.mark.gpu"  # in a file of tests, or in the conftest.py of its folder
TOGETHER = 12  # calls that are compiled before the first of them is timed


class Absent(Exception):
    """A step has nothing to do here; the text says why."""


class OutOfTime(Exception):
    """The step's time is up; what is missing is left to the next run."""


class Step:
    """What a step is given: its file, what the file already holds, and its deadline."""

    def __init__(self, out: Path, seconds: float, key: str = "") -> None:
        self.out, self.end, self.key = out, time.monotonic() + seconds, key
        self.rows = records.read(out)[0]
        self.before = [row for row in self.rows if row.get("key") == key]
        known = [row for row in self.before if row.get("what") in ("point", "absent", "refused")]
        self.seen = {(row["line"], row["arm"]) for row in known}
        self.lost = {(row["line"], row["arm"]) for row in known if is_fatal(row)}

    def add(self, what: str, **fields: Any) -> None:
        """Append a record."""
        records.append(self.out, {"what": what, "key": self.key, **fields})

    def check_time(self) -> None:
        """Raise when the deadline has passed."""
        if time.monotonic() > self.end:
            raise OutOfTime

    def refuse(self, line: str, arm: str, why: str) -> None:
        """Record that an arm may not run again."""
        self.add("refused", line=line, arm=arm, why=why)

    def is_lost(self) -> bool:
        """Return whether the last record says which arm lost the device."""
        return any(map(is_fatal, records.read(self.out)[0][-1:]))

    def roof(self) -> Roof | None:
        """Return the peaks measured last on this card, None if they were not."""
        card = card_of(self.key)
        rows = (row for row in self.rows if row.get("what") == "peaks")
        peaks = [row for row in rows if card_of(row.get("key", "")) == card]
        return Roof(peaks[-1]["flops"], peaks[-1]["bytes_s"]) if peaks else None


def versions(step: Step) -> None:
    """Record what everything else depends on."""
    import torch

    card = torch.cuda.get_device_properties(0)
    step.add(
        "machine",
        date=time.strftime("%Y-%m-%d"),
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        triton=_version("triton"),
        card=card.name,
        sms=card.multi_processor_count,
        l2_bytes=card.L2_cache_size,
        memory_bytes=card.total_memory,
        packages={name: _version(name) for name in PACKAGES},
        kernels={name: dispatch.load(name).fingerprint() for name in ours()},
    )


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def compile_(step: Step) -> None:
    """Let every backend that offers it compile its kernels beforehand, in 16 processes."""
    arch = _arch()
    hooks = {name: getattr(dispatch.load(name), "compile_all", None) for name in ours()}
    if not any(hooks.values()):
        raise Absent(f"{', '.join(hooks)}: no compile_all(arch, jobs, calls)")
    for name, hook in hooks.items():
        if hook is None:
            continue
        start = time.monotonic()
        made = hook(arch, JOBS, _compiled_calls())
        took = round(time.monotonic() - start, 2)
        step.add("compiled", backend=name, arch=arch, jobs=JOBS, took_s=took, made=str(made)[:300])
        step.check_time()


def _compiled_calls() -> Iterator[Call]:
    """Yield what the later steps run, the property list first."""
    from . import properties

    yield from (parse(line).call for line in properties.lines())
    yield from (call for _, _, call in points(suite.names(), DTYPES))
    yield from (call for _, _, call in points(suite.names(), DTYPES, ops=OTHERS))


def compile_for(names: Iterable[str], calls: Sequence[Call], jobs: int = JOBS) -> None:
    """Let those of the backends that can compile what they take for calls, side by side."""
    for name in names:
        if hook := getattr(dispatch.load(name), "compile_all", None):
            hook(_arch(), jobs, calls)


def probes(step: Step) -> None:
    """Measure the peaks, and how a tensor core rounds its sums."""
    import torch

    from .cuda import Cuda

    device, flops = Cuda(), {}
    bytes_s = _copy_rate(device)
    for name in ("bf16", "f16", "tf32", "f32"):
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(name, torch.float32)
        flops[name] = _product_rate(device, name, dtype)
    step.add("peaks", flops=flops, bytes_s=bytes_s, card=device.name)


def _copy_rate(device: Any) -> float:
    import torch

    from .cuda import POINT

    source = torch.empty(COPIED, device=device.where).normal_()
    target = torch.empty_like(source)
    took = measure({"copy": lambda: target.copy_(source)}, device, POINT)["copy"]
    return 2 * source.nbytes / (took.low_ms / 1e3)


def _product_rate(device: Any, name: str, dtype: Any) -> float:
    import torch

    from .cuda import POINT

    torch.backends.cuda.matmul.fp32_precision = "tf32" if name == "tf32" else "ieee"
    size = MULTIPLIED // 2 if name == "f32" else MULTIPLIED
    a, b = (torch.randn(size, size, device=device.where).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    took = measure({"mm": lambda: torch.mm(a, b, out=out)}, device, POINT)["mm"]
    return 2 * size**3 / (took.low_ms / 1e3)


def truncation(step: Step) -> None:
    """Record how sums on the tensor cores lose their last bits, in cuBLAS and in a Triton loop."""
    from . import accumulate

    for row in accumulate.rows(ACCUMULATED):
        step.add("accumulator", **row)
        step.check_time()


def _arch() -> str:
    import torch

    return "sm_{}{}".format(*torch.cuda.get_device_capability())


Point = tuple[str, suite.Layer, Call]  # suite, layer, call


def points(
    names: Sequence[str],
    dtypes: Sequence[str],
    bias: bool = False,
    ops: tuple[str, ...] = ("conv",),
) -> Iterator[Point]:
    """Yield every (suite, layer, call) once: bf16 first, the suites in turns, heaviest first.

    Convolutions have a bias if `bias`, and then fprop alone.
    """
    seen: set[Call] = set()
    for key in (options.keys(dtype, "cuda") for dtype in dtypes):
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
    """Yield (suite, layer), a layer of each suite after the other, so that a cut hits all alike."""
    ordered = sorted(names, key=lambda name: name != "resnet50")
    lists = [
        [(name, layer) for layer in suite.by_weight(suite.load(name, ops), BATCHES.get(name, 1))]
        for name in ordered
    ]
    for turn in zip_longest(*lists):
        yield from filter(None, turn)


def time_points(
    step: Step,
    calls: Iterable[Point],
    names: Sequence[str],
    place: Place | None = None,
) -> None:
    """Judge, time and record calls on the arms of `names` that the file does not hold yet."""
    place = place or watched(step)
    mine = [name for name in ours() if name in names]

    def arms_of(call: Call) -> list[str]:
        return [arm for arm in names if arm != f"torch.{layout_of(call)}"]  # that is "torch"

    def compiled(chunk: Sequence[Point]) -> None:
        compile_for(mine, [call for _, _, call in chunk], JOBS - 2)

    left = [one for one in calls if any((str(one[2]), a) not in step.seen for a in arms_of(one[2]))]
    for name, layer, call in ahead(left, compiled, TOGETHER):
        step.check_time()
        arms = [arm for arm in arms_of(call) if (str(call), arm) not in step.lost]
        try:
            for row in point(place, call, arms, step.roof()):
                step.add(suite=name, layer=layer.name, times=layer.times, **row)
        except RuntimeError as error:
            if not step.is_lost():  # no arm by itself: the next run leaves this call out
                why = f"{FATAL[1]}: {type(error).__name__}: {error}"[:300]
                for arm in arms:
                    step.refuse(str(call), arm, why)
            raise


def watched(step: Step, **more: Any) -> Place:
    """Return the device, whose arms are watched: what hangs or loses it is left out after that."""
    from .cuda import Cuda, CudaPlace, is_lost

    device = Cuda()
    watch = Watch(step.refuse, partial(is_lost, device.settle), LOST)
    return CudaPlace(device, watch=watch, **more)


def cudnn(step: Step) -> None:
    """Time cuDNN through torch, in its layouts and deterministic, on every suite in bf16."""
    time_points(step, points(suite.names(), DTYPES[:1]), CUDNN)


def cudnn_rest(step: Step) -> None:
    """Time cuDNN on every suite in the other number types."""
    time_points(step, points(suite.names(), DTYPES[1:]), CUDNN)


def fused(step: Step) -> None:
    """Time convolution with bias, activation and residual: fused kernels and eager ones."""
    arms = (*(f"{name}+{e}" for name in ours() for e in EPILOGUES), *FUSED)
    calls = list(points(("resnet50",), DTYPES[:1], bias=True))[: 2 * ANCHORS]
    time_points(step, calls, arms)


def canary(step: Step) -> None:
    """Run each kernel on one small layer, judged."""
    time_points(step, list(points(("stress",), DTYPES[:1]))[:3], ours())


def anchors(step: Step) -> None:
    """Time every kernel against cuDNN on the heaviest layers of ResNet-50."""
    calls = list(points(("resnet50",), DTYPES[:1]))[: ANCHORS * len(suite.CONV)]
    time_points(step, calls, (*ours(), "auto", *REFERENCE))


def suites(step: Step) -> None:
    """Time every kernel against cuDNN on all suites, and FlagGems where it is installed."""
    flaggems = ("flaggems",) if find_spec("flag_gems") else ()
    time_points(step, points(suite.names(), DTYPES), (*ours(), "auto", *flaggems, *REFERENCE))


def others(step: Step) -> None:
    """Time pools, norms and resizing of the suites."""
    calls = points(suite.names(), [one for one in DTYPES if one != "tf32"], ops=OTHERS)
    time_points(step, calls, (*ours(), *REFERENCE))


def training(step: Step) -> None:
    """Time training steps of YOLO11n in bf16, channels last: torch.nn's layers, and converted."""
    import torch

    from ..timing import training
    from .cuda import Cuda

    if training.network() is None:
        raise Absent(f"no {training.NETWORK.name} beside the package")
    for size, batch in TRAINED:
        setting = training.Setting("cuda", torch.bfloat16, size, batch)
        for row in training.rows(Cuda(), setting, ("auto", *ours())):
            step.add(**row)
        step.check_time()


def properties(step: Step) -> None:
    """Hold every kernel to the oracle on a fixed list of small problems of many sizes."""
    from . import properties

    compile_for(ours(), [parse(line).call for line in properties.lines()])
    wrong = [row for name in ours() for row in properties.check(step, name)]
    if wrong:
        raise SystemExit(f"{len(wrong)} lines are wrong, the first: {wrong[0]['line']}")


def marked(step: Step, tests: Path = TESTS) -> None:
    """Run the tests marked `gpu`: graphs of every op, over 2**31 elements, PTX micro-tests.

    Each file has a process of its own, several at a time: compilers share the processors, and what
    hangs or loses the device takes no other file along. Files that passed are not run again.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # threads of so many processes spin in vain
    every = {path.relative_to(tests.parent).as_posix(): path for path in marked_files(tests)}
    rows = [row for row in step.before if row.get("what") == "marked-file"]
    left = every.keys() - {row["file"] for row in rows if row["status"] in PASSED}
    first = sorted(left, key=lambda name: (name not in PROOF, name))
    bad: list[str] = []
    with ThreadPoolExecutor(TESTED) as pool:
        for done in as_completed([pool.submit(_tested, step, name, every[name]) for name in first]):
            row, said = done.result()
            print(said, flush=True)
            step.add("marked-file", **row)
            bad += row["failed"]
    if any(CUT in line for line in bad):
        raise OutOfTime
    step.add("marked", status=int(bool(bad)), said=[f"{len(left)} files"], failed=sorted(bad))
    if bad:
        raise SystemExit(f"{len(bad)} tests failed, the first: {min(bad)}")


def marked_files(tests: Path) -> list[Path]:
    """Return the files of tests that need a GPU; where a conftest.py marks them, the folder."""
    found = (path for path in tests.rglob("*.py") if MARK in path.read_text("utf-8"))
    return sorted(path.parent if path.name == "conftest.py" else path for path in found)


def _tested(step: Step, name: str, path: Path) -> tuple[dict[str, Any], str]:
    """Run a file of tests; return its record, and all that pytest said."""
    command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "-p", "no:cacheprovider"]
    command += ["--durations=3", str(path)]
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        left_s = max(1.0, step.end - time.monotonic())
        status, _ = launch_command(command, min(left_s, FILE_S), log, cwd=TESTS.parent)
        said = log.read_text("utf-8", errors="replace")
    lines = said.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if status not in PASSED and (status is None or not failed):
        late = CUT if left_s < FILE_S else f"no end in {FILE_S:g} s"
        how = late if status is None else f"exit {status}"
        failed.append(f"ERROR {name}: {how}: {lines[-1] if lines else 'it said nothing'}"[:300])
    return {"file": name, "status": status, "said": lines[-12:], "failed": failed}, said


def tuner(step: Step) -> None:
    """Search the configurations of every backend that offers them, most weighted layers first.

    Every line has its most promising configurations timed before any line has the rest.
    """
    from . import tuner

    able = [name for name in ours() if tuner.is_tunable(name)]
    if not able:
        raise Absent(f"{', '.join(ours())}: no configurations(call)")
    place, calls = watched(step, beside=False), list(points(TUNED, DTYPES[:1]))
    searches = [tuner.Search(n, place, step.out, step.key, proven=proven(step)) for n in able]
    for part in (tuner.FIRST, tuner.REST):
        for search in searches:
            left = [given for given in calls if not search.has(given[2], part)]
            for given in ahead(left, partial(_compile_part, search, part), TOGETHER):
                step.check_time()
                search.add(*given, part)


def _compile_part(search: Any, part: str, chunk: Sequence[Point]) -> None:
    """Compile a part of the configurations of some calls, beside what is being timed."""
    if hook := getattr(dispatch.load(search.backend), "compile_some", None):
        wanted = [(call, search.untimed(call, part)) for _, _, call in chunk]
        hook(_arch(), JOBS - 2, wanted)


def proven(step: Step) -> set[str]:
    """Return the kernels whose tests ran on this card, of which none failed."""
    rows = (row for row in step.before if row.get("what") == "marked-file")
    last = {row["file"]: row["status"] for row in rows}
    return {kernel for file, kernels in PROOF.items() if last.get(file) == 0 for kernel in kernels}


def names(step: Step) -> None:
    """Record the kernels that each arm launches; a profiler may slow all launches after it."""
    from .cuda import launched

    rows = (row for row in step.before if row.get("what") == "kernels")
    seen = {(row["line"], row["arm"]) for row in rows}
    for _, _, call in points(suite.names(), DTYPES[:1]):
        for name in (*ours(), *REFERENCE):
            if (str(call), name) not in seen and name != f"torch.{layout_of(call)}":
                step.check_time()
                step.add("kernels", line=str(call), arm=name, **launched(name, call))


def sanitizer(step: Step) -> None:
    """Run every kernel on a few small problems under compute-sanitizer."""
    from . import sanitize

    if reason := sanitize.broken():
        raise Absent(reason)
    for name in ours():
        step.add("sanitizer", **sanitize.check(name, step.end - time.monotonic()))
        step.check_time()


STEPS: dict[str, Callable[[Step], None]] = {
    "versions": versions,
    "canary": canary,
    "properties": properties,
    "marked": marked,
    "peaks": probes,
    "anchors": anchors,
    "tuner": tuner,
    "suites": suites,
    "fused": fused,
    "truncation": truncation,
    "cudnn": cudnn,
    "others": others,
    "training": training,
    "cudnn-rest": cudnn_rest,
    "sanitizer": sanitizer,
    "names": names,
    "compile": compile_,
}


def run(name: str, out: Path, seconds: float, key: str) -> None:
    """Run a step and end the process: Python would wait for compilers that work ahead."""
    status = main(name, out, seconds, key)
    sys.stdout.flush()
    os._exit(status)


def main(name: str, out: Path, seconds: float, key: str) -> int:
    """Run a step; exit status 0 done, 3 out of time, 4 nothing to do here, 5 the device is lost."""
    step = Step(out, seconds, key)
    try:
        STEPS[name](step)
    except OutOfTime:
        print(f"{name}: time is up")
        return PARTIAL
    except Absent as reason:
        print(reason)
        return ABSENT
    except RuntimeError as error:
        if step.is_lost():
            print(f"{type(error).__name__}: {error}")
            return LOST
        raise
    return 0
