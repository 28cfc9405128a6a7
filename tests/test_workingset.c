/* SPDX-License-Identifier: MIT */
/* test_workingset.c - workingset.h: refault distance, with lists alone and in an engine. */
#include "api_fixture.h"

#include "workingset.h"

static struct pswap engine;
static struct ps_member member;

static struct extent *new_extents(unsigned n)
{
	struct extent *e = calloc(n, sizeof(*e));

	memset(&engine, 0, sizeof(engine));
	memset(&member, 0, sizeof(member));
	ps = &engine;
	ps->stat = &member;
	ps->mm.ps = ps;
	for (unsigned i = 0; i < n; i++) {
		e[i].mm = &ps->mm;
		folio_init(&e[i].folio, &ps->lru.root);
		e[i].folio.pages = 512;
		folio_add_lru(&ps->lru, &e[i].folio);
	}
	return e;
}

static void gone(struct extent *e)
{
	folio_del_lru(&e->folio);
	workingset_evict(e, 512);
}

static void back(struct extent *e)
{
	workingset_refault(e);
	folio_add_lru(&ps->lru, &e->folio);
}

static void test_distance(void **state)
{
	struct extent *e = new_extents(10);

	(void)state;
	gone(&e[0]);
	gone(&e[1]);
	gone(&e[2]);
	assert_int_equal(lruvec_pages(&ps->lru.root, LRU_ACTIVE), 7 * 512);
	/* Seven stay: what comes back before seven others went might have stayed. */
	back(&e[0]);
	assert_int_equal(member.refaults, 1);
	assert_int_equal(member.activations, 1);
	assert_true(workingset_spare(&e[0]));
	assert_false(workingset_spare(&e[0])); /* once */
	/* Asked for again while it is there: not a refault. */
	back(&e[0]);
	assert_int_equal(member.refaults, 1);
	for (unsigned i = 3; i < 9; i++)
		gone(&e[i]);
	assert_int_equal(lruvec_pages(&ps->lru.root, LRU_ACTIVE), 2 * 512);
	back(&e[1]); /* seven went since */
	assert_int_equal(member.refaults, 2);
	assert_int_equal(member.activations, 1);
	assert_false(workingset_spare(&e[1]));
	back(&e[8]); /* none went since */
	assert_int_equal(member.activations, 2);
	/* Gone again before it was spared: the next stay begins anew. */
	gone(&e[8]);
	assert_false(workingset_spare(&e[8]));
	/* A part of it stayed: nothing was thrown out too early. */
	e[9].nr_present = 3;
	workingset_evict(&e[9], 509);
	workingset_refault(&e[9]);
	assert_int_equal(member.refaults, 3);
	free(e);
}

/* Each group has a clock of its own. */
static void test_other_clock(void **state)
{
	struct extent *e = new_extents(4);
	struct lruvec other;

	(void)state;
	memset(&other, 0, sizeof(other));
	gone(&e[0]);
	folio_set_lruvec(&e[0].folio, &other);
	back(&e[0]);
	assert_int_equal(member.refaults, 1);
	assert_int_equal(member.activations, 0);
	free(e);
}

static u64 touch(char *p, size_t first, size_t pages)
{
	u64 sum = 0;

	for (size_t i = first; i < first + pages; i += 8)
		sum += *(volatile char *)(p + PAGES(i));
	return sum;
}

static void test_engine(void **state)
{
	char *p;
	struct pswap_stat st;

	(void)state;
	ps = open_limit(MiB(64));
	p = map(32768, NULL, 0);
	fill(p, 1, 4096);
	advise(p, 4096, MADV_PAGEOUT);
	expect(p, 1, 4096);
	st = stat_now();
	assert_int_equal(st.refaults, 0); /* it was asked for */
	/* A walk over twice the limit: what comes back was out for long. */
	fill(p, 1, 32768);
	for (unsigned round = 0; round < 2; round++)
		touch(p, 0, 32768);
	st = stat_now();
	assert_true(st.refaults > 16);
	assert_true(st.activations <= st.refaults);
	expect(p, 1, 32768);
	unmap(p, 32768);
	close_empty();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_distance),
		cmocka_unit_test(test_other_clock),
		cmocka_unit_test(test_engine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
