package goroutines

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/introspect"
)

const stacks = `goroutine 1 [select, 5 minutes, locked to thread]:
github.com/mpigo/mpigo/progress.(*Engine).WaitOn(0xc000106000, {0x5a3c60, 0x7a0e80}, 0xc000012345, 0x0)
	/src/mpigo/progress/wait.go:73 +0x1d
github.com/mpigo/mpigo/comm.Recv[...]({0xc000012345, 0x1, 0x1})
	/src/mpigo/comm/recv.go:25 +0x5
main.exchange(...)
	/src/hello/main.go:51
main.main()
	/src/hello/main.go:9 +0x1d

goroutine 18 [chan receive]:
example.com/a/b%2ec.(*T[...]).wait(0x1)
	/src/b.c/t.go:4 +0x1d
created by main.main in goroutine 1
	/src/hello/main.go:3 +0x1d

goroutine 19 [select]:
github.com/mpigo/mpigo/comm.(*asyncProgress).run(0xc000106000)
	/src/mpigo/comm/asyncprogress.go:70 +0x1d
created by github.com/mpigo/mpigo/comm.newAsyncProgress in goroutine 1
	/src/mpigo/comm/asyncprogress.go:50 +0x1d

goroutine 20 [runnable]:
github.com/mpigo/mpigo/comm.(*Comm).Barrier(0xc000106000)
	/src/mpigo/comm/coll_barrier.go:20 +0x1d
created by main.main in goroutine 1
	/src/hello/main.go:4 +0x1d

goroutine 21 [syscall, 2 minutes]:
os/signal.signal_recv()
	/go/src/runtime/sigqueue.go:152 +0x29
os/signal.loop()
	/go/src/os/signal/signal_unix.go:23 +0x13
created by os/signal.Notify.func1.1 in goroutine 1
	/go/src/os/signal/signal.go:152 +0x1f

goroutine 22 [running]:
main.add({0x1, 0x2})
	/src/hello/main.go:60 +0x1d
github.com/mpigo/mpigo/comm/internal/coll.(*Schedule).combine(0xc000106000)
	/src/mpigo/comm/internal/coll/combine.go:20 +0x1d
github.com/mpigo/mpigo/progress.(*Engine).WaitOn(0xc000106000)
	/src/mpigo/progress/wait.go:73 +0x1d
...additional frames elided...
created by github.com/mpigo/mpigo/comm/internal/coll.start in goroutine 1
	/src/mpigo/comm/internal/coll/run.go:20 +0x1d

goroutine 23 [IO wait]:
github.com/mpigo/mpigo/btl/tcp.(*module).read.func1()
	/src/mpigo/btl/tcp/read.go:20 +0x1d
sync.(*WaitGroup).Go.func1()
	/go/src/sync/waitgroup.go:239 +0x4a
created by sync.(*WaitGroup).Go in goroutine 1
	/go/src/sync/waitgroup.go:237 +0x73
`

func TestParseListsTheProgramsGoroutines(t *testing.T) {
	list := Parse(stacks)
	ids := make([]uint64, len(list))
	for i, g := range list {
		ids[i] = g.ID
	}
	require.Equal(t, []uint64{1, 18, 20, 22}, ids)
	assert.Equal(t, introspect.Goroutine{
		ID: 1, State: "select", Minutes: 5, InCall: true, Waits: true, Frames: []introspect.Frame{
			{Function: Module + "progress.(*Engine).WaitOn", File: "/src/mpigo/progress/wait.go", Line: 73},
			{Function: Module + "comm.Recv[...]", File: "/src/mpigo/comm/recv.go", Line: 25},
			{Function: "main.exchange", File: "/src/hello/main.go", Line: 51},
			{Function: "main.main", File: "/src/hello/main.go", Line: 9},
		},
	}, list[0])
	assert.Equal(t, introspect.Goroutine{
		ID: 18, State: "chan receive",
		Frames: []introspect.Frame{{Function: "example.com/a/b%2ec.(*T[...]).wait", File: "/src/b.c/t.go", Line: 4}},
	}, list[1])
	assert.True(t, list[2].InCall, "a call that the program has started as a goroutine")
	assert.False(t, list[2].Waits)
	assert.False(t, list[3].InCall, "an operation of the program")
	assert.False(t, list[3].Waits, "an operation of the program that a call runs while it waits")
	site, ok := Site(list[0].Frames)
	assert.True(t, ok)
	assert.Equal(t, 51, site.Line)
}

func TestPackageOf(t *testing.T) {
	for function, want := range map[string]string{
		"main.main":                                "main",
		"main.(*T).m":                              "main",
		"main.f[...]":                              "main",
		"main.f[a.b/c.T].func1":                    "main",
		"example.com/a/b.(*T[...]).m.func1":        "example.com/a/b",
		"github.com/mpigo/mpigo/comm_test.TestX":   "github.com/mpigo/mpigo/comm_test",
		"github.com/mpigo/mpigo/btl/tcp.(*m).f-fm": "github.com/mpigo/mpigo/btl/tcp",
		"panic":                        "panic",
		"gopkg.in/yaml%2ev3.Unmarshal": "gopkg.in/yaml%2ev3",
		"":                             "",
		"github.com/mpigo/mpigo/comm.Recv[go.shape": "github.com/mpigo/mpigo/comm",
	} {
		assert.Equal(t, want, PackageOf(function), function)
	}
	assert.True(t, InLibrary("github.com/mpigo/mpigo/btl/tcp.f"))
	for _, f := range []string{"github.com/mpigo/mpigo/comm_test.f", "github.com/mpigo/mpigo/examples/pi.f", "main.f"} {
		assert.True(t, IsProgram(f), f)
	}
	for _, f := range []string{"golang.org/x/sys/unix.write", "go.uber.org/atomic.(*Bool).Load", "net.(*conn).Write"} {
		assert.False(t, IsProgram(f), f)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(stacks)
	f.Add("goroutine 1 [running]:\nmain.main(\n\t:\ncreated by \n\t\n")
	f.Add("goroutine 1 [:\n)\n\t +0x")
	f.Fuzz(func(t *testing.T, text string) {
		for _, g := range Parse(text) {
			require.Contains(t, text, g.State)
			require.GreaterOrEqual(t, g.Minutes, 0)
			if g.Waits {
				require.True(t, g.InCall)
			}
		}
	})
}
