"""The frame of a call of XLA's foreign function interface (xla/ffi/api/c_api.h), read by 64-bit words.

The only attribute is an array of words: which pass, which number type, the place of each array (i + 1 for
operand i, -i - 1 for result i, 0 for an absent one), the sizes and the attributes of the pass.
"""

from passes.sizes import ARRAYS, Sizes
from simd import Table, at
from std.sys import size_of

comptime METADATA = 1  # type of the extension with which XLA asks for the version
comptime EXECUTE = 3  # stage


@always_inline
def word(address: Int, index: Int) -> Int:
    return Table(unsafe_from_address=address)[unsafe_offset=index]


@fieldwise_init
struct XlaFrame(ImplicitlyCopyable):
    var address: Int

    def writes_version(self) -> Bool:
        """Return whether XLA asks for the version of the interface, and write it."""
        var extension = word(self.address, 1)
        if extension == 0 or word(extension, 1) % (1 << 32) != METADATA:
            return False
        var version = at[DType.int32](word(extension, 3) + 24)
        version[] = 0
        version[unsafe_offset=1] = 1
        return True

    def executes(self) -> Bool:
        return word(self.address, 4) % (1 << 32) == EXECUTE

    def words(self) -> Table:
        return Table(unsafe_from_address=word(word(word(self.address, 20), 0), 2))

    def array(self, place: Int) -> Int:
        """Return the address of an operand or result."""
        if place == 0:
            return 0
        var list = word(self.address, 9 if place > 0 else 14)
        return word(word(list, abs(place) - 1), 3)
