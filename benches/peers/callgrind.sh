# Instructions of a program, under callgrind. Sourced by others.
# shellcheck shell=bash

# executed COMMAND...: instructions of a whole run.
executed() {
    local output
    output=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1) || { echo "$output" >&2; return 1; }
    sed -n 's/.*Collected : //p' <<<"$output"
}

# per_request REQUESTS COMMAND...: start and end cancel out between a short and a longer run.
per_request() {
    local requests=$1 short long
    shift
    short=$(executed "$@" -n "$requests") || return
    long=$(executed "$@" -n $((3 * requests))) || return
    echo $(((long - short) / (2 * requests)))
}
