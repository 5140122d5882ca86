"""Device functions, variables in global memory, printf and assert, as nvcc writes them."""

import numpy as np
import pytest

from convref_ptx import Allocation, Fault, launch, parse

# The least and the largest of n numbers, twice called by `width`; each has labels and two returns.
FUNCTIONS = """.file 1 "k.cu"
.file 2 "h.cuh"
.func (.param .align 4 .b8 func_retval0[8]) bounds(.param .b64 bounds_param_0, .param .b32 bounds_1)
{ .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .f32 %f<4>;
.loc 1 3 5
ld.param.u64 %rd1, [bounds_param_0]; ld.param.u32 %r1, [bounds_1];
ld.f32 %f1, [%rd1]; mov.f32 %f2, %f1;
$L1: setp.lt.s32 %p1, %r1, 2; @%p1 bra $L2; add.s64 %rd1, %rd1, 4; ld.f32 %f3, [%rd1];
min.f32 %f1, %f1, %f3; max.f32 %f2, %f2, %f3; sub.s32 %r1, %r1, 1; bra $L1;
$L2: st.param.f32 [func_retval0+0], %f1; st.param.f32 [func_retval0+4], %f2; ret; }
.func (.param .b32 func_retval0) width(.param .b64 width_0, .param .b32 width_1)
{ .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [width_0]; ld.param.u32 %r1, [width_1];
setp.ne.s32 %p1, %r1, 1; @%p1 bra $L1; st.param.f32 [func_retval0+0], 0f42280000; ret;
$L1: { .reg .b32 temp_param_reg; .param .b64 param0; st.param.b64 [param0+0], %rd1;
.param .b32 param1; st.param.b32 [param1+0], %r1; .param .align 4 .b8 retval0[8];
call.uni (retval0), bounds, (param0, param1);
ld.param.f32 %f1, [retval0+0]; ld.param.f32 %f2, [retval0+4]; }
sub.f32 %f3, %f2, %f1; st.param.f32 [func_retval0+0], %f3; ret; }
.visible .entry f(.param .u64 f_0, .param .u64 f_1) {
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [f_0]; ld.param.u64 %rd2, [f_1]; mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 20; add.s64 %rd4, %rd1, %rd3; rem.u32 %r2, %r1, 5; add.s32 %r2, %r2, 1;
.loc 1 9 5
{ .param .b64 param0; st.param.b64 [param0+0], %rd4; .param .b32 param1;
st.param.b32 [param1+0], %r2; .param .b32 retval0;
call.uni (retval0), NAME, (param0, param1); ld.param.f32 %f1, [retval0+0]; }
{ .param .b64 param0; st.param.b64 [param0+0], %rd4; .param .b32 param1;
st.param.b32 [param1+0], 5; .param .b32 retval0;
call.uni (retval0), NAME, (param0, param1); ld.param.f32 %f2, [retval0+0]; }
.loc 2 4 5, function_name $L__info_string0, inlined_at 2 7 3
.loc 2 7 3, function_name $L__info_string1, inlined_at 1 11 3
.loc 2 4 9, function_name $L__info_string0, inlined_at 2 7 3
fma.rn.f32 %f1, %f2, 0f42C80000, %f1;
mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd2, %rd5; st.global.f32 [%rd6], %f1; ret; }"""


def called(name, numbers, count):
    out = np.zeros(count, np.float32)
    given = [Allocation(numbers), Allocation(out, writable=True)]
    launch(parse(FUNCTIONS.replace("NAME", name), "f"), (1,), (64,), given)
    return out


def test_functions_are_called_by_threads_with_other_numbers():
    x = np.random.default_rng(0).integers(-4, 5, (64, 5)).astype(np.float32)
    wanted = [42 if n % 5 == 0 else np.ptp(row[: n % 5 + 1]) for n, row in enumerate(x)]
    assert np.array_equal(called("width", x, 64), 100 * np.ptp(x, 1) + wanted)


def test_a_fault_in_a_function_and_after_its_call_is_at_their_lines():
    with pytest.raises(Fault, match=r"ld\.f32 .*past the last of 1240 bytes.*\(k\.cu:3, program"):
        called("width", np.zeros((62, 5), np.float32), 64)
    text = r"st\.global.*past the last.*\(h\.cuh:4, inlined at k\.cu:11, program"
    with pytest.raises(Fault, match=text):
        called("width", np.zeros((64, 5), np.float32), 60)


@pytest.mark.parametrize("name", ["malloc", "again"])
def test_a_function_without_text_and_one_that_calls_itself_are_refused(name):
    again = """.func (.param .b32 func_retval0) again(.param .b64 a_0, .param .b32 a_1)
    { call.uni (func_retval0), again, (a_0, a_1); ret; } .visible .entry f("""
    text = FUNCTIONS.replace("NAME", name).replace(".visible .entry f(", again)
    with pytest.raises(Fault, match=f"call.{name}: unknown instruction"):
        launch(parse(text, "f"), (1,), (1,), [None, None])


