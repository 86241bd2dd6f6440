# What there is to do in a checkout; each is a script in scripts/ that can be called by itself.
# CARGO_TARGET_DIR is respected; without it everything is built in target/.

.PHONY: help demo check test test-all soak build install fmt lint valgrind bench bench-blocks bench-crowded bench-primitives bench-peers bench-duel bench-commit bench-plan bench-planning bench-load bench-serve bench-mpid docs clean

help:
	@echo 'make demo         build, generate TPC-H data, run its queries embedded and over MPI, check and time them'
	@echo 'make check        what every change has to pass: format, lints, unit tests, the SQL suite in three ways, the command line'
	@echo 'make test         what a submission has to pass, with what it needs; what passed before with the same bytes is not run again'
	@echo 'make test-all     every test in every configuration, nothing remembered, and the lints'
	@echo 'make soak PART=…  a search for faults of at most an hour, which goes on where it stopped; without PART: which there are'
	@echo 'make build        the program, as target/release/harrier, with mpidrun, mpid-programs and libmpid.so'
	@echo 'make install      what was built, under PREFIX=/usr/local, and DESTDIR before that'
	@echo 'make fmt          format the sources'
	@echo 'make lint         check format and lints'
	@echo 'make valgrind     run the unsafe code of crate mpi that needs no MPI under valgrind; a part of make test'
	@echo 'make docs         make the site of docs/ in .harrier/docs, with search, and check links, spelling, style and search'
	@echo 'make bench        compare the ways in which ranks exchange rows (SCALE=1)'
	@echo 'make bench-blocks move blocks between ranks in every way; a part of make bench'
	@echo 'make bench-crowded 4 and 8 ranks over MPI and over gRPC under queries that compute: latencies (SCALE=0.1)'
	@echo 'make bench-primitives bytes from one process to another: MPI, gRPC, RPC of Hadoop and HTTP over Jetty'
	@echo 'make bench-peers  compare with plain DataFusion and DuckDB from PyPI (SCALE=1)'
	@echo 'make bench-duel   four sets of statements against DuckDB, by processor time, with every answer compared (SCALE=1, SETS=tpch,tpcds,joins,visits)'
	@echo 'make bench-commit write in place and commit once, against staging and renames, and Spark (SCALE=1)'
	@echo 'make bench-plan   queries planned over a table of 100000 files, and the commits of these'
	@echo 'make bench-planning how long the statements of TPC-H and TPC-DS take to plan, beside another build if BASELINE names one'
	@echo 'make bench-load   TPC-H brought into tables, beside DuckDB with DuckLake, and queries on tables kept in several ways (SCALE=1)'
	@echo 'make bench-serve  a server under load, beside PostgreSQL, DuckDB and the Thrift server of Spark (SECONDS=1.5)'
	@echo 'make bench-mpid   programs in keys and values, beside Hadoop and Spark, with charts (BYTES=1000000000)'
	@echo 'make clean        remove what was built, generated and installed here'

demo:
	@scripts/demo.sh

check:
	@scripts/test.sh check

test:
	@scripts/test.sh test

test-all:
	@scripts/test.sh test-all

soak:
	@scripts/test.sh soak $(PART) $(if $(AGAIN),--again)

build:
	@scripts/build.sh

install:
	@scripts/install-programs.sh $(or $(PREFIX),/usr/local)

docs:
	@scripts/docs.sh

fmt:
	@cargo fmt --all

lint:
	@scripts/lint.sh

valgrind:
	@checks/valgrind/run.sh

bench:
	@scripts/bench.sh interconnects $(SCALE)

bench-blocks:
	@scripts/bench.sh blocks

bench-crowded:
	@scripts/bench.sh crowded $(SCALE)

bench-primitives:
	@scripts/bench.sh primitives

bench-peers:
	@scripts/bench.sh peers $(SCALE)

bench-duel:
	@scripts/bench.sh duel $(or $(SCALE),1) $(SETS)

bench-commit:
	@scripts/bench.sh commit $(SCALE)

bench-plan:
	@scripts/bench.sh plan

bench-planning:
	@scripts/bench.sh planning $(BASELINE)

bench-load:
	@scripts/bench.sh load $(SCALE)

bench-serve:
	@scripts/bench.sh serve $(SECONDS)

bench-mpid:
	@scripts/bench.sh mpid $(BYTES)

clean:
	@scripts/clean.sh
