package comm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

// TestReceiveWithOtherTagNamesMessageOfFinalizedRank: the sender has returned. The error of a
// receive or probe names the message that is there.
func TestReceiveWithOtherTagNamesMessageOfFinalizedRank(t *testing.T) {
	const has = "it has called Finalize, or returned; a message of rank 0 with tag 8, of 24 bytes, has arrived and was not received"
	require.NoError(t, comm.RunLocal(2, func(w *comm.Comm) error {
		if w.Rank() == 0 {
			must1(comm.Send(w, []int{1, 2, 3}, 1, 8))
			return comm.Send(w, []int{1, 2, 3}, 1, 9)
		}
		for range 2 { // the first one may be posted before the other rank returns
			_, err := comm.Recv(w, make([]int, 3), 0, 7)
			assert.ErrorIs(t, err, comm.ErrProcFailed)
			assert.ErrorContains(t, err, has+", and 1 more: compare the tags")
		}
		_, err := w.Probe(0, 7)
		assert.ErrorContains(t, err, has)
		for range 2 {
			_, err = comm.Recv(w, make([]int, 3), 0, comm.AnyTag)
			assert.NoError(t, err)
		}
		_, err = comm.Recv(w, make([]int, 3), 0, comm.AnyTag)
		assert.ErrorContains(t, err, "it has called Finalize, or returned")
		assert.NotContains(t, err.Error(), "has come")
		return nil
	}))
}

func must1(err error) {
	if err != nil {
		panic(err)
	}
}

// TestCheckedFinalizeTellsOfMessagesNotReceived: there is one line for each sender, tag and
// communicator, and at most ten lines.
func TestCheckedFinalizeTellsOfMessagesNotReceived(t *testing.T) {
	for _, isFreed := range []bool{false, true} {
		for _, tags := range []int{2, 30} {
			told := make(chan string, 100)
			exchange(t, func(w *comm.Comm) error {
				d := must(w.Dup())
				for range 3 {
					must1(comm.Bsend(d, []int16{1}, 1, 7))
				}
				for tag := range tags {
					must1(comm.Bsend(w, make([]int, tag), 1, tag))
				}
				return comm.Send(w, []int{1}, 1, 1<<20)
			}, func(w *comm.Comm) error {
				comm.TellChecked(w, func(line string) { told <- line })
				d := must(w.Dup())
				d.SetName("other")
				_, err := comm.Recv(w, make([]int, 1), 0, 1<<20) // so all others have come
				if err == nil && isFreed {
					err = d.Free()
				}
				return err
			})
			close(told)
			var got []string
			for line := range told {
				got = append(got, line)
			}
			want := []string{}
			for tag := range min(tags, 10) {
				want = append(want, fmt.Sprintf("world: never received: a message of rank 0 with tag %d, of %d bytes", tag, 8*tag))
			}
			if tags < 10 {
				want = append(want, "other: never received: 3 messages of rank 0 with tag 7, of 6 bytes in all")
			} else {
				want = append(want, "never received: messages of 21 more ranks or tags")
			}
			assert.Equal(t, want, got)
		}
	}
}
