"""The text of a kernel: parsing, and the table of opcodes."""
