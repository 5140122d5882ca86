"""A pass on NumPy arrays: words that Python computes once for arrays of some shapes and strides.

The addresses of the elements are read from the objects of the arrays, and whether the operands are arrays that
the words were computed for: to ask for either in Python takes longer than a small pass. `NumpyCall` in
../../passes.py writes the words.
"""

from std.sys import size_of

from passes.sizes import ARRAYS, STRIDES, Attributes, Sizes
from simd import Table

comptime UNALIGNED = -1
comptime OTHER_OPERANDS = -3

comptime HEAD = 4  # pass, number type, offset of the items of a tuple, bytes before the fields of an object
comptime ATTRIBUTES = HEAD + size_of[Sizes]() // 8
comptime PLACES = ATTRIBUTES + size_of[Attributes]() // 8
comptime ALIGNMENTS = PLACES + ARRAYS
comptime STRIDES_OF_ARRAYS = ALIGNMENTS + ARRAYS
comptime OPERANDS = STRIDES_OF_ARRAYS + ARRAYS * STRIDES  # their number, the number of all arrays, rows
comptime ROW = 3 + 2 * STRIDES  # type of the object, rank, number type, shape, strides in bytes

# The fields of an array of NumPy, in words; the number of items is the first field of a tuple.
comptime DATA = 0
comptime RANK = 1  # 32 bits
comptime SHAPE = 2
comptime STRIDES_IN_BYTES = 3
comptime NUMBER_TYPE = 5


@fieldwise_init
struct NumpyCall(ImplicitlyCopyable):
    var address: Int

    @always_inline
    def after(self, word: Int) -> Int:
        """Return the address of a word."""
        return self.address + 8 * word

    @always_inline
    def __getitem__(self, word: Int) -> Int:
        return Table(unsafe_from_address=self.address)[unsafe_offset=word]

    def sizes(self) -> Pointer[Sizes, MutAnyOrigin]:
        return Pointer[Sizes, MutAnyOrigin](unsafe_from_address=self.after(HEAD))

    def attributes(self) -> Pointer[Attributes, MutAnyOrigin]:
        return Pointer[Attributes, MutAnyOrigin](unsafe_from_address=self.after(ATTRIBUTES))

    def fits(self, arrays: Int) -> Bool:
        """Return whether the operands in a tuple of arrays are those that the words were computed for."""
        if self[OPERANDS] == 0:  # an earlier pass of the call has read the same tuple
            return True
        if Table(unsafe_from_address=arrays + self[3])[] != self[OPERANDS + 1]:
            return False
        var items = Table(unsafe_from_address=arrays + self[2])
        for i in range(self[OPERANDS]):
            if not self.is_operand(items[unsafe_offset=i], OPERANDS + 2 + i * ROW):
                return False
        return True

    @always_inline
    def is_operand(self, item: Int, row: Int) -> Bool:
        """Return whether an object is as in a row: the same object if the rank is -1, else such an array."""
        if self[row + 1] < 0:
            return item == self[row]
        var fields = Table(unsafe_from_address=item + self[3])
        if fields[unsafe_offset=-1] != self[row]:
            return False
        var rank = fields[unsafe_offset=RANK] & 0xFFFFFFFF
        if rank != self[row + 1] or fields[unsafe_offset=NUMBER_TYPE] != self[row + 2]:
            return False
        var shape = Table(unsafe_from_address=fields[unsafe_offset=SHAPE])
        var strides = Table(unsafe_from_address=fields[unsafe_offset=STRIDES_IN_BYTES])
        for axis in range(rank):
            if shape[unsafe_offset=axis] != self[row + 3 + axis]:
                return False
            if strides[unsafe_offset=axis] != self[row + 3 + STRIDES + axis]:
                return False
        return True

    def read(self, arrays: Int, addresses: Table) -> Bool:
        """Read the addresses of a tuple of arrays; return whether those that have to be aligned are."""
        var items = Table(unsafe_from_address=arrays + self[2])
        var aligned = True
        for i in range(ARRAYS):
            var place = self[PLACES + i]
            var address = 0
            if place >= 0:
                var fields = Table(unsafe_from_address=items[unsafe_offset=place] + self[3])
                address = fields[unsafe_offset=DATA]
                aligned = aligned and address % self[ALIGNMENTS + i] == 0
            addresses[unsafe_offset=i] = address
        return aligned
