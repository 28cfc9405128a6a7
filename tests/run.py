#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""run.py - runs the tests and counts.

  tests/test_*.c        cmocka programs, built to BUILD/tests/; each cmocka test counts as one
  tests/fuzz_*.c        random operations against a model, at their default length
  tests/*.sh            scripts
  tests/run/*.sh        scripts that run programs under `pswap run`; each counts as one.
                        Exit 0: passed, 77: skipped (the last line printed is the reason)

Scripts run in the top directory with BUILD (the build directory), PSWAP (the CLI), PROGS (the
directory of programs built from tests/progs/*.c) and TMPDIR (an own, empty directory, removed
afterwards) in the environment.  A file named lib*.sh is not a test.

A line `timeout: SECONDS` in a comment among the first 30 lines of a test's source changes how
long it may run (default 120).  `sanitize: no`, `sanitize: asan` or `sanitize: tsan` says under
which sanitizers a test_*.c makes sense (default: both).

The last line printed is `N passed, N failed, N skipped`; the exit status is 0 when none failed.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAX_REASON = 30  # lines of output shown for a failure


def directives(path):
    """The `timeout:` and `sanitize:` lines of a source file."""
    out = {}
    with open(path, errors="replace") as f:
        for _, line in zip(range(30), f):
            m = re.match(r"^[\s/*#]*(timeout|sanitize):\s*(\w+)", line)
            if m:
                out[m.group(1)] = m.group(2)
    return out


def last_line(text):
    lines = [s.strip() for s in text.splitlines() if s.strip()]
    return lines[-1] if lines else "no reason given"


def run(argv, timeout, env):
    """Runs argv in a session of its own. Returns (exit status or None on timeout, output)."""
    tmp = tempfile.mkdtemp(prefix="pswap-test.")
    os.chmod(tmp, 0o755)  # some tests change user
    env = dict(env, TMPDIR=tmp)
    with tempfile.TemporaryFile() as out:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out,
                             stderr=subprocess.STDOUT, cwd=TOP, env=env,
                             start_new_session=True)
        try:
            status = p.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        # Also what a test left running: it was started in the session that ends here.
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()
        out.seek(0)
        text = out.read().decode(errors="replace")
    shutil.rmtree(tmp, ignore_errors=True)
    return status, text


def status_text(status):
    if status is None:
        return "timed out"
    if status < 0:
        return "killed by " + signal.Signals(-status).name
    return "exit status %d" % status


class Results:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self.lock = threading.Lock()

    def add(self, kind, name, seconds, reason="", output=""):
        with self.lock:
            self.add_locked(kind, name, seconds, reason, output)

    def add_locked(self, kind, name, seconds, reason, output):
        setattr(self, kind, getattr(self, kind) + 1)
        word = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}[kind]
        took = " (%.1f s)" % seconds if seconds >= 0.1 else ""
        print("%s %s%s%s" % (word, name, took, ": " + reason if reason else ""), flush=True)
        if kind == "failed":
            self.failures.append(name)
            for line in output.splitlines()[-MAX_REASON:]:
                print("     | " + line, flush=True)


def run_cmocka(name, path, timeout, env, res):
    start = time.time()
    status, text = run([path], timeout, dict(env, CMOCKA_MESSAGE_OUTPUT="STDOUT"))
    took = time.time() - start
    ran = {}  # test -> (kind, the lines printed while it ran)
    current, lines = None, []
    for line in text.splitlines():
        m = re.match(r"^\[\s*(RUN|OK|FAILED|SKIPPED|ERROR|LINE)\s*\]\s*(?:---\s*)?(.*)$", line)
        word = m.group(1) if m else None
        if word == "RUN":
            current, lines = m.group(2).strip(), []
            ran[current] = (None, lines)
        elif current and word in ("OK", "FAILED", "SKIPPED") and m.group(2).strip() == current:
            kind = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[word]
            ran[current] = (kind, lines)
            current = None
        else:
            lines.append(line)
    if not ran:
        res.add("failed", name, took, status_text(status), text)
        return
    for i, (test, (kind, out)) in enumerate(ran.items()):
        full = "%s:%s" % (name, test)
        seconds = took if i == len(ran) - 1 else 0
        if kind == "skipped":
            res.add(kind, full, seconds, last_line("\n".join(out)))
        elif kind == "passed":
            res.add(kind, full, seconds)
        else:
            why = "" if kind else status_text(status)
            res.add("failed", full, seconds, why, "\n".join(out))
    # A leak found at exit, say, fails no single test.
    if status != 0 and not any(k != "passed" and k != "skipped" for k, _ in ran.values()):
        res.add("failed", name + ":exit", 0, status_text(status), text)


def run_script(name, path, timeout, env, res):
    start = time.time()
    status, text = run(["sh", path] if not os.access(path, os.X_OK) else [path], timeout, env)
    took = time.time() - start
    if status == 0:
        res.add("passed", name, took)
    elif status == 77:
        res.add("skipped", name, took, last_line(text))
    else:
        res.add("failed", name, took, status_text(status), text)


def sources(directory, prefix, suffix):
    d = os.path.join(TOP, directory)
    for f in sorted(os.listdir(d)):
        if f.startswith(prefix) and f.endswith(suffix) and not f.startswith("lib"):
            yield f[:-len(suffix)], os.path.join(d, f)


def main():
    ap = argparse.ArgumentParser(description="Runs the tests; see the head of the file.")
    ap.add_argument("--build", default="build", help="build directory (default: build)")
    ap.add_argument("--sanitize", choices=["asan", "tsan"],
                    help="run the test_*.c that make sense under this sanitizer, no scripts")
    ap.add_argument("--jobs", type=int, default=1, help="run so many at a time (default: 1)")
    ap.add_argument("--list", action="store_true", help="only print the names")
    ap.add_argument("words", nargs="*", help="run only tests whose name contains one of these")
    args = ap.parse_args()

    # A shell's background jobs ignore these, and so would the programs under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    build = os.path.join(TOP, args.build)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PSWAP", "LD_PRELOAD"))}
    env.update(BUILD=build, PSWAP=os.path.join(build, "pswap"),
               PROGS=os.path.join(build, "tests", "progs"), LC_ALL="C.UTF-8")
    if args.sanitize == "asan":
        env["ASAN_OPTIONS"] = "abort_on_error=0:halt_on_error=1:" + env.get("ASAN_OPTIONS", "")
        env["UBSAN_OPTIONS"] = ("halt_on_error=1:print_stacktrace=1:" +
                                env.get("UBSAN_OPTIONS", ""))
    if args.sanitize == "tsan":
        env["TSAN_OPTIONS"] = "halt_on_error=1:" + env.get("TSAN_OPTIONS", "")

    todo = []
    for name, path in sources("tests", "test_", ".c"):
        if args.sanitize and directives(path).get("sanitize", args.sanitize) != args.sanitize:
            continue
        todo.append((name, path, os.path.join(build, "tests", name)))
    for name, path in sources("tests", "fuzz_", ".c"):
        todo.append((name, path, os.path.join(build, "tests", name)))
    if args.sanitize:
        todo.append(("stress", "tests/progs/stress.c",
                     os.path.join(build, "tests", "progs", "stress")))
    else:
        for name, path in sources("tests", "", ".sh"):
            todo.append((name, path, None))
        for name, path in sources("tests/run", "", ".sh"):
            todo.append(("run/" + name, path, None))
    if args.words:
        todo = [t for t in todo if any(w in t[0] for w in args.words)]
    if args.list:
        print("\n".join(t[0] for t in todo))
        return 0

    res = Results()

    def run_one(test):
        name, path, program = test
        timeout = int(directives(path).get("timeout", 120))
        if args.sanitize:
            timeout *= 5
        if program is None:
            run_script(name, path, timeout, env, res)
        elif os.path.exists(program) and (name.startswith("fuzz_") or name == "stress"):
            run_script(name, program, timeout, env, res)
        elif os.path.exists(program):
            run_cmocka(name, program, timeout, env, res)
        else:
            res.add("failed", name, 0, "not built: " + program)

    if args.jobs == 1:
        for test in todo:
            run_one(test)
    else:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(run_one, todo))
    if res.failures:
        print("failed: " + " ".join(res.failures))
    print("%d passed, %d failed, %d skipped" % (res.passed, res.failed, res.skipped))
    return 1 if res.failed else 0


if __name__ == "__main__":
    sys.exit(main())
