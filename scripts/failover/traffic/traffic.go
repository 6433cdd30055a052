// Package traffic exchanges messages of all kinds and sizes between two ranks and checks every word
// of them. It is an ordinary MPI program: nothing in it knows of rails or of their failures.
package traffic

import (
	"fmt"
	"time"

	"github.com/mpigo/mpigo/comm"
)

const (
	wordBytes = 8

	tagPersistent = 1000
	tagPingPong   = 2000

	persistentWords = 12_500
	pingPongs       = 20

	// Messages longer than oftenWords are sent in every rareRound-th round only: one of them is
	// longer than all others of a round together.
	oftenWords = 131_072
	rareRound  = 8
)

// sizes returns the lengths in words of a round's messages. The library sends short ones at once,
// over one rail, and splits long ones over all rails.
func sizes(largestBytes int) []int {
	var words []int
	for _, n := range []int{1, 25, 500, 1100, 4000, 12_000, 32_768, 131_072, 524_288} {
		if n*wordBytes <= largestBytes {
			words = append(words, n)
		}
	}
	return words
}

// Traffic is one rank's half of the exchange. One goroutine uses it.
type Traffic struct {
	world    *comm.Comm
	me, peer int
	received func(bytes int)
	round    int
	out, in  [][]uint64 // a pair of buffers for each size

	// A persistent send and receive, with their buffers.
	send, recv            comm.Request
	keptOut, keptIn       []uint64
	bcast, sum            []uint64
	alltoallOut, alltoall []uint64
}

// New prepares the exchange in a world of two ranks. No message is longer than largestBytes. The
// function received is called after each receive, with the number of bytes that arrived.
func New(world *comm.Comm, largestBytes int, received func(bytes int)) (*Traffic, error) {
	if world.Size() != 2 {
		return nil, fmt.Errorf("the exchange takes 2 ranks, not %d", world.Size())
	}
	t := &Traffic{
		world: world, me: world.Rank(), peer: 1 - world.Rank(), received: received,
		keptOut: make([]uint64, persistentWords), keptIn: make([]uint64, persistentWords),
		bcast: make([]uint64, 8000), sum: make([]uint64, 3000),
		alltoallOut: make([]uint64, 2000), alltoall: make([]uint64, 2000),
	}
	for _, words := range sizes(largestBytes) {
		t.out, t.in = append(t.out, make([]uint64, words)), append(t.in, make([]uint64, words))
	}
	var err error
	if t.send, err = comm.SendInit(world, t.keptOut, t.peer, tagPersistent); err != nil {
		return nil, err
	}
	t.recv, err = comm.RecvInit(world, t.keptIn, t.peer, tagPersistent)
	return t, err
}

// Free releases the persistent requests.
func (t *Traffic) Free() error {
	if err := t.send.Free(); err != nil {
		return err
	}
	return t.recv.Free()
}

