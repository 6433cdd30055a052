package comm

import "fmt"

// maxUnreceived is the largest number of lines about messages that were not received.
const maxUnreceived = 10

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
	for _, m := range j.pml.Unreceived() {
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
