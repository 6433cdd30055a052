package mpitest_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
	"github.com/mpigo/mpigo/request"
)

// fakeTB records the calls that a real testing.TB would get.
type fakeTB struct {
	testing.TB
	mu              sync.Mutex
	text            strings.Builder
	failed, skipped bool
	ended           bool // FailNow or SkipNow was called, on the test's goroutine
	goroutine       string
	helpers         map[string]bool // functions that have called Helper
	lines           []string        // file:line of each Log
	cleanups        []func()
}

func (f *fakeTB) Helper() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.helpers == nil {
		f.helpers = make(map[string]bool)
	}
	f.helpers[callers()[1].Function] = true
}

func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }

func (f *fakeTB) Log(args ...any) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintln(&f.text, args...)
	for _, frame := range callers() {
		if !f.helpers[frame.Function] {
			f.lines = append(f.lines, fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line))
			return
		}
	}
}

// callers returns the stack of its caller.
func callers() []runtime.Frame {
	pcs := make([]uintptr, 50)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var all []runtime.Frame
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		all = append(all, f)
	}
	return all
}

// at records the line that calls it, as file:line, and returns 1.
func at(line *string) int {
	f := callers()[1]
	*line = fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
	return 1
}

func (f *fakeTB) Fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = true
}

func (f *fakeTB) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *fakeTB) Error(args ...any) {
	f.Helper()
	f.Log(args...)
	f.Fail()
}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.Helper()
	f.Log(fmt.Sprintf(format, args...))
	f.Fail()
}

func (f *fakeTB) FailNow() {
	f.Fail()
	f.ended = self() == f.goroutine
	runtime.Goexit()
}

func (f *fakeTB) SkipNow() {
	f.skipped = true
	f.ended = self() == f.goroutine
	runtime.Goexit()
}

// self returns the name of the calling goroutine.
func self() string {
	buf := make([]byte, 64)
	name, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), "[")
	return name
}

// run calls mpitest.Run with a fake test, and returns the fake and its log.
func run(t *testing.T, n int, body func(t testing.TB, world *comm.Comm), opts ...comm.Option) (*fakeTB, string) {
	return runTest(t, func(t testing.TB) { mpitest.Run(t, n, body, opts...) })
}

// runFails is run of a body that must fail the test.
func runFails(t *testing.T, n int, body func(t testing.TB, world *comm.Comm), opts ...comm.Option) (*fakeTB, string) {
	t.Helper()
	f, log := run(t, n, body, opts...)
	assert.True(t, f.failed, log)
	return f, log
}

// must returns v. It panics on an error, which fails the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// runTest runs a whole test with a fake testing.TB.
func runTest(t *testing.T, test func(t testing.TB)) (*fakeTB, string) {
	f := &fakeTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range slices.Backward(f.cleanups) {
				cleanup()
			}
		}()
		f.goroutine = self()
		test(f)
	}()
	<-done
	return f, f.text.String()
}

func TestRunWithoutFailurePasses(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		f, log := run(t, n, func(t testing.TB, world *comm.Comm) {
			right, left := (world.Rank()+1)%n, (world.Rank()+n-1)%n
			out := must(comm.Alloc[int](world, 1))
			in := make([]int, 1)
			send := must(comm.SendInit(world, out, right, 1))
			recv := must(comm.RecvInit(world, in, left, 1))
			for out[0] = range 10 {
				require.NoError(t, request.StartAll(send, recv))
				require.NoError(t, request.WaitAll(send, recv))
				require.Equal(t, out[0], in[0])
			}
			require.NoError(t, world.Barrier())
			require.NoError(t, send.Free())
			require.NoError(t, recv.Free())
			require.NoError(t, comm.FreeAlloc(world, out))
		})
		assert.False(t, f.failed, log)
		assert.Empty(t, log)
	}
}

