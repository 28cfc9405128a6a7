/* SPDX-License-Identifier: MIT */
/*
 * test_patch_text.c - the patcher on pieces of code made here: each pattern, what is refused, and
 * every register, flag and byte of the red zone after a diverted call, also when a signal comes
 * before each single instruction of it.
 *
 * The hooks are those of tests/hook_count.c, preloaded, which spoil all they may.
 *
 * sanitize: no
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <ucontext.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unwind.h>

#include "hook_preload.h"
#include "sys.h"

/* In the order of the machine's encoding. */
enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15, NR_GPR };
static const char *const gpr_name[] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
					"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15" };
#define FLAGS_ALL 0xcd5UL /* carry, parity, adjust, zero, sign, direction, overflow */
#define FLAG_TF 0x100UL

struct regs {
	u64 gpr[NR_GPR];
	u64 flags;
	u64 have_avx;
	u8 vec[16][32];
};

/*
 * regs_run(io, code): loads everything from io, jumps to code, which comes back to regs_back, and
 * stores everything to io.
 */
void regs_run(struct regs *io, const void *code);
extern const u8 regs_back[];
__asm__(".macro vecs op, from, to\n"
	"	.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"	\\op \\n\n"
	"	.endr\n"
	".endm\n"
	".macro ldx n\n movups 144+32*\\n(%rdi), %xmm\\n\n .endm\n"
	".macro ldy n\n vmovups 144+32*\\n(%rdi), %ymm\\n\n .endm\n"
	".macro stx n\n movups %xmm\\n, 144+32*\\n(%rdi)\n .endm\n"
	".macro sty n\n vmovups %ymm\\n, 144+32*\\n(%rdi)\n .endm\n"
	"	.text\n"
	"regs_run:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	mov %rsp, 1f(%rip)\n"
	"	mov %rdi, 2f(%rip)\n"
	"	mov %rsi, 3f(%rip)\n"
	"	vecs ldx\n"
	"	cmpq $0, 136(%rdi)\n"
	"	je 5f\n"
	"	vecs ldy\n"
	"5:	mov 0(%rdi), %rax; mov 8(%rdi), %rcx; mov 16(%rdi), %rdx; mov 24(%rdi), %rbx\n"
	"	mov 40(%rdi), %rbp; mov 48(%rdi), %rsi; mov 64(%rdi), %r8; mov 72(%rdi), %r9\n"
	"	mov 80(%rdi), %r10; mov 88(%rdi), %r11; mov 96(%rdi), %r12; mov 104(%rdi), %r13\n"
	"	mov 112(%rdi), %r14; mov 120(%rdi), %r15\n"
	"	push 128(%rdi)\n"
	"	popfq\n"
	"	mov 32(%rdi), %rsp\n"
	"	mov 56(%rdi), %rdi\n"
	"	jmp *3f(%rip)\n"
	"regs_back:\n"
	"	mov %rsp, 4f(%rip)\n"
	"	mov 1f(%rip), %rsp\n"
	"	pushfq\n"
	"	push %rdi\n"
	"	mov 2f(%rip), %rdi\n"
	"	pop 56(%rdi)\n"
	"	pop 128(%rdi)\n"
	"	cld\n"
	"	mov %rax, 0(%rdi); mov %rcx, 8(%rdi); mov %rdx, 16(%rdi); mov %rbx, 24(%rdi)\n"
	"	mov 4f(%rip), %rax\n"
	"	mov %rax, 32(%rdi)\n"
	"	mov %rbp, 40(%rdi); mov %rsi, 48(%rdi); mov %r8, 64(%rdi); mov %r9, 72(%rdi)\n"
	"	mov %r10, 80(%rdi); mov %r11, 88(%rdi); mov %r12, 96(%rdi); mov %r13, 104(%rdi)\n"
	"	mov %r14, 112(%rdi); mov %r15, 120(%rdi)\n"
	"	cmpq $0, 136(%rdi)\n"
	"	jne 6f\n"
	"	vecs stx\n"
	"	jmp 7f\n"
	"6:	vecs sty\n"
	"	vzeroupper\n"
	"7:	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n"
	"	.bss\n"
	"	.balign 8\n"
	"1:	.quad 0\n"
	"2:	.quad 0\n"
	"3:	.quad 0\n"
	"4:	.quad 0\n"
	"	.text\n");

static const struct hook_ops *ops;
static u8 own_stack[16384] __attribute__((aligned(64)));

