package comm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// job is the state of a job at one rank. It owns everything that Init or RunLocal makes for the
// rank. The engine's lock guards the fields that change.
type job struct {
	// id is the identity of the job in records, the same at all its ranks. Under a launcher other
	// than mpirun-go, Init sets its last part. The lock guards it.
	id         string
	rank, size int
	world      *Comm
	eng        *progress.Engine
	pml        *pml.PML
	others     others
	modules    []btl.Module
	fabric     *loop.Fabric // joins the ranks of RunLocal; nil for a process
	settings   tunable.Set
	elems      elemCache // synchronises itself
	ownOps     ownOps
	hostKey    [hostKeyBytes]byte // equal on ranks of one machine
	hub        *coll.Hub
	invites    *invites
	hosts      []int // the host of each rank, by number; nil: all are on one host
	crowded    bool  // some machine has more ranks than cores; the same at all ranks
	ended      error // why no call may begin: ErrFinalized, or what ended the job
	allocs     map[*byte]allocation
	async      *asyncProgress // nil unless a rail wants it
	stopRails  func()         // stops the exchange of rail addresses; nil: there is none
	untold     func() error   // why peers may not find this rank's rails; nil: no such reports
	notices    notices
	events     events
	log        userlog.Logger
	check      *checker    // checked mode; nil if it is off
	onStop     func(error) // called with the reason when calls end; may be nil
	closed     bool
	recording  *recording // nil if nothing is recorded
	// introspection is the connection for the launcher's questions about this rank; nil: none.
	introspection io.Closer
}

const hostKeyBytes = 16

// leaveGrace is how long Finalize waits for the other ranks before it sends FINALIZED to the ranks
// that it is in contact with. If all ranks end at about the same time, no message is needed.
const leaveGrace = time.Second

// others reaches the other ranks without rails: through the process manager, or through RunLocal.
// Its methods may be called from any goroutine, without the lock.
type others interface {
	// barrier returns when every rank has called it. It fails when a rank has failed.
	barrier() error
	// leave reports that this rank has left the job without an error.
	leave() error
	// abort ends the job with the given exit code and does not return.
	abort(wireup.Abort)
}

// newJob makes a rank with an engine. The caller then makes its PML, its modules and its world, in
// this order.
func newJob(rank, size int, settings tunable.Set, engine progress.Config, hostID string, log *slog.Logger) *job {
	j := &job{
		ownOps:   make(ownOps),
		rank:     rank,
		log:      userlog.Logger{Rank: rank, To: log},
		size:     size,
		eng:      progress.New(engine),
		settings: settings,
	}
	// The tunables permit no other text.
	if mode, _ := tunable.ParseCheck(settings.String("check")); mode != tunable.NoCheck {
		j.check = &checker{tell: tellUser, sends: newSyncChoice(mode, settings.Int("check.seed"))}
	}
	sum := sha256.Sum256([]byte(hostID))
	copy(j.hostKey[:], sum[:])
	return j
}

// addModule adds a module to the rank. Lock held.
func (j *job) addModule(m btl.Module) {
	j.modules = append(j.modules, m)
	j.eng.AddPoller(m)
}

// makeWorld makes the communicator of all ranks. Lock held.
func (j *job) makeWorld() {
	group := make([]int, j.size)
	for r := range group {
		group[r] = r
	}
	j.world = j.newComm(pml.WorldContext, "world", group, pml.NewGroup(group), j.rank)
	j.invites = newInvites(j)
}

// stop ends every call under way, and every later call, with cause.
func (j *job) stop(cause error) {
	j.eng.Lock()
	if j.ended == nil {
		j.ended = cause
		if j.onStop != nil {
			j.onStop(cause)
		}
	}
	j.eng.Unlock()
	j.eng.Stop(cause)
}

// Finalize leaves the job. Every rank calls it, on the world. It completes all sends that the other
// ranks receive, including those of freed requests, however long that takes. Then the ranks
// disconnect. Every later use of a communicator or of an active request returns ErrFinalized.
//
// Once all ranks are in Finalize, it gives up sends that no receive matches (ErrPending), and sends
// to a rank to which no rail comes back in time (ErrUnreachable). It reports both, even if Send had
// already returned. It does not report short messages that have reached their receiver, unless the
// send was synchronous: the receiver discards them.
//
// Finalize also reports nonblocking collectives, and starts of persistent ones, that are under way
// and can no longer complete (ErrPending). Whether such a collective completes depends on the other
// ranks. MPI requires that all requests are complete before (MPI 4.1, section 11.2.2). Checked mode
// warns of requests that are not, and of messages that were never received.
//
// Another rank may still wait for a message from this rank, or for this rank to receive. Such a
// call ends with ErrProcFailed about a second after this rank has called Finalize. If a rank has
// failed, Finalize does not wait for it and returns an error.
//
// A deferred Finalize, as in defer world.Finalize(), also handles panics: it prints the panic and
// ends the whole job, like Run, so that no rank waits for this one. (A rank of RunLocal continues
// panicking.)
func (c *Comm) Finalize() error {
	if p := recover(); p != nil {
		c.crash(newRankPanic(p))
	}
	const op = calls.Finalize
	if err := c.enter(); err != nil {
		return c.fail(op, none, none, err)
	}
	j := c.job
	defer j.eng.Unlock()
	if c.state != j.world.state {
		return c.fail(op, none, none, fmt.Errorf("%w: only the world is finalized", ErrComm))
	}
	j.ended = ErrFinalized
	collectives := j.activeCollectives()
	j.endAppTime()
	j.pml.Leave(ErrFinalized)
	// After the first barrier all ranks are in Finalize, and no rank posts a receive any more.
	// After the second barrier no rank needs another rank.
	tell := j.eng.After(int64(leaveGrace), j.pml.TellFinalized)
	err := j.driveDuring(j.others.barrier)
	j.eng.StopTimer(tell)
	if err == nil {
		_ = j.compareClocks(false) // if it fails, the trace has the comparison from the start
		unsent := j.drain()
		err = errors.Join(unsent, j.driveDuring(j.others.barrier))
		if err == nil {
			err = collectives.incomplete()
		}
	}
	if j.check != nil {
		j.tellUnobserved()
		if !errors.Is(err, ErrProcFailed) { // otherwise all ranks have ended too early
			j.tellUnreceived()
		}
	}
	if err == nil {
		j.tellRest()
	}
	j.printStats()
	recorded := j.writeRecords("")
	j.stopRecording()
	closing, leaving := j.close(ErrFinalized), j.others.leave()
	if errors.Is(err, ErrProcFailed) {
		leaving = nil // the cause of the barrier's failure makes leave fail too
	}
	return c.fail(op, none, none, errors.Join(err, recorded, closing, leaving))
}

