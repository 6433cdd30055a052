package coll

import (
	"context"
	"encoding/binary"
	"slices"
)

// In checked mode each collective begins with a check: the ranks exchange records of their calls
// before any of them uses data. All ranks get the same records, so all of them find the same
// difference, without a REVOKE. The communicator stays fit: every rank has made the call.
//
// The messages of the check have the tag of blocking calls in every form of the call, so that calls
// of different forms match. No rank ends a check before all ranks have come to it. Hence mismatch
// probes have nothing to find: all calls have one signature.
//
// An Init call is checked, and its starts are not.

// Check describes a rank's call to the others.
type Check struct {
	// Record is as long at all ranks.
	Record []byte
	// Compare gets the records of all ranks, in the order of ranks. Its error ends the call.
	Compare func(records []byte) error
	// Lengths, if not nil, are compared after Compare has found no difference.
	Lengths *PartLengths
}

// PartLengths are the lengths of the parts that a rank sends and expects, ordered as for
// [Schedule.Neighbors].
type PartLengths struct {
	Sources, Dests []int
	Pairs          bool
	Give           []uint64 // to Dests
	// Compare gets the lengths that Sources send. It returns a record of RecordBytes bytes.
	Compare     func(got []uint64) []byte
	RecordBytes int
	// CompareAll gets these records of all ranks. Its error ends the call.
	CompareAll func(records []byte) error
}

// checking is the check of a schedule.
type checking struct {
	steps     int            // of the check, which are the first ones
	parts     []func() error // called by stepCheck
	isRunning bool           // the rank has not come to the steps after it
	tag       int            // of the messages of those steps
}

// CheckError is the error of mismatched calls in checked mode. All ranks get it.
type CheckError struct{ err error }

func (e *CheckError) Error() string { return e.err.Error() }
func (e *CheckError) Unwrap() error { return e.err }

// Agreed is the length, in bytes, that all ranks agree on; 0 if there is none.
func (s *Schedule) Agreed() int { return s.agreed }

// InPlace reports whether the schedule is that of a call in place.
func (s *Schedule) InPlace() bool { return s.inPlace }

// OwnLength is the length of the one part that a rank that is not the root sends or receives.
func (s *Schedule) OwnLength() int { return len(s.steps[0].a) }

// Check puts a check before the steps of a schedule, which a builder has made. It is called before
// Run, Launch or Keep.
func (s *Schedule) Check(c Check) {
	steps := s.steps
	s.steps, s.waits = nil, false
	all := make([]byte, s.size*len(c.Record))
	s.allgatherBruck(c.Record, all)
	s.wait()
	s.addCheck(func() error { return c.Compare(all) })
	if c.Lengths != nil {
		s.checkLengths(c.Lengths)
	}
	s.addCheck(s.endCheck)
	s.check.steps, s.check.isRunning = len(s.steps), true
	s.steps = append(s.steps, steps...)
	s.isChecked = true
	s.check.tag, s.tag = s.tag, numberOf(s.tag)+blockingForm
}

// checkLengths exchanges lengths as the call itself exchanges parts. Then all ranks exchange their
// results.
func (s *Schedule) checkLengths(l *PartLengths) {
	words := func(values []uint64) (memory []byte, parts [][]byte) {
		memory = make([]byte, wordBytes*len(values))
		for i, v := range values {
			binary.LittleEndian.PutUint64(memory[i*wordBytes:], v)
			parts = append(parts, memory[i*wordBytes:][:wordBytes])
		}
		return memory, parts
	}
	_, give := words(l.Give)
	got, take := words(make([]uint64, len(l.Sources)))
	s.Neighbors(give, take, l.Sources, l.Dests, l.Pairs)
	s.wait()
	found, all := make([]byte, l.RecordBytes), make([]byte, s.size*l.RecordBytes)
	s.addCheck(func() error {
		lengths := make([]uint64, len(l.Sources))
		for i := range lengths {
			lengths[i] = binary.LittleEndian.Uint64(got[i*wordBytes:])
		}
		copy(found, l.Compare(lengths))
		return nil
	})
	s.allgatherBruck(found, all)
	s.wait()
	s.addCheck(func() error { return l.CompareAll(all) })
}

// addCheck adds the step that calls f.
func (s *Schedule) addCheck(f func() error) {
	s.check.parts = append(s.check.parts, f)
	s.add(stepCheck, len(s.check.parts)-1, nil, nil)
}

// doCheck does a step of the check.
func (s *Schedule) doCheck(part int) error {
	if err := s.check.parts[part](); err != nil {
		s.check.isRunning = false
		return &CheckError{err}
	}
	return nil
}

// endCheck is the last step of the check.
func (s *Schedule) endCheck() error {
	s.check.isRunning = false
	s.tag = s.check.tag
	return nil
}

// takesAhead reports whether a message with this tag comes from a rank that has ended the check
// before this rank.
func (s *Schedule) takesAhead(tag int) bool { return s.check.isRunning && tag == s.check.tag }

// checkInit runs the check of an Init call, and leaves the steps of the starts.
func (s *Schedule) checkInit(ctx context.Context) error {
	steps, n := s.steps, s.check.steps
	s.steps = steps[:n:n]
	err := s.run(ctx)
	s.steps, s.next, s.check = steps[n:], 0, checking{}
	return err
}

// Inputs lists the memory that the collective reads and never writes, temporary memory excepted:
// it must not change until the collective is complete.
func (s *Schedule) Inputs() [][]byte {
	var reads, writes [][]byte
	for _, st := range s.steps[s.check.steps:] {
		switch st.kind {
		case stepSend:
			reads = append(reads, st.a)
		case stepRecv:
			writes = append(writes, st.a)
		case stepCopy:
			reads, writes = append(reads, st.b), append(writes, st.a)
		case stepCombine:
			reads, writes = append(reads, st.a), append(writes, st.b)
		}
	}
	return slices.DeleteFunc(reads, func(r []byte) bool {
		return len(r) == 0 || slices.ContainsFunc(writes, func(w []byte) bool { return Overlap(r, w) })
	})
}