/* A page of code with `code` in it, then a jump to regs_back. */
#define CODE_AT 1024
static void make_text(struct patch_object *o, const u8 *code, size_t len)
{
	static const u8 back[] = { 0xff, 0x25, 0, 0, 0, 0 }; /* jmp *0(%rip) */
	const u8 *target = regs_back;
	u8 *p = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(p, 0xcc, PAGE_SIZE);
	memcpy(p + CODE_AT, code, len);
	memcpy(p + CODE_AT + len, back, sizeof(back));
	memcpy(p + CODE_AT + len + sizeof(back), &target, sizeof(target));
	assert_int_equal(mprotect(p, PAGE_SIZE, PROT_READ | PROT_EXEC), 0);
	memset(o, 0, sizeof(*o));
	o->text = p;
	o->end = p + PAGE_SIZE;
	o->id = HOOK_SITE_LIBC;
}

static void patch_text(struct patch_object *o, const u8 *code, size_t len)
{
	int memfd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	make_text(o, code, len);
	assert_null(ops->scan(o));
	assert_int_equal(o->nr_sites, 1);
	assert_null(ops->build(o));
	assert_null(ops->apply(o, memfd));
	close(memfd);
	assert_int_equal(o->site[0].win[0], 0xe9);
}

static void drop_text(struct patch_object *o)
{
	if (o->stubs)
		munmap(o->stubs, o->stubs_size);
	munmap((void *)o->text, PAGE_SIZE);
}

static void fill(struct regs *r)
{
	for (int i = 0; i < NR_GPR; i++)
		r->gpr[i] = 0x0101010101010101UL * (u64)(i + 0x11);
	r->gpr[RSP] = (u64)own_stack + sizeof(own_stack) / 2;
	r->flags = FLAGS_ALL;
	r->have_avx = __builtin_cpu_supports("avx") != 0;
	for (int i = 0; i < 16; i++)
		for (int b = 0; b < 32; b++)
			r->vec[i][b] = (u8)(i * 32 + b + 1);
	memset(own_stack, 0x5a, sizeof(own_stack));
}

/* Everything is as in `want`, but rax, and rcx and r11 are as after a system call. */
static void same(const struct regs *got, const struct regs *want, const void *ret)
{
	for (int i = 0; i < NR_GPR; i++) {
		if (i == RAX || i == RCX || i == R11)
			continue;
		if (got->gpr[i] != want->gpr[i])
			fail_msg("%s: %lx, not %lx", gpr_name[i], got->gpr[i], want->gpr[i]);
	}
	assert_int_equal(got->flags & FLAGS_ALL, want->flags & FLAGS_ALL);
	if (ret)
		assert_int_equal(got->gpr[RCX], (u64)ret);
	assert_int_equal(got->gpr[R11] & FLAGS_ALL, want->flags & FLAGS_ALL);
	for (int i = 0; i < 16; i++)
		assert_memory_equal(got->vec[i], want->vec[i], want->have_avx ? 32 : 16);
	assert_int_equal(relaxed_load(&hc->bad_calls), 0);
	/* The red zone, and all above the stack pointer. */
	for (u8 *p = (u8 *)want->gpr[RSP] - 128; p < own_stack + sizeof(own_stack); p++)
		assert_int_equal(*p, 0x5a);
}

static void need_hooks(void)
{
	if (!ops)
		skip();
}

static const u8 code_madvise[] = { 0xb8, SYS_madvise, 0, 0, 0, 0x0f, 0x05 };
static const u8 code_prctl[] = { 0xb8, SYS_prctl, 0, 0, 0, 0x0f, 0x05 };
static const u8 code_fork[] = { 0xb8, SYS_fork, 0, 0, 0, 0x0f, 0x05 };
static const u8 code_any[] = { 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05 };

static void test_registers_vm(void **state)
{
	struct patch_object o;
	struct regs in, r;

	need_hooks();
	patch_text(&o, code_madvise, sizeof(code_madvise));
	for (u64 flags = 0; flags <= FLAGS_ALL; flags += FLAGS_ALL) {
		fill(&in);
		in.gpr[RDI] = 1; /* not a page's address */
		in.flags = flags;
		r = in;
		regs_run(&r, o.text + CODE_AT);
		assert_int_equal(r.gpr[RAX], -EINVAL);
		same(&r, &in, o.text + CODE_AT + 7);
	}
	drop_text(&o);
}

