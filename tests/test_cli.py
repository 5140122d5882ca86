"""The command line: exit status, one-sentence errors, and real output."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from convref import ConvrefError, dispatch
from convref.cli.commands import app
from convref.errors import pip_command
from convref.ops import FAMILY, ops_of

LINE = "conv.backward:n1c2k2_i5x5_f3x3_p1"


def run(*arguments):
    """Return exit status and output of the command line, in this process."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})
    if isinstance(result.exception, ConvrefError):
        return 2, f"convref: {result.exception}"
    return result.exit_code, re.sub(r"\x1b\[[0-9;]*m", "", result.output)


def main(*arguments, before=""):
    """Return exit status, output and errors of a real process."""
    code = f"import sys; sys.argv = ['convref', *{list(arguments)!r}]; {before}\n"
    code += "from convref.cli import main\nif __name__ == '__main__': main()"
    # readline, which pytest loads, exports the width of its terminal to child processes.
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=env
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("group", "names"), [([], {"check", "bench", "sanitize"}), (["report"], {"merge", "draws"})]
)
def test_the_help_of_each_command_is_one_whole_line(group, names):
    status, output, _ = main(*group, "--help")
    commands = output.partition("Commands:")[2].strip().splitlines()
    assert status == 0
    assert names <= {line.split()[0] for line in commands}
    assert all(line.endswith(".") and "..." not in line for line in commands), output


def test_check_passes_a_right_backend():
    status, output = run("check", "loops", "--examples", "30", "--pass", "fprop", "--dtype", "f32")
    assert status == 0
    assert "conv.fprop" in output
    assert re.search(r"all right", output)


def test_check_fails_on_findings_and_no_fail_does_not(hostile_module):
    arguments = ["check", hostile_module, "--examples", "60", "--pass", "fprop", "--dtype", "f32"]
    assert run(*arguments, "--no-shrink")[0] == 1
    status, output = run(*arguments, "--no-fail")
    assert status == 0
    assert "needs stride = 3" in output
    assert "convref run 'conv.fprop:" in output


