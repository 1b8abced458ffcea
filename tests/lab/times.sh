# What was run, and for how long. Sourced by ./dev, .ci/run and suite.sh.
# shellcheck shell=bash

failed=()
times=()

# timed TITLE COMMAND...: runs the command and notes how long it took. A failure is kept for the end, so that one run reports every
# failure.
timed() {
    local begin=$SECONDS verdict=passed
    "${@:2}" || { verdict=FAILED; failed+=("$1"); }
    # .ci/run looks for lines of this form.
    times+=("$(printf '%5d s  %-6s  %s' $((SECONDS - begin)) "$verdict" "$1")")
}

print_times() {
    printf '%s\n' "${times[@]}" "$(printf '%5d s  in all' "$SECONDS")"
}
