# SPDX-License-Identifier: MIT
"""`pswap run` as a job of an interactive shell (started by cli_terminal.sh)."""
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

PSWAP = os.environ.get("PSWAP", "build/pswap")
PROGS = os.environ.get("PROGS", "build/tests/progs")

pid, tty = pty.fork()
if not pid:
    os.environ.update(PS1="$ ", HISTFILE="/dev/null")
    os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])

seen = ""


def expect(pattern, seconds=10):
    """Reads until the pattern; returns the match and forgets what came before its end."""
    global seen
    end = time.time() + seconds
    while True:
        m = re.search(pattern, seen)
        if m:
            seen = seen[m.end():]
            return m
        if time.time() > end or not select.select([tty], [], [], end - time.time())[0]:
            print("expected %r, got %r" % (pattern, seen))
            sys.exit(1)
        seen += os.read(tty, 4096).decode(errors="replace")


def send(text):
    os.write(tty, text.encode())


send("stty -echo; echo rea\\dy\n")
expect(r"ready\r\n")
run = "%s run -m 64M -- " % PSWAP

# Stop and go on. sigcount counts everything but SIGTSTP.
send(run + PROGS + "/sigcount\n")
expect(r"\d+\r\n")
time.sleep(0.2)
send("\x1a")
expect(r"Stopped")
send("jobs; echo status $?\n")
expect(r"status 0")
send("fg\n")
time.sleep(0.3)
send("counts\n")
expect(r"CONT=1\r\n")
# The window's size.
fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
time.sleep(0.2)
send("counts\n")
expect(r"WINCH=1\r\n")
# ^C and ^\ once each; CMD goes on, so pswap does.
send("\x03")
time.sleep(0.2)
send("counts\n")
expect(r"INT=1\r\n")
send("\x1c")
time.sleep(0.2)
send("counts\n")
expect(r"QUIT=1\r\n")
send("\x04")
time.sleep(0.2)
send("echo status $?\n")
expect(r"status 0")

# In the background, signals by job.
send(run + "sleep 60 &\n")
expect(r"\[1\] \d+")
send("kill %1; wait %1; echo status $?\n")
expect(r"status 143")
# ^C ends a program that does not catch it.
send(run + "sleep 60\n")
time.sleep(0.5)
send("\x03")
send("echo status $?\n")
expect(r"status 130")
# Reading the terminal from the background stops both, fg goes on.
send(run + "cat &\n")
expect(r"\[\d\] \d+")
time.sleep(0.5)
send("\n")
expect(r"Stopped")
send("fg\n")
time.sleep(0.3)
send("hello\n")
expect(r"hello\r\n")
send("\x04")
send("echo status $?\n")
expect(r"status 0")
send("exit\n")
os.close(tty)
os.waitpid(pid, 0)