@pytest.fixture
def hostile_module(tmp_path, monkeypatch):
    text = (
        "from convref.backends.numpy import NumpyBackend\n"
        "class Off(NumpyBackend):\n"
        "    def run(self, call, *operands):\n"
        "        y, = super().run(call, *operands)\n"
        "        return (y + y.dtype.type(3 in call.problem.stride),)\n"
        "off = Off()\n"
    )
    (tmp_path / "off_by_one.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "off_by_one:off"


def test_a_backend_without_an_entry_point_sets_its_chunk_size(tmp_path, monkeypatch):
    text = (
        "from convref.backends.loops import LoopsBackend\nslow = LoopsBackend()\nslow.chunk = 8\n"
    )
    (tmp_path / "slow_module.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    log = tmp_path / "log.jsonl"
    arguments = [
        "check",
        "slow_module:slow",
        "--examples",
        "16",
        "--pass",
        "fprop",
        "--dtype",
        "f32",
    ]
    assert run(*arguments, "--jobs", "1", "--log", str(log))[0] == 0
    events = map(json.loads, log.read_text().splitlines())
    assert {event["chunk"] for event in events if event["event"] == "report"} == {0, 1}


def test_replay_runs_the_lines_of_a_file(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"# a comment\n\n{LINE}\n{LINE}:dt=f64\n")
    status, output = run("check", "loops", "--replay", str(corpus))
    assert status == 0
    assert "2 examples" in output


BAD_FILES = [
    ("conv.fprop:n99999c999k9_i999x999_f3x3\n", "GiB, needs at most 16"),
    ("# nothing\n", "has no case"),
    ('{"event": "exec", "code": "1"}\n', "is not a log of convref check"),
    ("conv.fprop:n1c1k1_i3_f9\n", "output Q is -5"),
    ("../../etc/passwd\n", "column 1"),
    ("__import__('os')\n", "column 1"),
    ("conv.fprop:n1c1k1_i3_f3:seed=1e99\n", "seed=1e99"),
]


@pytest.mark.parametrize(("text", "expected"), BAD_FILES)
def test_a_bad_line_in_a_file_is_refused(tmp_path, text, expected):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(text)
    status, output = run("check", "loops", "--replay", str(corpus))
    assert status == 2
    assert expected in output


def test_run_judges_one_line():
    status, output = run("run", LINE, "--backend", "loops")
    assert status == 0
    assert "pass" in output


def test_run_prints_the_reason_of_a_failure(hostile_module):
    status, output = run("run", "conv.fprop:n1c1k1_i3_f1_s3", "--backend", hostile_module)
    assert status == 1
    assert "exactly" in output


def test_run_names_the_reason_of_a_refusal():
    pytest.importorskip("torch")
    status, output = run("run", "conv.wgrad:n1c1k1_i3_f1:dt=i32", "--backend", "torch")
    assert status == 3
    assert "ATen has no backward kernel for i32" in output


def test_run_refuses_what_would_not_fit():
    status, output = run("run", "conv.fprop:n1000000c1000k1_i1000_f1", "--backend", "loops")
    assert status == 2
    assert "GiB" in output


def test_laws_need_no_oracle(hostile_module):
    arguments = ("--laws", "--examples", "40", "--dtype", "f32")
    status, output = run("check", hostile_module, *arguments)
    assert status == 1
    command = re.search(r"convref (run) '(conv.fprop:[^']+)' --backend (\S+) (--laws)", output)
    status, output = run("run", command[2], "--backend", hostile_module, "--laws")
    assert status == 1
    assert re.search(r"law: \w+ law: ", output)
    assert run("run", command[2], "--backend", "loops", "--laws")[0] == 0
    status, output = run("run", "conv.fprop:n1c64k64_i64_f1:dt=bf16", "--backend=loops", "--laws")
    assert (status, "no law applies to this case" in output) == (3, True)


def test_run_prints_a_snippet():
    status, output = run("run", LINE, "--snippet", "torch")
    assert status == 0
    assert "import torch" in output
    assert "convref." not in output


@pytest.mark.parametrize(
    ("given", "expected"), [((), 1), (("--threads", "3"), 3), (("--threads", "0"), 0)]
)
def test_a_program_asks_for_the_threads_that_a_worker_has(given, expected):
    _, output = run("run", LINE, "--snippet", "torch", *given)
    assert (f"torch.set_num_threads({expected})" in output) == bool(expected)
    assert expected or "set_num_threads" not in output


def test_explain_shows_sizes_costs_and_candidates():
    status, output = run("explain", LINE, "--kind", "numpy")
    assert status == 0
    for text in ("dx of 18", "dw of 25", "flop", "* numpy"):
        assert text in output


def test_explain_of_unproven_kernels():
    error = main("explain", LINE, "--backend", "numpy", "--unproven")[2]
    assert "'numpy' has no unproven kernels" in error


def test_backends_are_listed_without_an_import_and_with_one():
    status, output, _ = main("backends", before="sys.modules['torch'] = None")
    assert status == 0
    assert re.search(r"numpy +convref.backends.numpy:backend +numpy \d", output)
    status, output, _ = main("backends", "--load", before="sys.modules['torch'] = None")
    assert status == 0
    assert re.search(r"numpy +convref.backends.numpy:backend +numpy \d[^\n]*, python 3", output)
    assert f"torch is not installed; run: {pip_command('torch')}" in output


def test_lines_in_a_pipe_are_not_broken(tmp_path):
    (tmp_path / "x").write_text("")
    name = "a_module_of_a_long_name" * 10
    before = f"from convref import dispatch; dispatch.names()['x'] = '{name}:backend'"
    status, output, _ = main("backends", before=before)
    assert (status, f"{name}:backend" in output) == (0, True)


def test_check_lists_the_ops_that_it_does_not_draw():
    arguments = ("check", "loops", "--examples", "1", "--pass", "fprop", "--dtype", "f32")
    status, output = run(*arguments)
    assert status == 0
    others = re.match(r"checking conv alone; for the other ops: --op (\S+)\n", output)[1]
    assert {"conv", *ops_of(others.split(","))} == set(FAMILY)
    assert "--op" not in run(*arguments, "--op", "conv")[1]


def test_help_needs_no_rich():
    status, output, _ = main("check", "--help", before="sys.modules['rich'] = None")
    assert status == 0
    assert "--examples" in output


def test_shell_completes_commands(monkeypatch):
    for name, value in (("CONVREF_COMPLETE", "complete_bash"), ("CWORD", "1"), ("WORDS", "c ch")):
        monkeypatch.setenv(f"{'_' if 'REF' in name else 'COMP_'}{name}", value)
    assert main() == (0, "check\n", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("check", "--examples", "x"), "check: Invalid value for '--examples'"),
        (("run",), "run: Missing argument 'line'"),
        (("nope",), "No such command 'nope'"),
    ],
)
def test_wrong_use_is_one_sentence(arguments, expected):
    status, output, errors = main(*arguments)
    assert (status, output, len(errors.splitlines())) == (2, "", 1)
    assert errors.lower().startswith(f"convref: {expected}".lower())


