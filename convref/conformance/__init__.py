"""The court: cases by the thousand, their data, and the laws that results are held to."""
