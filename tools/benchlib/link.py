# SPDX-License-Identifier: MIT
"""A link with a delay and a rate between two network namespaces, as `tc netem` makes one, on kernels without it: two tun devices, and a
process that passes each packet on when it is due. Segments stay joined (virtio header), so Python keeps up with 1 Gbit/s. TCP is cubic, as on
most machines."""
import collections
import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 1, 0x1000, 0x4000
OFFLOADS = 1 | 2 | 8  # checksums, TCP segments, with ECN
N_HEAD = 10  # struct virtio_net_hdr
N_MTU, N_FRAME = 1500, 66  # what a segment of its own costs on the wire besides its data
SERVER, CLIENT, NETWORK = "10.213.0.1", "10.213.0.2", "10.213.0.0/24"


def _open_device(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(fd, TUNSETOFFLOAD, OFFLOADS)
    return fd


class Direction:
    """Packets under way from one device to another, in order."""

    def __init__(self, source, target, delay, rate):
        self.source, self.target, self.delay, self.rate = source, target, delay, rate
        self.is_free_at, self.packets = 0, collections.deque()
        self.room = bytearray(1 << 17)

    def take(self, now):
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = bytes(memoryview(self.room)[:os.readv(self.source, [self.room])])
                n_wire = len(packet) - N_HEAD + N_FRAME * (len(packet) // N_MTU)
                self.is_free_at = max(now, self.is_free_at) + n_wire / self.rate
                self.packets.append((self.is_free_at + self.delay, packet))

    def pass_on(self, now):
        while self.packets and self.packets[0][0] <= now:
            with contextlib.suppress(OSError):  # as a wire does with what nobody takes
                os.write(self.target, self.packets[0][1])
            self.packets.popleft()


def relay(names, delay, rate):
    first, second = map(_open_device, names)
    ways = [Direction(first, second, delay, rate), Direction(second, first, delay, rate)]
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)  # a wire waits for no processor
    print("ready", flush=True)
    while True:
        due = min((way.packets[0][0] for way in ways if way.packets), default=None)
        wait = None if due is None else max(due - time.monotonic(), 0)
        ready, _, _ = select.select([first, second], [], [], wait)
        now = time.monotonic()
        for way in ways:
            if way.source in ready:
                way.take(now)
            way.pass_on(now)


def _ip(*words):
    subprocess.run(["ip", *words], check=True)


class Link:
    """Two namespaces with a link: put `server` or `client` before a command. delay: seconds of a round trip; rate: bytes a second."""

    def __init__(self, delay, rate):
        self.names = ["weightfs%s%d" % (end, os.getpid()) for end in "sc"]
        self.server, self.client = [["nsenter", "--net=/run/netns/" + name] for name in self.names]
        self.process = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), *(name[-15:] for name in self.names), str(delay / 2), str(rate)],
                                        stdout=subprocess.PIPE)
        self.process.stdout.readline()
        for name, address in zip(self.names, (SERVER, CLIENT)):
            _ip("netns", "add", name)
            _ip("link", "set", name[-15:], "netns", name)
            for words in (["addr", "add", address + "/24", "dev", name[-15:]], ["link", "set", name[-15:], "mtu", str(N_MTU), "txqueuelen", "10000", "up"],
                          ["link", "set", "lo", "up"], ["route", "replace", NETWORK, "dev", name[-15:], "congctl", "cubic"]):
                _ip("-n", name, *words)

    def close(self):
        self.process.kill()
        self.process.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


if __name__ == "__main__":
    relay(sys.argv[1:3], *map(float, sys.argv[3:]))
