"""`assert_close`: correct results pass in any order, wrong ones and bad input do not."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import sample_programs as samples  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import convref  # noqa: E402
from convref import ConvrefError, Numerics, UnsupportedError, assert_close  # noqa: E402
from convref.judge.programs import Program, Trace, judge_results, pieces, store  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def within(op_number, op, pairs, found, rule):
    """Raise unless PyTorch's own result of one operation is within its bound."""
    for result, pair in zip(op.results, (found,) if hasattr(found, "value") else found):
        if pair is None or not result.dtype.is_floating_point:
            continue
        seen = store(pair, result.dtype, op.numerics)
        slack = torch.as_tensor(seen.slack)
        far = ~(((result.double() - seen.value).abs() <= slack) | slack.isinf())
        far &= ~((result == seen.value) | (result.isnan() & seen.value.isnan()))
        assert not far.any(), f"{op_number} {op.name}: {result[far][0]} for {seen.value[far][0]}"
    return found


def numerics(dtype):
    """Return PyTorch's arithmetic: its 16-bit convolutions round the sum of each tap."""
    return Numerics(stages=9 if dtype.itemsize == 2 else 0)


def check(name, dtype, kind, seed=0):
    """Judge PyTorch's own run of a program, and each operation of it; return the report."""
    f = samples.PROGRAMS[name][0]
    args = samples.arguments(name, dtype, seed, kind)
    trace = Trace(numerics(dtype), change=within)
    trace.run(f, args, {})
    assert trace.count
    report = judge_results(Program(f, args, {}, numerics(dtype)), f(*args))
    assert report.verdict.kind != "wrong", f"{name} {dtype} {kind} {seed}\n{report}"
    return report


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(torch.float32, "normal"), (torch.float32, "integers"), (torch.bfloat16, "normal")],
)
def test_each_operation_of_pytorch_is_within_its_bound(dtype, kind):
    for name in samples.PROGRAMS:
        report = check(name, dtype, kind)
        if dtype == torch.float32 and kind == "normal":
            assert report.verdict.kind == "pass", f"{name}\n{report}"
            assert all(v.undecided == 0 for v in report.verdicts.values()), f"{name}\n{report}"


@pytest.mark.nightly
def test_each_operation_of_pytorch_is_within_its_bound_on_many_data():
    """Counts: 38 programs, 4 dtypes, 2 kinds, 60 seeds."""
    for seed in range(60):
        for name in samples.PROGRAMS:
            for dtype in DTYPES:
                for kind in ("normal", "integers"):
                    check(name, dtype, kind, seed)


def test_norms_of_pytorch_are_within_their_bounds_where_the_bias_cancels():
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        x, w, b = (torch.randn(s, generator=random) for s in ((3, 4, 5, 6), (4,), (4,)))
        args = tuple(t * torch.exp2(4 * t) for t in (x, w, b))
        for f in (
            lambda x, w, b: F.group_norm(x, 2, w, b),
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        ):
            assert_close(f(*args), f, args)


def test_comparisons_round_numbers_to_the_dtype_of_the_operand():
    x = torch.tensor([0.1, 0.2, 0.3], dtype=torch.bfloat16)

    def sign(x):
        return torch.where(x > 0.1, x, -x)

    assert_close(sign(x.float()).bfloat16(), sign, (x,))  # compares with 0.1 in float32
    assert_close(sign(x - x / 2), lambda x: sign(x - x / 2), (x,))
    with pytest.raises(AssertionError, match=r"wrong: output\[1\]"):
        assert_close(-x, sign, (x,))


def test_factors_that_underflow_are_within_their_bounds():
    x = torch.linspace(-104, -80, 4001)
    for f in (F.silu, F.mish, F.gelu, torch.sigmoid, lambda t: F.mish(F.mish(t))):
        assert_close(f(x), f, (x,))


def test_a_maximum_of_values_without_a_bound_is_undecided():
    def reference(x):
        return F.max_pool1d(torch.softmax(x * 1e30 * x.sum(), 1), 2)

    x = torch.randn(2, 5, 8)
    report = judge_results(Program(reference, (x,), {}, convref.Numerics()), reference(x))
    assert report.verdict.kind == "undecided"


def split(x, w, parts):
    """Return x w as a sum of partial products."""
    return sum(a @ b for a, b in zip(x.chunk(parts, 1), w.chunk(parts, 0)))