static void test_registers_pre(void **state)
{
	struct patch_object o;
	struct regs in, r;

	need_hooks();
	patch_text(&o, code_prctl, sizeof(code_prctl));
	fill(&in);
	in.gpr[RDI] = PR_GET_DUMPABLE;
	r = in;
	regs_run(&r, o.text + CODE_AT);
	assert_in_range(r.gpr[RAX], 0, 2);
	same(&r, &in, o.text + CODE_AT + 7);
	drop_text(&o);
}

/* syscall(3): the number comes in rax, the sixth argument from the stack. */
static void test_registers_any(void **state)
{
	static const int nrs[] = { SYS_madvise, SYS_prctl, SYS_getppid };
	struct patch_object o;
	struct regs in, r;

	need_hooks();
	patch_text(&o, code_any, sizeof(code_any));
	for (size_t i = 0; i < ARRAY_SIZE(nrs); i++) {
		fill(&in);
		in.gpr[RDI] = PR_GET_DUMPABLE;
		in.gpr[RAX] = (u64)nrs[i] | 1UL << 40;
		r = in;
		regs_run(&r, o.text + CODE_AT);
		in.gpr[R9] = 0x5a5a5a5a5a5a5a5a;
		in.flags = r.flags; /* dead in a function, and not kept */
		same(&r, &in, o.text + CODE_AT + 7);
		assert_int_equal(r.gpr[RAX], i == 0 ? (u64)-EINVAL :
					     i == 1 ? (u64)prctl(PR_GET_DUMPABLE) : (u64)getppid());
	}
	drop_text(&o);
}

/* Both sides of a fork, with hook_post_fork() spoiling the vector registers. */
static void test_registers_fork(void **state)
{
	struct patch_object o;
	struct regs in, r;
	u64 child = 0;
	int st = 0;

	need_hooks();
	child = relaxed_load(&hc->fork_child);
	patch_text(&o, code_fork, sizeof(code_fork));
	fill(&in);
	r = in;
	regs_run(&r, o.text + CODE_AT);
	same(&r, &in, o.text + CODE_AT + 7); /* a failure in the child ends in another status */
	if (r.gpr[RAX] == 0)
		_exit(33);
	assert_int_equal(waitpid((pid_t)r.gpr[RAX], &st, 0), (pid_t)r.gpr[RAX]);
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 33);
	assert_int_equal(relaxed_load(&hc->fork_child), child + 1);
	drop_text(&o);
}

/*
 * With the trap flag set a SIGTRAP comes before every instruction.  Its handler makes a diverted
 * call itself, spoils the vector registers, and checks that unwinding gets out of pswap's frames
 * to the right place with the right stack pointer.
 */
static volatile unsigned steps, steps_inside, steps_lost;
static u64 step_ret, step_rsp;

static _Unwind_Reason_Code on_frame(struct _Unwind_Context *c, void *out)
{
	if (_Unwind_GetIP(c) == step_ret && _Unwind_GetCFA(c) == step_rsp)
		*(bool *)out = true;
	return _URC_NO_REASON;
}

static void on_step(int sig, siginfo_t *si, void *context)
{
	ucontext_t *uc = context;
	const u8 *pc = (const u8 *)uc->uc_mcontext.gregs[REG_RIP];
	bool out = false;
	Dl_info where;

	if (pc == regs_back) {
		uc->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)FLAG_TF;
		return;
	}
	steps++;
	munmap((void *)1, 1);
	if (dladdr(pc, &where) && strstr(where.dli_fname, "hook_count")) {
		steps_inside++;
		_Unwind_Backtrace(on_frame, &out);
		steps_lost += !out;
	}
	__asm__ volatile("pcmpeqb %xmm0, %xmm0; movdqa %xmm0, %xmm9; movdqa %xmm0, %xmm15");
}

