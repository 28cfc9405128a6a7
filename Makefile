# SPDX-License-Identifier: MIT
# A thin front for Meson.  make BUILD=dir uses another build directory; WERROR=1 makes warnings
# errors; TESTS="swapfile cli_" runs only tests whose name contains one of the words, JOBS=2 two
# at a time.
BUILD ?= build
PREFIX ?= /usr/local
TESTS ?=
FUZZ_SECONDS ?= 60
JOBS ?= 1
MESON_FLAGS = -Dwerror=$(if $(WERROR),true,false)

# $(call configure,dir,flags): set up, or set up again when sources or flags changed. ninja and this
# take the directory's lock, so that two makes may run at the same time.
define configure
mkdir -p $(1) && exec 9> $(1)/.lock && flock 9 && \
{ tools/sources.sh all; echo "$(2) $(PREFIX)"; } > $(1)/.inputs.new && \
if ! cmp -s $(1)/.inputs.new $(1)/.inputs; then \
	meson setup $$(test -f $(1)/build.ninja && echo --reconfigure) $(1) --prefix=$(PREFIX) $(2) \
		> $(1)/setup.log || { cat $(1)/setup.log; exit 1; }; \
fi && mv $(1)/.inputs.new $(1)/.inputs && ninja -C $(1) $(NINJA_FLAGS)
endef

.PHONY: all deps build run test bench check-asan check-tsan fuzz install clean
all: build

deps:
	@tools/deps.sh $(DEPS)

build: DEPS = build
build: deps
	@$(call configure,$(BUILD),$(MESON_FLAGS))

run: build
	@demo/run.sh $(BUILD)

test: DEPS = test
test: deps
	@$(call configure,$(BUILD),$(MESON_FLAGS))
	@tests/run.py --build $(BUILD) --jobs $(JOBS) $(TESTS)

bench: DEPS = bench
bench: deps
	@$(call configure,$(BUILD),$(MESON_FLAGS))
	@$(BUILD)/pswap bench all

# The CLI and the preloaded library are tested in the ordinary build: a sanitizer's runtime cannot
# be loaded into programs that were not built for it.
check-asan: deps
	@$(call configure,build-asan,-Db_sanitize=address$(comma)undefined -Db_lundef=false)
	@tests/run.py --build build-asan --sanitize asan $(TESTS)

check-tsan: deps
	@$(call configure,build-tsan,-Db_sanitize=thread -Db_lundef=false)
	@tests/run.py --build build-tsan --sanitize tsan $(TESTS)

fuzz: deps
	@CC=clang && export CC && \
	$(call configure,build-fuzz,-Db_sanitize=address$(comma)undefined -Db_lundef=false -Dps_fuzz=true)
	@set -e; for f in build-fuzz/tests/fuzz_*; do [ -x $$f ] && [ -f $$f ] || continue; \
		corpus=build-fuzz/corpus/$$(basename $$f); mkdir -p $$corpus; \
		echo "== $$f, $(FUZZ_SECONDS) s"; \
		$$f -max_total_time=$(FUZZ_SECONDS) -verbosity=0 -artifact_prefix=build-fuzz/ $$corpus \
			> $$corpus.log 2>&1 || { tail -50 $$corpus.log; exit 1; }; \
		done; echo "fuzz: no failure"

install: build
	@meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-asan build-tsan build-fuzz

comma := ,
