"""From a launch to machine code, and what the compiler made of it."""