static void step_through(const u8 *code, size_t len, u64 nr, u64 arg)
{
	stack_t ss = { .ss_sp = malloc(65536), .ss_size = 65536 }, old_ss;
	struct sigaction sa = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_ONSTACK }, old;
	struct patch_object o;
	struct regs in, r;

	patch_text(&o, code, len);
	fill(&in);
	in.gpr[RAX] = nr;
	in.gpr[RDI] = arg;
	in.flags |= FLAG_TF;
	r = in;
	steps = steps_inside = steps_lost = 0;
	step_ret = (u64)o.text + CODE_AT + len;
	step_rsp = in.gpr[RSP];
	sigaltstack(&ss, &old_ss);
	sigaction(SIGTRAP, &sa, &old);
	regs_run(&r, o.text + CODE_AT);
	sigaction(SIGTRAP, &old, NULL);
	sigaltstack(&old_ss, NULL);
	free(ss.ss_sp);
	if (code == code_any) {
		in.gpr[R9] = 0x5a5a5a5a5a5a5a5a;
		in.flags = r.flags;
	}
	same(&r, &in, NULL);
	printf("%u steps, %u in the hooks\n", steps, steps_inside);
	assert_true(steps > 10);
	assert_int_equal(steps_lost, 0);
	drop_text(&o);
}

static void test_signal_at_each_step(void **state)
{
	need_hooks();
	step_through(code_madvise, sizeof(code_madvise), 0, 1);
	assert_true(steps_inside > 40);
	step_through(code_prctl, sizeof(code_prctl), 0, PR_GET_DUMPABLE);
	assert_true(steps_inside > 40);
	step_through(code_any, sizeof(code_any), SYS_madvise, 1);
	step_through(code_any, sizeof(code_any), SYS_getppid, 1);
}

/* The number is set some instructions before. */
static void test_far_patterns(void **state)
{
	static const u8 or_lea[] = {
		0xb8, SYS_madvise, 0, 0, 0, /* mov $28, %eax */
		0x41, 0x83, 0xca, 0x40,	    /* or $0x40, %r10d */
		0x48, 0x8d, 0x35, 0x10, 0, 0, 0, /* lea 16(%rip), %rsi */
		0x0f, 0x05,
	};
	static const u8 in_ecx[] = {
		0xb9, SYS_madvise, 0, 0, 0, /* mov $28, %ecx */
		0x31, 0xff,		    /* xor %edi, %edi */
		0x89, 0xc8,		    /* mov %ecx, %eax */
		0x0f, 0x05,
	};
	static const u8 from_stack[] = {
		0xb8, SYS_madvise, 0, 0, 0,
		0x4c, 0x8b, 0x44, 0x24, 0x10, /* mov 16(%rsp), %r8 */
		0x0f, 0x05,
	};
	struct patch_object o;
	struct regs in, r;
	u64 calls = 0;

	need_hooks();
	calls = relaxed_load(&hc->nr[SYS_madvise]);
	patch_text(&o, or_lea, sizeof(or_lea));
	fill(&in);
	in.gpr[RDI] = 1;
	r = in;
	regs_run(&r, o.text + CODE_AT);
	in.gpr[R10] = (u32)in.gpr[R10] | 0x40;
	in.gpr[RSI] = (u64)o.text + CODE_AT + 16 + 16;
	in.flags = r.flags;
	same(&r, &in, NULL);
	assert_int_equal(r.gpr[RAX], -EINVAL);
	drop_text(&o);

	patch_text(&o, in_ecx, sizeof(in_ecx));
	fill(&in);
	in.gpr[RSI] = 0; /* nothing to advise: success */
	in.gpr[RDX] = 0;
	r = in;
	regs_run(&r, o.text + CODE_AT);
	in.gpr[RDI] = 0;
	in.flags = r.flags;
	same(&r, &in, NULL);
	assert_int_equal(r.gpr[RAX], 0);
	drop_text(&o);

	patch_text(&o, from_stack, sizeof(from_stack));
	fill(&in);
	r = in;
	regs_run(&r, o.text + CODE_AT);
	in.gpr[R8] = 0x5a5a5a5a5a5a5a5a;
	same(&r, &in, NULL);
	assert_int_equal(relaxed_load(&hc->nr[SYS_madvise]), calls + 3);
	drop_text(&o);
}

/* The end of a thread; here that of a process made for it. */
static void test_exit_loops(void **state)
{
	static const u8 loops[][9] = {
		{ 0x31, 0xff, 0x89, 0xd0, 0x0f, 0x05, 0xeb, 0xf8 },
		{ 0x31, 0xff, 0x44, 0x89, 0xc0, 0x0f, 0x05, 0xeb, 0xf7 },
	};

	need_hooks();
	for (int i = 0; i < 2; i++) {
		u64 exits = relaxed_load(&hc->nr[SYS_exit]);
		struct patch_object o;
		struct regs r;
		pid_t pid;
		int st;

		patch_text(&o, loops[i], (size_t)(8 + i));
		assert_int_equal(o.site[0].own, i == 0);
		pid = fork();
		if (pid == 0) {
			fill(&r);
			r.gpr[RDX] = r.gpr[R8] = SYS_exit;
			regs_run(&r, o.text + CODE_AT);
			_exit(1);
		}
		assert_int_equal(waitpid(pid, &st, 0), pid);
		assert_int_equal(st, 0);
		assert_int_equal(relaxed_load(&hc->nr[SYS_exit]), exits + 1);
		drop_text(&o);
	}
}

