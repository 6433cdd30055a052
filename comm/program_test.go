package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/race"
)

// programVariable is an environment variable that names the program which this test binary runs
// instead of the tests, as a rank of a launched job.
const programVariable = "COMM_TEST_PROGRAM"

// runProgram is the main function of a rank.
func runProgram(name string) {
	main := map[string]func(){ // programs that do not use comm.Run
		"deferred panic":  deferredPanicMain,
		"run context":     runContextMain,
		"cancelled":       cancelledMain,
		"panic, context":  panicContextMain,
		"options":         optionsMain,
		"logged":          loggedMain,
		"deferred in all": deferredInAllMain,
		"init again":      initAgainMain,
		"exec":            func() { execMain(true) },
		"exec joined":     func() { execMain(false) },
		"child":           childMain,
	}[name]
	if main != nil {
		main()
		return
	}
	body := map[string]func(w *comm.Comm) error{
		"exchange":              exchangeProgram,
		"calls":                 callsProgram,
		"error":                 errorProgram,
		"panic":                 panicProgram,
		"goexit":                goexitProgram,
		"abort":                 abortProgram,
		"unreachable":           unreachableProgram,
		"beside":                besideProgram,
		"done":                  doneProgram,
		"events":                eventsProgram,
		"background":            backgroundProgram,
		"first":                 firstProgram,
		"unreceived":            unreceivedProgram,
		"finalized":             finalizedProgram,
		"local":                 localProgram,
		"collectives":           collectivesProgram,
		"short collectives":     shortCollectivesProgram,
		"short killed":          shortKilledProgram,
		"coll wraps":            wrapsProgram,
		"groups":                groupsProgram,
		"survivor":              survivorProgram,
		"revoked":               revokedProgram,
		"freed requests":        freedRequestsProgram,
		"unfinished":            unfinishedProgram,
		"deserted":              desertedProgram,
		"finalized peer":        finalizedPeerProgram,
		"finalized collectives": finalizedPeerCollectivesProgram,
		"finalized star":        finalizedStarProgram,
		"alloc":                 allocProgram,
		"cut":                   cutProgram,
		"rank is killed":        endProgram(func(*comm.Comm) { _ = unix.Kill(os.Getpid(), unix.SIGKILL) }),
		"rank aborts":           endProgram(func(w *comm.Comm) { w.Abort(3) }),
		"job is ended":          endProgram(func(*comm.Comm) { _ = unix.Kill(os.Getppid(), unix.SIGTERM) }),
		"splits given up":       splitsGivenUpProgram,
		"timers":                timersProgram,
		"refusals":              refusalsProgram,
		"stopped":               stoppedProgram,
		"killed":                killedProgram,
		"killed starts":         killedStartsProgram,
		"finalized shared":      finalizedSharedProgram,
		"finalized memory":      finalizedMemoryProgram,
	}[name]
	if body == nil {
		fmt.Fprintf(os.Stderr, "no program %q\n", name)
		os.Exit(2)
	}
	comm.Run(body)
}

// exchangeBytes is the longest message of exchangeProgram. It is shorter with the race detector,
// which sees nothing between processes.
func exchangeBytes() int {
	if race.Brief() {
		return 1 << 22
	}
	return 1 << 24
}

// exchangeProgram sends messages of every size from each rank to each rank, in both directions at
// once, and compares all bytes.
func exchangeProgram(w *comm.Comm) error {
	n, me := w.Size(), w.Rank()
	var lengths []int
	for _, k := range []int{0, 3, 6, 8, 10, 12, 13, 15, 16, 18} {
		lengths = append(lengths, 1<<k-1, 1<<k, 1<<k+1)
	}
	lengths = append(lengths, 1<<20+1, 1<<22-1, exchangeBytes())
	for _, length := range lengths {
		for shift := range n {
			to, from := (me+shift)%n, (me+n-shift)%n
			out, in := pattern(length, me*n+to), make([]byte, length)
			st := must(comm.Sendrecv(w, out, to, shift, in, from, shift))
			expect(comm.Status{Source: from, Tag: shift, Count: length, Bytes: int64(length)}, st)
			if !bytes.Equal(in, pattern(length, from*n+me)) {
				failf("%d bytes from rank %d arrived changed", length, from)
			}
		}
	}
	if me == 0 {
		fmt.Println("exchanged up to", lengths[len(lengths)-1])
	}
	return nil
}

