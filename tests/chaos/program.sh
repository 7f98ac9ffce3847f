#!/bin/sh
# A program under test: it tells the history that it is alive, four times, and that it has come to its end.
# If there is a $3, it lives until there is a file of that name in the folder.
# The clock of /proc/uptime is the one that all processes share; $1 is its name, $2 the folder of the history.
tell() {
    read -r up _ </proc/uptime
    echo "[\"$1\", \"$2\", {\"name\": \"$name\", \"pid\": $$}, $3, $up, 0]" >>"$file"
}
name=$1
file=$2/program-$$-$(tr -dc a-z0-9 </dev/urandom | head -c 6).ndjson
tell program invoke 1
beat=1
while [ "$beat" -lt 5 ] || { [ -n "$3" ] && [ ! -e "$2/$3" ]; }; do
    beat=$((beat + 1))
    sleep 0.03
    tell beat ok "$beat"
done
tell program ok 1
