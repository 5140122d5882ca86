"""The threads that share the work of a launch. They live as long as the process and wait for the next launch,
spinning at first: to wake a sleeping thread takes longer than many launches.

Each takes pieces of the units until none is left, so a thread that starts late takes fewer, and the caller
does not wait for one that has not started.
"""

from std.atomic import Atomic
from std.ffi import external_call
from std.memory import stack_allocation
from std.sys import CompilationTarget, size_of
from std.sys.intrinsics import llvm_intrinsic

from launch import DTYPES, KERNELS, compute, index_of
from simd import Table

comptime PIECES = 4
"""Pieces of the work, per thread."""
comptime MAX_THREADS = 256
comptime ALIGNMENT = 64
comptime SPIN_NS = 200_000
"""How long a thread spins before it sleeps."""
comptime PAUSES = 64
"""Pauses between two looks at the clock."""
comptime CLOCK_MONOTONIC = 1
comptime MUTEX_BYTES = 128  # more than a mutex or a condition has on any system
comptime CPU_WORDS = 16  # 64-bit words of the C library's set of processors

comptime Counter = Pointer[Int64, MutAnyOrigin]


@always_inline
def aligned(size: Int) -> Int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


@fieldwise_init
struct Work(ImplicitlyCopyable):
    """The work of a launch, shared by its threads."""

    var kernel: Int
    var dtype: Int
    var address: Int  # of the struct of the launch
    var units: Int
    var pieces: Int
    var threads: Int
    var scratch: Int
    var scratch_bytes: Int  # of each thread
    var next_piece: Int64
    var next_thread: Int64


@always_inline
def taken(mut counter: Int64) -> Int:
    """Return a number that no other thread has."""
    return Int(Atomic.fetch_add(Pointer(to=counter), 1))


def take_pieces(mut work: Work):
    """Compute pieces until none is left, unless there are as many threads as there is scratch memory for."""
    var thread = taken(work.next_thread)
    if thread >= work.threads:
        return
    var scratch = work.scratch + thread * work.scratch_bytes
    while True:
        var piece = taken(work.next_piece)
        if piece >= work.pieces:
            return
        var low = work.units * piece // work.pieces
        var high = work.units * (piece + 1) // work.pieces
        compute_any(work.kernel, work.dtype, work.address, scratch, low, high)


def compute_any(kernel: Int, dtype: Int, address: Int, scratch: Int, low: Int, high: Int):
    comptime for k in range(len(KERNELS)):
        comptime for i in range(len(DTYPES)):
            if kernel == k and dtype == i:
                compute[k, DTYPES[i]](address, scratch, low, high)


