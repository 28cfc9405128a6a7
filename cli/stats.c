/* SPDX-License-Identifier: MIT */
/* stats.c - the figures of a tree, summed and written out. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void add_counters(struct tree_stat *t, const struct ps_member *m)
{
#define X(name) t->name += relaxed_load(&m->name);
	PS_COUNTERS(X)
#undef X
	for (unsigned b = 0; b < PS_HIST_BUCKETS; b++)
		t->hist[b] += relaxed_load(&m->fault_hist[b]);
}

/* Stores of the same name are one line: a tree's processes have each their own. */
static void add_store(struct tree_stat *t, const struct ps_store_stat *from, bool gauges)
{
	char name[sizeof(from->name)];
	unsigned i;

	memcpy(name, from->name, sizeof(name));
	name[sizeof(name) - 1] = 0;
	if (!*name)
		return;
	for (i = 0; i < t->nr_stores && strcmp(t->stores[i].name, name); i++)
		;
	if (i == PS_MAX_STORES)
		return;
	if (i == t->nr_stores) {
		memcpy(t->stores[i].name, name, sizeof(name));
		t->nr_stores++;
	}
	t->stores[i].io_errors += relaxed_load(&from->io_errors);
	if (!gauges)
		return;
	t->stores[i].used_bytes += relaxed_load(&from->used_bytes);
	t->stores[i].capacity_bytes += relaxed_load(&from->capacity_bytes);
}

static void add_member(struct tree_stat *t, const struct ps_member *m, bool gauges)
{
	add_counters(t, m);
	for (u32 i = 0; i < MIN(relaxed_load(&m->nr_stores), PS_MAX_STORES); i++)
		add_store(t, &m->stores[i], gauges);
	if (!gauges)
		return;
	t->footprint_bytes += relaxed_load(&m->footprint_bytes);
	t->resident_bytes += relaxed_load(&m->resident_bytes);
	t->pool_bytes += relaxed_load(&m->pool_bytes);
	t->metadata_bytes += relaxed_load(&m->metadata_bytes);
	t->swapped_pages += relaxed_load(&m->swapped_pages);
}

void stats_sum(struct tree_stat *t, struct ps_shm *shm, const struct sampler *s)
{
	memset(t, 0, sizeof(*t));
	t->limit_bytes = shm->limit_bytes;
	add_member(t, &shm->ended, false);
	for (u32 i = 0; i < MIN(relaxed_load(&shm->nr_members), PS_SHM_MEMBERS); i++) {
		const struct ps_member *m = &shm->members[i];
		bool now = s ? s->gone[i] != relaxed_load(&m->starttime) : shm_member_alive(shm, m);

		if (relaxed_load(&m->pid))
			add_member(t, m, now);
	}
	if (s) {
		t->footprint_bytes += s->others_bytes;
		t->resident_bytes += s->others_bytes;
	}
	t->peak_footprint_bytes = MAX(relaxed_load(&shm->peak_footprint_bytes), t->footprint_bytes);
	t->peak_pool_bytes = MAX(relaxed_load(&shm->peak_pool_bytes), t->pool_bytes);
}

u64 stats_percentile(const struct tree_stat *t, unsigned percent)
{
	u64 total = 0, want, seen = 0;

	for (unsigned b = 0; b < PS_HIST_BUCKETS; b++)
		total += t->hist[b];
	if (!total)
		return 0;
	want = (total * percent + 99) / 100;
	for (unsigned b = 0; b < PS_HIST_BUCKETS; b++) {
		seen += t->hist[b];
		/* The middle of the bucket: half of a twelfth at most off. */
		if (seen >= want)
			return (ps_hist_value(b) + ps_hist_value(b + 1)) / 2;
	}
	return 0;
}