ERRORS = [
    (("explain", "conv.fprop:n1c1k1_i3_q7"), "token 'q7' at column 22"),
    (("run", LINE, "--backend", "nope"), "'nope' is unknown, needs"),
    (("explain", LINE, "--kind", "nd"), "explain: --kind is 'nd', needs one of jax, numpy, torch"),
    (("check", "nope"), "'nope' is unknown, needs"),
    (("check", "loops", "--shard", "3/2"), "--shard is '3/2', needs i/n"),
    (("run", LINE, "--snippet", "abacus"), "needs one of torch, jax"),
    (("check", "loops", "--replay", "no/such/file"), "check: no/such/file: No such file"),
    (("report", "issue", "no.jsonl"), "no.jsonl is no file, needs a log or a case line"),
    (("check", "loops", "--replay", "/dev/zero"), "/dev/zero is too large, needs at most 16 MiB"),
    (
        ("check", "loops", "--op", "nope"),
        "check: op is 'nope', needs one of conv, conv_integer, quantized_conv or ",
    ),
    (("check", "loops", "--pass", "fwd"), "pass is 'fwd', needs one of fprop"),
    (("check", "loops", "--dtype", "f31"), "dtype is 'f31', needs one of bf16"),
    (("check", "loops", "--fill", "nope"), "fill is 'nope', needs one of int"),
    (("check", "loops", "--laws", "--op", "conv,relu"), "--op is conv,relu, --laws needs conv"),
    (("run", "relu.fprop:n1c1_i1", "--laws"), "op is relu, --laws needs conv"),
    (("check", "loops", "--seconds", "nan"), "--seconds is nan, needs a number above 0"),
    (("check", "loops", "--limit", "-1"), "--limit is -1, needs a number above 0"),
    (("check", "loops", "--memory", "0"), "--memory is 0, needs a number above 0"),
    (("check", "loops", "--gpus", "1"), "--gpus is 1, needs --ray"),
    (("check", "loops", "--examples", "0"), "Invalid value for '--examples'"),
    (("check", "loops", "--jobs", "-3"), "Invalid value for '--jobs'"),
    (("check", "loops", "--examples", "5", "--log", "/proc/none/log"), "log: /proc/none/log: "),
    (("check", "loops", "--examples", "5", "--html", "/proc/none"), "report: /proc/none: "),
    (("run", LINE, "--snippet", "torch", "--threads", "-1"), "Invalid value for '--threads'"),
    (("run", LINE, "--limit", "inf"), "--limit is inf, needs a number above 0"),
    (("run", "conv.fprop:n1c1k1_i3_f1:tan=x"), "tangents has ['x'], needs none"),
    (("run", "conv.fprop:n1c1k1_i3_f1:seed=" + "9" * 20), "integer of at most 19 digits"),
]


@pytest.mark.parametrize(("arguments", "expected"), ERRORS)
def test_errors_are_one_sentence(arguments, expected):
    status, output = run(*arguments)
    assert status == 2
    assert expected in output
    assert "Traceback" not in output


