"""The passes as custom ops of MAX graphs, computed by the library of CPU kernels (see ../../passes.py).

Results come first, then operands in the order of `NATIVE`; an operand without elements is absent. `words` is
a tensor of the number of groups and the struct `Attributes`; all sizes are those of the tensors, so that a
compiled graph serves every shape. `library` is the path of the shared library. Arrays are N, C, spatial.
"""

import extensibility
from extensibility import InputTensor, ManagedTensorSlice, OutputTensor
from max.gpu.host import DeviceContext
from std.ffi import external_call
from std.memory import stack_allocation

comptime PassFunction = def(Int, Int, Int, Int, Int, Int) abi("C") thin -> Int
comptime FUNCTION: StaticString = "convref_pass"
comptime KEEP_LOADED = 0x1002  # RTLD_NOW and RTLD_NODELETE
comptime PASSES = (  # of ../../cpu/passes/run.mojo
    "conv_fprop", "conv_dgrad", "conv_wgrad", "conv_bgrad", "conv_jvp", "max_pool_fprop",
    "max_pool_backward", "max_pool_select", "avg_pool_fprop", "avg_pool_backward", "batch_norm_fprop",
    "batch_norm_backward", "batch_norm_jvp"
)
comptime SIZE_WORDS = 13
comptime ARRAYS = 10


@always_inline
def address(t: ManagedTensorSlice) -> Int:
    return 0 if t.size() == 0 else Int(t.unsafe_ptr())


struct PassCall(Movable):
    """The arrays and sizes of a call."""

    var words: List[Int]  # sizes, then arrays
    var count: Int

    def __init__(out self):
        self.words = List[Int](length=SIZE_WORDS + ARRAYS, fill=0)
        for i in range(SIZE_WORDS):
            self.words[i] = 1
        self.count = 0

    def set_extent(mut self, first: Int, t: ManagedTensorSlice):
        for i in range(t.rank - 2):
            self.words[first + 3 - (t.rank - 2) + i] = t.dim_size(2 + i)

    def set_input(mut self, x: ManagedTensorSlice):
        self.words[0] = x.dim_size(0)
        self.words[1] = x.dim_size(1)
        self.set_extent(4, x)

    def set_filter(mut self, w: ManagedTensorSlice):
        self.set_extent(7, w)

    def set_output(mut self, y: ManagedTensorSlice):
        self.words[0] = y.dim_size(0)
        self.words[2] = y.dim_size(1)
        self.set_extent(10, y)

    def add(mut self, t: ManagedTensorSlice):
        self.words[SIZE_WORDS + self.count] = address(t)
        self.count += 1

    def skip(mut self):
        self.count += 1

    def run[name: StaticString, T: DType, library: StaticString](mut self, words: ManagedTensorSlice) raises:
        comptime dtype = 2 if T == DType.bfloat16 else 1 if T == DType.float64 else 0
        var which = -1
        comptime for k in range(len(PASSES)):
            if PASSES[k] == name:
                which = k
        var handle = external_call["dlopen", Int](library.unsafe_ptr(), KEEP_LOADED)
        var found = external_call["dlsym", Int](handle, FUNCTION.unsafe_ptr())
        if handle == 0 or found == 0:
            raise Error("convref: there is no library at ", library)
        var function = Pointer[PassFunction, MutAnyOrigin](unsafe_from_address=Int(Pointer(to=found)))[]
        var given = Int(words.unsafe_ptr())
        self.words[3] = Pointer[Int, MutAnyOrigin](unsafe_from_address=given)[]
        var sizes = Int(self.words.unsafe_ptr())
        _ = function(which, dtype, sizes + 8 * SIZE_WORDS, sizes, given + 8, 0)
        _ = found


