package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// programVariable is an environment variable that names the program which this test binary runs
// instead of the tests, as a rank of a launched job.
const programVariable = "COMM_TEST_PROGRAM"

// runProgram is the main function of a rank.
func runProgram(name string) {
	if main := mains()[name]; main != nil {
		main()
		return
	}
	body := programs()[name]
	if body == nil {
		fmt.Fprintf(os.Stderr, "no program %q\n", name)
		os.Exit(2)
	}
	comm.Run(body)
}

// mains are programs that do not use comm.Run.
func mains() map[string]func() {
	return map[string]func(){
		"deferred panic":  deferredPanicMain,
		"deferred in all": deferredInAllMain,
		"init again":      initAgainMain,
	}
}

func programs() map[string]func(w *comm.Comm) error {
	return map[string]func(w *comm.Comm) error{
		"exchange":         exchangeProgram,
		"calls":            callsProgram,
		"error":            errorProgram,
		"panic":            panicProgram,
		"goexit":           goexitProgram,
		"abort":            abortProgram,
		"unreachable":      unreachableProgram,
		"background":       backgroundProgram,
		"first":            firstProgram,
		"unreceived":       unreceivedProgram,
		"finalized":        finalizedProgram,
		"local":            localProgram,
		"collectives":      collectivesProgram,
		"survivor":         survivorProgram,
		"revoked":          revokedProgram,
		"deserted":         desertedProgram,
		"left":             finalizedPeerProgram,
		"left collectives": finalizedPeerCollectivesProgram,
		"finalized star":   finalizedStarProgram,
		"alloc":            allocProgram,
		"cut":              cutProgram,
		"splits given up":  splitsGivenUpProgram,
		"stopped":          stoppedProgram,
	}
}

