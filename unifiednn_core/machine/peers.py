"""Which user of this machine is at the other end of a TCP connection. Linux alone tells."""

import errno
import functools
import os
import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = tuple[str, int]
"""Host as a number, and port."""
# sock_diag(7): ask for one connection by its two ends.
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBBI")
_ANSWERED = struct.Struct("=BBBB48xIIIII")
_ESTABLISHED = 1
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
"""Numbers of the errors that say that this process, or this machine, may open no more files."""


def owner_of(client: Address, server: Address) -> int | None:
    """Id of the user who holds the client's end of a connection between two programs of this machine.

    None if nobody does: the client is another machine, or has closed its end, for which older kernels name root.
    Raises `OSError` if the kernel does not tell.
    """
    ours, theirs = _plain(client[0]), _plain(server[0])
    family = socket.AF_INET if ours.version == theirs.version == 4 else socket.AF_INET6
    ends = struct.pack("!HH16s16s", client[1], server[1], ours.packed, theirs.packed)
    body = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << _ESTABLISHED) + ends + bytes(4) + b"\xff" * 8
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
        answer = kernel.recv(1024)
    if _HEADER.unpack_from(answer)[1] == _ERROR:
        number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if number == errno.ENOENT:
            return None
        raise OSError(number, os.strerror(number))
    _, state, _, _, _, _, _, user, inode = _ANSWERED.unpack_from(answer, _HEADER.size)
    return user if state == _ESTABLISHED and inode else None


@functools.cache
def can_tell() -> bool:
    """Whether this machine tells whose connections are whose, tried on one of our own.

    Raises `OSError` if this process may open no more files, so that it cannot try.
    """
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=1.0) as client,
        ):
            return owner_of(client.getsockname(), client.getpeername()) == os.geteuid()
    except (OSError, AttributeError) as error:  # not Linux, or a container that forbids it
        if getattr(error, "errno", None) in OUT_OF_FILES:
            raise
        return False


def _plain(host: str) -> IPv4Address | IPv6Address:
    """An address; one of IPv4 as such, even if a socket of IPv6 speaks it."""
    found = ip_address(host)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
