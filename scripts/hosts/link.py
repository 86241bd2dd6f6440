#!/usr/bin/env python3
"""A slow line between two network namespaces, for kernels without netem: link.py MILLISECONDS NAMESPACE ADDRESS NAMESPACE ADDRESS

Gives each namespace a device `line` with its address, the other's as its peer, and hands every packet over after the time. Prints a
line when both ends are up, and runs until it is ended (SIGTERM); then it prints how many packets it has held, and for how long at least.
Needs root and /dev/net/tun.
"""

import collections
import ctypes
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
CLONE_NEWNET = 0x40000000
PACKET_BYTES_MAX = 65535

libc = ctypes.CDLL(None, use_errno=True)


def enter(descriptor):
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def end_in(namespace, address, peer):
    """A device in the namespace; its packets are read and written here."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    enter(there)
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"line", IFF_TUN | IFF_NO_PI))
        subprocess.check_call(["ip", "address", "add", address, "peer", peer, "dev", "line"])
        subprocess.check_call(["ip", "link", "set", "line", "up", "txqueuelen", "5000"])
    finally:
        enter(home)
        os.close(home)
        os.close(there)
    return device


def carry(one, other, delay, held):
    """Until it is interrupted."""
    # The delay is the same for all, so packets become due in the order in which they came.
    flying = collections.deque()
    while True:
        patience = max(0.0, flying[0][0] + delay - time.monotonic()) if flying else None
        for source in select.select([one, other], [], [], patience)[0]:
            came = time.monotonic()
            while True:
                try:
                    packet = os.read(source, PACKET_BYTES_MAX)
                except BlockingIOError:
                    break
                flying.append((came, other if source == one else one, packet))
        now = time.monotonic()
        while flying and flying[0][0] + delay <= now:
            came, target, packet = flying.popleft()
            held["packets"] += 1
            held["least"] = min(held["least"], now - came)
            try:
                os.write(target, packet)
            except OSError:
                pass  # As a full line does: those who sent it send it again.


def main():
    held = {"packets": 0, "least": float("inf")}
    one = end_in(sys.argv[2], sys.argv[3], sys.argv[5])
    other = end_in(sys.argv[4], sys.argv[5], sys.argv[3])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    print("up", flush=True)
    try:
        carry(one, other, float(sys.argv[1]) / 1000, held)
    finally:
        print(f"held {held['packets']} packets for {held['least'] * 1000:.3f} ms at least", flush=True)


main()
