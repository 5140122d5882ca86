"""The line: every case is one, reads back equal, and a wrong token is pointed at."""

import pytest
from hypothesis import given

from convref import dtypes
from convref.case import MATHS, MAX_LINE, Call, Case, Spec, format_problem, parse, parse_problem
from convref.conformance.strategies import DTYPES, calls, cases, problems
from convref.errors import ConvrefError
from convref.ops import ConvProblem

ANY = {"ops": ["conv", "conv", "unfold", "fold"], "dtypes": dtypes.CODES, "maths": MATHS}


@given(cases(**ANY))
def test_case_reads_back_equal(case):
    line = str(case)
    assert parse(line) == case
    assert str(parse(line)) == line
    assert not set(line) & set(" '\"\\$*?;&|<>(){}[]#~!\n")  # one shell word


@given(calls(**ANY))
def test_call_reads_back_equal(call):
    assert parse(str(call)).call == call


@pytest.mark.parametrize("op", ["conv", "unfold", "fold"])
def test_problem_reads_back_equal(op):
    @given(problems(op))
    def check(problem):
        assert parse_problem(format_problem(op, problem)) == problem

    check()


DESIGN = (
    "conv.backward:n1c4k2g2_i1x2_f2x1_s1x3_p1,1x0,2_d1x3"
    ":dt=bf16:mem=x.nhwc.step2w,w.ohwi,dy.expandn:mask=010:fill=int:seed=7"
)


def test_line_of_the_design():
    case = parse(DESIGN)
    problem = case.call.conv
    assert (problem.n, problem.c, problem.k, problem.groups) == (1, 4, 2, 2)
    assert problem.padding == ((1, 1), (0, 2))
    assert problem.stride == (1, 3)
    assert problem.dilation == (1, 3)
    assert case.call.mask == (False, True, False)
    assert case.call.spec("x") == Spec("bf16", "nhwc", (("w", 2),))
    assert case.call.spec("dy").expand == "n"
    assert case.seed == 7


def test_one_bit_mask_prints_as_its_pass():
    assert str(parse(DESIGN)).startswith("conv.wgrad:")
    assert "mask" not in str(parse(DESIGN))


def test_channels_last_of_every_operand_is_one_word():
    line = "conv.fprop:n1c2k3_i4x4_f3x3:mem=nhwc"
    assert str(parse(line)) == line
    assert parse(line).call.spec("w").order == "ohwi"
    assert str(parse("conv.fprop:n1c2k3_i4_f3:mem=nhwc")).endswith("mem=nwc")


def test_defaults_are_left_out():
    line = "conv.fprop:n1c2k3g1_i4x4_f3x3_s1_p0_d1:t=0:flip=0:bias=1:dt=f32:math=ieee:seed=0"
    assert str(parse(line)) == "conv.fprop:n1c2k3_i4x4_f3x3"


MALFORMED = [
    ("", "''"),
    ("conv", "column 5"),
    ("pool.fprop:n1c1_i1_f1", "pool.fprop"),
    ("conv.bprop:n1c1k1_i1_f1", "conv.bprop"),
    ("conv.fprop:n1k1_i1_f1", "n1k1"),
    ("conv.fprop:n1c1k1_i1", "f with the sizes"),
    ("conv.fprop:n1c1k1_i1_f1_f2", "f2"),
    ("conv.fprop:n1c1k1_i1_f1_p", "p"),
    ("conv.fprop:n1c1k1_i1_f1_q2", "q2"),
    ("conv.fprop:n1c1k1_i1x_f1", "i1x"),
    ("conv.fprop:n1c1k1_i1_f1_p1,2,3", "p1,2,3"),
    ("conv.fprop:n1c1k1_i9_f1_s１", "s１"),
    ("conv.fprop:n1c1_i1_f1", "n1c1_i1_f1"),
    ("conv.fprop:n1c1k1_i1_f1:zoom=1", "zoom=1"),
    ("conv.fprop:n1c1k1_i1_f1:dt=f32:fill=int:dt=f32", "dt=f32"),
    ("conv.fprop:n1c1k1_i1_f1:dt=f33", "dt=f33"),
    ("conv.fprop:n1c1k1_i1_f1:t=2", "t=2"),
    ("conv.fprop:n1c1k1_i1_f1:mem=y.nwc", "y.nwc"),
    ("conv.fprop:n1c1k1_i1_f1:mem=x.2step", "x.2step"),
    ("conv.fprop:n1c1k1_i1_f1:bias=0:mem=b.off1", "b.off1"),
    ("conv.backward:n1c1k1_i1_f1:mask=012", "mask=012"),
    ("conv.wgrad:n1c1k1_i1_f1:mask=010", "mask=010"),
    ("conv.jvp:n1c1k1_i1_f1:tan=y", "tan=y"),
    ("conv.fprop:n1c1k1_i1_f1:seed=1e3", "seed=1e3"),
    ("conv.fprop:n1c1k1_i1_f1:seed=__import__", "seed=__import__"),
    ("conv.fprop:n1c1k1_i1_f1:dev=tpu", "dev=tpu"),
    ("unfold:n1c1_i1_f1:bias=0", "bias=0"),
]


