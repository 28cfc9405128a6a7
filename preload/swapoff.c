/* SPDX-License-Identifier: MIT */
/* swapoff.c - see swapoff.h. */
#include <signal.h>

#include "fault.h"
#include "hook.h"
#include "pagetable.h"
#include "region.h"
#include "swapoff.h"

#define STEP_EXTENTS 32 /* 64 MiB; a fork or a new mapping waits for no more than that */
#define PASSES 16	/* a page that is being written out just now is there in the next one */

/* Bits of pswap.swapoff. A program that dumps core is not swapped again. */
enum { SWAPOFF_COMMAND = 1, SWAPOFF_DUMP = 2 };

static struct {
	u64 at; /* address of the next extent to look at */
	unsigned pass;
	bool missing; /* something could not be had in this pass */
} job;

/* Some extents' pages in. False: the end of the address space has been reached. */
static bool step(struct ps_ctx *ctx)
{
	struct ps_mm *mm = &ctx->ps->mm;
	u64 start, end;

	for (unsigned n = 0; n < STEP_EXTENTS;) {
		struct extent *e;
		u64 stop;

		if (!region_next(mm, job.at, &start, &end))
			return false;
		e = pt_next(mm, start, end);
		if (!e) {
			job.at = end;
			continue;
		}
		stop = MIN(e->addr + PMD_SIZE, end);
		start = MAX(start, e->addr);
		if (e->pmd != PMD_NONE) {
			fault_range(ctx, mm, start, stop);
			/* Of other regions' pages, too; those come in the same pass. */
			ps_mutex_lock(&e->lock);
			job.missing |= e->nr_swap || (e->frame && e->frame->nr_live);
			ps_mutex_unlock(&e->lock);
			n++;
		}
		job.at = stop;
	}
	return true;
}

/* True: not done yet. */
static bool work(struct ps_ctx *ctx)
{
	if (step(ctx))
		return true;
	job.at = 0;
	if (job.missing && ++job.pass < PASSES) {
		job.missing = false;
		return true;
	}
	return false;
}

/* Nobody takes anything out any more when this returns: whoever still does holds freeze. */
static void begin(struct pswap *ps, u32 who)
{
	memset(&job, 0, sizeof(job));
	atomic_fetch_or(&ps->swapoff, who);
	ps_rwlock_write_lock(&ps->freeze);
	ps_rwlock_write_unlock(&ps->freeze);
}

bool swapoff_tick(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	u32 want = relaxed_load(&ps->stat->swapoff), asked = PS_SWAPOFF_ASKED;
	bool more;

	if (want == PS_SWAPOFF_NO) {
		atomic_fetch_and(&ps->swapoff, ~(u32)SWAPOFF_COMMAND);
		return false;
	}
	if (want == PS_SWAPOFF_DONE)
		return false;
	if (!(relaxed_load(&ps->swapoff) & SWAPOFF_COMMAND))
		begin(ps, SWAPOFF_COMMAND);
	ps_rwlock_read_lock(&ps->freeze);
	more = work(ctx);
	ps_rwlock_read_unlock(&ps->freeze);
	if (!more) {
		atomic_compare_exchange_strong(&ps->stat->swapoff, &asked,
					       job.missing ? PS_SWAPOFF_PARTLY : PS_SWAPOFF_DONE);
		memset(&job, 0, sizeof(job));
	}
	return more;
}

void swapoff_now(struct ps_ctx *ctx)
{
	begin(ctx->ps, SWAPOFF_DUMP);
	ps_rwlock_read_lock(&ctx->ps->freeze);
	while (work(ctx))
		;
	ps_rwlock_read_unlock(&ctx->ps->freeze);
}

/* ---- core dumps ---- */

static const int core_signals[] = { SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE,
				    SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS };

/* Of the system call. libc's function may be a sanitizer's, which is not ready before main(). */
struct kernel_sigaction {
	void (*handler)(int sig, siginfo_t *info, void *context);
	unsigned long flags;
	void (*restorer)(void);
	u64 mask;
};

#define SA_RESTORER_FLAG 0x04000000UL

void swapoff_sigreturn(void);
__asm__(".pushsection .text\n"
	".globl swapoff_sigreturn\n"
	".hidden swapoff_sigreturn\n"
	".type swapoff_sigreturn, @function\n"
	"swapoff_sigreturn:\n"
	"	mov $15, %eax\n"
	"	syscall\n"
	".size swapoff_sigreturn, . - swapoff_sigreturn\n"
	".popsection");

static long set_action(int sig, const struct kernel_sigaction *new, struct kernel_sigaction *old)
{
	return sys_call4(SYS_rt_sigaction, sig, new, old, sizeof(new->mask));
}

/* An instruction's fault comes again when the handler returns, and brings its address. Anything else has to
 * be sent again; it waits until we return. */
static bool comes_again(int sig, const siginfo_t *info)
{
	return info->si_code > 0 && info->si_code != SI_KERNEL &&
	       (sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE);
}

/* What would have killed the program does so now, with all of its memory there. */
static void on_core_signal(int sig, siginfo_t *info, void *context)
{
	struct kernel_sigaction dfl = { 0 };

	(void)context;
	hook_swapoff();
	set_action(sig, &dfl, NULL);
	if (!comes_again(sig, info))
		sys_call3(SYS_tgkill, sys_call0(SYS_getpid), sys_call0(SYS_gettid), sig);
}

void coredump_install(void)
{
	struct kernel_sigaction old, mine = { .handler = on_core_signal,
					      .flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER_FLAG,
					      .restorer = swapoff_sigreturn };

	for (size_t i = 0; i < ARRAY_SIZE(core_signals); i++)
		mine.mask |= 1ULL << (core_signals[i] - 1);
	for (size_t i = 0; i < ARRAY_SIZE(core_signals); i++)
		if (!set_action(core_signals[i], NULL, &old) && !old.handler) /* SIG_DFL */
			set_action(core_signals[i], &mine, NULL);
}