@extensibility.register("convref_conv_fprop")
struct ConvFprop:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        y: OutputTensor[dtype=T, rank=rank, ...], x: InputTensor[dtype=T, rank=rank, ...],
        w: InputTensor[dtype=T, rank=rank, ...], b: InputTensor[dtype=T, rank=1, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_input(x)
        call.set_filter(w)
        call.set_output(y)
        call.add(x)
        call.add(w)
        call.add(b)
        call.add(y)
        call.run["conv_fprop", T, library](words)


@extensibility.register("convref_conv_dgrad")
struct ConvDgrad:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        dx: OutputTensor[dtype=T, rank=rank, ...], dy: InputTensor[dtype=T, rank=rank, ...],
        w: InputTensor[dtype=T, rank=rank, ...], words: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_input(dx)
        call.set_filter(w)
        call.set_output(dy)
        call.add(dy)
        call.add(w)
        call.add(dx)
        call.run["conv_dgrad", T, library](words)


@extensibility.register("convref_conv_wgrad")
struct ConvWgrad:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        dw: OutputTensor[dtype=T, rank=rank, ...], dy: InputTensor[dtype=T, rank=rank, ...],
        x: InputTensor[dtype=T, rank=rank, ...], words: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_input(x)
        call.set_filter(dw)
        call.set_output(dy)
        call.add(dy)
        call.add(x)
        call.add(dw)
        call.run["conv_wgrad", T, library](words)


@extensibility.register("convref_conv_bgrad")
struct ConvBgrad:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        db: OutputTensor[dtype=T, rank=1, ...], dy: InputTensor[dtype=T, rank=rank, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_output(dy)
        call.add(dy)
        call.add(db)
        call.run["conv_bgrad", T, library](words)


@extensibility.register("convref_conv_jvp")
struct ConvJvp:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        y_dot: OutputTensor[dtype=T, rank=rank, ...], x: InputTensor[dtype=T, rank=rank, ...],
        w: InputTensor[dtype=T, rank=rank, ...], x_dot: InputTensor[dtype=T, rank=rank, ...],
        w_dot: InputTensor[dtype=T, rank=rank, ...], b_dot: InputTensor[dtype=T, rank=1, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_input(x)
        call.set_filter(w)
        call.set_output(y_dot)
        call.add(x)
        call.add(w)
        call.add(x_dot)
        call.add(w_dot)
        call.add(b_dot)
        call.add(y_dot)
        call.run["conv_jvp", T, library](words)


@extensibility.register("convref_max_pool_fprop")
struct MaxPoolFprop:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        y: OutputTensor[dtype=T, rank=rank, ...], indices: OutputTensor[dtype=DType.int64, rank=rank, ...],
        x: InputTensor[dtype=T, rank=rank, ...], filter: InputTensor[dtype=DType.int8, rank=rank, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_output(y)
        call.set_input(x)
        call.set_filter(filter)
        call.add(x)
        call.add(y)
        call.add(indices)
        call.run["max_pool_fprop", T, library](words)


@extensibility.register("convref_max_pool_backward")
struct MaxPoolBackward:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        dx: OutputTensor[dtype=T, rank=rank, ...], dy: InputTensor[dtype=T, rank=rank, ...],
        indices: InputTensor[dtype=DType.int64, rank=rank, ...],
        filter: InputTensor[dtype=DType.int8, rank=rank, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_output(dy)
        call.set_input(dx)
        call.set_filter(filter)
        call.add(dy)
        call.add(indices)
        call.add(dx)
        call.run["max_pool_backward", T, library](words)


@extensibility.register("convref_max_pool_select")
struct MaxPoolSelect:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        y_dot: OutputTensor[dtype=T, rank=rank, ...], x_dot: InputTensor[dtype=T, rank=rank, ...],
        indices: InputTensor[dtype=DType.int64, rank=rank, ...],
        filter: InputTensor[dtype=DType.int8, rank=rank, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_output(y_dot)
        call.set_input(x_dot)
        call.set_filter(filter)
        call.add(x_dot)
        call.add(indices)
        call.add(y_dot)
        call.run["max_pool_select", T, library](words)


@extensibility.register("convref_avg_pool_fprop")
struct AvgPoolFprop:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        y: OutputTensor[dtype=T, rank=rank, ...], x: InputTensor[dtype=T, rank=rank, ...],
        filter: InputTensor[dtype=DType.int8, rank=rank, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_output(y)
        call.set_input(x)
        call.set_filter(filter)
        call.add(x)
        call.add(y)
        call.run["avg_pool_fprop", T, library](words)


@extensibility.register("convref_avg_pool_backward")
struct AvgPoolBackward:
    @staticmethod
    def execute[target: StaticString, T: DType, rank: Int, library: StaticString](
        dx: OutputTensor[dtype=T, rank=rank, ...], dy: InputTensor[dtype=T, rank=rank, ...],
        filter: InputTensor[dtype=DType.int8, rank=rank, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_output(dy)
        call.set_input(dx)
        call.set_filter(filter)
        call.add(dy)
        call.add(dx)
        call.run["avg_pool_backward", T, library](words)


@extensibility.register("convref_batch_norm_fprop")
struct BatchNormFprop:
    @staticmethod
    def execute[target: StaticString, T: DType, A: DType, rank: Int, library: StaticString](
        y: OutputTensor[dtype=T, rank=rank, ...], mean: OutputTensor[dtype=A, rank=1, ...],
        rstd: OutputTensor[dtype=A, rank=1, ...], new_mean: OutputTensor[dtype=A, rank=1, ...],
        new_var: OutputTensor[dtype=A, rank=1, ...], x: InputTensor[dtype=T, rank=rank, ...],
        w: InputTensor[dtype=T, rank=1, ...], b: InputTensor[dtype=T, rank=1, ...],
        rmean: InputTensor[dtype=A, rank=1, ...], rvar: InputTensor[dtype=A, rank=1, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_input(x)
        call.add(x)
        call.add(w)
        call.add(b)
        call.add(rmean)
        call.add(rvar)
        call.add(y)
        call.add(mean)
        call.add(rstd)
        call.add(new_mean)
        call.add(new_var)
        call.run["batch_norm_fprop", T, library](words)


@extensibility.register("convref_batch_norm_backward")
struct BatchNormBackward:
    @staticmethod
    def execute[target: StaticString, T: DType, A: DType, rank: Int, library: StaticString](
        dx: OutputTensor[dtype=T, rank=rank, ...], dw: OutputTensor[dtype=T, rank=1, ...],
        db: OutputTensor[dtype=T, rank=1, ...], dy: InputTensor[dtype=T, rank=rank, ...],
        x: InputTensor[dtype=T, rank=rank, ...], w: InputTensor[dtype=T, rank=1, ...],
        mean: InputTensor[dtype=A, rank=1, ...], rstd: InputTensor[dtype=A, rank=1, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_input(x)
        call.add(dy)
        call.add(x)
        call.add(w)
        call.add(mean)
        call.add(rstd)
        call.add(dx)
        call.add(dw)
        call.add(db)
        call.run["batch_norm_backward", T, library](words)


@extensibility.register("convref_batch_norm_jvp")
struct BatchNormJvp:
    @staticmethod
    def execute[target: StaticString, T: DType, A: DType, rank: Int, library: StaticString](
        y: OutputTensor[dtype=T, rank=rank, ...], y_dot: OutputTensor[dtype=T, rank=rank, ...],
        x: InputTensor[dtype=T, rank=rank, ...], w: InputTensor[dtype=T, rank=1, ...],
        b: InputTensor[dtype=T, rank=1, ...], rmean: InputTensor[dtype=A, rank=1, ...],
        rvar: InputTensor[dtype=A, rank=1, ...], x_dot: InputTensor[dtype=T, rank=rank, ...],
        w_dot: InputTensor[dtype=T, rank=1, ...], b_dot: InputTensor[dtype=T, rank=1, ...],
        words: InputTensor[dtype=DType.int64, rank=1, ...], ctx: DeviceContext,
    ) raises:
        var call = PassCall()
        call.set_input(x)
        call.add(x)
        call.add(w)
        call.add(b)
        call.add(rmean)
        call.add(rvar)
        call.add(x_dot)
        call.add(w_dot)
        call.add(b_dot)
        call.add(y)
        call.add(y_dot)
        call.run["batch_norm_jvp", T, library](words)
