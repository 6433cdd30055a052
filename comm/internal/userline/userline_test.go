package userline

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCallerIsTheLineOfATestFile(t *testing.T) {
	_, _, line, _ := runtime.Caller(0)
	assert.Equal(t, "userline_test.go:"+strconv.Itoa(line+1), Caller())
}

func TestIsLibrary(t *testing.T) {
	_, here, _, _ := runtime.Caller(0)
	root := strings.TrimSuffix(here, "comm/internal/userline/userline_test.go")
	const module = "github.com/mpigo/mpigo/"
	for name, c := range map[string]struct {
		function, file string
		want           bool
	}{
		"a call":            {module + "comm.Send[...]", root + "comm/send.go", true},
		"a method":          {module + "request.Request.Wait", root + "request/one.go", true},
		"a transport":       {module + "btl/sm.(*module).Progress", root + "btl/sm/module.go", true},
		"the runtime":       {"runtime.goexit", "/go/src/runtime/asm.s", true},
		"an iterator":       {"slices.AppendSeq[...]", "/go/src/slices/iter.go", true},
		"an inlined func":   {"main.main.Events.func2", root + "comm/events.go", true},
		"the program":       {"main.main", "/home/user/main.go", false},
		"a test of comm":    {module + "comm.TestSend", root + "comm/send_test.go", false},
		"an example":        {module + "examples/heat2d.run", root + "examples/heat2d/main.go", false},
		"a similar package": {module + "command.Run", root + "command/run.go", false},
		"another module":    {"example.com/comm.Send", "/home/user/comm/send.go", false},
	} {
		assert.Equal(t, c.want, IsLibrary(&runtime.Frame{Function: c.function, File: c.file}), name)
	}
}
