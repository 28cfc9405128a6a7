/* SPDX-License-Identifier: MIT */
/* main.c - the subcommands of pswap. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct command {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "run", cmd_run, "run a program under a memory limit, its memory swapped" },
	{ "stat", cmd_stat, "figures of a program that runs under pswap" },
	{ "top", cmd_top, "watch such programs" },
	{ "swapoff", cmd_swapoff, "all memory of a program in, for a debugger" },
	{ "swapon", cmd_swapon, "end of swapoff" },
	{ "doctor", cmd_doctor, "what this machine lets pswap do" },
	{ "bench", cmd_bench, "measure pswap against the kernel's swap on zram" },
};

static void usage(FILE *f)
{
	fputs("pswap: private swap for a process\n\n"
	      "  pswap run -m 2G -- ./my-program --its args\n\n"
	      "commands:\n",
	      f);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(f, "  %-8s %s\n", commands[i].name, commands[i].summary);
	fputs("\n`pswap COMMAND --help` has the options, pswap(1) the rest.\n", f);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		cli_fail("no command given; there are: run, stat, top, swapoff, swapon, doctor, "
			 "bench, --help, --version");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("pswap " PSWAP_VERSION);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].fn(argc - 1, argv + 1);
	}
	cli_fail(
		"unknown command '%s'; there are: run, stat, top, swapoff, swapon, doctor, bench, "
		"--help, --version",
		argv[1]);
}
