"""`python -m corpora`: run kernels of other people's packages."""

import sys

from corpora import main

main(sys.argv[1:])