static void set_int(json_t *o, const char *key, u64 v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static json_t *process_json(u32 pid, const char *comm, u64 footprint, u64 out, u64 in)
{
	json_t *o = json_object();
	char name[17];
	json_t *text;

	snprintf(name, sizeof(name), "%.16s", comm);
	text = json_string(name);
	/* A name need not be UTF-8. */
	if (!text) {
		for (char *c = name; *c; c++)
			*c = (*c & 0x80) ? '?' : *c;
		text = json_string(name);
	}
	set_int(o, "pid", pid);
	json_object_set_new(o, "comm", text);
	set_int(o, "footprint_bytes", footprint);
	set_int(o, "pages_out", out);
	set_int(o, "pages_in", in);
	return o;
}

static json_t *processes_json(struct ps_shm *shm, const struct sampler *s)
{
	json_t *list = json_array();

	for (u32 i = 0; i < MIN(relaxed_load(&shm->nr_members), PS_SHM_MEMBERS); i++) {
		const struct ps_member *m = &shm->members[i];

		if (relaxed_load(&m->pid))
			json_array_append_new(list, process_json(relaxed_load(&m->pid), m->comm,
								 relaxed_load(&m->footprint_bytes),
								 relaxed_load(&m->pages_out),
								 relaxed_load(&m->pages_in)));
	}
	for (unsigned i = 0; s && i < s->nr_procs; i++) {
		const struct sample_proc *p = &s->procs[i];
		bool joined = false;

		/* Seen once before it joined. */
		for (u32 j = 0; j < MIN(relaxed_load(&shm->nr_members), PS_SHM_MEMBERS); j++)
			joined |= relaxed_load(&shm->members[j].pid) == (u32)p->pid;
		if (!joined)
			json_array_append_new(
				list, process_json((u32)p->pid, p->comm, p->footprint_bytes, 0, 0));
	}
	return list;
}

bool stats_json(FILE *f, struct ps_shm *shm, const struct tree_stat *t, const struct sampler *s)
{
	json_t *o = json_object(), *stores = json_array();
	bool ok;

	set_int(o, "limit_bytes", t->limit_bytes);
	set_int(o, "footprint_bytes", t->footprint_bytes);
	set_int(o, "peak_footprint_bytes", t->peak_footprint_bytes);
	set_int(o, "resident_bytes", t->resident_bytes);
	set_int(o, "pool_bytes", t->pool_bytes);
	set_int(o, "peak_pool_bytes", t->peak_pool_bytes);
	set_int(o, "metadata_bytes", t->metadata_bytes);
	set_int(o, "swapped_pages", t->swapped_pages);
#define X(name) set_int(o, #name, t->name);
	PS_COUNTERS(X)
#undef X
	set_int(o, "fault_ns_p50", stats_percentile(t, 50));
	set_int(o, "fault_ns_p99", stats_percentile(t, 99));
	for (unsigned i = 0; i < t->nr_stores; i++) {
		json_t *st = json_object();

		json_object_set_new(st, "name", json_string(t->stores[i].name));
		set_int(st, "used_bytes", t->stores[i].used_bytes);
		set_int(st, "capacity_bytes", t->stores[i].capacity_bytes);
		set_int(st, "io_errors", t->stores[i].io_errors);
		json_array_append_new(stores, st);
	}
	json_object_set_new(o, "stores", stores);
	json_object_set_new(o, "processes", processes_json(shm, s));
	ok = !json_dumpf(o, f, JSON_INDENT(2)) && fputc('\n', f) != EOF && !fflush(f);
	json_decref(o);
	return ok;
}

static void metric(FILE *f, const char *name, const char *type, u64 v)
{
	fprintf(f, "# TYPE pswap_%s %s\npswap_%s %llu\n", name, type, name, (unsigned long long)v);
}

void stats_prometheus(FILE *f, const struct tree_stat *t)
{
	metric(f, "limit_bytes", "gauge", t->limit_bytes);
	metric(f, "footprint_bytes", "gauge", t->footprint_bytes);
	metric(f, "peak_footprint_bytes", "gauge", t->peak_footprint_bytes);
	metric(f, "resident_bytes", "gauge", t->resident_bytes);
	metric(f, "pool_bytes", "gauge", t->pool_bytes);
	metric(f, "peak_pool_bytes", "gauge", t->peak_pool_bytes);
	metric(f, "metadata_bytes", "gauge", t->metadata_bytes);
	metric(f, "swapped_pages", "gauge", t->swapped_pages);
#define X(name) metric(f, #name "_total", "counter", t->name);
	PS_COUNTERS(X)
#undef X
	fputs("# TYPE pswap_fault_ns summary\n", f);
	fprintf(f, "pswap_fault_ns{quantile=\"0.5\"} %llu\n",
		(unsigned long long)stats_percentile(t, 50));
	fprintf(f, "pswap_fault_ns{quantile=\"0.99\"} %llu\n",
		(unsigned long long)stats_percentile(t, 99));
	for (unsigned i = 0; i < t->nr_stores; i++) {
		fprintf(f, "pswap_store_used_bytes{store=\"%s\"} %llu\n", t->stores[i].name,
			(unsigned long long)t->stores[i].used_bytes);
		fprintf(f, "pswap_store_capacity_bytes{store=\"%s\"} %llu\n", t->stores[i].name,
			(unsigned long long)t->stores[i].capacity_bytes);
		fprintf(f, "pswap_store_io_errors_total{store=\"%s\"} %llu\n", t->stores[i].name,
			(unsigned long long)t->stores[i].io_errors);
	}
}
