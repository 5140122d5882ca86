"""What a worker process gives up before it loads a solution.

On Linux: namespaces of its own (no network, no other process to signal) and Landlock (no writes
outside a folder, no tracing of other processes), both without privileges. Elsewhere limits of
resources only; the grade says which of them hold.
"""

import ctypes
import os
import resource
import signal
import struct
import sys

FILE_SIZE = 64 << 20  # bytes of one file that a solution may write
PROCESSES = 256
_FILES = 512

_NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_PARENT_DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_CHANGES = sum(1 << bit for bit in range(4, 13))  # remove and make files, folders, devices, links
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def enter(folder: str) -> list[str]:
    """Isolate this process, which continues as a child of itself; return what holds."""
    _limit()
    if not sys.platform.startswith("linux"):
        return ["limits of resources only: no isolation of files, network and processes here"]
    libc = ctypes.CDLL(None, use_errno=True)
    namespaces = _leave_namespaces(libc)
    return [namespaces, _deny_writes(libc, folder)]


def _limit() -> None:
    wanted = {"FSIZE": FILE_SIZE, "NPROC": PROCESSES, "CORE": 0, "NOFILE": _FILES}
    for name, most in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        hard = resource.getrlimit(kind)[1] if kind is not None else 0
        if kind is not None and name != "NPROC":  # those of the user, whose others count too
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))


def _leave_namespaces(libc: ctypes.CDLL) -> str:
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_USER | _NEW_PID | _NEW_NET | _NEW_IPC):
        return "no namespaces: the network and other processes can be reached"
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    _continue_in_child()  # the first process of its namespace: all others end with it
    libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    _continue_in_child()
    return "no network, no other process"


def _continue_in_child() -> None:
    """Fork; the parent waits, ends as the child does, and never returns."""
    child = os.fork()
    if child:
        os.closerange(3, _FILES)  # so that the grader sees the end of the child's socket
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(status if status >= 0 else 128 - status)


def _deny_writes(libc: ctypes.CDLL, folder: str) -> str:
    version = libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return "no Landlock: files can be written where this user can"
    allowed = _WRITE_FILE | _CHANGES
    allowed |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("=QQQ", allowed, 3, 3)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    rules = libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    devices = [path for path in os.listdir("/dev") if path.startswith("nvidia")]
    for path in (folder, *_DEVICES, *(f"/dev/{name}" for name in devices)):
        access = allowed if os.path.isdir(path) else allowed & (_WRITE_FILE | _TRUNCATE)
        opened = os.open(path, os.O_PATH)  # type: ignore[attr-defined, unused-ignore]
        libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", access, opened), 0)
        os.close(opened)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.syscall(_RESTRICT_SELF, rules, 0):
        return "no Landlock: files can be written where this user can"
    os.close(rules)
    return "no writes outside its folder"