def test_main_turns_errors_into_exit_status_2():
    status, output, errors = main("explain", "nonsense")
    assert (status, output) == (2, "")
    assert errors.startswith("convref: line: token 'nonsense' at column 1")


def test_main_turns_a_refusal_into_exit_status_3():
    status, output, errors = main("inspect", LINE, "--backend", "numpy")
    assert (status, output) == (3, "")
    assert errors.startswith("convref: inspect: numpy: it has no code to show")


def test_unsupported_cases_do_not_count_as_right(tmp_path, monkeypatch):
    text = (
        "from convref.backends.loops import LoopsBackend\n"
        "class Picky(LoopsBackend):\n"
        "    def supports(self, call):\n"
        "        return None if call.pass_ == 'jvp' else 'no'\n"
        "picky = Picky()\n"
    )
    (tmp_path / "picky.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    check = ("check", "picky:picky", "--op", "relu", "--examples", "20")
    # Where a line wraps depends on the length of the speed printed in it.
    refused, some = (" ".join(run(*check, *more)[1].split()) for more in (("--pass", "fprop"), ()))
    assert re.search(r"20 examples, .*nothing judged yet", refused)
    assert re.search(r"20 examples, .*\d+ of them judged, all right", some)


def test_a_module_in_the_current_folder_is_found(tmp_path):
    (tmp_path / "beside.py").write_text("from convref.backends.loops import backend")
    code = "import sys; sys.path.remove('')\n"
    code += "sys.argv = ['', 'run', {!r}, '--backend', 'beside:backend']\n"
    code = code.format(LINE) + "from convref.cli import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert (done.returncode, "pass" in done.stdout) == (0, True), done.stderr


def test_a_check_that_judged_nothing_fails():
    status, output = run("check", "loops", "--seconds", "1e-9")
    assert status == 1
    assert "nothing was judged" in output


def test_time_counts_from_the_first_worker_that_is_ready(monkeypatch):
    """By a clock on which the start of the workers takes an hour, and nothing else any time."""
    from convref.conformance import campaign

    now, start = [0.0], campaign.Engine.start

    def slow(engine):
        start(engine)
        now[0] += 3600.0

    monkeypatch.setattr(campaign.Engine, "start", slow)
    monkeypatch.setattr(campaign, "time", SimpleNamespace(monotonic=lambda: now[0]))
    status, output = run("check", "loops", "--seconds", "1", "--op", "relu", "--examples", "20")
    assert (status, "20 examples" in output) == (0, True), output


def test_a_terminal_without_unicode_prints_question_marks(tmp_path):
    text = (
        "from convref.backends.loops import LoopsBackend\n"
        "class Greek(LoopsBackend):\n"
        "    def fingerprint(self):\n"
        "        return {'kernels': '\\u03bc 1'}\n"
        "greek = Greek()\n"
    )
    (tmp_path / "greek.py").write_text(text)
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "convref", "run", LINE, "--backend", "greek:greek"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=os.environ | ascii_only
    )
    assert (done.returncode, "kernels ? 1" in done.stdout) == (0, True), done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_behind_the_output_is_one_sentence():
    command = [sys.executable, "-m", "convref", "explain", LINE]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (2, "convref: output: No space left on device\n")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_extra_names_the_pip_command(missing):
    status, _, errors = main("backends", before=f"sys.modules[{missing!r}] = None")
    assert status == 2
    assert pip_command("check") in errors
    assert len(errors.splitlines()) == 1


def test_a_missing_hypothesis_names_the_pip_command():
    status, _, errors = main("check", "loops", before="sys.modules['hypothesis'] = None")
    assert status == 2
    expected = f"convref: hypothesis is not installed; run: {pip_command('check')}\n"
    assert errors == expected


FAILURE = (
    '{"event": "failure", "line": "conv.fprop:n1c1k1_i2_f1", "verdict": "wrong", "reason": "off", '
    '"needs": [], "independent": [], "seen": 1, "first": "", "command": "rm -rf /"}\n'
)