// crash ends the job because of a panic of this rank.
func (c *Comm) crash(p *PanicError) {
	if c.isNull() {
		panic(p.Value)
	}
	if _, local := c.job.others.(localRank); local {
		panic(p.Value) // RunLocal reports it
	}
	c.job.fail(p)
}

// fail ends the job with exit status 1, after telling the user of err.
func (j *job) fail(err error) {
	var attrs []slog.Attr
	if p := (*PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
		if j.log.To == nil {
			_, _ = os.Stderr.Write(p.Stack)
		}
	}
	line := userlog.OneLine(err)
	j.notices.isEnding.Store(true)
	j.writeRecordsSoon(fmt.Sprintf("rank %d: %s", j.rank, line))
	j.log.Log(slog.LevelError, line, attrs...)
	a := wireup.Abort{Code: 1, Message: line, Why: wireup.Returned}
	switch p, isPanic := err.(*PanicError); {
	case isPanic:
		a.Message, a.Why = fmt.Sprint(p.Value), wireup.Panicked
	case coll.Follows(err):
		a.Why = wireup.Follows
	}
	j.others.abort(a)
}

// driveDuring makes progress while f runs on a goroutine. Lock held, and released meanwhile.
func (j *job) driveDuring(f func() error) error {
	w := new(progress.Waiter)
	w.Reset(1)
	var err error
	go func() {
		e := f()
		j.eng.Lock()
		err = e
		w.Signal()
		j.eng.Unlock()
	}()
	if stopped := j.eng.Wait(context.Background(), w); stopped != nil {
		return stopped
	}
	return err
}

// drain makes progress until every send is delivered, has failed, or will never be received. It
// needs no deadline, because each send ends by itself, even on a slow machine. No rank posts a
// receive any more, so the receiver rejects a message that it has not matched. A peer that cannot
// be reached is lost when its grace time is over. drain does not wait for the library's own
// fragments. Lock held.
func (j *job) drain() error {
	const firstLook, lastLook = int64(20 * time.Microsecond), int64(5 * time.Millisecond)
	j.pml.RejectUnmatched()
	for look := firstLook; j.pml.Unfinished() > 0; look = min(2*look, lastLook) {
		w := j.eng.GetWaiter(1)
		t := j.eng.After(look, w.Signal)
		err := j.eng.Wait(context.Background(), w)
		j.eng.StopTimer(t)
		j.eng.PutWaiter(w)
		if err != nil {
			return err
		}
	}
	if list := j.pml.Unmatched(); len(list) > 0 {
		return fmt.Errorf("%w: no rank receives %s", ErrPending, describePending(list))
	}
	return withoutLine(j.pml.Undelivered()) // any call may have noticed it
}

// describePending describes the first send of a list, and says how many more there are.
func describePending(list []pml.Pending) string {
	first := list[0].String()
	first += " in " + *stateOf(list[0].Caller).name.Load()
	if len(list) == 1 {
		return first
	}
	return fmt.Sprintf("%s, and %d more", first, len(list)-1)
}

// close closes the rank's rails and ends operations that are still active with cause. Only the
// first call has an effect. Lock held.
func (j *job) close(cause error) error {
	if j.closed {
		return nil
	}
	j.closed = true
	j.events.end()
	if j.introspection != nil {
		_ = j.introspection.Close()
	}
	if j.stopRails != nil {
		j.stopRails()
	}
	var errs []error
	for _, m := range j.modules {
		errs = append(errs, m.Close())
	}
	errs = append(errs, j.pml.Close(cause))
	j.hub.Close()
	j.eng.Unlock() // because Stop and Close take the lock themselves
	if j.async != nil {
		j.async.stop()
	}
	j.eng.Stop(cause)
	errs = append(errs, j.eng.Close())
	j.eng.Lock()
	return errors.Join(errs...)
}

// Abort ends all ranks of the job with an exit code. It does not return. At a rank of RunLocal, it
// ends the calls of all ranks and the goroutine that calls it, and RunLocal returns an error.
func (c *Comm) Abort(code int) {
	if c.isNull() {
		os.Exit(exitStatus(code))
	}
	why := fmt.Sprintf("rank %d called Abort(%d)", c.job.rank, code)
	c.job.notices.isEnding.Store(true)
	c.job.writeRecordsSoon(why)
	c.job.others.abort(wireup.Abort{Code: code, Message: why})
}

// exitStatus is the exit status of a process for a code. It is zero only for the code zero.
func exitStatus(code int) int {
	if code != 0 && code&0xff == 0 {
		return 1
	}
	return code & 0xff
}