func TestErrorOfOneRankFailsTest(t *testing.T) {
	f, log := runFails(t, 3, func(t testing.TB, world *comm.Comm) {
		if world.Rank() == 1 {
			t.Errorf("off by %d", 7)
		}
		assert.NoError(t, world.Barrier()) // all go on
	})
	assert.False(t, f.ended)
	assert.Equal(t, "rank 1: off by 7\n", log)
}

func TestRunOfNoRanksFails(t *testing.T) {
	_, log := runFails(t, 0, func(testing.TB, *comm.Comm) {})
	assert.Contains(t, log, comm.ErrCount.Error())
}

func TestPanicFailsTest(t *testing.T) {
	_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		if world.Rank() == 1 {
			panic("boom")
		}
		_, err := comm.Recv(world, []int{0}, 1, 0)
		assert.ErrorIs(t, err, comm.ErrProcFailed)
	})
	assert.True(t, strings.HasPrefix(log, "rank 1: panic: boom\n"), log)
	assert.Contains(t, log, "mpitest_test.TestPanic", "the stack")
	assert.NotContains(t, log, "rank 0")
}

func TestAbortFailsTest(t *testing.T) {
	_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		if world.Rank() == 1 {
			world.Abort(3)
		}
		assert.Error(t, world.Barrier())
	})
	assert.Equal(t, "rank 1: aborted with exit code 3\n", log)
}

func TestFatalEndsAllRanks(t *testing.T) {
	for name, fatal := range map[string]func(t testing.TB){
		"Fatal":   func(t testing.TB) { t.Fatal("no", "way") },
		"Fatalf":  func(t testing.TB) { t.Fatalf("no %s", "way") },
		"FailNow": func(t testing.TB) { t.Log("no way"); t.FailNow() },
		"require": func(t testing.TB) { require.Fail(t, "no way") },
	} {
		t.Run(name, func(t *testing.T) {
			var after [3]bool
			f, log := runFails(t, 3, func(t testing.TB, world *comm.Comm) {
				if world.Rank() == 2 {
					fatal(t)
				}
				// The others get no message.
				_, err := comm.Recv(world, []int{0}, comm.AnySource, 0)
				assert.ErrorIs(t, err, comm.ErrProcFailed)
				after[world.Rank()] = true
			})
			assert.True(t, f.ended, "Run ends the test, on its own goroutine")
			assert.Equal(t, [3]bool{true, true, false}, after)
			assert.Contains(t, log, "no way")
			assert.Contains(t, log, "rank 2: ")
			assert.NotContains(t, log, "rank 0: ")
		})
	}
}

// TestFatalOfOuterTestIsExplained: a body that uses the t of the test, not its own, ends its
// goroutine.
func TestFatalOfOuterTestIsExplained(t *testing.T) {
	_, log := runTest(t, func(outer testing.TB) {
		mpitest.Run(outer, 2, func(t testing.TB, world *comm.Comm) {
			if world.Rank() == 1 {
				outer.FailNow()
			}
			_, err := comm.Recv(world, []int{0}, 1, 0)
			assert.ErrorIs(t, err, comm.ErrProcFailed)
		})
	})
	assert.Contains(t, log, "rank 1: the goroutine of the rank ended itself")
	assert.Contains(t, log, "FailNow, Fatal or Skip")
}

func TestFatalFromGoroutineOfBodyEndsAllRanks(t *testing.T) {
	f, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		if world.Rank() == 0 {
			fatal := t.Fatal
			go fatal("from afar")
		}
		_, err := comm.Recv(world, []int{0}, 1-world.Rank(), 0)
		assert.ErrorIs(t, err, comm.ErrProcFailed)
	})
	assert.True(t, f.ended)
	assert.Equal(t, "rank 0: from afar\n", log)
}