// Round exchanges one round of messages. Both ranks call it equally often.
func (t *Traffic) Round() error {
	t.round++
	for _, part := range []func() error{t.nonblocking, t.persistent, t.pingPong, t.collectives} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// nonblocking sends messages of all sizes both ways at once.
func (t *Traffic) nonblocking() error {
	n := len(t.out)
	if len(t.out[n-1]) > oftenWords && t.round%rareRound != 0 {
		n--
	}
	var sends, recvs []comm.Request
	for tag := range n {
		clear(t.in[tag])
		req, err := comm.Irecv(t.world, t.in[tag], t.peer, tag)
		if err != nil {
			return err
		}
		recvs = append(recvs, req)
	}
	for tag := range n {
		fill(t.out[tag], t.me, t.round, tag)
		req, err := comm.Isend(t.world, t.out[tag], t.peer, tag)
		if err != nil {
			return err
		}
		sends = append(sends, req)
	}
	for tag, req := range recvs {
		st, err := req.Wait()
		if err != nil {
			return err
		}
		t.received(int(st.Bytes))
		if want := wordBytes * len(t.in[tag]); int(st.Bytes) != want {
			return fmt.Errorf("round %d: %d bytes arrived, not %d", t.round, st.Bytes, want)
		}
		if err := check(t.in[tag], t.peer, t.round, tag); err != nil {
			return err
		}
	}
	return comm.WaitAll(sends...)
}

// persistent starts the persistent requests again.
func (t *Traffic) persistent() error {
	fill(t.keptOut, t.me, t.round, 100)
	clear(t.keptIn)
	if err := comm.StartAll(t.recv, t.send); err != nil {
		return err
	}
	if _, err := t.recv.Wait(); err != nil {
		return err
	}
	t.received(wordBytes * len(t.keptIn))
	if _, err := t.send.Wait(); err != nil {
		return err
	}
	return check(t.keptIn, t.peer, t.round, 100)
}

// pingPong sends single words to and fro.
func (t *Traffic) pingPong() error {
	for i := range pingPongs {
		b := []uint64{word(t.me, t.round, 200+i, 0)}
		if _, err := comm.SendrecvReplace(t.world, b, t.peer, tagPingPong, t.peer, tagPingPong); err != nil {
			return err
		}
		t.received(wordBytes)
		if err := check(b, t.peer, t.round, 200+i); err != nil {
			return err
		}
	}
	return nil
}

func (t *Traffic) collectives() error {
	root := t.round % 2
	clear(t.bcast)
	if t.me == root {
		fill(t.bcast, root, t.round, 300)
	}
	if err := comm.Bcast(t.world, t.bcast, root); err != nil {
		return err
	}
	if err := check(t.bcast, root, t.round, 300); err != nil {
		return err
	}
	fill(t.sum, t.me, t.round, 301)
	if err := comm.Allreduce(t.world, nil, t.sum, comm.Sum); err != nil {
		return err
	}
	for i, got := range t.sum {
		if want := word(0, t.round, 301, i) + word(1, t.round, 301, i); got != want {
			return fmt.Errorf("round %d: element %d of the sum is %#x, not %#x", t.round, i, got, want)
		}
	}
	half := len(t.alltoallOut) / 2
	fill(t.alltoallOut[:half], t.me, t.round, 302)
	fill(t.alltoallOut[half:], t.me, t.round, 303)
	clear(t.alltoall)
	if err := comm.Alltoall(t.world, t.alltoallOut, t.alltoall); err != nil {
		return err
	}
	for from := range 2 {
		if err := check(t.alltoall[half*from:half*(from+1)], from, t.round, 302+t.me); err != nil {
			return err
		}
	}
	t.received(wordBytes * (len(t.sum) + half))
	return t.world.Barrier()
}

// word returns word i of the message that a rank sends under a tag in a round. It differs in every
// word, message and round, so a lost, duplicated or misplaced fragment shows.
func word(from, round, tag, i int) uint64 {
	return uint64(from+1)<<60 ^ uint64(round)<<40 ^ uint64(tag)<<32 ^ uint64(i)*0x9e3779b97f4a7c15
}

func fill(b []uint64, from, round, tag int) {
	for i := range b {
		b[i] = word(from, round, tag, i)
	}
}

// check compares a message with what its sender put into it. The error lists the wrong words twice,
// a second apart: a transfer that was still under way when the receive completed has written them
// by then.
func check(b []uint64, from, round, tag int) error {
	for i, got := range b {
		want := word(from, round, tag, i)
		if got == want {
			continue
		}
		at, first := time.Now(), wrongWords(b, from, round, tag)
		time.Sleep(time.Second)
		return fmt.Errorf("round %d, message %d of %d words: word %d is %#x, not %#x; "+
			"wrong words at %v: %v; a second later: %v", round, tag, len(b), i, got, want,
			at.Format("05.000"), first, wrongWords(b, from, round, tag))
	}
	return nil
}

// wrongWords lists the ranges of words that are wrong, and how many words of each are 0.
func wrongWords(b []uint64, from, round, tag int) string {
	const mostRanges = 20 // more make the message unreadable
	var ranges []string
	for i := 0; i < len(b); i++ {
		begin, zeros := i, 0
		for ; i < len(b) && b[i] != word(from, round, tag, i); i++ {
			if b[i] == 0 {
				zeros++
			}
		}
		if i > begin {
			ranges = append(ranges, fmt.Sprintf("%d-%d (%d are 0)", begin, i, zeros))
		}
	}
	if more := len(ranges) - mostRanges; more > 0 {
		ranges = append(ranges[:mostRanges], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprint(ranges)
}
