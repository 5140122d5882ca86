"""Dispatch: choices and their reasons, refusals, absent frameworks, third-party backends."""

import subprocess
import sys
import textwrap
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

import convref
from convref import ConvrefError, UnsupportedError, dispatch, errors, parse
from convref.api import run
from convref.backends import Backend
from convref.backends.numpy import NumpyBackend
from convref.errors import MissingExtraError, pip_command

LINE = "conv.fprop:n1c2k3_i4_f2:bias=0"
X, W = np.ones((1, 2, 4), "f4"), np.ones((3, 2, 2), "f4")


@pytest.fixture(autouse=True)
def fresh_caches() -> Iterator[None]:
    caches = dispatch.names, dispatch.load, dispatch._plan
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize("name", dispatch.names())
@pytest.mark.parametrize("given", [(), (X,), (X, W), (X, W, None, None)])
def test_backends_refuse_a_wrong_number_of_operands(name: str, given: tuple[Any, ...]) -> None:
    """Without a check they lacked the key 'b' of a dict, or ignored what was too much."""
    try:
        backend = dispatch.load(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
    call = parse(LINE).call
    if reason := backend.supports(call):
        pytest.skip(reason)
    with pytest.raises(ConvrefError, match=f"got {len(given)} operands, needs 3: input, weight"):
        backend.run(call, *given)


# (kind of array, line) -> what `explain` says below the line.
CHOICES = {
    ("numpy", LINE): "  * numpy: computes NumPy arrays exactly",
    ("torch", LINE): (
        "  * torch: computes torch tensors directly\n    numpy: lower in the order of preference"
    ),
    ("torch", "conv.dgrad:n1c2k3_i4_f2:dt=i8"): (
        "    torch: ATen has no backward kernel for i8\n  * numpy: the oracle computes any call"
    ),
    ("torch", "unfold.fprop:n1c2_i4_f2"): (
        "    torch: the adapter has no unfold\n  * numpy: the oracle computes any call"
    ),
    ("torch", LINE + ":math=tf32x3"): (
        "    torch: torch does not support math=tf32x3\n  * numpy: the oracle computes any call"
    ),
}


@pytest.mark.parametrize(("kind", "line"), CHOICES)
def test_auto_gives_its_reason(kind: str, line: str) -> None:
    call = parse(line).call
    assert convref.explain(call, kind=kind) == f"{call}\n{CHOICES[kind, line]}"
    plan = convref.plan(call, kind=kind)
    assert str(plan) == convref.explain(call, kind=kind)
    assert [c.name for c in plan.candidates if c.chosen] == [plan.backend.name]
    assert plan.call == call


def test_auto_computes_on_the_planned_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    for name in ("numpy", "torch"):
        kind = type(dispatch.load(name))
        run = kind.run

        def spy(self: Any, call: Any, *operands: Any, run: Any = run) -> Any:
            ran.append(self.name)
            return run(self, call, *operands)

        monkeypatch.setattr(kind, "run", spy)
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    convref.conv1d(X, W)
    convref.conv1d(x, w)
    convref.run(parse(LINE).call, X, W, None)
    convref.run(parse(LINE).call, x, w, None)
    convref.conv1d_backward(torch.ones(1, 3, 3).int(), x.int(), w.int())
    assert ran == ["numpy", "torch", "numpy", "torch", "numpy"]


@pytest.mark.parametrize(
    ("backend", "line", "reason"),
    [
        ("torch", LINE + ":math=tf32x3", "torch: torch does not support math=tf32x3"),
        ("torch", "conv.jvp:n1c2k3_i4_f2:dt=i32", "torch: ATen has no jvp kernel for i32"),
        ("torch", LINE + ":dt=f80", "torch: torch has no dtype for f80"),
        ("torch", LINE + ":dt=u16", "torch: torch has no dtype for u16"),
        ("loops", "conv.fprop:n9c99k99_i99x99_f3x3", "loops stop at"),
        ("numpy", LINE + ":dev=cuda", "numpy: operands are on cuda"),
        ("loops", LINE + ":dev=cuda", "loops: operands are on cuda"),
        ("torch", "unfold.fprop:n1c2_i4_f2", "torch: the adapter has no unfold"),
    ],
)
def test_a_named_backend_refuses_with_its_reason(backend: str, line: str, reason: str) -> None:
    call = parse(line).call
    with pytest.raises(UnsupportedError) as caught:
        convref.plan(call, backend)
    assert reason in str(caught.value)
    assert f"({call})" in str(caught.value)
    assert convref.explain(call, backend) == str(caught.value)


def test_a_named_backend_never_falls_back() -> None:
    x, w = torch.ones(1, 3, 3).int(), torch.ones(3, 2, 2).int()
    with pytest.raises(UnsupportedError, match="ATen has no backward kernel for i32"):
        convref.conv1d_backward(x, torch.ones(1, 2, 4).int(), w, backend="torch")
    with pytest.raises(UnsupportedError, match="torch has no dtype for u16"):
        convref.conv1d(X.astype("u2"), W.astype("u2"), backend="torch")


def test_no_cuda_device_is_an_unsupported_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match="torch: torch finds no CUDA device"):
        convref.plan(parse(LINE + ":dev=cuda").call, kind="torch")


