"""Threads of one launch, which exist while it runs; each takes pieces of its units until none is left."""

from std.atomic import Atomic
from std.ffi import external_call
from std.memory import stack_allocation

from launch import compute, index_of

comptime PIECES = 4
"""Pieces of the work, per thread."""
comptime MAX_THREADS = 256
comptime ALIGNMENT = 64


@always_inline
def aligned(size: Int) -> Int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


@fieldwise_init
struct Work:
    """The work of a launch, shared by its threads."""

    var address: Int  # of the struct of the launch
    var units: Int
    var pieces: Int
    var scratch: Int
    var scratch_bytes: Int  # of each thread
    var next_piece: Int64
    var next_thread: Int64

    @always_inline
    def taken(mut self, thread: Bool) -> Int:
        """Return the number of a thread or of a piece that no other thread has."""
        if thread:
            return Int(Atomic.fetch_add(Pointer(to=self.next_thread), 1))
        return Int(Atomic.fetch_add(Pointer(to=self.next_piece), 1))


def take_pieces[kernel: Int, T: DType](address: Int) abi("C") -> Int:
    ref work = Pointer[Work, MutAnyOrigin](unsafe_from_address=address)[]
    var scratch = work.scratch + work.taken(True) * work.scratch_bytes
    while True:
        var piece = work.taken(False)
        if piece >= work.pieces:
            return 0
        var low = work.units * piece // work.pieces
        compute[kernel, T](work.address, scratch, low, work.units * (piece + 1) // work.pieces)


def spread[name: StaticString, T: DType](
    address: Int, units: Int, threads: Int, scratch: Int = 0, scratch_bytes: Int = 0
):
    """Compute all units of a launch; `scratch` has `scratch_bytes` for each thread."""
    comptime kernel = index_of(name)
    var count = max(1, min(min(threads, units), MAX_THREADS))
    var pieces = 1 if count == 1 else min(units, PIECES * count)
    var work = Work(address, units, pieces, scratch, aligned(scratch_bytes), 0, 0)
    var shared = Int(Pointer(to=work))
    var started = stack_allocation[MAX_THREADS, Int]()
    var running = 0
    for _ in range(count - 1):
        var to = Int(started.unsafe_offset(running))
        if external_call["pthread_create", Int32](to, 0, take_pieces[kernel, T], shared) == 0:
            running += 1
    _ = take_pieces[kernel, T](shared)
    for i in range(running):
        _ = external_call["pthread_join", Int32](started[unsafe_offset=i], 0)
    _ = work
