# Every target makes what it needs, from nothing: a machine with Python 3.11 or newer and pip.
#   make demo    train a network on handwritten digits, dynamic and compiled, save it, load it elsewhere, draw it
#   make test    all tests and all examples in the documentation; of the largest tables of cases a part, another one for each change of weft
#   make test-all  the same, with every case of those tables
#   make test-debug  the same, with every index that compiled code reads and writes at, and all its memory, checked
#   make test-state COUNT=2000  random programs about state, eager and compiled; new ones for each change of weft
#   make test-view  the page of weft.view, and models in Netron, in a real browser: Debian's chromium, driven by playwright
#   make test-onnx  the whole test suite of the onnx package, through both backends
#   make test-cross  every case of every op compiled for the other architecture: ARM's on x86-64, and x86-64 on ARM
#   make test-gpu-ir  every op for a GPU without one: threads in random order, and PTX through NVIDIA's assembler
#   make test-gpu  the runtime on the GPU of this machine: checks, and a table of times
#   make test-gpu-all  the same with the op matrix, libraries, NVIDIA's sanitizer and a GPT-2 step, in seven minutes; PyTorch beside it
#   make test-interop  PyTorch and JAX beside weft, in an environment that has them
#   make fuzz MINUTES=10  random graphs, programs, damaged files, kills and more; what fails is kept as tests
#   make check   lint, format and types
#   make notebooks  the course in docs/course as notebooks, in build/notebooks
#   make docs    build the site in build/site: pages, examples, a reference of all public names; warnings are errors
#   make stubs   write the stubs that editors and type checkers read, from the tables of public names
#   make bench   weft beside NumPy, PyTorch, JAX and ONNX Runtime; some rows: make bench ROWS='gpt cnn'
#   make bench-gpu  weft on the GPU of this machine beside PyTorch, torch.compile and JAX; some rows: ROWS='gpt2 lstm'
#   make sizes   what installing weft, PyTorch, JAX and TensorFlow takes
#   make clean   remove everything that was made

SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: demo docs test test-all test-debug test-state test-view test-onnx test-cross test-gpu test-gpu-all test-gpu-ir test-interop fuzz check notebooks stubs bench bench-gpu sizes clean

# The first of these that runs and is new enough; override with `make PYTHON=...`
CANDIDATES := python3 python3.11 python3.12 python3.13 python3.14
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(NEW_ENOUGH)' 2>/dev/null && { echo $$p; break; }; done)

VENV := .venv
DEMO := .venv-demo
INTEROP := .venv-interop
DOCS := .venv-docs
BENCH := .bench
COMMA := ,
# Tests of one file stay in one process, which shares what takes long to make; who is done early takes others' work
BOTH := -n 2 --dist worksteal

# Tests start hundreds of programs: they do not compile all of weft's modules again
export PYTHONDONTWRITEBYTECODE :=

# $(call make_venv,directory,extras)
define make_venv
	@test -n "$(PYTHON)" || { echo "weft needs Python 3.11 or newer; none of $(CANDIDATES) is" >&2; exit 1; }
	rm -rf $(1)
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.$(if $(2),[$(2)])'
	touch $(1)/.stamp
endef

$(VENV)/.stamp: pyproject.toml
	$(call make_venv,$(VENV),dev)

$(DEMO)/.stamp: pyproject.toml
	$(call make_venv,$(DEMO),train$(COMMA)view)

$(DOCS)/.stamp: pyproject.toml
	$(call make_venv,$(DOCS),docs)

$(INTEROP)/.stamp: pyproject.toml
	$(call make_venv,$(INTEROP),)
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 jax pytest hypothesis safetensors

$(BENCH)/gpu/.stamp: pyproject.toml
	$(call make_venv,$(BENCH)/gpu,cuda$(COMMA)cudnn)
	$(BENCH)/gpu/bin/python -m pip install --quiet --disable-pip-version-check torch 'jax[cuda13]'

