/* SPDX-License-Identifier: MIT */
/*
 * ucontext - coroutines (makecontext, swapcontext) whose stacks lie on the heap and are swapped;
 * every switch is a jump onto a stack that may be missing, also with a signal arriving there.
 */
#include "pt.h"

#include <sys/time.h>
#include <ucontext.h>

#define N     160
#define STACK (128 * 1024)
static ucontext_t main_ctx, ctx[N];
static int done[N];
static _Atomic int ticks;

static void tick(int sig)
{
	(void)sig;
	ticks++; /* on whatever stack is current */
}

static void coroutine(int me)
{
	u64 frame[8000];

	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 8000; i++)
			frame[i] = me * 100000ULL + i + round;
		CHECK(swapcontext(&ctx[me], &main_ctx) == 0);
		for (int i = 0; i < 8000; i++)
			CHECKF(frame[i] == me * 100000ULL + i + round, "coroutine %d word %d: %llx",
			       me, i, (unsigned long long)frame[i]);
	}
	done[me] = 1;
}

int main(void)
{
	struct itimerval it = { { 0, 2000 }, { 0, 2000 } };
	struct sigaction sa = { .sa_handler = tick, .sa_flags = SA_RESTART };
	char *stacks = malloc((size_t)N * STACK);
	size_t size = 24 * PT_MIB;
	char *mem = pt_map(size);

	CHECK(stacks);
	pt_fill(mem, size, 1);
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	for (int i = 0; i < N; i++) {
		CHECK(getcontext(&ctx[i]) == 0);
		ctx[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
		ctx[i].uc_stack.ss_size = STACK;
		ctx[i].uc_link = &main_ctx;
		makecontext(&ctx[i], (void (*)(void))coroutine, 1, i);
	}
	for (int round = 0; round < 7; round++) {
		for (int k = 0; k < N; k++) {
			int i = (k * 37) % N;

			CHECK(swapcontext(&main_ctx, &ctx[i]) == 0);
		}
		pt_evict(mem, size);
		pt_verify(mem, size, 1);
	}
	for (int i = 0; i < N; i++)
		CHECK(done[i]);
	CHECK(ticks > 0);
	free(stacks);
	pt_say("ucontext done");
	return 0;
}