struct Team:
    """The threads of the library, which start when they are first needed, and the launch that they share.

    `state` has the number of the launch, whether it is closed, and how many threads are in it. A thread enters
    an open launch only; its caller closes it when no piece is left, and waits for those that are in it.
    """

    var process: Int64  # in which the threads are; a forked child has none
    var owned: Int64  # 1 while a caller uses the team; others compute alone
    var started: Int
    var work: Work
    var excluded: Int  # processor on which the threads do not run, -1 for none
    var sleeping: Int64
    var mutex: Int  # addresses
    var condition: Int
    var threads: Int  # address of their handles
    var padding: SIMD[DType.int64, 8]
    var state: Int64

    def acquire(mut self) -> Bool:
        """Return whether the caller may use the team; it then has to release it."""
        var process = Int64(external_call["getpid", Int32]())
        var before = Atomic.load(Pointer(to=self.process))
        if before != process:
            if before == STARTING or not exchange(self.process, before, STARTING):
                return False
            self.start()
            _ = Atomic.fetch_add(Pointer(to=self.process), process - STARTING)
            return True
        return exchange(self.owned, 0, 1)

    def start(mut self):
        """Set up the team of this process, which its caller owns."""
        self.owned = 1
        self.started = 0
        self.excluded = -1
        self.sleeping = 0
        self.state = CLOSED
        self.mutex = external_call["calloc", Int](2 * MUTEX_BYTES + 8 * MAX_THREADS, 1)
        self.condition = self.mutex + MUTEX_BYTES
        self.threads = self.condition + MUTEX_BYTES
        _ = external_call["pthread_mutex_init", Int32](self.mutex, 0)
        _ = external_call["pthread_cond_init", Int32](self.condition, 0)

    def share(mut self, work: Work):
        """Compute a launch with the threads of the team."""
        while self.started < work.threads - 1:
            var handle = self.threads + 8 * self.started
            if external_call["pthread_create", Int32](handle, 0, run_thread, Int(Pointer(to=self))) != 0:
                break
            self.started += 1
            self.excluded = -1
        self.leave_processor()
        self.work = work
        _ = Atomic.fetch_add(Pointer(to=self.state), CLOSED)  # the next number, and open
        if Atomic.load(Pointer(to=self.sleeping)) > 0:
            _ = external_call["pthread_mutex_lock", Int32](self.mutex)
            for _ in range(min(work.threads - 1, Int(self.sleeping))):
                _ = external_call["pthread_cond_signal", Int32](self.condition)
            _ = external_call["pthread_mutex_unlock", Int32](self.mutex)
        take_pieces(self.work)
        _ = Atomic.fetch_add(Pointer(to=self.state), CLOSED)
        var turns = 0
        while Atomic.load(Pointer(to=self.state)) % CLOSED != 0:
            pause()
            turns += 1
            if turns % (1 << 14) == 0:  # its thread may wait for this processor
                _ = external_call["sched_yield", Int32]()

    def release(mut self):
        _ = Atomic.fetch_add(Pointer(to=self.owned), -1)

    def leave_processor(mut self):
        """Keep the threads away from the caller's processor.

        On a virtual machine whose host has taken a processor away, that processor looks idle to the guest, which
        then wakes a thread on the processor of the one that woke it.
        """
        comptime if CompilationTarget.is_linux():
            var processor = Int(external_call["sched_getcpu", Int32]())
            if processor == self.excluded or processor < 0:
                return
            self.excluded = processor
            var allowed = stack_allocation[CPU_WORDS, Int64]()
            if external_call["sched_getaffinity", Int32](0, CPU_WORDS * 8, Int(allowed)) < 0:
                return
            if processor < CPU_WORDS * 64:
                allowed[unsafe_offset=processor // 64] &= ~(Int64(1) << Int64(processor % 64))
            var rest = Int64(0)
            for i in range(CPU_WORDS):
                rest |= allowed[unsafe_offset=i]
            if rest == 0:  # no other is allowed now
                self.excluded = -1
                allowed[unsafe_offset=processor // 64] = Int64(1) << Int64(processor % 64)
            var handles = Table(unsafe_from_address=self.threads)
            for i in range(self.started):
                _ = external_call["pthread_setaffinity_np", Int32](
                    handles[unsafe_offset=i], CPU_WORDS * 8, Int(allowed)
                )

    def wait(mut self, seen: Int64):
        """Wait for an open launch with another number than `seen`."""
        var end = now() + SPIN_NS
        while True:
            for _ in range(PAUSES):
                if self.is_open(seen):
                    return
                pause()
            if now() > end:
                break
        _ = external_call["pthread_mutex_lock", Int32](self.mutex)
        _ = Atomic.fetch_add(Pointer(to=self.sleeping), 1)
        while not self.is_open(seen):
            _ = external_call["pthread_cond_wait", Int32](self.condition, self.mutex)
        _ = Atomic.fetch_add(Pointer(to=self.sleeping), -1)
        _ = external_call["pthread_mutex_unlock", Int32](self.mutex)

    @always_inline
    def is_open(mut self, seen: Int64) -> Bool:
        var state = Atomic.load(Pointer(to=self.state))
        return state // LAUNCH != seen and state % LAUNCH < CLOSED


comptime CLOSED = Int64(1 << 16)
comptime LAUNCH = Int64(1 << 17)
comptime STARTING = Int64(-1)


@no_inline
def team() -> Pointer[Team, MutAnyOrigin]:
    """Return the team of the library; inlined copies would be teams of their own."""
    comptime P = Pointer[Int64, MutAnyOrigin]
    var words = P(
        _mlir_value=__mlir_op.`pop.global_alloc`[
            name="convref_team".value, count=Int(size_of[Team]() // 8).__mlir_index__(), _type=P._mlir_type,
            alignment=Int(ALIGNMENT).__mlir_index__()
        ]()
    )
    return Pointer[Team, MutAnyOrigin](unsafe_from_address=Int(words))


def run_thread(address: Int) abi("C") -> Int:
    ref team = Pointer[Team, MutAnyOrigin](unsafe_from_address=address)[]
    var seen = Int64(-1)
    while True:
        team.wait(seen)
        var state = Atomic.load(Pointer(to=team.state))
        if state % LAUNCH >= CLOSED:
            continue
        if exchange(team.state, state, state + 1):
            seen = state // LAUNCH
            take_pieces(team.work)
            _ = Atomic.fetch_add(Pointer(to=team.state), -1)


@always_inline
def exchange(mut counter: Int64, old: Int64, new: Int64) -> Bool:
    """Replace a value if it is still the old one; return whether it was."""
    var expected = old
    return Atomic.compare_exchange(Pointer(to=counter), expected, new)


@always_inline
def pause():
    comptime if CompilationTarget.is_x86():
        llvm_intrinsic["llvm.x86.sse2.pause", NoneType]()


def now() -> Int:
    """Return a time in nanoseconds."""
    var time = stack_allocation[2, Int]()
    _ = external_call["clock_gettime", Int32](CLOCK_MONOTONIC, Int(time))
    return time[] * 1_000_000_000 + time[unsafe_offset=1]


def spread[name: StaticString, T: DType](
    address: Int, units: Int, threads: Int, scratch: Int = 0, scratch_bytes: Int = 0
):
    """Compute all units of a launch; `scratch` has `scratch_bytes` for each thread."""
    comptime kernel = index_of(name)
    var count = min(min(threads, units), MAX_THREADS)
    if count < 2 or not team()[].acquire():
        if units > 0:
            compute[kernel, T](address, scratch, 0, units)
        return
    var dtype = 0
    comptime for i in range(len(DTYPES)):
        comptime if DTYPES[i] == T:
            dtype = i
    var pieces = min(units, PIECES * count)
    var work = Work(kernel, dtype, address, units, pieces, count, scratch, aligned(scratch_bytes), 0, 0)
    team()[].share(work)
    team()[].release()