$(BENCH)/weft/.stamp: pyproject.toml
	$(call make_venv,$(BENCH)/weft,serve)

demo: $(DEMO)/.stamp
	$(DEMO)/bin/python examples/demo.py

test: $(VENV)/.stamp
	$(VENV)/bin/python -m pytest $(BOTH) -q

test-all: $(VENV)/.stamp
	WEFT_ALL=1 $(VENV)/bin/python -m pytest $(BOTH) -q

test-debug: $(VENV)/.stamp
	WEFT_DEBUG=1 $(VENV)/bin/python -m pytest $(BOTH) -q

COUNT ?= 2000

test-state: $(VENV)/.stamp
	$(VENV)/bin/python -W ignore -m tests.capture.state_programs $(COUNT) --of-code
	$(VENV)/bin/python -W ignore -m tests.capture.training_programs $$(($(COUNT) / 10)) --of-code

CHROMIUM := command -v chromium || command -v chromium-browser

test-view: $(VENV)/.stamp
	@{ $(CHROMIUM); } >/dev/null || { apt-get update -q && apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core; } \
		|| { echo "test-view needs chromium: apt install chromium" >&2; exit 1; }
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'playwright>=1.49' netron
	WEFT_BROWSER=1 $(VENV)/bin/python -m pytest -q tests/viewer
	WEFT_BROWSER=1 $(VENV)/bin/python -m pytest -q tests/onnx/test_export_netron.py

test-onnx: $(VENV)/.stamp
	WEFT_ALL=1 WEFT_ONNX_ALL=1 $(VENV)/bin/python -m pytest $(BOTH) -q tests/onnx/test_suite.py

test-cross: $(VENV)/.stamp
	WEFT_CROSS_ALL=1 $(VENV)/bin/python -m pytest $(BOTH) -q tests/backends/llvm/test_crossing.py

bench-gpu: $(BENCH)/gpu/.stamp
	$(BENCH)/gpu/bin/python -m bench.gpu $(ROWS)

test-gpu: $(VENV)/.stamp
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda,nccl]'
	$(VENV)/bin/python -m tests.gpu.card_runtime
	$(VENV)/bin/python -m tests.gpu.card_face
	$(VENV)/bin/python -m tests.gpu.card_collectives
	$(VENV)/bin/python -m tests.gpu.card_capture --jobs 8 --seconds 600

test-gpu-all: $(BENCH)/gpu/.stamp
	$(BENCH)/gpu/bin/python -m pip install --quiet --disable-pip-version-check pytest hypothesis
	$(BENCH)/gpu/bin/python -m tests.gpu.card_all

test-gpu-ir: $(VENV)/.stamp
	$(VENV)/bin/python -m tests.backends.cuda.op_matrix

test-interop: $(INTEROP)/.stamp
	WEFT_INTEROP=1 $(INTEROP)/bin/python -m pytest -q tests/interop

MINUTES ?= 10

fuzz: $(VENV)/.stamp
	$(VENV)/bin/python -m tests.fuzz --minutes $(MINUTES)

check: $(VENV)/.stamp
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

notebooks: $(VENV)/.stamp
	$(VENV)/bin/python -m tests.course.notebooks build/notebooks

docs: $(DOCS)/.stamp
	$(DOCS)/bin/python -m docs_tools

stubs: $(VENV)/.stamp
	$(VENV)/bin/python -m tests.stubs --write

# the peers have environments of their own beside this one; bench/environments.py makes them
bench: $(BENCH)/weft/.stamp
	$(BENCH)/weft/bin/python -m bench $(ROWS)
	$(if $(ROWS),,$(BENCH)/weft/bin/python -m bench.eager)

sizes: $(BENCH)/weft/.stamp
	$(BENCH)/weft/bin/python -m bench.installed

clean:
	rm -rf $(VENV) $(DEMO) $(DOCS) $(INTEROP) $(BENCH) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
