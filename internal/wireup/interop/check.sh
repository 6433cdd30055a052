# run.sh and slurm.sh source this file. It makes a directory for their programs, and defines check
# and summary.
work=$(mktemp -d "${TMPDIR:-/tmp}/wireup-interop.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# check NAME STATUS COUNT PATTERN COMMAND…: COMMAND must end within a minute with STATUS ("-": any
# but 0, "any": any), and COUNT lines of its output must match PATTERN.
check() {
    local name=$1 status=$2 count=$3 pattern=$4 got lines
    shift 4
    timeout 60 "$@" >"$work/out" 2>&1 </dev/null
    got=$?
    lines=$(grep -c -e "$pattern" "$work/out")
    local good=$got # the expected status
    case $status in
    any) ;;
    -) [ "$got" = 0 ] && good="not 0" ;;
    *) good=$status ;;
    esac
    [ "$got" = 124 ] && good="no time-out"
    if [ "$got" = "$good" ] && [ "$lines" = "$count" ]; then
        passed=$((passed + 1))
        printf '  ok    %s\n' "$name"
    else
        failed=$((failed + 1))
        printf '  FAIL  %s: status %s, wanted %s; %s lines with "%s", wanted %s: %s\n' \
            "$name" "$got" "$good" "$lines" "$pattern" "$count" "$*"
        sed 's/^/        /' "$work/out" | head -n 40
    fi
}

summary() {
    echo "$passed checks passed, $failed failed"
    [ "$failed" -eq 0 ]
}
