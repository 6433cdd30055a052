# For scripts that run a test binary with -test.v in the guest, which source it.

# failures LOG: the output of each test that failed, after its name; then the end of the log, if it
# does not end as a run of tests does.
failures() {
    awk '
        $1 == "===" { test = $3; next }
        $1 == "---" { if ($2 == "FAIL:") failed[++n] = $3; ended = 0; next }
        { said[test] = said[test] $0 "\n"; ended = $1 == "FAIL" || $1 == "PASS" }
        END {
            for (i = n; i > 0; i--)
                if (said[failed[i]] != "") printf "--- FAIL: %s\n%s", failed[i], said[failed[i]]
            exit !ended
        }' "$1" || tail -n 40 "$1"
}
