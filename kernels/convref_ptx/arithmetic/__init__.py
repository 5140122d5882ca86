"""Instructions on the registers of a thread."""
