# Two commands do everything: `make demo` and `make test`. Each makes its own .venv where there is none.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export OMP_NUM_THREADS := 1

.PHONY: demo test lint campaign detectors system clean

demo: .venv/engine.installed
	@$(BIN)/engine demo --ledger demo-ledger

# Sample ledgers and the campaign against physical truth are run by hand until they are known to hold everywhere.
LATER := --ignore tests/samples --ignore tests/campaign

# What starts processes of its own has both cores to itself; the rest runs on two workers.
test: system lint
	$(BIN)/pytest -n 2 --dist loadfile -m "not engine and not browser" $(LATER)
	$(BIN)/pytest -m "engine or browser" $(LATER)

lint: .venv/test.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Thousands of seeded simulated runs, verdicts against physical truth; SEEDS=A-B for a part of them.
SEEDS ?= 0-1999
campaign: .venv/test.installed
	$(BIN)/python tests/campaign/run_campaign.py --seeds $(SEEDS)

# Measures which detector sees which fault, and writes docs/detectors.md.
detectors: .venv/test.installed
	$(BIN)/python tests/campaign/detector_matrix.py --write

# A browser for the web tests: installed as root on Debian only; elsewhere those tests are skipped and say so.
system:
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	else echo "no chromium here and no right to install it: browser tests will be skipped"; fi

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/engine.installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install -q -c constraints.txt -e ".[engine]"
	@touch $@

.venv/test.installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install -q -c constraints.txt -e ".[engine,test]"
	@touch $@ .venv/engine.installed

clean:
	rm -rf .venv build dist *.egg-info demo-ledger