func TestSkipSkipsTest(t *testing.T) {
	f, log := run(t, 2, func(t testing.TB, world *comm.Comm) {
		if world.Rank() == 0 {
			t.Skipf("not on a %s", "Sunday")
		}
		_, err := comm.Recv(world, []int{0}, 0, 0)
		assert.Error(t, err)
	})
	assert.False(t, f.failed)
	assert.True(t, f.skipped)
	assert.True(t, f.ended)
	assert.Equal(t, "rank 0: not on a Sunday\n", log)
}

func TestCleanupRunsInJob(t *testing.T) {
	f, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		block := must(comm.Alloc[int](world, 1))
		ctx := t.Context()
		t.Cleanup(func() { t.Error("x") })
		t.Cleanup(func() { t.Log("y") })
		t.Cleanup(func() {
			assert.Error(t, ctx.Err())
			assert.NoError(t, world.Barrier(), "the rank is still in the job")
			assert.NoError(t, comm.FreeAlloc(world, block))
		})
		assert.NoError(t, ctx.Err())
	})
	assert.False(t, f.ended)
	lines := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	assert.ElementsMatch(t, []string{"rank 0: y", "rank 0: x", "rank 1: y", "rank 1: x"}, lines)
	for _, rank := range []string{"rank 0: ", "rank 1: "} {
		assert.Less(t, slices.Index(lines, rank+"y"), slices.Index(lines, rank+"x"), "functions run in reverse order")
	}
}

// TestCleanupRunsAfterFailure: all cleanup functions are called, even if the body or one of them
// fails or panics.
func TestCleanupRunsAfterFailure(t *testing.T) {
	for name, fail := range map[string]func(t testing.TB){
		"Fatal": func(t testing.TB) { t.Fatal("no way") },
		"panic": func(t testing.TB) { panic("no way") },
	} {
		for _, inCleanup := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in cleanup=%v", name, inCleanup), func(t *testing.T) {
				_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
					t.Cleanup(func() { t.Log("cleaned up") })
					end := func() {
						if world.Rank() == 1 {
							fail(t)
						}
						_, err := comm.Recv(world, []int{0}, 1, 0)
						assert.ErrorIs(t, err, comm.ErrProcFailed)
					}
					if inCleanup {
						t.Cleanup(end)
					} else {
						end()
					}
				})
				assert.Contains(t, log, "no way")
				assert.Contains(t, log, "rank 0: cleaned up\n")
				assert.Contains(t, log, "rank 1: cleaned up\n")
				assert.NotContains(t, log, "Error Trace")
			})
		}
	}
}

// TestErrorAfterRunFailsTest: a goroutine that a body has started may fail the test until it ends.
func TestErrorAfterRunFailsTest(t *testing.T) {
	late := make(chan func())
	f, log := runTest(t, func(t testing.TB) {
		mpitest.Run(t, 1, func(t testing.TB, world *comm.Comm) {
			go func() { late <- func() { t.Error("late") } }()
		})
		(<-late)()
	})
	assert.True(t, f.failed)
	assert.Equal(t, "rank 0: late\n", log)
}

// TestFailureIsReportedAtCallOfRun: this concerns failures that no line of the body reports.
func TestFailureIsReportedAtCallOfRun(t *testing.T) {
	t.Parallel()
	bodies := map[string]func(t testing.TB, world *comm.Comm){
		"leak": func(t testing.TB, world *comm.Comm) {
			must(comm.Alloc[int](world, 1))
			must(comm.Irecv(world, []int{0}, 0, 0))
		},
		"message": func(t testing.TB, world *comm.Comm) { assert.NoError(t, comm.Send(world, []int{0}, 0, 0)) },
		"panic":   func(testing.TB, *comm.Comm) { panic("boom") },
		"abort":   func(_ testing.TB, world *comm.Comm) { world.Abort(1) },
		"hang":    func(_ testing.TB, world *comm.Comm) { _, _ = world.Probe(0, 0) },
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			var line string
			f, log := runTest(t, func(t testing.TB) {
				mpitest.Run(t, at(&line), body, mpitest.HangAfter(soon))
			})
			assert.True(t, f.failed)
			require.NotEmpty(t, f.lines)
			for _, got := range f.lines {
				assert.Equal(t, line, got, log)
			}
		})
	}
	t.Run("body", func(t *testing.T) {
		var line string
		f, _ := run(t, 1, func(t testing.TB, world *comm.Comm) {
			t.Error("off by", at(&line))
		})
		assert.Equal(t, []string{line}, f.lines)
	})
}