static unsigned sites_of(const u8 *code, size_t len, const char **why)
{
	struct patch_object o;
	const char *w;

	make_text(&o, code, len);
	w = ops->scan(&o);
	if (why)
		*why = w;
	drop_text(&o);
	return o.nr_sites;
}

#define SITES(why, ...)                                         \
	({                                                      \
		static const u8 code_[] = { __VA_ARGS__ };      \
		sites_of(code_, sizeof(code_), why);            \
	})

static void test_not_sites(void **state)
{
	const char *why = NULL;

	need_hooks();
	/* futex: not of interest. */
	assert_int_equal(SITES(&why, 0xb8, 0xca, 0, 0, 0, 0x0f, 0x05), 0);
	assert_null(why);
	/* Something unknown between; a store; the number overwritten. */
	assert_int_equal(SITES(&why, 0xb8, 9, 0, 0, 0, 0x50, 0x0f, 0x05), 0);
	assert_int_equal(SITES(&why, 0xb8, 9, 0, 0, 0, 0x89, 0x04, 0x24, 0x0f, 0x05), 0);
	assert_int_equal(SITES(&why, 0xb8, 9, 0, 0, 0, 0x31, 0xc0, 0x0f, 0x05), 0);
	assert_int_equal(SITES(&why, 0xb9, 9, 0, 0, 0, 0x31, 0xc9, 0x89, 0xc8, 0x0f, 0x05), 0);
	/* The register is not moved to eax. */
	assert_int_equal(SITES(&why, 0xb9, 9, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05), 0);
	/* Not a loop. */
	assert_int_equal(SITES(&why, 0x31, 0xff, 0x89, 0xd0, 0x0f, 0x05, 0xeb, 0xf7), 0);
	assert_null(why);
	/* Branches: past the window, to the second instruction of a far one, over all. */
	SITES(&why, 0x74, 5, 0xb8, 9, 0, 0, 0, 0x0f, 0x05);
	assert_string_equal(why, "a branch leads into a call site");
	SITES(&why, 0x0f, 0x84, 5, 0, 0, 0, 0xb8, 9, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05);
	assert_string_equal(why, "a branch leads into a call site");
	SITES(&why, 0xb8, 9, 0, 0, 0, 0x0f, 0x05, 0xe9, 0xf9, 0xff, 0xff, 0xff);
	assert_string_equal(why, "a branch leads into a call site");
	assert_int_equal(SITES(&why, 0xeb, 7, 0xb8, 9, 0, 0, 0, 0x0f, 0x05), 1);
	assert_null(why);
	/* Two beside each other are fine. */
	assert_int_equal(SITES(&why, 0xb8, 9, 0, 0, 0, 0x0f, 0x05, 0xb8, 11, 0, 0, 0, 0x0f, 0x05), 2);
	assert_null(why);
}

static void test_undo(void **state)
{
	int memfd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	struct patch_object o;

	need_hooks();
	for (int i = 0; i < 2; i++) { /* through /proc/self/mem, and by mprotect */
		patch_text(&o, code_madvise, sizeof(code_madvise));
		ops->undo(&o, 1, i ? -1 : memfd);
		assert_memory_equal(o.text + CODE_AT, code_madvise, sizeof(code_madvise));
		drop_text(&o);
	}
	close(memfd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registers_vm),   cmocka_unit_test(test_registers_pre),
		cmocka_unit_test(test_registers_any),  cmocka_unit_test(test_registers_fork),
		cmocka_unit_test(test_far_patterns),   cmocka_unit_test(test_exit_loops),
		cmocka_unit_test(test_not_sites),      cmocka_unit_test(test_undo),
		cmocka_unit_test(test_signal_at_each_step),
	};
	int failed;

	hook_preload(argv);
	if (hc)
		ops = dlsym(RTLD_DEFAULT, HOOK_OPS_SYMBOL);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	hook_preload_cleanup();
	return failed;
}
