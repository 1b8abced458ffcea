#!/usr/bin/env bash
# Searches the lines that a change adds for words and phrases that make English hard to read, and prints what to write
# instead. `.ci/habits.sh [BASE]` compares with BASE; without it, with the branch point from main, or on main with the
# commit before.
#
# A false hit: put the line, without its indentation, into .ci/habits-allowed.txt.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# A Perl regular expression (letter case does not matter), a tab, and the advice.
habits() {
    cat <<'LIST'
\b(told|tells)\b	functions return, errors report, logs record, counters count
\bwhoever\b	name the actor: the task that ..., callers that ...
(^|[.:;] )who [a-z]+s\b	a clause is no subject: "Connections that exceed these limits are closed."
\bnobody\b	name what is missing: "no task waits", "without a listener"
\bunder way\b	in flight, in progress, pending
\bso many\b(?! that)	give the number, or name the field
\bby itself\b	automatically
\bof one's own\b	separate, dedicated, its own
\b(is|are) to be\b	must, will
\b(has its|have their) turn\b	runs, is scheduled
\b(?<!there )(is|are) no (?!longer\b|more\b|less\b|later\b|earlier\b|wider\b|longer\b|larger\b|smaller\b|need\b|way\b|such\b|room\b)[a-z]+	is not a ...
\blooks? busily\b	busy-polls
\bin vain\b	without success
\bdaily bread\b	routine
\bas it is\b(?=[.,;:)]|$)	unchanged
\bhazards? H\d	cite a clause of spec/protocol.md, which readers can open
LIST
}

base() {
    local main
    for main in main origin/main; do
        if git rev-parse -q --verify "$main" >/dev/null && [ "$(git merge-base "$main" HEAD)" != "$(git rev-parse HEAD)" ]; then
            git merge-base "$main" HEAD
            return
        fi
    done
    git rev-parse -q --verify HEAD~1 || git rev-parse HEAD
}

# FILE:LINE<tab>TEXT for each added line of the working tree.
added() {
    git diff --no-color --no-ext-diff -U0 "$1" -- '*.rs' '*.md' '*.sh' '*.toml' dev .ci ':!.ci/habits*' |
        awk '/^\+\+\+ / { file = substr($2, 3); next }
             /^@@ / { split($3, at, ","); line = substr(at[1], 2) - 1; next }
             /^\+/ { line++; print file ":" line "\t" substr($0, 2) }'
}

allowed=.ci/habits-allowed.txt
lines=$(added "${1:-$(base)}")
if [ -s "$allowed" ]; then
    lines=$(awk -F '\t' 'NR == FNR { if (!/^#/) ok[$0] = 1; next }
        { text = substr($0, index($0, "\t") + 1); sub(/^[ \t]+/, "", text); if (!(text in ok)) print }' "$allowed" - <<<"$lines")
fi

found=0
while IFS=$'\t' read -r pattern advice; do
    hits=$(cut -f 2- <<<"$lines" | grep -niP "$pattern" | cut -d : -f 1 || true)
    [ -n "$hits" ] || continue
    for number in $hits; do
        sed -n "${number}{s/\t */: /;p}" <<<"$lines"
        found=$((found + 1))
    done
    printf '    instead: %s\n' "$advice"
done < <(habits)

[ "$found" -eq 0 ] || { echo "habits: $found added lines to rewrite (a false hit: see the top of .ci/habits.sh)"; exit 1; }