// soon is long enough for ranks that only call each other, also on a busy machine.
const soon = 3 * time.Second

func TestHangInReceivesIsReported(t *testing.T) {
	t.Parallel()
	_, log := runFails(t, 3, func(t testing.TB, world *comm.Comm) {
		if world.Rank() < 2 {
			_, err := comm.Recv(world, make([]int64, 4), 1-world.Rank(), 7+world.Rank())
			assert.Error(t, err)
		}
	}, mpitest.HangAfter(time.Hour))
	for _, want := range []string{
		"hang: no rank has made progress for 2s\n", // it is certain
		"deadlock: nothing can release ranks 0, 1; rank 0 waits for rank 1, which waits for rank 0\n",
		"\n  0: mpitest_test.go:401 Recv from 1, tag 7, for ",
		"\n  1: mpitest_test.go:401 Recv from 0, tag 8, for ",
		"\n  2: in Finalize\n",
		", 1 goroutine:\n",
		"comm.Recv[", "mpitest_test.TestHangInReceivesIsReported.func1\n", "mpitest_test.go:",
	} {
		assert.Contains(t, log, want)
	}
	assert.NotContains(t, log, "leak")
	assert.NotContains(t, log, "left behind")
}

func TestHangInOtherCallsIsReported(t *testing.T) {
	t.Parallel()
	_, log := runFails(t, 5, func(t testing.TB, world *comm.Comm) {
		half, err := world.Split(world.Rank()%2, 0) // 0 2 4 and 1 3
		require.NoError(t, err)
		half.SetName("half")
		switch world.Rank() {
		case 0:
			err = comm.Ssend(world, make([]byte, 100), 4, 1)
		case 1:
			_, err = world.Probe(comm.AnySource, comm.AnyTag)
		case 2:
			err = half.Barrier()
		case 3:
			_, err = comm.Sendrecv(half, []byte{1}, comm.ProcNull, 0, []byte{0}, 0, 5)
		// A receive is under way, which might still match the send.
		case 4:
			require.NoError(t, must(comm.Irecv(world, make([]byte, 100), 0, 2)).Free())
			return
		}
		assert.Error(t, err)
		// In checked mode, the barrier of rank 2 waits for rank 4, and fails.
	}, mpitest.HangAfter(soon), comm.WithSetting("check", "false"))
	for _, want := range []string{
		"Ssend to 4, tag 1, 100 bytes, for ",
		" Probe from any rank, any tag, for ",
		" Barrier in half, not called by 0, 4, for ",
		" Sendrecv from 1, tag 5, in half, for ",
	} {
		assert.Contains(t, log, want)
	}
}

// TestHangOutsideOfTheLibraryLeavesRankBehind: Run cannot end a rank that is in no call.
func TestHangOutsideOfTheLibraryLeavesRankBehind(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		if world.Rank() == 0 {
			<-never
			t.Error("the test has ended")
			return
		}
		assert.Error(t, world.Barrier())
	}, mpitest.HangAfter(soon))
	close(never)
	assert.Contains(t, log, "\n  0: mpitest_test.go:")
	assert.Contains(t, log, "rank 0 is left behind")
	assert.NotContains(t, log, "rank 1 is")
}

