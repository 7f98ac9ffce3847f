#!/bin/sh
# Command jobs for each year, with checks before and after, and a deploy while they wait.
#
# before                                       now
# a loop that starts a job for each year       sweep: label, key and log of each job carry the year
# systemd-run -p MemoryMax=8G                  --memory 8G; an oom is told from other kills
# "is it queued already?" before each add      the key of the cell: the same sweep again adds only what is missing
# year=2019..2022                              --param year=2019,2020,2021,2022
# poll the list until all are done             wait --label: the exit code of the result
# stop, pull, check, restart by hand           audit, drain, upgrade, audit --expect, resume --all
# which code ran                               worker --version, in each attempt (holdfast show JOB)
set -eu
python=${PYTHON:-python}
hf() { "$python" -m holdfast "$@"; }

# 1. Add a job for each year, and a merge after all of them.
add() {
    hf sweep --label build --memory 200M --retry 1 --retry-delay 1s --param year=2020,2021,2022 \
        -- "$python" -c 'import pathlib, sys; pathlib.Path(f"year={sys.argv[1]}").write_text("built")' '{year}' > added
}
add
merge=$(hf add --quiet --label merge --after 'finished:label=build/*' -- sh -c 'cat year=* > merged')
add # again: nothing is added

# 2. Run them with the code of today.
"$python" -m holdfast worker --slots 2 --version 1.0 & # not the function: $! is its pid
worker=$!
trap 'kill "$worker" || true; wait "$worker" || true' EXIT
hf wait --label 'build/*' --timeout 2m
hf wait "$merge" --timeout 2m

# 3. Deploy: look, stop claims and wait for what runs, replace the workers, check their version, continue.
hf audit > before # 0: nothing runs
hf drain --timeout 2m --note 'deploy 1.1' > drained
kill "$worker"
wait "$worker"
"$python" -m holdfast worker --slots 2 --version 1.1 &
worker=$!
until hf audit --expect 1.1 > after; do sleep 0.2; done
hf resume --all --yes > resumed

# 4. What is added now runs with the new code.
late=$(hf add --quiet --label check -- test -s merged)
hf wait "$late" --timeout 2m
hf show "$late" > shown