@pytest.mark.parametrize("size", [(3, 2), (3, 2, 4)])
def test_places_of_an_adaptive_maximum_are_undecided_where_values_are_near(size):
    rank = len(size)

    def reference(x):
        return getattr(F, f"adaptive_max_pool{rank}d")(x + 0.1, size, return_indices=True)

    x = torch.randperm(2 * 3 * 5 * 7 * 8).float().reshape(2, 3, 5, 7, 8)
    x = x if rank == 3 else x.flatten(1, 2)
    values, places = reference(x)
    assert assert_close((values, places), reference, (x,))
    with pytest.raises(AssertionError, match=r"wrong: output\[1\]"):
        assert_close((values, places ^ 1), reference, (x,))
    near = torch.ones_like(x)
    with pytest.raises(AssertionError, match=r"undecided: output\[1\]"):
        assert_close(reference(near), reference, (near,))


def test_sums_in_other_orders_and_with_wider_intermediates_pass():
    for dtype in DTYPES:
        x, w, b = samples.arguments("affine", dtype)
        wide = x.double() @ w.double() + b.double()
        held = torch.promote_types(dtype, torch.float32)
        orders = [split(x.to(held), w.to(held), n).double() + b.double() for n in (2, 5, 8)]
        for y in (wide, *orders, x.double().flip(1) @ w.double().flip(0) + b.double()):
            assert assert_close(y.relu().to(dtype), samples.PROGRAMS["affine"][0], (x, w, b))