def test_check_writes_a_page_and_logs_add_up(tmp_path):
    pytest.importorskip("jinja2")
    arguments = ["check", "loops", "--examples", "20", "--pass", "fprop", "--dtype", "f32"]
    shards = [tmp_path / f"{i}.jsonl" for i in range(2)]
    for i, log in enumerate(shards):
        status, output = run(*arguments, "--shard", f"{i}/2", "--log", str(log))
        assert status == 0, output
    status, output = run("report", "merge", *map(str, shards))
    assert status == 0
    assert "loops: 40 examples" in output
    merged = tmp_path / "merged.jsonl"
    assert run("report", "merge", *map(str, shards), "--out", str(merged))[0] == 0
    assert "Is a directory" in run("report", "merge", str(merged), "--out", str(tmp_path))[1]
    status, output = run("check", "loops", "--replay", str(merged))
    assert (status, "has no case" in output) == (2, True)  # nothing failed
    merged.write_text(merged.read_text() + FAILURE)
    status, output = run("check", "loops", "--replay", str(merged))
    assert (status, "1 example," in output) == (0, True)
    page = tmp_path / "sum.html"
    assert run("report", "html", *map(str, shards), "--out", str(page))[0] == 0
    assert "<html" in page.read_text()
    assert run(*arguments, "--html", str(tmp_path / "pages"))[0] == 0
    assert (tmp_path / "pages" / "loops.html").exists()


@pytest.mark.parametrize("by", ["its address", "its own name"])
def test_known_bugs_are_passed_over_and_retested(tmp_path, hostile_module, by):
    bugs = tmp_path / "bugs.txt"
    name = hostile_module if by == "its address" else dispatch.load(hostile_module).name
    bugs.write_text(f"my-bug | {name} | any.s = 3 | - | adds one\n")
    arguments = ["check", hostile_module, "--examples", "80", "--pass", "fprop", "--dtype", "f32"]
    status, output = run(*arguments, "--known-bugs", str(bugs))
    assert status == 0, output
    assert re.search(r"known bug my-bug: \d+ cases not run", output)
    status, output = run(*arguments, "--known-bugs", str(bugs), "--retest-known")
    assert status == 0, output
    assert re.search(r"known bug my-bug: still there: \d+ fail", output)
    assert run(*arguments, "--known-bugs", str(bugs), "--no-known", "--no-shrink")[0] == 1


def test_a_known_crash_that_is_retested_is_still_there_and_no_finding(tmp_path, monkeypatch):
    text = (
        "import os\n"
        "from convref.backends.numpy import NumpyBackend\n"
        "class Dies(NumpyBackend):\n"
        "    name = 'dies'\n"
        "    def run(self, call, *operands):\n"
        "        os._exit(3) if 3 in call.problem.stride else None\n"
        "        return super().run(call, *operands)\n"
        "dies = Dies()\n"
    )
    (tmp_path / "dies_at_three.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    bugs, lines = tmp_path / "bugs.txt", tmp_path / "lines.txt"
    bugs.write_text("my-crash | dies | any.s = 3 | - | exits\n")
    lines.write_text("conv.fprop:n1c1k1_i9_f1_s3\nconv.fprop:n1c1k1_i9_f1_s2\n")
    retest = ("--known-bugs", str(bugs), "--retest-known", "--replay", str(lines))
    status, output = run("check", "dies_at_three:dies", *retest)
    assert status == 0, output
    assert "known bug my-crash: still there: 1 fail, 0 pass" in " ".join(output.split())


def test_check_leaves_nothing_in_the_folder(tmp_path):
    (tmp_path / "theirs.py").write_text("from convref.backends.numpy import backend\n")
    command = [sys.executable, "-B", "-m", "convref", "check", "theirs:backend", "--pass=fprop"]
    command += ["--dtype=f32", "--examples=400", "--jobs=1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=600)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.py"]


def test_piped_tables_are_as_wide_as_their_words():
    narrow = "import os; os.environ['COLUMNS'] = '30'"
    status, text, _ = main("check", "loops", "--examples", "3", "--jobs", "1", before=narrow)
    assert status == 0
    assert "op.pass" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) > 30
