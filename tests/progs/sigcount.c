/* SPDX-License-Identifier: MIT */
/*
 * sigcount - prints its pid, then obeys lines: "counts" prints and forgets how many of each signal
 * have come, "parent" sends SIGUSR1 to the parent; ends with its input. For
 * tests/run/cli_signals.sh.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t got[65];

static void take(int sig)
{
	got[sig]++;
}

static void print_counts(void)
{
	const char *sep = "";

	for (int sig = 1; sig < 65; sig++) {
		if (!got[sig])
			continue;
		if (sig == SIGRTMIN)
			printf("%sRTMIN=%d", sep, (int)got[sig]);
		else
			printf("%s%s=%d", sep, sigabbrev_np(sig), (int)got[sig]);
		sep = " ";
		got[sig] = 0;
	}
	printf("%s\n", *sep ? "" : "none");
	fflush(stdout);
}

int main(void)
{
	char line[64];

	for (int sig = 1; sig < 65; sig++) {
		if (sig != SIGTSTP && sig != SIGCHLD)
			signal(sig, take); /* SA_RESTART */
	}
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "counts\n"))
			print_counts();
		else if (!strcmp(line, "parent\n"))
			kill(getppid(), SIGUSR1);
	}
	return 0;
}
