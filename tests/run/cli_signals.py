# SPDX-License-Identifier: MIT
"""Signals and job control through `pswap run` (started by cli_signals.sh)."""
import os
import signal
import subprocess
import sys
import time

PSWAP = os.environ.get("PSWAP", "build/pswap")

COUNTER = os.path.join(os.environ.get("PROGS", "build/tests/progs"), "sigcount")

failures = 0


def check(what, got, want):
    global failures
    if got != want:
        failures += 1
        print("FAIL: %s: %r, expected %r" % (what, got, want))


class Run:
    def __init__(self, argv, **kw):
        self.p = subprocess.Popen([PSWAP, "run", "-m", "64M", "--"] + argv, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, start_new_session=True, **kw)
        self.cmd = int(self.p.stdout.readline())

    def say(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()

    def counts(self):
        time.sleep(0.1)
        self.say("counts")
        return self.p.stdout.readline().strip()

    def end(self):
        self.p.stdin.close()
        return self.p.wait(10)


def state(pid):
    with open("/proc/%d/stat" % pid) as f:
        return f.read().rsplit(")", 1)[1].split()[0]


def wait_state(pid, want):
    for _ in range(200):
        if (state(pid) in "Tt") == (want == "T"):
            return want
        time.sleep(0.01)
    return state(pid)


def counted():
    r = Run([COUNTER])
    for name in ("TERM", "HUP", "USR1", "USR2", "INT", "QUIT", "WINCH", "CONT", "ALRM", "RTMIN"):
        sig = getattr(signal, "SIG" + name)
        for what, send in (("pswap alone", lambda: os.kill(r.p.pid, sig)),
                           ("CMD alone", lambda: os.kill(r.cmd, sig)),
                           ("the group", lambda: os.killpg(r.p.pid, sig)),
                           ("pswap alone, again", lambda: os.kill(r.p.pid, sig))):
            send()
            check("SIG%s to %s" % (name, what), r.counts(), name + "=1")
    r.say("parent")
    check("CMD signals its parent", r.counts(), "none")
    check("status", r.end(), 0)


def job_control():
    r = Run([COUNTER])
    os.kill(r.p.pid, signal.SIGTSTP)
    # An orphaned process group, which this session's is, does not stop at SIGTSTP.
    time.sleep(0.2)
    os.kill(r.cmd, signal.SIGSTOP)
    check("CMD stopped", wait_state(r.cmd, "T"), "T")
    check("pswap stops as CMD stops", wait_state(r.p.pid, "T"), "T")
    os.kill(r.p.pid, signal.SIGCONT)
    check("CMD goes on when pswap does", wait_state(r.cmd, "R"), "R")
    check("pswap goes on", wait_state(r.p.pid, "R"), "R")
    os.kill(r.cmd, signal.SIGSTOP)
    check("CMD stopped again", wait_state(r.cmd, "T"), "T")
    check("pswap stops again", wait_state(r.p.pid, "T"), "T")
    os.kill(r.cmd, signal.SIGCONT)
    check("CMD goes on by itself", wait_state(r.cmd, "R"), "R")
    check("pswap goes on when CMD does", wait_state(r.p.pid, "R"), "R")
    r.counts()
    os.killpg(r.p.pid, signal.SIGSTOP)
    check("CMD stopped with the group", wait_state(r.cmd, "T"), "T")
    check("pswap stopped with the group", wait_state(r.p.pid, "T"), "T")
    os.killpg(r.p.pid, signal.SIGCONT)
    check("CMD goes on with the group", wait_state(r.cmd, "R"), "R")
    check("pswap goes on with the group", wait_state(r.p.pid, "R"), "R")
    check("SIGCONT to the group", r.counts(), "CONT=1")
    check("status", r.end(), 0)


def deaths():
    for sig in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT, signal.SIGABRT):
        r = Run(["sh", "-c", "echo $$; read x; kill -%d $$" % sig])
        check("death by %s" % sig.name, r.end(), -sig)
    r = Run([COUNTER])
    r.p.kill()
    check("pswap killed", r.p.wait(10), -signal.SIGKILL)
    for _ in range(200):
        if not os.path.exists("/proc/%d" % r.cmd) or state(r.cmd) in "ZX":
            break
        time.sleep(0.01)
    else:
        check("CMD outlives a killed pswap", True, False)


def ignored():
    # nohup: what was ignored stays ignored.
    r = Run(["sh", "-c", "echo $$; read x; kill -HUP $$; exit 3"],
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    check("SIGHUP ignored", r.end(), 3)
    r = Run(["sh", "-c", "echo $$; read x; exit 3"],
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    check("SIGCHLD ignored", r.end(), 3)


def stdio():
    # A reader of CMD's output must see its end when CMD closes it.
    p = subprocess.Popen([PSWAP, "run", "-m", "64M", "--", "sh", "-c",
                          "echo x; exec sleep 3 >&-"], stdout=subprocess.PIPE)
    start = time.time()
    p.stdout.read()
    check("end of output seen early", time.time() - start < 2.5, True)
    p.wait()


for test in (counted, job_control, deaths, ignored, stdio):
    test()
sys.exit(1 if failures else 0)
