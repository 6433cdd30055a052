package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

const (
	window  = 8 // messages under way at once
	biggest = 1 << 20

	// slack is how far the sender may be behind its rate and catch up.
	slack = 10 * time.Millisecond
)

// sizes of the messages, in turns: short ones, which go by one rail, and long ones, of which each rail gets its share.
var sizes = [...]int{8, 200, 3_000, 40_000, biggest, 1, 20_000, 500_000}

// newText is what the messages are cut from, the same at both ranks.
func newText() []byte {
	text := make([]byte, 2*biggest)
	rand.NewChaCha8([32]byte{}).Read(text)
	return text
}

// message is what the i-th message has to be. It differs from those before it: a piece that is lost, or
// comes twice or at the wrong place, is found.
func message(text []byte, i int) []byte {
	n := sizes[i%len(sizes)]
	at := i * 7919 % (len(text) - biggest)
	return text[at : at+n]
}

// send streams messages until over is closed, and then says that it was the last.
func send(world *comm.Comm, rate float64, over <-chan struct{}) error {
	text := newText()
	var buffers [window][]byte
	var sent [window]request.Request
	due := time.Now()
	for i := 0; ; i++ {
		select {
		case <-over:
			return end(world, sent[:])
		default:
		}
		slot := i % window
		if _, err := sent[slot].Wait(); err != nil { // of the null handle it returns at once
			return err
		}
		buffers[slot] = append(buffers[slot][:0], message(text, i)...)
		req, err := comm.Isend(world, buffers[slot], receiver, tagData)
		if err != nil {
			return err
		}
		sent[slot] = req
		if rate > 0 {
			due = later(due, time.Now().Add(-slack)).Add(time.Duration(float64(len(buffers[slot])) / rate * 1e9))
			if ahead := time.Until(due); ahead > time.Millisecond {
				time.Sleep(ahead)
			}
		}
	}
}

// end sends an empty message for each receive that may be posted.
func end(world *comm.Comm, sent []request.Request) error {
	for range window {
		req, err := comm.Isend(world, []byte(nil), receiver, tagData)
		if err != nil {
			return err
		}
		sent = append(sent, req)
	}
	for _, req := range sent {
		if _, err := req.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// receive takes what send sends, compares it, and counts its bytes as it goes. It returns how many messages came.
func receive(world *comm.Comm, count *atomic.Int64) (messages int, err error) {
	text := newText()
	var buffers [window][]byte
	var posted [window]request.Request
	post := func(slot int) (err error) {
		posted[slot], err = comm.Irecv(world, buffers[slot], sender, tagData)
		return err
	}
	for slot := range window {
		buffers[slot] = make([]byte, biggest)
		if err := post(slot); err != nil {
			return 0, err
		}
	}
	for i := 0; ; i++ {
		slot := i % window
		st, err := posted[slot].Wait()
		if err != nil {
			return i, err
		}
		if st.Bytes == 0 {
			messages = i
			break
		}
		if want := message(text, i); !bytes.Equal(want, buffers[slot][:st.Bytes]) {
			return i, fmt.Errorf("message %d is not what was sent: %d bytes, of %d", i, st.Bytes, len(want))
		}
		count.Add(st.Bytes)
		if err := post(slot); err != nil {
			return i, err
		}
	}
	for i := messages + 1; i < messages+window; i++ {
		st, err := posted[i%window].Wait()
		switch {
		case err != nil:
			return messages, err
		case st.Bytes != 0:
			return messages, fmt.Errorf("a message of %d bytes came after the last one", st.Bytes)
		}
	}
	return messages, nil
}