func TestLeakedRequestsFailTest(t *testing.T) {
	_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		peer := 1 - world.Rank()
		must(comm.Irecv(world, []int{0}, peer, 5))
		if world.Rank() == 0 {
			must(comm.Isend(world, []int{0}, peer, 6))
		} else {
			must(comm.Recv(world, []int{0}, peer, 6))
			p := must(comm.RecvInit(world, []int{0}, comm.AnySource, 8))
			require.NoError(t, p.Start())
		}
		require.NoError(t, world.Barrier())
	})
	assert.Contains(t, log, "rank 0: leak: 2 requests are active after the body:\n")
	assert.Regexp(t, `\n    world: isend \(peer 1, tag 6\): complete, but not waited for; started at mpitest_test.go:\d+\n`, log)
	assert.Regexp(t, `\n    world: irecv \(peer 1, tag 5\): still active; started at mpitest_test.go:\d+\n`, log)
	assert.Contains(t, log, "rank 1: leak: 2 requests are active after the body:\n")
	assert.Regexp(t, `\n    world: recv init \(peer any, tag 8\): still active; started at mpitest_test.go:\d+\n`, log)
}

func TestRunChecksUnlessToldNotTo(t *testing.T) {
	mismatch := func(t testing.TB, world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Allreduce(world, []float64{1}, make([]float64, 1), comm.Sum)
		}
		return comm.Allreduce(world, []int64{1}, make([]int64, 1), comm.Sum)
	}
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		assert.ErrorContains(t, mismatch(t, world), "rank 1 calls Allreduce of []int64, rank 0 of []float64")
	})
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		assert.NoError(t, mismatch(t, world))
	}, comm.WithSetting("check", "false"))
}

func TestCompletedAndFreedRequestsAreNoLeak(t *testing.T) {
	f, log := run(t, 2, func(t testing.TB, world *comm.Comm) {
		peer := 1 - world.Rank()
		in := []int{0}
		must(comm.RecvInit(world, in, peer, 1)) // not started
		send := must(comm.Issend(world, []int{1}, peer, 2))
		require.NoError(t, send.Free()) // active: it goes on by itself
		gone := must(comm.Irecv(world, in, peer, 3))
		require.NoError(t, gone.Cancel())
		require.True(t, must(gone.Wait()).Cancelled)
		must(comm.Recv(world, in, peer, 2))
	})
	assert.False(t, f.failed, log)
}

func TestLeakedMemoryFailsTest(t *testing.T) {
	_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		kept, given := must(comm.Alloc[int32](world, 100)), must(comm.Alloc[int32](world, 100))
		require.NoError(t, comm.FreeAlloc(world, given))
		if world.Rank() == 1 {
			require.NoError(t, comm.FreeAlloc(world, kept))
		}
	})
	assert.Equal(t, "rank 0: leak: 1 block of comm.Alloc, of 400 bytes in all, not given back with comm.FreeAlloc\n", log)
}

func TestLeakedCommunicatorsFailTest(t *testing.T) {
	_, log := runFails(t, 3, func(t testing.TB, world *comm.Comm) {
		kept := must(world.Dup())
		color := comm.Undefined // for rank 2, which gets no communicator
		if world.Rank() < 2 {
			color = 0
		}
		pair, gone := must(world.Split(color, 0)), must(world.Dup())
		require.NoError(t, gone.Free())
		if world.Rank() == 0 {
			pair.SetName("pair")
			require.NoError(t, kept.Free())
		}
	})
	assert.ElementsMatch(t, []string{
		"rank 0: leak: 1 communicator was not freed: pair",
		"rank 1: leak: 2 communicators were not freed: world/dup, world/split0",
		"rank 2: leak: 1 communicator was not freed: world/dup",
	}, strings.Split(strings.TrimSuffix(log, "\n"), "\n"))
}