@pytest.mark.parametrize("name", ["numpy", "loops", "torch"])
def test_shipped_backends_load(name: str) -> None:
    backend = dispatch.load(name)
    assert isinstance(backend, Backend)
    assert backend.name == name
    assert all(isinstance(v, str) for pair in backend.fingerprint().items() for v in pair)
    assert dispatch.load(f"convref.backends.{name}:backend") is backend


def test_backend_by_module_and_attribute() -> None:
    native = dispatch.load("convref.backends.torch:without_onednn")
    assert (native.name, native.onednn) == ("torch-native", False)
    raw = dispatch.load("convref.backends.torch:backend.raw")
    assert raw.rules is False
    got = convref.conv1d(X, W, backend="convref.backends.torch:without_onednn")
    assert (got == convref.conv1d(X, W)).all()


ORACLE = dispatch.load("numpy")


class Delegating:
    """A backend with most attributes of another one."""

    name = "delegating"

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(ORACLE, attribute)


delegating = Delegating()


def test_attributes_of_a_backend_may_come_from_getattr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "delegating", sys.modules[__name__])
    assert dispatch.load("delegating:delegating").name == "delegating"


Y = np.ones((1, 3, 3), "f4")
FORMS = [  # what a third-party `run` returns, and why the caller does not get it
    (Y, "an ndarray, needs a tuple of y"),
    (None, "None, needs a tuple of y"),
    ((Y, Y), "2 results, needs a tuple of y"),
    ((None,), "y is None, needs an array"),
    ((0.0,), "y is a float, needs a NumPy array, torch tensor or JAX array"),
    ((Y[0],), "y has 2 axes, needs 3"),
    ((Y.astype("f8"),), "y has dtype f64, needs f32"),
    ((torch.ones(1, 3, 3),), "y has kind torch, needs numpy"),
]


class Mine(NumpyBackend):
    """A third-party backend that returns what it is given."""

    returned: Any = None
    answer: Any = None

    def supports(self, call: Any) -> Any:
        return self.answer

    def run(self, call: Any, *operands: Any) -> Any:
        return self.returned


@pytest.mark.parametrize(("returned", "reason"), FORMS)
def test_results_of_another_form_do_not_reach_the_caller(
    monkeypatch: pytest.MonkeyPatch, returned: Any, reason: str
) -> None:
    monkeypatch.setattr(run, "plans", OrderedDict())
    monkeypatch.setattr(convref, "mine", mine := Mine(), raising=False)
    mine.returned = returned
    with pytest.raises(ConvrefError) as error:
        convref.conv1d(X, W, backend="convref:mine")
    assert str(error.value).startswith("conv1d: backend numpy.run")
    assert reason in str(error.value)