// callsProgram makes the other calls between processes.
func callsProgram(w *comm.Comm) error {
	n, me := w.Size(), w.Rank()
	next, prev := (me+1)%n, (me+n-1)%n
	for _, err := range []error{w.CutRail(0), w.MendRail(0)} {
		expect(true, errors.Is(err, comm.ErrNotSupported), "rails of a process")
	}
	// Wildcards.
	check(comm.Bsend(w, []int{me}, next, 40+me))
	got := []int{-1}
	st := must(comm.Recv(w, got, comm.AnySource, comm.AnyTag))
	expect([]int{prev, 40 + prev, prev}, []int{st.Source, st.Tag, got[0]}, "wildcards")
	// Probes of a short and of a long message.
	for _, length := range []int{100, 1 << 20} {
		s := must(comm.Issend(w, pattern(length, me), next, 1))
		expect(int64(length), must(w.Probe(prev, comm.AnyTag)).Bytes, "probe")
		m, st := must2(w.Mprobe(comm.AnySource, 1))
		expect(prev, st.Source, "mprobe")
		b := make([]byte, length)
		expect(length, must(comm.Mrecv(m, b)).Count, "mrecv")
		if !bytes.Equal(b, pattern(length, prev)) {
			failf("%d bytes arrived changed", length)
		}
		must(s.Wait())
	}
	// Persistent requests with memory of Alloc.
	out, in := must(comm.Alloc[uint32](w, 50_000)), must(comm.Alloc[uint32](w, 50_000))
	recv, send := must(comm.RecvInit(w, in, prev, 2)), must(comm.SendInit(w, out, next, 2))
	for round := range 5 {
		for i := range out {
			out[i] = uint32(i + round + me)
		}
		check(comm.StartAll(recv, send))
		check(comm.WaitAll(recv, send))
		for i := range in {
			if in[i] != uint32(i+round+prev) {
				failf("persistent: got %d", in[i])
			}
		}
	}
	check(errors.Join(recv.Free(), send.Free(), comm.FreeAlloc(w, out), comm.FreeAlloc(w, in)))
	// Values.
	check(comm.SendValue(w, map[string]int{"from": me}, next, 3))
	v, _ := must2(comm.RecvValue[map[string]int](w, prev, 3))
	expect(prev, v["from"], "value")
	// Communicators: all ranks of this machine in reverse order, then odd and even ranks.
	host := must(w.SplitHost(-me))
	expect([]int{n, n - 1 - me}, []int{host.Size(), host.Rank()}, "split host")
	half := must(host.Split(me%2, me))
	expect(me/2, half.Rank(), "split")
	sum, want := []int{0}, 0
	check(comm.Allreduce(half, []int{me}, sum, comm.Sum))
	for r := me % 2; r < n; r += 2 {
		want += r
	}
	expect(want, sum[0], "allreduce")
	for range 200 {
		check(must(half.Dup()).Free())
	}
	if me == 0 {
		fmt.Println("calls done")
	}
	return errors.Join(half.Free(), host.Free())
}

var errProgram = errors.New("the program\nfailed")

// errorProgram has rank 1 end with an error while the others wait for it.
func errorProgram(w *comm.Comm) error {
	if w.Rank() == 1 {
		return errProgram
	}
	_, err := comm.Recv(w, []int{0}, 1, 0)
	return err
}