func TestUnreceivedMessagesFailTest(t *testing.T) {
	_, log := runFails(t, 3, func(t testing.TB, world *comm.Comm) {
		half := must(world.Split(world.Rank()%2, 0))
		half.SetName("half")
		switch world.Rank() {
		case 0:
			require.NoError(t, comm.Bsend(world, []int64{1}, 1, 5))
			require.NoError(t, comm.Send(world, []int64{1}, 1, 6))
			require.NoError(t, comm.Bsend(half, []byte{1, 2}, 1, 7))
		case 1:
			must(comm.Recv(world, []int64{0}, 0, 6))
			for range 12 {
				require.NoError(t, comm.Bsend(world, []byte(nil), 1, 8))
			}
		}
	})
	begin := strings.Index(log, "rank 1: leak: 13 messages")
	require.Positive(t, begin, log)
	assert.ElementsMatch(t, []string{
		"rank 0: leak: 1 communicator was not freed: half",
		"rank 1: leak: 1 communicator was not freed: half",
		"rank 2: leak: 1 communicator was not freed: half",
	}, strings.Split(strings.TrimSuffix(log[:begin], "\n"), "\n"))
	assert.Equal(t, "rank 1: leak: 13 messages were sent here and not received:\n"+
		"    from rank 0, tag 5, 8 bytes\n"+
		strings.Repeat("    from rank 1, tag 8, 0 bytes\n", 9)+
		"    and 3 more\n"+
		"rank 2: leak: 1 message was sent here and not received:\n"+
		"    from rank 0, tag 7, 2 bytes, in half\n", log[begin:])
}

// TestUnreceivedSsendIsErrorOfSender: the send does not complete before a receive matches it.
func TestUnreceivedSsendIsErrorOfSender(t *testing.T) {
	t.Parallel()
	_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		if world.Rank() == 0 {
			require.NoError(t, must(comm.Issend(world, []int64{1}, 1, 5)).Free())
		}
	})
	assert.Contains(t, log, "rank 0: ")
	assert.Contains(t, log, "no rank receives issend peer 1 tag 5 of 8 bytes")
	assert.NotContains(t, log, "rank 1")
}

func TestLeakedGoroutineFailsTest(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	defer close(never)
	_, log := runFails(t, 1, func(t testing.TB, world *comm.Comm) {
		inside := make(chan struct{})
		go comm.RunLocal(1, func(*comm.Comm) error {
			close(inside)
			<-never
			return nil
		})
		<-inside
	})
	assert.Contains(t, log, "leak: 2 goroutines are in the library after all ranks have ended:\n")
	assert.Contains(t, log, "comm.RunLocal\n")
}

// TestGoroutineOfBodyIsNoLeak: only goroutines in the library are leaks.
func TestGoroutineOfBodyIsNoLeak(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	f, log := run(t, 1, func(t testing.TB, world *comm.Comm) { go func() { <-never }() })
	assert.False(t, f.failed, log)
}

// TestParallelRunsAreIndependent: goroutines of other runs in the process do not count.
func TestParallelRunsAreIndependent(t *testing.T) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			f, log := run(t, 3, func(t testing.TB, world *comm.Comm) {
				for range 20 {
					require.NoError(t, world.Barrier())
				}
			})
			assert.False(t, f.failed, log)
		})
	}
	group.Wait()
}

// TestUnreceivedMessageInFreedCommunicatorFailsTest: the message had arrived when the communicator
// was freed.
func TestUnreceivedMessageInFreedCommunicatorFailsTest(t *testing.T) {
	_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
		other := must(world.Dup())
		if world.Rank() == 0 {
			require.NoError(t, comm.Bsend(other, []int64{1}, 1, 5))
			require.NoError(t, comm.Bsend(world, []int64{1}, 1, 6))
		} else {
			must(comm.Recv(world, []int64{0}, 0, 6)) // so the first one has come
		}
		require.NoError(t, other.Free())
	})
	assert.Equal(t, "rank 1: leak: 1 message was sent here and not received:\n"+
		"    from rank 0, tag 5, 8 bytes, in world/dup\n", log)
}