@pytest.mark.parametrize("answer", [True, False, "", 0])
def test_an_answer_of_supports_is_none_or_a_reason(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(run, "plans", OrderedDict())
    monkeypatch.setattr(convref, "mine", mine := Mine(), raising=False)
    mine.answer = answer
    with pytest.raises(ConvrefError, match=f"supports returned {answer!r}, needs None"):
        convref.conv1d(X, W, backend="convref:mine")


@pytest.mark.parametrize("other", ["refuses", "computes"])
def test_a_slower_backend_is_chosen_if_no_other_computes_the_call(
    monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    slower, second = Delegating(), Delegating()
    monkeypatch.setattr(slower, "passed_over", lambda call: "slow", raising=False)
    reason = "no kernel" if other == "refuses" else None
    monkeypatch.setattr(second, "supports", lambda call: reason, raising=False)
    backends = {"slower": slower, "second": second}
    monkeypatch.setitem(dispatch.AUTO, (other, "cpu"), tuple(backends))
    monkeypatch.setattr(dispatch, "names", lambda: backends)
    monkeypatch.setattr(dispatch, "load", backends.__getitem__)
    made = dispatch.choose(parse(LINE).call, kind=other)
    first = made.candidates[0]
    assert made.backend is (slower if reason else second)
    assert first.chosen == bool(reason)
    assert first.reason == ("no other backend computes it; slow" if reason else "slow")


def test_plans_are_kept() -> None:
    call = parse(LINE).call
    assert convref.plan(call) is convref.plan(parse(LINE).call)
    assert convref.plan(call) is not convref.plan(call, "loops")


def python(program: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run `program` in a new interpreter with `paths` in front of what it imports."""
    lines = [f"import sys; sys.path[:0] = {[str(p) for p in paths]!r}", textwrap.dedent(program)]
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


BLOCK = """
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Blocker())
import numpy as np, convref
"""


def test_absent_torch_names_the_command() -> None:
    done = python(
        BLOCK
        + """
x = np.ones((1, 1, 3))
print(convref.conv1d(x, x).item())
try:
    convref.conv1d(x, x, backend="torch")
except ImportError as error:
    print(type(error).__name__, error)
"""
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "3.0",
        f"MissingExtraError torch is not installed; run: {pip_command('torch')}",
    ]


def test_auto_works_without_torch() -> None:
    """`auto` goes on to the next candidate and says what is missing."""
    done = python(
        BLOCK
        + f"""
print(convref.explain(convref.parse({LINE!r}).call, kind="torch"))
"""
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        LINE,
        f"    torch: torch is not installed; run: {pip_command('torch')}",
        "  * numpy: the oracle computes any call",
    ]


def test_broken_module_raises_one_message(tmp_path: Path) -> None:
    (tmp_path / "broken_backend.py").write_text("raise RuntimeError('no driver')\n")
    program = """
        import convref
        try:
            convref.dispatch.load("broken_backend:backend")
        except convref.ConvrefError as error:
            print(error)
    """
    done = python(program, tmp_path)
    assert done.stdout == "backend: broken_backend:backend does not load: no driver\n", done.stderr


STRANGER = '''
"""A third-party backend that doubles what NumPy computes, so that its results are recognised."""

from convref.backends.numpy import NumpyBackend


class Twice(NumpyBackend):
    name = "twice"

    def supports(self, call):
        return None if call.pass_ == "fprop" else "only fprop is doubled"

    def run(self, call, *operands):
        return tuple(2 * result for result in super().run(call, *operands))


backend = Twice()
'''
WHEEL = {
    "convref_stranger/__init__.py": "",
    "convref_stranger/twice.py": STRANGER,
    "convref_stranger-0.1.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: convref-stranger\nVersion: 0.1\n"
    ),
    "convref_stranger-0.1.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
    "convref_stranger-0.1.dist-info/entry_points.txt": (
        "[convref.backends]\ntwice = convref_stranger.twice:backend\n"
    ),
    "convref_stranger-0.1.dist-info/RECORD": "",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which pip installed a third-party wheel; nothing is downloaded."""
    wheel = tmp_path_factory.mktemp("wheel") / "convref_stranger-0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in WHEEL.items():
            archive.writestr(name, text)
    target = tmp_path_factory.mktemp("site")
    options = ["--no-index", "--no-deps", "--no-input", "--no-compile", "--quiet"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *options]
    subprocess.run([*pip, "--target", str(target), str(wheel)], timeout=300, check=True)
    return target


@pytest.mark.parametrize("name", ["twice", "convref_stranger.twice:backend"])
def test_a_third_party_package_is_found(name: str, site: Path) -> None:
    program = f"""
        import numpy as np, convref
        x, call = np.ones((1, 1, 3)), convref.parse("conv.fprop:n1c1k1_i3_f3:bias=0:dt=f64").call
        print(convref.conv1d(x, x, backend={name!r}).item())
        print(convref.run(call, x, x, None, backend={name!r})[0].item())
        print(convref.explain(call, {name!r}))
        print("twice" in convref.dispatch.names(), convref.conv1d(x, x).item())
        try:
            convref.conv1d_backward(x[..., :1], x, x, backend={name!r})
        except convref.UnsupportedError as error:
            print(error)
    """
    done = python(program, site)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "6.0",
        "6.0",
        "conv.fprop:n1c1k1_i3_f3:bias=0:dt=f64",
        f"  * {name}: selected by the caller",
        "True 3.0",
        f"conv1d_backward: {name}: only fprop is doubled (conv.backward:n1c1k1_i3_f3:dt=f64)",
    ]


def test_without_its_package_the_name_is_unknown() -> None:
    with pytest.raises(ConvrefError, match=r"'twice' is unknown, needs jax, loops, .*numpy"):
        dispatch.load("twice")


def test_a_missing_extra_is_an_import_error() -> None:
    assert issubclass(MissingExtraError, ImportError)


def test_the_pip_command_installs_the_sources_that_run(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "convref" / "errors.py"))
    assert errors.pip_command("check") == "pip install 'convref[check]'"
    (tmp_path / "pyproject.toml").touch()
    assert errors.pip_command("check") == f"pip install -e '{tmp_path}[check]'"


