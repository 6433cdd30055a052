package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPageIsFresh(t *testing.T) {
	exported, err := readExports("../..")
	require.NoError(t, err)
	page, err := generate(namesFile, exported)
	require.NoError(t, err)
	inDocs, err := os.ReadFile("../../docs/mpi.md")
	require.NoError(t, err)
	require.True(t, page == string(inDocs), "docs/mpi.md is stale: run go generate ./scripts/mpinames")
}

func TestGenerateReportsWhatDoesNotFit(t *testing.T) {
	exported, err := readExports("../..")
	require.NoError(t, err)
	for _, tc := range []struct{ name, replace, by, want string }{
		{"a name twice", "MPI_REAL2", "MPI_REAL4", "MPI_REAL4 is in names.txt twice"},
		{"no answer", "MPI_APPNUM | no |", "MPI_APPNUM | |", "[MPI_APPNUM] has neither a Go name nor another answer"},
		{"no reason", "MPI_ROOT | no | only for intercommunicators", "MPI_ROOT | no |", "[MPI_ROOT] has no note"},
		{"a call that is there now", "MPI_Reduce_local\n", "MPI_Reduce_local | not yet | later\n", "[MPI_Reduce_local]: is it not yet or [ReduceLocal]?"},
		{"a call that the table knows", "MPI_Cart_shift\n", "MPI_Cart_shift | Comm.CartShift |\n", "[MPI_Cart_shift]: the table of calls has Comm.CartShift already"},
		{"a Go name that is gone", "| Undefined |", "| Undefinable |", "[MPI_UNDEFINED]: no package exports Undefinable"},
		{"a Go name in a note that is gone", "comm.ErrTruncate", "comm.ErrCut", "no package exports ErrCut"},
		{"a name of mpitest that is gone", "mpitest.Run", "mpitest.Walk", "no package exports mpitest.Walk"},
		{"a call without a row", "MPI_Cart_shift\n", "", "names.txt lacks MPI_Cart_shift"},
		{"an export without a row", "- | SendValue", "- |", "names.txt lacks SendValue"},
		{"a constant without a row", "| AnyTag |", "| `any` |", "names.txt lacks AnyTag"},
		{"a method without a row", "Request.Done", "", "names.txt lacks Request.Done"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Contains(t, namesFile, tc.replace)
			_, err := generate(strings.Replace(namesFile, tc.replace, tc.by, 1), exported)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestParseReadsRowsAndText(t *testing.T) {
	got := parse("# comment | no row\n== A\nSome\ntext.\n\nMPI_A MPI_B\nMPI_C |\n Comm.X Y | a\n note\nMPI_D | `x y` |\nMPI_E | not yet | n\n== B\n- | Z | z\n")
	require.Equal(t, []section{
		{title: "A", text: "Some\ntext.\n", rows: []row{
			{mpi: []string{"MPI_A", "MPI_B"}, ours: []string{}},
			{mpi: []string{"MPI_C"}, ours: []string{"Comm.X", "Y"}, note: "a note"},
			{mpi: []string{"MPI_D"}, answer: "`x y`"},
			{mpi: []string{"MPI_E"}, answer: "not yet", note: "n"},
		}},
		{title: "B", rows: []row{{ours: []string{"Z"}, note: "z"}}},
	}, got)
}

// TestNamesHasThoseOfMPICH: the list has all names in the headers of an installed MPICH for MPI 4.
func TestNamesHasThoseOfMPICH(t *testing.T) {
	files, err := filepath.Glob("/usr/include/*/mpich/mp[io]*.h")
	require.NoError(t, err)
	var text strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(content)
	}
	if !regexp.MustCompile(`#define MPI_VERSION +4\b`).MatchString(text.String()) {
		t.Skip("no MPICH for MPI 4 is installed")
	}
	listed := map[string]bool{}
	for _, s := range parse(namesFile) {
		for _, r := range s.rows {
			for _, name := range r.mpi {
				listed[name] = true
			}
		}
	}
	// What is MPICH's own: guards of headers, formats, placeholders, enumerations for arrays.
	own := []string{
		"MPI_INCLUDED", "MPI_PROTO_H_INCLUDED", "MPI_FILE_DEFINED", "MPI_OFFSET_TYPEDEF", "MPI_AINT_FMT_DEC_SPEC",
		"MPI_AINT_FMT_HEX_SPEC", "MPI_F_STATUS", "MPI_STATUS", "MPI_T", "MPI_T_", "MPI_T_BIND_INVALID",
		"MPI_T_PVAR_CLASS_INVALID", "MPI_T_SCOPE_INVALID", "MPI_T_VERBOSITY_INVALID", "MPI_WTICK", "MPI_WTIME",
	}
	numbers := regexp.MustCompile(`^MPI_[A-Z0-9_]+_T$`) // of functions, such as MPI_SEND_T
	largeCount := regexp.MustCompile(`_[cC]$`)
	found := regexp.MustCompile(`\bMPI_\w+`).FindAllString(text.String(), -1)
	require.Greater(t, len(found), 1000)
	slices.Sort(found)
	for _, name := range slices.Compact(found) {
		ok := listed[name] || listed[largeCount.ReplaceAllString(name, "")] || slices.Contains(own, name) || numbers.MatchString(name)
		assert.True(t, ok, "names.txt lacks %s", name)
	}
}