@pytest.mark.parametrize(("line", "token"), MALFORMED, ids=[row[0] for row in MALFORMED])
def test_malformed_line_points_at_the_token(line, token):
    with pytest.raises(ConvrefError) as caught:
        parse(line)
    text = str(caught.value)
    assert token in text
    first, shown, mark = text.split("\n")
    assert "needs" in first
    if token in line:
        rest = shown[mark.index("^") :]
        assert rest.startswith(token)
        assert len(rest) == len(token) or rest[len(token)] in ":_,"


INVALID = [
    ("conv.fprop:n1c1k1_i1_f2", "output Q is 0"),
    ("conv.fprop:n1c1k1_i1_f1:fill=cats", "fill is 'cats'"),
    ("conv.fprop:n1c1k1_i1_f1:math=fast", "math is 'fast'"),
    ("conv.fprop:n1c1k1_i1_f1:seed=9223372036854775808", "seed is 9223372036854775808"),
    ("conv.fprop:n1c1k1_i1_f1:mask=1", "mask is given, needs none"),
    ("conv.backward:n1c1k1_i1_f1:mask=10", "mask has 2 entries, needs 3"),
    ("conv.jvp:n1c1k1_i1_f1:bias=0:tan=b", "needs some of 'xw'"),
    ("conv.fprop:n1c1k1_i1_f1:mem=x.nhc", "needs a permutation of ncw"),
    (
        "conv.fprop:n1c1k1_i1_f1:mem=x.expandn.step2n",
        "names 'nn', needs each axis of ncw at most once",
    ),
    ("conv.fprop:n1c1k1_i1_f1:around=noise", "around is 'noise'"),
    ("conv.fprop:n1c1k1_i1_f1:around=data,data", "needs each name once"),
    ("conv.fprop:n1c1k1_i1_f1:mem=x.step1n", "needs steps other than 0 and 1"),
    ("conv.fprop:n1c1k1_i1x1x1x1_f1", "input has 4 spatial axes"),
]


@pytest.mark.parametrize(("line", "text"), INVALID, ids=[row[0] for row in INVALID])
def test_well_formed_line_that_means_nothing(line, text):
    with pytest.raises(ConvrefError) as caught:
        parse(line)
    assert text in str(caught.value)


def test_long_line_is_refused_before_it_is_read():
    with pytest.raises(ConvrefError, match="needs at most 2000"):
        parse("conv.fprop:" + "n" * MAX_LINE)


def test_huge_sizes_allocate_nothing():
    assert parse("conv.fprop:n1c1k1_i99999999_f1").call.memory() > 10**9


def test_mixed_types_have_no_line():
    problem = ConvProblem(n=1, c=1, k=1, input=(1,), filter=(1,))
    with pytest.raises(ConvrefError, match="f32 on cpu, f64 on cpu, need one dtype"):
        Case(Call("conv", "fprop", problem, specs=(Spec("f32"), Spec("f64"), Spec("f32"))))


def test_default_dtypes_are_known():
    assert set(DTYPES) <= set(dtypes.CODES)
