//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHeaderIsRdmaCores: the fields of rdmacore.h are where rdma-core's header has them, and its
// constants have the same values. Sizes are not compared: newer releases append fields.
func TestHeaderIsRdmaCores(t *testing.T) {
	cc := compiler()
	theirs := "#include <infiniband/verbs.h>"
	probe := exec.Command(cc, "-fsyntax-only", "-x", "c", "-")
	probe.Stdin = strings.NewReader(theirs)
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("rdma-core's headers are not installed: %s", out)
	}
	header, err := os.ReadFile("rdmacore.h")
	require.NoError(t, err)
	values := headerValues(string(header))
	require.Greater(t, len(values), 300)
	ours := fmt.Sprintf("#include %q", absolute(t, "rdmacore.h"))
	assert.Equal(t, evaluate(t, cc, theirs, values), evaluate(t, cc, ours, values))
}

func compiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "cc"
}

func absolute(t *testing.T, name string) string {
	path, err := filepath.Abs(name)
	require.NoError(t, err)
	return path
}

var (
	structBegins = regexp.MustCompile(`^struct (\w+) \{`)
	fieldEnds    = regexp.MustCompile(`^\t[a-z][^(]*?(\w+)(\[\w+\])?;$`)
	function     = regexp.MustCompile(`^\t[a-z].*\(\*(\w+)\)\s*\(`)
	constant     = regexp.MustCompile(`^\t(IBV_\w+)`)
)

// headerValues returns the C expressions for the offset of each field of a header's structs and for
// each constant. Names that begin with _ differ from release to release, and others stands for many
// functions.
func headerValues(header string) (values []string) {
	in := ""
	for line := range strings.Lines(header) {
		line = strings.TrimSuffix(line, "\n")
		if m := structBegins.FindStringSubmatch(line); m != nil {
			in = m[1]
		}
		if m := constant.FindStringSubmatch(line); m != nil {
			values = append(values, m[1])
		}
		if in == "" {
			continue
		}
		name := ""
		if m := function.FindStringSubmatch(line); m != nil {
			name = m[1]
		} else if m := fieldEnds.FindStringSubmatch(line); m != nil {
			name = m[1]
		}
		if name != "" && name != "others" && !strings.HasPrefix(name, "_") {
			values = append(values, fmt.Sprintf("offsetof(struct %s, %s)", in, name))
		}
		if strings.HasPrefix(line, "}") {
			in = ""
		}
	}
	return values
}

// evaluate runs a C program that prints the values.
func evaluate(t *testing.T, cc, include string, values []string) string {
	t.Helper()
	var code strings.Builder
	fmt.Fprintf(&code, "#include <stddef.h>\n#include <stdio.h>\n%s\nint main(void)\n{\n", include)
	for _, v := range values {
		fmt.Fprintf(&code, "\tprintf(\"%%s = %%ld\\n\", %q, (long)%s);\n", v, v)
	}
	code.WriteString("\treturn 0;\n}\n")
	program := filepath.Join(t.TempDir(), "values")
	build := exec.Command(cc, "-x", "c", "-o", program, "-")
	build.Stdin = strings.NewReader(code.String())
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(program).Output()
	require.NoError(t, err)
	return string(out)
}
