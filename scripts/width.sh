#!/usr/bin/env bash
# Checks that text wraps at 100 columns, and that pages are short. Prints file:line for each line
# that is too long, and fails if there is one. A tab counts 4 columns, a character one.
#
#   Markdown         all lines but fenced code, tables, and lines that are only a link
#   Go, C, shell     comments, also those behind code
#   everywhere       the text of a URL does not count
#   README, docs/*.md at most 1200 words; ARCHITECTURE.md at most 250 lines. docs/mpi.md may be
#                    longer: it is a list to search in, of the names of a whole standard
#
# Usage: width.sh [FILE…]   with no FILE: all tracked files.
set -euo pipefail
if [ $# -eq 0 ]; then
    cd "$(dirname "$(readlink -f "$0")")/.."
    mapfile -t files < <(git ls-files)
else
    files=("$@")
fi
status=0

# check KIND FILE: prints the lines that are too long. In the C locale awk sees bytes, so those that
# continue a UTF-8 character are removed.
check() {
    LC_ALL=C awk -v kind="$1" -v file="$2" '
        function width(s,   i, w) {
            gsub(/[\200-\277]/, "", s)
            while (i = index(s, "\t")) { w = 4 - (i - 1) % 4; s = substr(s, 1, i - 1) substr("    ", 1, w) substr(s, i + 1) }
            return length(s)
        }
        function quoted(s) { return gsub(/"/, "", s) % 2 || gsub(/`/, "", s) % 2 }  # whether a string is open behind s
        function is_comment(s) {
            if (kind == "shell") return s ~ /^[ \t]*#[^!]/ || match(s, /[ \t]#[ \t]/) && !quoted(substr(s, 1, RSTART))
            if (in_block || s ~ /^[ \t]*\/\*/) return 1
            if (s ~ /^[ \t]*\/\/(go:|line |export |nolint)/) return 0
            return s ~ /^[ \t]*\/\// || match(s, /[ \t]\/\/[ \t]/) && !quoted(substr(s, 1, RSTART))
        }
        function is_prose(s) {
            return !fenced && s !~ /^ *\|/ && s !~ /^ *([-*>] |[0-9]+\. )? *!?\[[^]]*\]\([^)]*\)[.,:;]?$/ && s !~ /^ *\[[^]]*\]: /
        }
        kind == "markdown" && /^ *(```|~~~)/ { fenced = !fenced; next }
        {
            counts = kind == "markdown" ? is_prose($0) : is_comment($0)
            if (kind == "code" && $0 ~ /^[ \t]*\/\*/) in_block = 1
            if (in_block && /\*\//) in_block = 0
            gsub(/https?:\/\/[^ )>]*/, "")
            if (counts && width($0) > 100) { printf "%s:%d: %d columns\n", file, FNR, width($0); failed = 1 }
        }
        END { exit failed }' "$2" || status=1
}

for file in "${files[@]}"; do
    [ -f "$file" ] && [ ! -L "$file" ] || continue
    case $file in
    *.md) check markdown "$file" ;;
    *.go | *.c | *.h) check code "$file" ;;
    *.sh) check shell "$file" ;;
    *.*) ;;
    *) head -c 32 "$file" | tr -d '\0' | grep -qE '^#!.*sh( |$)' && check shell "$file" ;;
    esac
    case $file in
    docs/*/* | docs/mpi.md) ;;
    README.md | docs/*.md)
        words=$(wc -w <"$file")
        if [ "$words" -gt 1200 ]; then echo "$file:1: $words words, of at most 1200"; status=1; fi
        ;;
    ARCHITECTURE.md)
        lines=$(wc -l <"$file")
        if [ "$lines" -gt 250 ]; then echo "$file:251: $lines lines, of at most 250"; status=1; fi
        ;;
    esac
done
exit $status