MUTANTS = {
    "last product": lambda x, w, b: torch.relu(x[:, :-1] @ w[:-1] + b),
    "no bias": lambda x, w, b: torch.relu(x @ w),
    "no relu": lambda x, w, b: x @ w + b,
    "zeros": lambda x, w, b: (x @ w) * 0,
    "double count": lambda x, w, b: torch.relu(x @ w + x[:, :1] @ w[:1] + b),
    "bf16 operands": lambda x, w, b: torch.relu((x.bfloat16() @ w.bfloat16()).float() + b),
    "fp16 sums": lambda x, w, b: torch.relu(split(x.half(), w.half(), 40).float() + b),
    "one element": lambda x, w, b: torch.relu(x @ w + b).index_fill(0, torch.tensor(2), 0.5),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_programs_fail(mutant):
    args = samples.arguments("affine", torch.float32)
    with pytest.raises(AssertionError, match=r"^wrong: output\["):
        assert_close(MUTANTS[mutant](*args), samples.PROGRAMS["affine"][0], args)


def test_integers_are_judged_exactly():
    f = samples.PROGRAMS["affine"][0]
    for dtype in DTYPES:
        args = samples.arguments("affine", dtype, kind="integers")
        report = assert_close(f(*args), f, args)
        assert report.verdict.tier == "exact"
        off = f(*args) * (1 + 2 * torch.finfo(dtype).eps)
        with pytest.raises(AssertionError, match="needs exactly"):
            assert_close(off, f, args)


def added_to(total, x, w):
    """Add products to an accumulator that starts with other numbers."""
    for k in range(x.shape[1]):
        total = total + x[:, k : k + 1] * w[k : k + 1]
    return total


# A reference of x, w, b and r, and the same sums in another grouping.
REGROUPED = {
    "two sums": (lambda x, w, b, r: x.sum() - r.sum(), lambda x, w, b, r: (x[:, :9] - r).sum()),
    "three terms": (lambda x, w, b, r: (r + b) - b, lambda x, w, b, r: r + (b - b)),
    "two products": (
        lambda x, w, b, r: x @ w + r @ w[:9],
        lambda x, w, b, r: torch.cat([x, r], 1) @ torch.cat([w, w[:9]]),
    ),
    "residual": (lambda x, w, b, r: x @ w + r, lambda x, w, b, r: added_to(r, x, w)),
    "bias in place": (lambda x, w, b, r: (x @ w).add_(b), lambda x, w, b, r: added_to(b, x, w)),
    "scaled": (lambda x, w, b, r: x @ w * 0.3 - r, lambda x, w, b, r: added_to(-r, x * 0.3, w)),
    "divided": (lambda x, w, b, r: x @ w / b + r, lambda x, w, b, r: added_to(r, x, w / b)),
    "sum of products": (lambda x, w, b, r: (x @ w).mean(1), lambda x, w, b, r: x @ w.mean(1)),
}


def test_sums_are_regrouped_across_operations():
    for name, (f, other) in REGROUPED.items():
        for kind in ("normal", "integers"):
            x, w, b = samples.arguments("affine", torch.float32, 3, kind)
            r = x[:, :9] * 2 if kind == "integers" else x[:, :9] * 1e3
            x, r = x[:, :9] if name == "two sums" else x, -r if name == "two sums" else r
            b = b * 1e4 if name == "three terms" else b + 100 * (kind == "integers")
            report = judge_results(Program(f, (x, w, b, r), {}, Numerics()), other(x, w, b, r))
            assert report.verdict.kind == "pass", f"{name} {kind}: {report}"
            if kind == "integers" and name not in ("divided", "scaled", "sum of products"):
                assert report.verdict.tier == "exact", name


def test_an_operation_in_place_leaves_copies_as_they_were():
    def f(x):
        y = x.clone()
        y[:1].mul_(3)
        before = y.double()
        y[:1].mul_(7)
        return before

    x = torch.randn(2, 3)
    assert assert_close(f(x), f, (x,))


def test_pieces_have_the_pairs_of_the_whole(monkeypatch):
    for name, (f, *_) in samples.PROGRAMS.items():
        if name.startswith("gradients of"):  # many operations, none of which is cut
            continue
        args = samples.arguments(name, torch.float32, 5)
        _, whole = Program(f, args, {}, Numerics()).traced()
        with monkeypatch.context() as patch:
            patch.setattr(pieces, "PIECE", 24)
            patch.setattr(pieces, "LARGE", 48)
            report = judge_results(Program(f, args, {}, Numerics()), f(*args))
            _, cut = Program(f, args, {}, Numerics()).traced()
        assert report.verdict.kind != "wrong", f"{name}: {report}"
        for place, (like, pair) in whole.items():
            each = [torch.as_tensor(p.slack).expand(like.shape) == 0 for p in (pair, cut[place][1])]
            assert torch.equal(*each), (name, place)


def test_results_in_pieces_are_evaluated_before_their_operands_change(monkeypatch):
    def f(x):
        z = x.clone()
        z[:1].mul_(3)
        y = z * 0.3
        z[1:].mul_(7)
        w = z + y
        return y, w, w.view(-1)

    monkeypatch.setattr(pieces, "PIECE", 8)
    x = torch.randn(9, 6)
    assert assert_close(f(x), f, (x,)).verdict.kind == "pass"


def test_a_view_and_an_operation_in_place_have_the_pairs_of_their_memory():
    x = torch.randn(4, 6)

    def in_place(x):
        y = x.clone()
        y[:, 1:3].mul_(0.1).add_(1)
        y.t()[0] = 2
        return y

    trace = Trace(Numerics())
    y = trace.run(in_place, (x,), {})
    seen = trace.shadows.read(y)
    assert torch.equal(seen.value[:, 0], torch.full((4,), 2.0, dtype=torch.float64))
    assert torch.equal(seen.value[:, 3:], x[:, 3:].double())
    assert torch.equal(seen.error != 0, torch.tensor([[False, True, True, *[False] * 3]] * 4))
    assert assert_close(y, in_place, (x,))


def test_the_message_names_what_the_bound_consists_of():
    x, w, b = samples.arguments("affine", torch.bfloat16)
    with pytest.raises(AssertionError, match=r"of the bound is the rounding of aten\.mm to bf"):
        assert_close((x @ w + b).relu() * 1.1, samples.PROGRAMS["affine"][0], (x, w, b))
    x, w, b = samples.arguments("affine", torch.float32)
    cut = torch.relu(truncated(x) @ truncated(w) + b)
    with pytest.raises(AssertionError, match=r"passes with arithmetic=.*tf32=True"):
        assert_close(cut, samples.PROGRAMS["affine"][0], (x, w, b))
    assert assert_close(
        cut, samples.PROGRAMS["affine"][0], (x, w, b), arithmetic=Numerics(tf32=True)
    )


def truncated(x):
    """Return x with 10 bits of fraction."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_what_cannot_be_judged_is_said():
    x = torch.randn(3, 3)
    unbounded = assert_close_report(lambda x: 1 / (x @ x - x @ x), x)
    assert unbounded.verdict.kind == "undecided"
    vacuous = assert_close_report(lambda x: (x @ x).relu() * 0, x)
    assert vacuous.verdict.kind == "vacuous"


def assert_close_report(f, *args):
    return judge_results(Program(f, args, {}, Numerics()), f(*args))


_counter = iter(range(1, 100))


@pytest.mark.parametrize(
    ("reference", "error", "text"),
    [
        (lambda x: x.add_(1), ConvrefError, "writes to its arguments"),
        (lambda x: torch.rand_like(x), UnsupportedError, "draws random numbers"),
        (lambda x: F.dropout(x), UnsupportedError, "draws random numbers"),
        (lambda x: "text", ConvrefError, "is a str, needs a tensor"),
        (lambda x: None, ConvrefError, "returns no tensor"),
        (lambda x: torch.linalg.svd(x)[1], UnsupportedError, "which has no rule"),
        (lambda x: torch.fft.fft(x).real, UnsupportedError, "complex|no rule"),
        (lambda x: x * float((x * 0.1).sum()), UnsupportedError, "reads into Python"),
        (3, ConvrefError, "reference is an int"),
        (lambda x: x + next(_counter), ConvrefError, "another output in a second run"),
        (lambda x: x + random.random() + 1, ConvrefError, "another output in a second run"),
        (lambda x: x.to("cuda:99") + 1, ConvrefError, r"raises .* \(devices of args: cpu\)"),
    ],
)
def test_references_that_cannot_be_judged_are_refused(reference, error, text):
    x = torch.randn(3, 3)
    before = x.clone()
    with pytest.raises(error, match=text):
        assert_close(x, reference, (x,))
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("actual", "text"),
    [
        (torch.zeros(3, 1), "has shape"),
        (torch.zeros(3, 3, dtype=torch.float64), "has dtype"),
        ((torch.zeros(3, 3),), "got output\\[0\\], needs output"),
        (torch.zeros(3, 3, device="meta"), "has device"),
        (torch.zeros(3, 3).to_sparse(), "has layout torch.sparse_coo"),
        (torch.zeros(3, 3, dtype=torch.complex64), "has dtype"),
        (None, "got nothing"),
    ],
)
def test_results_of_another_form_fail(actual, text):
    with pytest.raises(AssertionError, match=text):
        assert_close(actual, lambda x: x + 1, (torch.zeros(3, 3),))


def test_a_result_without_axes_is_named_without_an_index():
    x = torch.ones(3)
    with pytest.raises(AssertionError, match=r"wrong: output\['s'\] is 4.0, needs exactly 3.0; "):
        assert_close({"s": x.sum() + 1}, lambda x: {"s": x.sum()}, (x,))


def test_a_compiled_reference_is_evaluated_as_it_is_written():
    """PyTorch would compile the rules with it."""
    compiled = []

    def backend(graph, _):
        compiled.append(graph)
        return graph

    reference = torch.compile(lambda x: x.sin() + 1, backend=backend)
    x = torch.linspace(0, 1, 5)
    assert assert_close(reference(x), reference, (x,))
    assert len(compiled) == 1  # by the candidate's call


def test_arguments_of_the_wrong_kind_are_refused():
    x = torch.zeros(3)
    with pytest.raises(UnsupportedError, match=r"output of the reference has layout torch\.sparse"):
        assert_close(x, lambda x: x, (x.to_sparse(),))
    with pytest.raises(ConvrefError, match="args is a Tensor"):
        assert_close(x, torch.relu, x)
    with pytest.raises(ConvrefError, match="kwargs is a list"):
        assert_close(x, torch.relu, (x,), [])
    with pytest.raises(ConvrefError, match="arithmetic is 3"):
        assert_close(x, torch.relu, (x,), arithmetic=3)
    with pytest.raises(ConvrefError, match="model"):
        convref.assert_close(x, torch.relu, (x,), arithmetic="rn33")


def test_power_lists_the_mutations_that_pass_on_this_data():
    f = samples.PROGRAMS["affine"][0]
    integers = samples.arguments("affine", torch.float32, kind="integers")
    normal = samples.arguments("affine", torch.bfloat16)
    assert assert_close(f(*integers), f, integers).power.missed == ("mm in float16 (operation 0)",)
    power = assert_close(f(*normal), f, normal).power
    assert "zeros" not in power.missed
    assert "mutations would fail" in str(power)
    x = torch.zeros(6, 40), *integers[1:]
    assert "last term of mm dropped (operation 0)" in assert_close(f(*x), f, x).power.missed


def test_power_counts_no_mutation_of_what_no_result_depends_on():
    def f(x, buffer):
        out = buffer.clone()
        torch.relu(x)
        out[...] = (x.sum(1) - 1000).relu()
        return out

    x, buffer = torch.randn(3, 4), torch.full((3,), torch.nan)
    power = assert_close(f(x, buffer), f, (x, buffer)).power
    assert not [name for name in power.missed if "clone" in name or "(operation 1)" in name]
    assert "without sub (operation 3)" in power.missed  # which all data of this size would miss


def _accumulating(x, w):
    x += 1
    return (x - 1) @ w


def _partly_written(x, w):
    out = torch.empty(x.shape[0], w.shape[1])
    out[:-1] = (x @ w)[:-1]
    return out


def _raw_memory(x, w):
    return torch.as_strided(x, x.shape, (x.shape[1], 1)) @ w


def _batch_dependent(x, w):
    return (x.double() @ w.double()).float() if len(x) == 1 else x @ w


_calls = iter(range(1000))


@pytest.mark.parametrize(
    ("candidate", "law"),
    [
        (torch.matmul, None),
        (_accumulating, "leaves its arguments unchanged"),
        (_partly_written, "right|writes all of its results"),
        (_raw_memory, "takes arguments that are not contiguous"),
        (lambda x, w: x @ w * (1 + 2**-23 * (next(_calls) % 2)), "repeatable"),
        (_batch_dependent, "independent of the batch"),
        (lambda x, w: x[:, :3].copy_(x @ w), "returns memory of its own"),
        (lambda x, w: 1 // 0, "accepts valid arguments"),
        (lambda x, w: torch.nan_to_num(x @ w), "right"),
    ],
)
def test_check_program_finds_the_broken_law(candidate, law):
    found = convref.check_program(
        candidate,
        torch.matmul,
        lambda: (torch.randn(5, 33), torch.randn(33, 3)),
        draws=1,
        batched=(0,),
    )
    if law is None:
        assert not found, "\n".join(map(str, found))
    else:
        assert any(each.law in law.split("|") for each in found)


def test_program_data_are_those_of_check_program():
    args = torch.randn(6, 34), torch.randn(34, 4)
    drawn = dict(convref.program_data(torch.matmul, args, draws=1))
    assert {"given", "integers 0", "sparse argument 1, 0", "given, odd sizes"} <= set(drawn)
    assert [t.shape for t in drawn["given, odd sizes"]] == [(5, 33), (33, 3)]
    with pytest.raises(ConvrefError, match="program_data: args is a Tensor"):
        convref.program_data(torch.matmul, args[0])


def test_check_program_prints_the_smallest_call_that_fails():
    def odd(x, w):
        """Leave the last product of odd sums out."""
        return x[:, : len(w) // 2 * 2] @ w[: len(w) // 2 * 2]

    def make():
        return torch.randn(6, 34), torch.randn(34, 4)

    found = convref.check_program(odd, torch.matmul, make, draws=1)
    assert {each.data.partition(", ")[2] for each in found} >= {"odd sizes"}
    first = str(found[0]).splitlines()[-1].strip()
    got = eval(first, {"torch": torch, "candidate": odd})
    assert got.shape == (1, 1), first
    assert "torch.tensor([[1.0]], dtype=torch.float32)" in first


def test_a_module_in_training_is_judged_and_left_as_it_was():
    torch.manual_seed(0)
    module, x = samples.Block(), torch.randn(5, 4, 6, 6)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    y = F.linear(
        (
            F.relu(F.batch_norm(module.conv(x), None, None, *module.norm.parameters(), True)) + x
        ).mean((2, 3)),
        *module.out.parameters(),
    )
    assert assert_close(y, module, (x,)).verdict.kind == "pass"
    assert all(torch.equal(before[n], value) for n, value in module.state_dict().items())
    module.norm.eps = 1e-2
    with pytest.raises(AssertionError, match="wrong"):
        assert_close(y, module, (x,))
