#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""core.py dump FILE ADDRESS BYTES, core.py mem PID ADDRESS BYTES: are the pages that tests/progs/core.c
wrote all there?  Prints how many are right, zero, unreadable and wrong."""
import struct
import sys

PAGE = 4096


def page(i):
    return struct.pack("<Q", i) + bytes([i % 251]) * (PAGE - 8)


def dump_reader(path):
    f = open(path, "rb")
    head = f.read(64)
    phoff, phnum = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<H", head, 56)[0]
    f.seek(phoff)
    raw = f.read(56 * phnum)
    load = []
    for i in range(phnum):
        kind, _, offset, vaddr, _, filesz, _, _ = struct.unpack_from("<IIQQQQQQ", raw, 56 * i)
        if kind == 1:
            load.append((vaddr, filesz, offset))

    def read(addr):
        for vaddr, size, offset in load:
            if vaddr <= addr < vaddr + size:
                f.seek(offset + addr - vaddr)
                return f.read(PAGE)
        return None
    return read, sum(size for _, size, _ in load)


def mem_reader(pid):
    f = open(f"/proc/{pid}/mem", "rb", buffering=0)

    def read(addr):
        try:
            f.seek(addr)
            return f.read(PAGE)
        except OSError:
            return None
    return read, 0


def main():
    what, where, addr, size = sys.argv[1], sys.argv[2], int(sys.argv[3], 16), int(sys.argv[4], 16)
    read, total = dump_reader(where) if what == "dump" else mem_reader(where)
    n = {"right": 0, "zero": 0, "unreadable": 0, "wrong": 0}
    for i in range(size // PAGE):
        data = read(addr + i * PAGE)
        if data is None:
            n["unreadable"] += 1
        elif data == page(i):
            n["right"] += 1
        elif data == bytes(PAGE):
            n["zero"] += 1
        else:
            n["wrong"] += 1
    print(*(f"{k} {v}" for k, v in n.items()), f"dump {total >> 20} MiB")
    return 0 if n["right"] == size // PAGE else 1


sys.exit(main())
