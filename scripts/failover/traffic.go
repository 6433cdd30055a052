package main

import (
	"fmt"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// word is what the i-th word of a message holds.
func word(from, round, tag, i int) uint64 {
	return uint64(from+1)<<60 ^ uint64(round)<<40 ^ uint64(tag)<<32 ^ uint64(i)*0x9e3779b97f4a7c15
}

func fill(b []uint64, from, round, tag int) {
	for i := range b {
		b[i] = word(from, round, tag, i)
	}
}

func check(b []uint64, from, round, tag int) error {
	for i := range b {
		if b[i] != word(from, round, tag, i) {
			wrong := fmt.Errorf("round %d, message %d of %d words: word %d is %#x, not %#x", round, tag, len(b), i, b[i], word(from, round, tag, i))
			at := time.Now()
			first := wrongIn(b, from, round, tag)
			time.Sleep(time.Second) // a transfer that was not over writes them by then
			return fmt.Errorf("%w; wrong at %v: %v; a second later: %v", wrong, at.Format("05.000"), first, wrongIn(b, from, round, tag))
		}
	}
	return nil
}

// wrongIn lists the ranges of words that are wrong, each with its end, and how many of them are 0.
func wrongIn(b []uint64, from, round, tag int) string {
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
	if len(ranges) > 20 {
		ranges = append(ranges[:20], fmt.Sprintf("%d more", len(ranges)-20))
	}
	return fmt.Sprint(ranges)
}

// sizes in words; the last one only now and then.
var sizes = []int{1, 25, 500, 1100, 4000, 12_000, 32_768, 131_072, 524_288}

var outs, ins = buffers(), buffers()

func buffers() (all [][]uint64) {
	for _, n := range sizes {
		all = append(all, make([]uint64, n))
	}
	return all
}

// got notes that so much has come.
func (r *run) got(bytes int) { r.done = append(r.done, piece{time.Now(), bytes}) }

// traffic is one round of everything.
func (r *run) traffic() error {
	r.round++
	for _, part := range []func() error{r.mixed, r.persistent, r.small, r.collectives} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// mixed is messages of all sizes both ways at once.
func (r *run) mixed() error {
	n := len(sizes)
	if r.round%8 != 0 {
		n--
	}
	var sends, recvs []request.Request
	for i := range n {
		clear(ins[i])
		req, err := comm.Irecv(r.world, ins[i], r.peer, i)
		if err != nil {
			return err
		}
		recvs = append(recvs, req)
	}
	for i := range n {
		fill(outs[i], r.me, r.round, i)
		req, err := comm.Isend(r.world, outs[i], r.peer, i)
		if err != nil {
			return err
		}
		sends = append(sends, req)
	}
	for i, req := range recvs {
		st, err := req.Wait()
		if err != nil {
			return err
		}
		r.got(int(st.Bytes))
		if int(st.Bytes) != 8*sizes[i] {
			return fmt.Errorf("round %d: %d bytes, not %d", r.round, st.Bytes, 8*sizes[i])
		}
		if err := check(ins[i], r.peer, r.round, i); err != nil {
			return err
		}
	}
	for _, req := range sends {
		if _, err := req.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) persistent() error {
	fill(r.out, r.me, r.round, 100)
	clear(r.in)
	if err := r.recv.Start(); err != nil {
		return err
	}
	if err := r.send.Start(); err != nil {
		return err
	}
	if _, err := r.recv.Wait(); err != nil {
		return err
	}
	r.got(8 * len(r.in))
	if _, err := r.send.Wait(); err != nil {
		return err
	}
	return check(r.in, r.peer, r.round, 100)
}

// small is a ping-pong of single words.
func (r *run) small() error {
	for i := range 20 {
		b := []uint64{word(r.me, r.round, 200+i, 0)}
		if _, err := comm.SendrecvReplace(r.world, b, r.peer, 2000, r.peer, 2000); err != nil {
			return err
		}
		r.got(8)
		if err := check(b, r.peer, r.round, 200+i); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) collectives() error {
	root := r.round % 2
	b := make([]uint64, 8000)
	if r.me == root {
		fill(b, root, r.round, 300)
	}
	if err := comm.Bcast(r.world, b, root); err != nil {
		return err
	}
	if err := check(b, root, r.round, 300); err != nil {
		return err
	}
	sum := make([]uint64, 3000)
	fill(sum, r.me, r.round, 301)
	if err := comm.Allreduce(r.world, nil, sum, comm.Sum); err != nil {
		return err
	}
	for i, v := range sum {
		if want := word(0, r.round, 301, i) + word(1, r.round, 301, i); v != want {
			return fmt.Errorf("round %d: element %d of the sum is %#x, not %#x", r.round, i, v, want)
		}
	}
	out, in := make([]uint64, 2000), make([]uint64, 2000)
	fill(out[:1000], r.me, r.round, 302)
	fill(out[1000:], r.me, r.round, 303)
	if err := comm.Alltoall(r.world, out, in); err != nil {
		return err
	}
	for from := range 2 {
		if err := check(in[1000*from:1000*from+1000], from, r.round, 302+r.me); err != nil {
			return err
		}
	}
	r.got(8 * (3000 + 1000))
	return r.world.Barrier()
}
