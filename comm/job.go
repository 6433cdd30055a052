package comm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/internal/tunable"
)

// job is one rank of a job: everything that Init or RunLocal makes hangs here. What
// changes is guarded by the engine's lock.
type job struct {
	rank, size int
	world      *Comm
	eng        *progress.Engine
	pml        *pml.PML
	others     others
	modules    []btl.Module
	settings   tunable.Set
	elems      elemCache          // has its own synchronisation
	hostKey    [hostKeyBytes]byte // equal on ranks of one machine
	crowded    bool               // some machine has more ranks of the job than cores for them; the same at all ranks
	ended      error              // why no call may begin any more: ErrFinalized, or what brought the job down
	allocs     map[*byte]allocation
	kicker     *kicker // nil unless a rail wants it
	notices    notices
	closed     bool
}

const hostKeyBytes = 16

// leaveGrace is how long Finalize waits for the other ranks before it tells those that it is in
// touch with: where all end at about the same time nobody has to know.
const leaveGrace = time.Second

// others is how a rank meets the other ones beside the message path: the process
// manager, or RunLocal. Its methods may be called from any goroutine, without the lock.
type others interface {
	// barrier returns when every rank has called it, or with an error when one has failed.
	barrier() error
	// leave says that this rank has left the job in order.
	leave() error
	// abort ends the job with the given exit code and does not return.
	abort(code int, why string)
}

// newJob makes a rank with an engine and a PML. Its modules are still to be made, then
// its world.
func newJob(rank, size int, settings tunable.Set, engine progress.Config, hostID string) *job {
	j := &job{
		rank:     rank,
		size:     size,
		eng:      progress.New(engine),
		settings: settings,
	}
	sum := sha256.Sum256([]byte(hostID))
	copy(j.hostKey[:], sum[:])
	return j
}

// addModule makes a module known. Lock held.
func (j *job) addModule(m btl.Module) {
	j.modules = append(j.modules, m)
	j.eng.AddHigh(m)
}

// makeWorld makes the communicator of all ranks. Lock held.
func (j *job) makeWorld() {
	group := make([]int, j.size)
	for r := range group {
		group[r] = r
	}
	j.world = j.newComm(pml.WorldContext, "world", group, pml.NewGroup(group), j.rank)
}

// stop ends every call, present and future, with cause.
func (j *job) stop(cause error) {
	j.eng.Lock()
	if j.ended == nil {
		j.ended = cause
	}
	j.eng.Unlock()
	j.eng.Stop(cause)
}

// Finalize leaves the job; every rank calls it, on the world. It completes what was sent, the sends
// of freed requests too, as long as the other ranks receive them, however long that takes. Once all
// ranks are in Finalize, sends that no receive matches are given up and reported (ErrPending), and
// so are those to a rank to which no rail comes back in time (ErrUnreachable), also if the call of
// Send had returned before. Then the ranks disconnect. Another rank that does not come, because it
// waits for a message of this one or for this one to receive, gets ErrProcFailed for that, about a
// second after this call. Every later use of any communicator or active request is ErrFinalized.
// When a rank has failed Finalize does not wait for it, and returns an error.
//
// Deferred, as in defer world.Finalize(), it does not leave the other ranks waiting for one that
// panics: it prints the panic and ends the whole job, as Run does. (A rank of RunLocal goes on
// panicking.)
func (c *Comm) Finalize() error {
	if p := recover(); p != nil {
		c.crash(&panicError{p, debug.Stack()})
	}
	const op = "finalize"
	if err := c.enter(); err != nil {
		return c.fail(op, none, none, err)
	}
	j := c.job
	defer j.eng.Unlock()
	if c.state != j.world.state {
		return c.fail(op, none, none, fmt.Errorf("%w: only the world is finalized", ErrComm))
	}
	j.ended = ErrFinalized
	j.pml.Leave(ErrFinalized)
	// All ranks are in Finalize after the first barrier: no receive will be posted any
	// more. After the second nobody needs anybody.
	tell := j.eng.After(int64(leaveGrace), j.pml.TellFinalized)
	err := j.driveDuring(j.others.barrier)
	j.eng.StopTimer(tell)
	if err == nil {
		unsent := j.drain()
		err = errors.Join(unsent, j.driveDuring(j.others.barrier))
	}
	if j.settings.Bool("stats") {
		fmt.Fprintf(os.Stderr, "mpigo: rank %d: %+v %+v\n", j.rank, j.eng.Counters(), j.pml.Stats())
	}
	err = errors.Join(err, j.close(ErrFinalized), j.others.leave())
	return c.fail(op, none, none, err)
}

// crash ends the job because the rank panics.
func (c *Comm) crash(p *panicError) {
	if c.isNull() {
		panic(p.value)
	}
	if _, local := c.job.others.(localRank); local {
		panic(p.value) // RunLocal will tell
	}
	c.job.fail(p)
}

// fail ends the job with exit status 1, and says why on standard error.
func (j *job) fail(err error) {
	var p *panicError
	if errors.As(err, &p) {
		os.Stderr.Write(p.stack)
	}
	line := fmt.Sprintf("rank %d: %s", j.rank, oneLine(err))
	fmt.Fprintf(os.Stderr, "mpigo: %s\n", line)
	j.others.abort(1, line)
}

// driveDuring makes progress while f runs on a goroutine. Lock held; given up in between.
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

// drain makes progress until every send is delivered, has failed, or will never be received. Each
// of them ends by itself: no receive is posted any more, so the receiver rejects what it has not
// matched; and a peer that cannot be reached is lost when its time is over. So there is no deadline
// here, and a machine that is slow only takes longer. Fragments that the library sends of itself
// are not waited for. Lock held.
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
		return fmt.Errorf("%w: nobody receives %s", ErrPending, describePending(list))
	}
	return j.pml.Undelivered()
}

// describePending tells the first of some sends in full, and how many there are besides.
func describePending(list []pml.Pending) string {
	first := list[0].String()
	if s, ok := list[0].Caller.(*state); ok {
		first += " in " + *s.name.Load()
	}
	if len(list) == 1 {
		return first
	}
	return fmt.Sprintf("%s, and %d more", first, len(list)-1)
}

// close brings the rank's rails down and ends what is still active with cause. Only the
// first call does something. Lock held.
func (j *job) close(cause error) error {
	if j.closed {
		return nil
	}
	j.closed = true
	var errs []error
	for _, m := range j.modules {
		errs = append(errs, m.Close())
	}
	errs = append(errs, j.pml.Close(cause))
	j.eng.Unlock() // which Stop and Close take themselves
	if j.kicker != nil {
		j.kicker.stop()
	}
	j.eng.Stop(cause)
	errs = append(errs, j.eng.Close())
	j.eng.Lock()
	return errors.Join(errs...)
}

// Abort ends the whole job, all ranks of it, with an exit code. It does not return. A rank
// of RunLocal ends the job's calls and its own goroutine; RunLocal returns an error.
func (c *Comm) Abort(code int) {
	if c.isNull() {
		os.Exit(exitStatus(code))
	}
	c.job.others.abort(code, fmt.Sprintf("rank %d called Abort(%d)", c.job.rank, code))
}

// exitStatus is the code as a process can return it: what is not zero does not become zero.
func exitStatus(code int) int {
	if code != 0 && code&0xff == 0 {
		return 1
	}
	return code & 0xff
}