// exchangeProgram sends messages of every size from each rank to each rank, in both directions at
// once, and compares all bytes.
func exchangeProgram(w *comm.Comm) error {
	n, me := w.Size(), w.Rank()
	var lengths []int
	for _, k := range []int{0, 3, 6, 8, 10, 12, 13, 15, 16, 18} {
		lengths = append(lengths, 1<<k-1, 1<<k, 1<<k+1)
	}
	lengths = append(lengths, 1<<20+1, 1<<22-1, 1<<24)
	for _, length := range lengths {
		for shift := range n {
			to, from := (me+shift)%n, (me+n-shift)%n
			out, in := pattern(length, me*n+to), make([]byte, length)
			st, err := comm.Sendrecv(w, out, to, shift, in, from, shift)
			if err != nil {
				return err
			}
			if want := (request.Status{Source: from, Tag: shift, Count: length, Bytes: int64(length)}); st != want {
				return fmt.Errorf("%d bytes from rank %d: status %+v", length, from, st)
			}
			if !bytes.Equal(in, pattern(length, from*n+me)) {
				return fmt.Errorf("%d bytes from rank %d arrived changed", length, from)
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
	fail := func(what string, got any) error { return fmt.Errorf("%s: got %v", what, got) }

	// Wildcards.
	if err := comm.Bsend(w, []int{me}, next, 40+me); err != nil {
		return err
	}
	got := []int{-1}
	if st, err := comm.Recv(w, got, comm.AnySource, comm.AnyTag); err != nil || st.Source != prev || st.Tag != 40+prev || got[0] != prev {
		return errors.Join(err, fail("wildcards", st))
	}
	// Probes of a short and of a long message.
	for _, length := range []int{100, 1 << 20} {
		s, err := comm.Issend(w, pattern(length, me), next, 1)
		if err != nil {
			return err
		}
		if st, err := w.Probe(prev, comm.AnyTag); err != nil || st.Bytes != int64(length) {
			return errors.Join(err, fail("probe", st))
		}
		m, st, err := w.Mprobe(comm.AnySource, 1)
		if err != nil || st.Source != prev {
			return errors.Join(err, fail("mprobe", st))
		}
		b := make([]byte, length)
		if st, err = comm.Mrecv(m, b); err != nil || st.Count != length || !bytes.Equal(b, pattern(length, prev)) {
			return errors.Join(err, fail("mrecv", st))
		}
		if _, err := s.Wait(); err != nil {
			return err
		}
	}
	// Persistent requests with memory of Alloc.
	out, err := comm.Alloc[uint32](w, 50_000)
	if err != nil {
		return err
	}
	in, err := comm.Alloc[uint32](w, 50_000)
	if err != nil {
		return err
	}
	recv, err := comm.RecvInit(w, in, prev, 2)
	if err != nil {
		return err
	}
	send, err := comm.SendInit(w, out, next, 2)
	if err != nil {
		return err
	}
	for round := range 5 {
		for i := range out {
			out[i] = uint32(i + round + me)
		}
		if err := request.StartAll(recv, send); err != nil {
			return err
		}
		if err := request.WaitAll(recv, send); err != nil {
			return err
		}
		for i := range in {
			if in[i] != uint32(i+round+prev) {
				return fail("persistent", in[i])
			}
		}
	}
	if err := errors.Join(recv.Free(), send.Free(), comm.FreeAlloc(w, out), comm.FreeAlloc(w, in)); err != nil {
		return err
	}
	// Values.
	if err := comm.SendValue(w, map[string]int{"from": me}, next, 3); err != nil {
		return err
	}
	if v, _, err := comm.RecvValue[map[string]int](w, prev, 3); err != nil || v["from"] != prev {
		return errors.Join(err, fail("value", v))
	}
	// Communicators: all ranks of this machine in reverse order, then odd and even ranks.
	host, err := w.SplitHost(-me)
	if err != nil || host.Size() != n || host.Rank() != n-1-me {
		return errors.Join(err, fail("split host", host.Rank()))
	}
	half, err := host.Split(me%2, me)
	if err != nil || half.Rank() != me/2 {
		return errors.Join(err, fail("split", half.Rank()))
	}
	sum := []int{0}
	if err := comm.Allreduce(half, []int{me}, sum, comm.Sum); err != nil {
		return err
	}
	want := 0
	for r := me % 2; r < n; r += 2 {
		want += r
	}
	if sum[0] != want {
		return fail("allreduce", sum[0])
	}
	for range 200 {
		c, err := half.Dup()
		if err != nil {
			return err
		}
		if err := c.Free(); err != nil {
			return err
		}
	}
	if me == 0 {
		fmt.Println("calls done")
	}
	return errors.Join(half.Free(), host.Free())
}

var errProgram = errors.New("the program\nhas had enough")

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
		if !errors.Is(err, comm.ErrUnreachable) {
			return fmt.Errorf("not ErrUnreachable: %v", err)
		}
		fmt.Println(err)
		if _, err := comm.Recv(w, []int{1}, 1, 5); !errors.Is(err, comm.ErrUnreachable) {
			return fmt.Errorf("not ErrUnreachable: %v", err)
		}
	}
	if err := comm.Send(w, []int{1}, w.Rank(), 5); err != nil {
		return err
	}
	_, err := comm.Recv(w, []int{1}, w.Rank(), 5)
	return err
}

// backgroundProgram frees active requests, which complete in Finalize, with a slow peer.
func backgroundProgram(w *comm.Comm) error {
	const length = 3 << 20
	if w.Rank() == 0 {
		for dest := 1; dest < w.Size(); dest++ {
			r, err := comm.Isend(w, pattern(length, dest), dest, 0)
			if err != nil {
				return err
			}
			if err := r.Free(); err != nil {
				return err
			}
		}
		return nil
	}
	time.Sleep(100 * time.Millisecond) // rank 0 is probably in Finalize; correct in any case
	b := make([]byte, length)
	if _, err := comm.Recv(w, b, 0, 0); err != nil {
		return err
	}
	if !bytes.Equal(b, pattern(length, w.Rank())) {
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
		r, err := comm.Irecv(w, b, 1, 0)
		if err != nil {
			return err
		}
		return r.Free() // it completes in the background
	}
	time.Sleep(100 * time.Millisecond) // rank 0 is probably in Finalize; correct in any case
	if err := comm.Send(w, b, 0, 0); err != nil {
		return err
	}
	fmt.Println("sent")
	return nil
}

// unreceivedProgram sends messages that no rank receives.
func unreceivedProgram(w *comm.Comm) error {
	if w.Rank() == 0 {
		if _, err := comm.Isend(w, pattern(1<<20, 0), 1, 77); err != nil {
			return err
		}
	}
	return nil
}

// finalizedProgram calls Finalize in the body of Run, which is permitted.
func finalizedProgram(w *comm.Comm) error {
	if err := w.Finalize(); err != nil {
		return err
	}
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
	err := comm.RunLocal(3, func(inner *comm.Comm) error {
		b := []int{inner.Rank() + 10*w.Rank()}
		next, prev := (inner.Rank()+1)%3, (inner.Rank()+2)%3
		if _, err := comm.SendrecvReplace(inner, b, next, 0, prev, 0); err != nil {
			return err
		}
		if b[0] != prev+10*w.Rank() {
			return fmt.Errorf("got %d", b[0])
		}
		return nil
	})
	if err != nil {
		return err
	}
	sum := []int{0}
	if err := comm.Allreduce(w, []int{1}, sum, comm.Sum); err != nil || sum[0] != w.Size() {
		return fmt.Errorf("sum %d: %w", sum[0], err)
	}
	if w.Rank() == 0 {
		fmt.Println("local done")
	}
	return nil
}