IMPOSSIBLE = {
    "max_pool2d": ((1, 1, 4, 4), (2,), {"padding": 2**25}),
    "avg_pool2d": ((1, 1, 4, 4), (2,), {"padding": 2**25}),
    "unfold": ((1, 1, 4, 4), (2,), {"padding": 2**25}),
    "interpolate": ((1, 1, 4), (2**40,), {}),
    "resize": ((1, 1, 4), (2**40,), {"mode": "linear"}),
    "adaptive_max_pool1d": ((1, 1, 4), (2**40,), {}),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("make", [np.ones, torch.ones])
def test_results_beyond_the_memory_of_the_machine_are_refused(name: str, make: Any) -> None:
    """Seen with `max_pool2d`, which ran 81 s and took 12.5 GiB before a MemoryError."""
    shape, given, named = IMPOSSIBLE[name]
    with pytest.raises(ConvrefError, match=r"results need at least [\d,.]+ GiB, this machine has"):
        getattr(convref, name)(make(shape), *given, **named)


def test_bound_plans_refuse_what_exceeds_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = dispatch.plan(parse(LINE).call)
    monkeypatch.setattr("convref.case.memory.available", lambda: 35)  # y has 9 elements of 4 bytes
    with pytest.raises(ConvrefError, match="results need at least"):
        made.bound()
    dispatch._plan.cache_clear()
    monkeypatch.setattr("convref.case.memory.available", lambda: 10**6)
    assert dispatch.choose(parse(LINE).call).run(X, W, None)


def test_padding_that_only_the_oracle_holds_counts_for_it_alone() -> None:
    call = parse("conv.fprop:n1c1k1_i4_f1_s1024_p1024:bias=0").call
    assert call.least_memory(oracle=False) == 3 * 4
    assert call.least_memory(oracle=True) == 3 * 4 + (4 + 2 * 1024) * 8
    pooled = parse("max_pool.fprop:n1c1_i4_f1_s1024_p1024").call
    assert pooled.least_memory(oracle=True) == 3 * (4 + 8)


def test_limits_of_control_groups(tmp_path: Path) -> None:
    from convref.case.memory import group_limits

    groups = tmp_path / "proc"
    groups.write_text("5:cpu,memory:/job/1\n4:cpu:/\n0::/user\n")
    for path, text in (
        ("memory/job/1/memory.limit_in_bytes", "4096\n"),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("user/memory.max", "max\n"),
        ("memory.max", "8192\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert sorted(group_limits(str(groups), str(tmp_path))) == [4096, 8192, 9223372036854771712]
