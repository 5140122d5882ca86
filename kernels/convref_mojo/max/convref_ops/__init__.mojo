from .passes import *
