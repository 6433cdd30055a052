package comm

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/pml"
)

// maxUnreceived is the largest number of lines about messages that were not received.
const maxUnreceived = 10

// maxDropped bounds the memory for messages in freed communicators.
const maxDropped = 1000

// keepUnreceived is called before a communicator is freed. After that, the caller calls the
// function that it returns. If the communicator is gone then, no receive can match its messages any
// more. Lock held.
func (k *checker) keepUnreceived(p *pml.PML, in *pml.Context) (after func()) {
	dropped := p.UnreceivedIn(in)
	return func() {
		if len(p.UnreceivedIn(in)) == 0 {
			k.dropped = append(k.dropped, dropped[:min(len(dropped), maxDropped-len(k.dropped))]...)
		}
	}
}

// unreceivedKind is what the messages of one such line have in common.
type unreceivedKind struct {
	in          *state
	source, tag int // source in the communicator
}

// tellUnreceived warns the user, in Finalize, of messages that no receive has matched. It is no
// error: the program is wrong (MPI 4.1, section 11.2.2), but the results of all its calls stand.
// Messages of collectives are not the user's. Lock held.
func (j *job) tellUnreceived() {
	var kinds []unreceivedKind
	count, bytes := make(map[unreceivedKind]int), make(map[unreceivedKind]int64)
	for _, m := range slices.Concat(j.pml.Unreceived(), j.check.dropped) {
		if m.Context == m.Context.Collective() {
			continue
		}
		k := unreceivedKind{stateOf(m.Caller), m.Source, m.Tag}
		if count[k] == 0 {
			kinds = append(kinds, k)
		}
		count[k]++
		bytes[k] += int64(m.Bytes)
	}
	for i, k := range kinds {
		if i == maxUnreceived {
			j.check.tell(j, fmt.Errorf("never received: messages of %d more ranks or tags", len(kinds)-i))
			return
		}
		what, all := "a message", ""
		if count[k] > 1 {
			what, all = fmt.Sprintf("%d messages", count[k]), " in all"
		}
		j.check.tell(j, fmt.Errorf("%s: never received: %s of rank %d with tag %d, of %d bytes%s",
			*k.in.name.Load(), what, k.source, k.tag, bytes[k], all))
	}
}
