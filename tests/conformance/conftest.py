"""Backends that misbehave, as a module that worker processes can import."""

import pytest

HOSTILE = '''
import contextlib, ctypes, os, subprocess, sys, time
import numpy as np
from convref import Numerics
from convref.backends import Arm
from convref.backends.numpy import NumpyBackend

class Right(NumpyBackend):
    name = "right"

class Crash(Right):
    """Dies of SIGSEGV on stride 3."""
    def run(self, call, *operands):
        if 3 in call.problem.stride:
            ctypes.string_at(0)
        return super().run(call, *operands)

class Hang(Right):
    """Never answers on stride 3."""
    def run(self, call, *operands):
        while 3 in call.problem.stride:
            time.sleep(0.01)
        return super().run(call, *operands)

class Spin(Right):
    """Computes for ever on stride 3."""
    def run(self, call, *operands):
        while 3 in call.problem.stride:
            pass
        return super().run(call, *operands)

class Stuck(Right):
    """Computes every call for ever."""
    def run(self, call, *operands):
        while True:
            pass

class Nameless(Exception):
    def __str__(self):
        raise RuntimeError("no text")

class Raises(Right):
    """Raises on stride 3 what has no text, and one that would colour a terminal."""
    def run(self, call, *operands):
        if 3 in call.problem.stride:
            raise Nameless if call.problem.n > 1 else ValueError("\x1b[31mred")
        return super().run(call, *operands)

class Bools(Right):
    def supports(self, call):
        return True

class Unsaid(Right):
    def numerics(self, call):
        return None

class Unversioned(Right):
    def fingerprint(self):
        return None

class Starter(Stuck):
    """Starts a process and computes for ever."""
    def run(self, call, *operands):
        child = subprocess.Popen(["sleep", "600"])
        with open(__file__ + ".pid", "w") as file:
            file.write(str(child.pid))
        super().run(call, *operands)

class Exit(Right):
    """Asks the interpreter to end on stride 3."""
    def run(self, call, *operands):
        if 3 in call.problem.stride:
            raise SystemExit(7)
        return super().run(call, *operands)

class Leak(Right):
    """Holds on to memory on stride 3."""
    held = []
    def run(self, call, *operands):
        while 3 in call.problem.stride:
            self.held.append(np.ones(1 << 22))
        return super().run(call, *operands)

class Noise(Right):
    """Prints binary to standard output and error."""
    def run(self, call, *operands):
        os.write(1, bytes(range(256)) * 100)
        os.write(2, b"\\xff\\xfe" * 100)
        return super().run(call, *operands)

class Types(Right):
    """Returns what is no tuple of arrays."""
    def run(self, call, *operands):
        return "results" if call.problem.rank == 1 else (object(),) * len(call.signature.results)

class Scribble(Right):
    """Writes into its operand."""
    def run(self, call, *operands):
        results = super().run(call, *operands)
        x = operands[call.roles.index("x")]
        if x.size and x.flags.writeable and 0 not in x.strides:
            x[...] = 5
        return results

class Undo(Right):
    """Negates an operand, and negates it back when called again."""
    def run(self, call, *operands):
        results = super().run(call, *operands)
        np.negative(operands[0], out=operands[0])
        return results

class Keeper(Right):
    """Returns the memory that it returned before."""
    held = {}
    def run(self, call, *operands):
        results = super().run(call, *operands)
        kept = self.held.setdefault(str(call), results)
        for old, new in zip(kept, results):
            old[...] = new
        return kept

class Dice(Right):
    """Adds a last bit now and then."""
    count = 0
    def numerics(self, call):
        return Numerics("rn32")
    def run(self, call, *operands):
        Dice.count += 1
        side = np.float32(Dice.count % 2 * 1e30)
        return tuple(np.nextafter(r, side) for r in super().run(call, *operands))

class Strided(Right):
    """Takes every stride for 1 less when it is 3."""
    def run(self, call, *operands):
        results = super().run(call, *operands)
        if 3 in call.problem.stride and call.pass_ == "fprop":
            results = tuple(r + r.dtype.type(1) for r in results)
        return results

class Armed(Right):
    """Wrong on stride 3 where a variable is set, or through another object."""
    variable = Arm("variable", (("CONVREF_TEST_ARM", "a b"),))
    arms = Arm(), variable, Arm("object", backend="hostile:strided")
    def run(self, call, *operands):
        if os.environ.get("CONVREF_TEST_ARM") == "a b":
            return strided.run(call, *operands)
        return super().run(call, *operands)
    def fingerprint(self):
        return {"variable": os.environ.get("CONVREF_TEST_ARM", "")}

class StridedArms(Strided):
    """As wrong through its arm as without."""
    arms = Arm(), Arm("again", (("CONVREF_TEST_ARM", "1"),))

class Shapeless(StridedArms):
    """Returns another shape on stride 3."""
    def run(self, call, *operands):
        results = Right.run(self, call, *operands)
        return tuple(r[..., None] for r in results) if 3 in call.problem.stride else results

class Many(Strided):
    """Takes several calls at once; then it is wrong everywhere, raises or dies."""
    batch = 8
    def __init__(self, how):
        self.how = how
    def run_many(self, calls, operands):
        if self.how == "die":
            ctypes.string_at(0)
        if self.how == "raise":
            raise ValueError
        results = [super(Many, self).run(c, *given) for c, given in zip(calls, operands)]
        return [tuple(r + r.dtype.type(1) for r in one) for one in results]

class Threaded(Right):
    """Is off by one with more than one thread."""
    count = 1
    @contextlib.contextmanager
    def threads(self, count):
        self.count = count
        yield
        self.count = 1
    def run(self, call, *operands):
        return tuple(r + r.dtype.type(self.count > 1) for r in super().run(call, *operands))

class ThreadedCrash(Threaded):
    """Dies with more than one thread."""
    def run(self, call, *operands):
        if self.count > 1:
            ctypes.string_at(0)
        return super().run(call, *operands)

class Outside(Right):
    """Writes its results into the outputs, and one element beside them, or leaves one out."""
    def __init__(self, at):
        self.at = at
    def run_into(self, call, outputs, *operands):
        for output, result in zip(outputs, self.run(call, *operands)):
            if output is None:
                continue
            if self.at is None:
                output.ravel()[:-1] = result.ravel()[:-1]
                continue
            output[...] = result
            at = self.at if self.at < 0 else output.size + self.at
            ctypes.memset(output.ctypes.data + at * output.itemsize, 7, output.itemsize)

many, many_raise, many_die = Many("wrong"), Many("raise"), Many("die")
armed, strided_arms, threaded = Armed(), StridedArms(), Threaded()
shapeless, threaded_crash, spin = Shapeless(), ThreadedCrash(), Spin()
raises, bools, unsaid, unversioned = Raises(), Bools(), Unsaid(), Unversioned()
stuck, starter = Stuck(), Starter()
before, after, unwritten = Outside(-3), Outside(2), Outside(None)
right, crash, hang, leaver, leak = Right(), Crash(), Hang(), Exit(), Leak()
noise, types, scribble, dice, strided = Noise(), Types(), Scribble(), Dice(), Strided()
undo, keeper = Undo(), Keeper()
'''


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """Return the name of a module of hostile backends."""
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "hostile"
