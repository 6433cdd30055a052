package coll

import "github.com/mpigo/mpigo/internal/calls"

// How is how a collective is called.
type How calls.Form

const (
	// Blocking calls run in the goroutine of the caller.
	Blocking = How(calls.Blocking)
	// Nonblocking calls run in any goroutine that makes progress. Their Schedule is the request.
	Nonblocking = How(calls.Nonblocking)
	// Persistent calls make a request, each Start of which runs as a nonblocking call.
	Persistent = How(calls.Persistent)
)

// Of is a call in this form.
func (h How) Of(call calls.ID) calls.ID { return call.In(calls.Form(h)) }

// form is the form of the messages' tags.
func (h How) form() int {
	switch h {
	case Nonblocking:
		return nonblockingForm
	case Persistent:
		return initForm
	}
	return blockingForm
}

// phase is the state of a schedule.
//
//	from     to       when
//	idle     open     Team.Begin
//	open     running  Run, Launch, Keep
//	         idle     the arguments are bad, or the communicator is unfit
//	running  apart    a step that takes long begins: it runs without the engine's lock
//	         waiting  nonblocking: a step has to wait for what is posted
//	         failing  nonblocking: it has failed
//	         over     all steps are done, or it has failed and nothing of it is left
//	apart    running  that step ends
//	waiting  running  what it waited for has ended, or something has failed
//	failing  over     no device and no message that is arriving uses a buffer of it any more
//	over     running  persistent: Keep runs steps of its own once more
//	         idle     a blocking call ends, the request is released, or Keep has failed
//	         ready    persistent: Keep, or a start, has ended
//	ready    running  Start
//	         idle     Free
//
// A blocking call is running while its goroutine waits, too.
type phase uint8

const (
	phaseIdle phase = iota
	phaseOpen
	phaseRunning
	phaseApart
	phaseWaiting
	phaseFailing
	phaseOver
	phaseReady
)

var phaseNames = [...]string{"idle", "open", "running", "apart", "waiting", "failing", "over", "ready"}

func (p phase) String() string { return phaseNames[p] }

// phaseLegal is the table of transitions, with a bit for each. A constant costs no load.
const phaseLegal uint64 = 1<<(phaseIdle*8+phaseOpen) |
	1<<(phaseOpen*8+phaseRunning) | 1<<(phaseOpen*8+phaseIdle) |
	1<<(phaseRunning*8+phaseApart) | 1<<(phaseRunning*8+phaseWaiting) |
	1<<(phaseRunning*8+phaseFailing) | 1<<(phaseRunning*8+phaseOver) |
	1<<(phaseApart*8+phaseRunning) |
	1<<(phaseWaiting*8+phaseRunning) |
	1<<(phaseFailing*8+phaseOver) |
	1<<(phaseOver*8+phaseRunning) | 1<<(phaseOver*8+phaseIdle) | 1<<(phaseOver*8+phaseReady) |
	1<<(phaseReady*8+phaseRunning) | 1<<(phaseReady*8+phaseIdle)

func (s *Schedule) move(to phase) {
	if phaseLegal>>(s.phase*8+to)&1 == 0 {
		s.illegal(to)
	}
	s.phase = to
}

func (s *Schedule) illegal(to phase) {
	panic("coll: illegal transition " + s.phase.String() + " → " + to.String())
}
