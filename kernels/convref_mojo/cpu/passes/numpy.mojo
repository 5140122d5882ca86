"""A pass on NumPy arrays: words that Python computes once for arrays of some shapes and strides.

The addresses of the elements are read from the objects of the arrays: to ask for one in Python takes longer
than a small pass. `numpy_words` in ../../passes.py writes the words, and says where the addresses are.
"""

from std.sys import size_of

from passes.sizes import ARRAYS, Attributes, Sizes
from simd import Table

comptime HEAD = 4  # pass, number type, offset of the items of a tuple, offset of the address in an array
comptime ATTRIBUTES = HEAD + size_of[Sizes]() // 8
comptime PLACES = ATTRIBUTES + size_of[Attributes]() // 8
comptime ALIGNMENTS = PLACES + ARRAYS
comptime STRIDES_OF_ARRAYS = ALIGNMENTS + ARRAYS


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

    def read(self, arrays: Int, addresses: Table) -> Bool:
        """Read the addresses of a tuple of arrays; return whether those that have to be aligned are."""
        var items = Table(unsafe_from_address=arrays + self[2])
        var aligned = True
        for i in range(ARRAYS):
            var place = self[PLACES + i]
            var address = 0
            if place >= 0:
                var array = items[unsafe_offset=place] + self[3]
                address = Table(unsafe_from_address=array)[]
                aligned = aligned and address % self[ALIGNMENTS + i] == 0
            addresses[unsafe_offset=i] = address
        return aligned