VARIABLES = """.global .align 4 .u32 tickets;
.visible .global .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};
.visible .entry f(.param .u64 f_0) {
.reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [f_0]; mov.u64 %rd2, tickets; atom.global.add.u32 %r1, [%rd2], 1;
and.b32 %r2, %r1, 1; mul.wide.u32 %rd3, %r2, 4; mov.u64 %rd4, table; add.s64 %rd4, %rd4, %rd3;
ld.global.u32 %r3, [%rd4+AT]; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd1, %rd5;
ld.global.u32 %r4, [tickets]; st.global.u32 [%rd6], %r3; ret; }"""


def test_variables_begin_with_their_values_at_each_launch():
    for _ in range(2):
        out = np.zeros(128, np.uint32)
        program = parse(VARIABLES.replace("ld.global.u32 %r4, [tickets]; ", "").replace("AT", "0"))
        launch(program, (2,), (64,), [Allocation(out, writable=True)])
        assert out.tolist() == [1, 2] * 64


def test_an_access_beyond_a_variable_names_it():
    with pytest.raises(Fault, match="4 bytes past the last of 8 bytes of table"):
        launch(parse(VARIABLES.replace("AT", "8")), (1,), (1,), [None])


def test_a_race_on_a_variable_names_it():
    text = VARIABLES.replace("AT", "0").replace("[%rd6], %r3", "[tickets], %r3")
    with pytest.raises(Fault, match=r"race.*byte 0 of tickets"):
        launch(parse(text), (2,), (64,), [None])


def string(name, text):
    data = f"{text}\0".encode()
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};"


CALL = """{{ .param .b64 param0; st.param.b64 [param0+0], %rd1; .param .b64 param1;
    st.param.b64 [param1+0], %rd2; {more} }}"""
PRINT = ".param .b32 retval0; call.uni (retval0), vprintf, (param0, param1);"
ASSERT = "call.uni __assertfail, (param0, param1, param1, param1, param1);"
EXTERN = """.extern .func (.param .b32 func_retval0) vprintf(.param .b64 v_0, .param .b64 v_1);
.visible .entry f() { .local .align 8 .b8 __local_depot0[24]; .reg .b64 %SP; .reg .b64 %SPL;
.reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
mov.u64 %SPL, __local_depot0; cvta.local.u64 %SP, %SPL; mov.u32 %r1, %tid.x; sub.s32 %r2, 0, %r1;
mov.u64 %rd3, word; st.local.u32 [%SPL], %r2; st.local.f64 [%SPL+8], 0d3FF8000000000000;
st.local.u64 [%SPL+16], %rd3; mov.u64 %rd1, line; mov.u64 %rd2, %SP;
setp.gt.u32 %p1, %r1, 1;
.loc 1 5 3
@%p1 bra $E; CALL $E: ret; }"""


def external(call, line):
    text = EXTERN.replace("CALL", CALL.format(more=call))
    strings = f'.file 1 "k.cu"\n{string("line", line)} {string("word", "so")}'
    launch(parse(strings + text), (1,), (64,), [])


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("%d, %5.2f, %s;", "0,  1.50, so;-1,  1.50, so;"),
        ("%u%% %e;", "0% 1.500000e+00;4294967295% 1.500000e+00;"),
        ("%x %a;", "0 0x1.8000000000000p+0;ffffffff 0x1.8000000000000p+0;"),
        ("plain\n", "plain\nplain\n"),
    ],
)
def test_a_kernel_prints_in_the_order_of_its_threads(line, printed, capsys):
    external(PRINT, line)
    assert capsys.readouterr().out == printed


def test_printing_more_than_there_is_is_a_fault():
    with pytest.raises(Fault, match="printf has fewer values than conversions"):
        external(PRINT, "%f " * 9)


def test_an_assertion_that_fails_is_a_fault_at_its_line():
    with pytest.raises(Fault, match=r"^assert\(a < b\): does not hold \(k\.cu:5, program"):
        external(ASSERT, "a < b")


@pytest.mark.parametrize("threads", [32, 64])
def test_a_trap_that_a_thread_reaches_is_a_fault(threads):
    text = """.visible .entry f() { .reg .b32 %r<2>; .reg .pred %p<2>; mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 40; @%p1 trap; ret; }"""
    if threads == 32:
        launch(parse(text), (1,), (threads,), [])
        return
    with pytest.raises(Fault, match=r"trap: the kernel ends itself \(program .* warp 1, lane 8\)"):
        launch(parse(text), (1,), (threads,), [])
