/* SPDX-License-Identifier: MIT */
/*
 * gen - input for programs that nobody here wrote; the same bytes every time.
 *
 *     gen lines BYTES     lines of words and numbers, for sort and xz
 *     gen cxx CLASSES     a C++ program with many templates, for g++ -O2
 */
#include "pt.h"

static u64 x = 88172645463325252ULL;

static u64 rnd(u64 n)
{
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (x >> 20) % n;
}

static void lines(size_t bytes)
{
	static const char *const words[] = {
		"memory", "page",  "swap", "fault", "kernel", "process", "thread", "limit",
		"store",  "frame", "slot", "batch", "region", "cluster", "reader", "writer",
	};
	size_t done = 0;

	while (done < bytes) {
		int n = printf("%010llu %016llx", (unsigned long long)rnd(10000000000ULL),
			       (unsigned long long)rnd(~0ULL >> 21));
		int more = rnd(5);

		for (int i = 0; i < more; i++)
			n += printf(" %s", words[rnd(16)]);
		n += printf(" %llu\n", (unsigned long long)rnd(1000));
		done += n;
	}
}

static void cxx(int n)
{
	puts("#include <algorithm>\n#include <functional>\n#include <map>\n#include <memory>\n"
	     "#include <string>\n#include <unordered_map>\n#include <variant>\n#include <vector>\n"
	     "template <class T, int N> struct Box {\n"
	     "\tstd::vector<T> v;\n\tstd::map<std::string, T> m;\n"
	     "\tvoid put(const std::string &k, T x) { v.push_back(x); m[k + std::to_string(N)] = "
	     "x; }\n"
	     "\tT sum() const { T s{}; for (auto &x : v) s += x; for (auto &p : m) s += p.second * "
	     "N; "
	     "return s; }\n"
	     "\tvoid order() { std::sort(v.begin(), v.end(), [](const T &a, const T &b) "
	     "{ return a * N < b * N; }); }\n"
	     "};\n"
	     "template <int N> struct Fold { static int run(int a) "
	     "{ return Fold<N - 1>::run(a * N + 1) ^ N; } };\n"
	     "template <> struct Fold<0> { static int run(int a) { return a; } };");
	for (int i = 0; i < n; i++) {
		printf("struct S%d {\n", i);
		printf("\tBox<long, %d> a;\n\tBox<double, %d> b;\n", i, i + 1);
		printf("\tstd::unordered_map<int, std::unique_ptr<std::string>> names;\n");
		printf("\tstd::variant<int, std::string, std::vector<long>> any;\n");
		printf("\tlong work(int k) {\n\t\tfor (int i = 0; i < k; i++) {\n");
		printf("\t\t\ta.put(std::to_string(i * %d), i + %llu);\n", i + 3,
		       (unsigned long long)rnd(1000));
		printf("\t\t\tb.put(\"k\" + std::to_string(i), i * %d.5);\n", i);
		printf("\t\t\tnames[i] = std::make_unique<std::string>(std::to_string(i + %d));\n",
		       i);
		printf("\t\t}\n\t\ta.order(); b.order();\n");
		printf("\t\tstd::function<long(long)> f = [this](long z) { return z + a.sum(); "
		       "};\n");
		printf("\t\tany = std::vector<long>{ f(1), f(%d) };\n", i);
		printf("\t\treturn f(k) + (long)b.sum() + Fold<%d>::run(k) + (long)names.size() + "
		       "(long)any.index();\n\t}\n};\n",
		       20 + i % 30);
	}
	puts("int main(int argc, char **) {\n\tlong r = 0;");
	for (int i = 0; i < n; i++)
		printf("\t{ S%d s; r += s.work(argc + %d); }\n", i, i % 7);
	puts("\treturn (int)r;\n}");
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "lines"))
		lines(strtoul(argv[2], NULL, 10));
	else if (argc == 3 && !strcmp(argv[1], "cxx"))
		cxx(atoi(argv[2]));
	else
		return 2;
	return ferror(stdout) ? 1 : 0;
}
