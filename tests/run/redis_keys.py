#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""redis_keys.py DIR KEYS [PREFIX...]: redis-server, started as `PREFIX... redis-server ARGS` (%N in PREFIX
stands for 1, and 2 after the restart) with DIR for its files, is loaded, saved and rewritten while keys are read
and written at random, reloaded, shut down and started again.  After each step every value is compared with what
it must be, and so is what each BGSAVE wrote: all that was there when it forked.  Status 1 at the first
difference."""
import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time

BATCH = 200
rnd = random.Random(5)


def value(i, version):
    """300 bytes, a third of them random."""
    h = hashlib.sha256(b"%d.%d" % (i, version)).hexdigest().encode()
    return (h + h[::-1][:40] + b"value %d of key %d " % (version, i) * 15)[:300]


class Server:
    def __init__(self, where, prefix, aof=True):
        self.sock = os.path.join(where, "sock")
        log = open(os.path.join(where, "log"), "a")
        self.proc = subprocess.Popen(
            prefix + ["redis-server", "--port", "0", "--unixsocket", self.sock, "--dir", where, "--save", "",
                      "--appendonly", "yes" if aof else "no", "--auto-aof-rewrite-percentage", "0",
                      "--enable-debug-command", "yes", "--daemonize", "no"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 600
        while True:
            try:
                self.s = socket.socket(socket.AF_UNIX)
                self.s.connect(self.sock)
                self.f = self.s.makefile("rb")
                self.call(b"PING")
                if not int(self.info("persistence")["loading"]):
                    return
            except (OSError, RuntimeError):
                pass
            if self.proc.poll() is not None or time.monotonic() > end:
                sys.exit("redis-server does not come up, see its log")
            time.sleep(0.1)

    def send(self, *args):
        self.s.sendall(b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in args))

    def reply(self):
        line = self.f.readline()
        if not line:
            raise OSError("connection closed")
        if line[:1] == b"-":
            raise RuntimeError(line.decode())
        if line[:1] != b"$":
            return line[1:-2]
        n = int(line[1:])
        return self.f.read(n + 2)[:-2] if n >= 0 else None

    def call(self, *args):
        self.send(*args)
        return self.reply()

    def info(self, section):
        lines = self.call(b"INFO", section.encode()).decode().split("\r\n")
        return dict(x.split(":", 1) for x in lines if ":" in x)

    def batch(self, commands):
        out = bytearray()
        for args in commands:
            out += b"*%d\r\n" % len(args)
            for a in args:
                out += b"$%d\r\n%s\r\n" % (len(a), a)
        self.s.sendall(out)
        return [self.reply() for _ in commands]

    def stop(self):
        self.send(b"SHUTDOWN", b"NOSAVE")
        status = self.proc.wait(300)
        if status:
            sys.exit("redis-server ended with status %d" % status)


def key(i):
    return b"key:%d" % i


def check(server, versions, what):
    """Every value. What is wrong ends it."""
    start = time.monotonic()
    bad = 0
    for at in range(0, len(versions), BATCH):
        ids = range(at, min(at + BATCH, len(versions)))
        for i, got in zip(ids, server.batch([(b"GET", key(i)) for i in ids])):
            if got != value(i, versions[i]):
                bad += 1
                if bad < 5:
                    print("key %d: %r instead of version %d" % (i, got, versions[i]))
    n = int(server.call(b"DBSIZE"))
    if bad or n != len(versions):
        sys.exit("FAIL: %s: %d of %d values wrong, %d keys" % (what, bad, len(versions), n))
    print("    %s: %d values right, %.0f s" % (what, len(versions), time.monotonic() - start), flush=True)


def mixed(server, versions, count):
    """So many random reads and writes at once, half each. What is read must be right."""
    ids = [rnd.randrange(len(versions)) for _ in range(count)]
    commands, want = [], []
    for i in ids:
        if rnd.random() < 0.5:
            versions[i] += 1
            commands.append((b"SET", key(i), value(i, versions[i])))
            want.append(b"OK")
        else:
            commands.append((b"GET", key(i)))
            want.append(value(i, versions[i]))
    for i, got, right in zip(ids, server.batch(commands), want):
        if got != right:
            sys.exit("FAIL: key %d: %r instead of %r" % (i, got, right))
    return count


def while_mixed(server, versions, command, running, status):
    """Random reads and writes until what runs in the background has ended, and was right: half as many as there
    are keys as fast as can be, then a few, so that it gets on."""
    start = time.monotonic()
    n = 0
    server.call(command)
    while True:
        if n < len(versions) // 2:
            n += mixed(server, versions, BATCH)
        else:
            time.sleep(0.1)
            n += mixed(server, versions, 10)
        now = server.info("persistence")
        if now[running] == "0" and now.get("aof_rewrite_scheduled", "0") == "0":
            break
        if time.monotonic() - start > 1200:
            sys.exit("FAIL: %s does not end" % command.decode())
    if now[status] != "ok":
        sys.exit("FAIL: %s: %s" % (command.decode(), now[status]))
    secs = time.monotonic() - start
    print("    %s: %.0f s, meanwhile %d reads and writes" % (command.decode(), secs, n), flush=True)


def check_dump(where, versions, what):
    """What is in the file, read by a server of its own, without pswap."""
    d = os.path.join(where, "dump")
    os.mkdir(d)
    shutil.copy(os.path.join(where, "dump.rdb"), d)
    server = Server(d, [], aof=False)
    check(server, versions, what)
    server.stop()
    shutil.rmtree(d)


def main():
    where, keys, prefix = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    versions = [0] * keys
    server = Server(where, [x.replace("%N", "1") for x in prefix])
    try:
        start = time.monotonic()
        for at in range(0, keys, BATCH):
            server.batch([(b"SET", key(i), value(i, 0)) for i in range(at, min(at + BATCH, keys))])
        print("    load: %.0f s" % (time.monotonic() - start), flush=True)
        check(server, versions, "loaded")
        for again in ("", " again"):
            saved = versions[:]
            while_mixed(server, versions, b"BGSAVE", "rdb_bgsave_in_progress", "rdb_last_bgsave_status")
            check_dump(where, saved, "saved" + again)
            check(server, versions, "after BGSAVE" + again)
            while_mixed(server, versions, b"BGREWRITEAOF", "aof_rewrite_in_progress",
                        "aof_last_bgrewrite_status")
            check(server, versions, "after BGREWRITEAOF" + again)
            if again:
                break
            server.call(b"DEBUG", b"RELOAD")
            check(server, versions, "after DEBUG RELOAD")
        server.stop()
        server = Server(where, [x.replace("%N", "2") for x in prefix])
        check(server, versions, "restarted")
        server.stop()
    finally:
        if server.proc.poll() is None:
            server.proc.terminate()
            server.proc.wait()


main()