func panicProgram(w *comm.Comm) error {
	if w.Rank() == w.Size()-1 {
		few := make([]int, 1)
		few[w.Size()] = 1
	}
	_, err := comm.Recv(w, []int{0}, comm.AnySource, 0)
	return err
}

func goexitProgram(w *comm.Comm) error {
	runtime.Goexit()
	return nil
}

func abortProgram(w *comm.Comm) error {
	if w.Rank() == 1 {
		w.Abort(7)
	}
	_, err := comm.Recv(w, []int{0}, 1, 0)
	return err
}

// unreachableProgram runs with transports that cannot connect processes.
func unreachableProgram(w *comm.Comm) error {
	if w.Rank() == 0 {
		err := comm.Send(w, []int{1}, 1, 5)
		_, rerr := comm.Recv(w, []int{1}, 1, 5)
		if !errors.Is(err, comm.ErrUnreachable) || !errors.Is(rerr, comm.ErrUnreachable) {
			return fmt.Errorf("not ErrUnreachable: %v, %v", err, rerr)
		}
		fmt.Println(err)
	}
	check(comm.Send(w, []int{1}, w.Rank(), 5))
	_, err := comm.Recv(w, []int{1}, w.Rank(), 5)
	return err
}

// backgroundProgram frees active requests, which complete in Finalize, with a slow peer.
func backgroundProgram(w *comm.Comm) error {
	const length = 3 << 20
	if w.Rank() == 0 {
		for dest := 1; dest < w.Size(); dest++ {
			check(must(comm.Isend(w, pattern(length, dest), dest, 0)).Free())
		}
		return nil
	}
	time.Sleep(100 * time.Millisecond) // rank 0 is probably in Finalize; correct in any case
	if !bytes.Equal(recv[byte](w, length, 0, 0), pattern(length, w.Rank())) {
		return errors.New("arrived changed")
	}
	if w.Rank() == 1 {
		fmt.Println("arrived")
	}
	return nil
}

// firstProgram has rank 0 answer a peer for the first time while it is in Finalize.
func firstProgram(w *comm.Comm) error {
	b := make([]byte, 1<<20)
	if w.Rank() == 0 {
		return must(comm.Irecv(w, b, 1, 0)).Free() // it completes in the background
	}
	time.Sleep(100 * time.Millisecond) // rank 0 is probably in Finalize; correct in any case
	check(comm.Send(w, b, 0, 0))
	fmt.Println("sent")
	return nil
}

// unreceivedProgram sends messages that no rank receives.
func unreceivedProgram(w *comm.Comm) error {
	if w.Rank() == 0 {
		must(comm.Isend(w, pattern(1<<20, 0), 1, 77))
	}
	return nil
}

// finalizedProgram calls Finalize in the body of Run, which is permitted.
func finalizedProgram(w *comm.Comm) error {
	check(w.Finalize())
	if err := w.Finalize(); !errors.Is(err, comm.ErrFinalized) {
		return fmt.Errorf("second finalize: %v", err)
	}
	if err := comm.Send(w, []int{1}, 0, 0); !errors.Is(err, comm.ErrFinalized) {
		return fmt.Errorf("send: %v", err)
	}
	fmt.Println("finalized")
	return nil
}

// localProgram runs a job of goroutines within a rank of a job of processes.
func localProgram(w *comm.Comm) error {
	check(comm.RunLocal(3, func(inner *comm.Comm) error {
		b := []int{inner.Rank() + 10*w.Rank()}
		next, prev := (inner.Rank()+1)%3, (inner.Rank()+2)%3
		must(comm.SendrecvReplace(inner, b, next, 0, prev, 0))
		expect(prev+10*w.Rank(), b[0])
		return nil
	}))
	sum := []int{0}
	check(comm.Allreduce(w, []int{1}, sum, comm.Sum))
	expect(w.Size(), sum[0], "allreduce")
	if w.Rank() == 0 {
		fmt.Println("local done")
	}
	return nil
}
