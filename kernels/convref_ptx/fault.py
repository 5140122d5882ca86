"""What stops a run: an instruction that is not known, or a kernel that does something forbidden."""


class Fault(RuntimeError):
    """A kernel's fault, or a refusal; the text begins with the instruction."""
