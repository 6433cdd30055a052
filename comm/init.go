package comm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/comm/internal/rails"
	"github.com/mpigo/mpigo/comm/internal/userline"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// Option changes how Init or RunLocal makes a job.
type Option func(*options)

type options struct {
	settings []setting
	fabric   loop.Config
	badRails error // from WithRails
	onFabric func(*loop.Fabric)
	hook     observe.Hook
	log      *slog.Logger // nil: text on standard error
}

type setting struct{ key, value string }

// WithSetting sets a tunable, like the launcher's --set. It has precedence over the environment.
// Init and RunLocal return an error for an unknown key or a bad value.
func WithSetting(key, value string) Option {
	return func(o *options) { o.settings = append(o.settings, setting{key, value}) }
}

// WithGrace sets the tunable pml.grace: how long operations wait for a rail when none to the peer
// is up. With 0 they do not wait.
func WithGrace(d time.Duration) Option { return WithSetting("pml.grace", d.String()) }

// WithTransports sets the tunable btl: the transports that the job may use, the preferred one
// first. "self" reaches the rank itself. RunLocal ignores it.
func WithTransports(names ...string) Option {
	return WithSetting("btl", strings.Join(names, ","))
}

// WithLogger passes what the library reports by itself to h: rails that fail and return, warnings,
// and the error with which [Run] ends the job. Without the option, and if h is nil, the library
// prints lines on standard error. Records have the attribute rank.
//
// The handler of h must be quick, and must not call this package: the library may hold its lock.
// The table and the JSON of the setting stats are output, and stay on standard error.
func WithLogger(h *slog.Logger) Option {
	return func(o *options) { o.log = h }
}

// WithFabric configures the fabric that joins the ranks of RunLocal, for tests of the library
// itself; other programs use [WithRails]. RunLocal sets Ranks. If Virtual is set, it returns
// ErrNotSupported. Init ignores the option.
func WithFabric(cfg loop.Config) Option {
	return func(o *options) { o.fabric = cfg }
}

// OnFabric makes RunLocal call f with the fabric that joins its ranks, before their bodies run. It
// is for tests of the library itself; other programs use [Comm.CutRail]. The methods of a fabric
// that make rails fail, and repair them, may be called from any goroutine while the bodies run. If
// the option is given several times, the last one counts; a nil f removes it. Init ignores the
// option.
func OnFabric(f func(*loop.Fabric)) Option {
	return func(o *options) { o.onFabric = f }
}

// applied returns the options after all of opts.
func applied(opts []Option) (o options) {
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

// makeOptions reads the environment and applies opts.
func makeOptions(opts []Option) (options, tunable.Set, error) {
	o := applied(opts)
	set, err := tunable.FromEnv(os.Getenv)
	for _, s := range o.settings {
		if err != nil {
			break
		}
		set, err = set.With(s.key, s.value, tunable.FromCommandLine)
	}
	return o, set, err
}

// Init joins the job that launched this process, by PMI (mpirun-go, Hydra, Slurm), and returns the
// communicator of all its ranks, the world. Without a launcher the world has one rank. When Init
// returns, all ranks have called it. A process may call it once: later calls return
// ErrNotSupported, even if the first one failed because of the launcher or a peer.
func Init(opts ...Option) (*Comm, error) {
	world, err := initialize(opts)
	if err != nil {
		return nil, &Error{Op: calls.Init.String(), Comm: "world", Line: userline.Caller(), Peer: Undefined, Tag: Undefined, Err: err}
	}
	return world, nil
}

func initialize(opts []Option) (*Comm, error) {
	o, settings, err := makeOptions(opts)
	if err != nil {
		return nil, err
	}
	if err := claimProcess(); err != nil {
		return nil, err
	}
	client, err := wireup.FromEnv(nil)
	if err != nil && !errors.Is(err, wireup.ErrNoLauncher) {
		return nil, err
	}
	if client == nil { // mpirun-go warns itself
		for _, warning := range tunable.UnknownVariables(os.Environ()) {
			userlog.Logger{Rank: userlog.NoRank, To: o.log}.Warn(warning)
		}
	}
	world, err := join(client, settings, o)
	if err != nil && client != nil {
		err = errors.Join(fmt.Errorf("rank %d: %w", client.Rank(), err), client.Close())
	}
	return world, err
}

// initVariable is an environment variable that Init sets to the number of its process. A child
// inherits the variable, but has another number.
const initVariable = "MPIGO_INIT_PID"

// claimProcess records that this process has called Init. It fails if the process has called it
// before, in this program or in a program that has replaced itself by this one (exec).
func claimProcess() error {
	self := strconv.Itoa(os.Getpid())
	if os.Getenv(initVariable) == self {
		return fmt.Errorf("%w: Init was called before in this process (a program that it executes cannot join again: start it by mpirun-go)", ErrNotSupported)
	}
	return os.Setenv(initVariable, self)
}

// join makes the rank of this process. client is the connection to the launcher, or nil without
// one.
func join(client *wireup.Client, settings tunable.Set, o options) (*Comm, error) {
	host, err := wireup.HostID()
	if err != nil {
		return nil, err
	}
	rank, size, local := 0, 1, 1
	if client != nil {
		rank, size, local = client.Rank(), client.Size(), rails.LocalRanks(client)
	}
	wakeup, err := progress.NewPipeWakeup()
	if err != nil {
		return nil, err
	}
	cores := coresOfProcesses()
	engine := idlePolicy(settings, local, cores, crowdedYieldNanos)
	engine.Wakeup, engine.Processor = wakeup, progress.SystemProcessor()
	if local > cores && isAloneInGroup() {
		engine.QuickYields = aloneQuickYields
	}
	j := newJob(rank, size, settings, engine, host, o.log)
	j.crowded = local > cores // for this machine; readCards makes it the same at all ranks
	j.others, j.id = alone{}, ownJobID()
	if client != nil {
		j.others, j.id = manager{client}, client.JobID()
	}
	if err := j.startRecording(false); err != nil {
		return nil, errors.Join(err, j.eng.Close())
	}
	var r *rails.Rails
	j.makePML(func(peer int) ([]pml.Route, error) { return r.Resolve(peer) })
	r = rails.New(rails.Config{
		Env: transport.Env{
			Rank: rank, Size: size, Settings: settings, Events: j.pml, Wakeup: wakeup,
			AsyncProgress: j.wakeup, Devices: o.hook.Devices,
		},
		Client: client, Host: host, Lock: j.eng, Add: j.addModule, Log: j.log,
	})
	j.writeOnSignal()
	if err := j.connect(r, client); err != nil {
		j.eng.Lock()
		defer j.eng.Unlock()
		return nil, errors.Join(err, j.close(ErrFinalized))
	}
	return j.world, j.compareClocks(true)
}

// connect makes the rails and the world, and exchanges addresses with the other ranks.
func (j *job) connect(r *rails.Rails, client *wireup.Client) error {
	j.eng.Lock()
	j.eng.AddPoller(j.pml)
	err := r.Open()
	j.stopRails, j.untold = r.Close, r.Untold
	if errors.Is(err, rails.ErrAbsent) {
		j.eng.Unlock()
		err = r.Await(err)
		j.eng.Lock()
	}
	if err == nil {
		j.makeWorld()
		j.serveIntrospection(client) // from here on, so that a hang in Init is seen too
	}
	j.eng.Unlock()
	if err != nil {
		return err
	}
	if client == nil {
		r.Describe()
		return nil
	}
	j.eng.Lock()
	own := r.Card(j.crowded)
	own.Checked = j.check != nil
	j.eng.Unlock()
	if err := client.PutCard(own); err != nil {
		return err
	}
	if err := j.openRelay(client); err != nil {
		return err
	}
	if err := client.Barrier(); err != nil {
		return err
	}
	if err := j.readIdentity(client); err != nil {
		return err
	}
	if err := j.joinRelay(client); err != nil {
		return err
	}
	cards, err := r.ReadCards()
	if err != nil {
		return err
	}
	if err := j.agreeOnCheck(cards); err != nil {
		return err
	}
	j.eng.Lock()
	j.crowded = anyCrowded(cards, j.crowded)
	j.hosts = make([]int, len(cards))
	names := make(map[string]int)
	for rank, card := range cards {
		if rank == j.rank {
			card = own
		}
		if _, known := names[card.Host]; !known {
			names[card.Host] = len(names)
		}
		j.hosts[rank] = names[card.Host]
	}
	if j.tracer() != nil {
		cards[j.rank].Host = own.Host
		j.recording.clocks.leaders = leaders(cards)
	}
	j.eng.Unlock()
	r.Warn()
	r.Describe()
	return nil
}

// readIdentity reads the last part of the job's identity, after the barrier of Init.
func (j *job) readIdentity(client *wireup.Client) error {
	if j.recording == nil {
		return nil
	}
	if _, err := client.Secret(); err != nil {
		return err
	}
	j.eng.Lock()
	j.id = client.JobID()
	j.eng.Unlock()
	return nil
}

// anyCrowded reports whether the machine of any rank is crowded. All ranks have to agree on that.
func anyCrowded(others []wireup.Card, own bool) bool {
	return own || slices.ContainsFunc(others, func(c wireup.Card) bool { return c.Oversubscribed })
}

// wakeup returns the function by which a rail asks for a progress call soon, even if the rank is
// computing. Lock held.
func (j *job) wakeup() func() { return j.progressAsync().request }

// progressAsync returns the rank's asynchronous progress. It creates it at the first call. Lock
// held.
func (j *job) progressAsync() *asyncProgress {
	if j.async == nil {
		j.async = newAsyncProgress(j.eng, j.pml.HasBcopies, j.hub.IsActive)
	}
	return j.async
}

// manager reaches the other ranks through the process manager. It implements others.
type manager struct{ client *wireup.Client }

func (m manager) barrier() error {
	err := m.client.Barrier()
	var left *wireup.BarrierError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &left):
		return fmt.Errorf("%w: %s", ErrProcFailed, left.Cause())
	}
	return fmt.Errorf("%w: a rank or the process manager has ended: %w", ErrProcFailed, err)
}

func (m manager) leave() error { return m.client.Finalize() }

// abortGrace is how long a rank that has aborted the job waits for the process manager to end it.
const abortGrace = time.Second

func (m manager) abort(a wireup.Abort) {
	awaitReader(os.Stderr)
	// If the manager does not get the abort, it sees that this process ends without Finalize. If it
	// does, it ends all processes. This process stays until then. Otherwise the others might fail
	// first because this one is gone, and be blamed.
	if m.client.Abort(a) == nil {
		time.Sleep(abortGrace)
	}
	os.Exit(exitStatus(a.Code))
}

// awaitReader waits up to 50 ms until a pipe has been read. A manager that ends the job may not
// read output that was written just before.
func awaitReader(f *os.File) {
	for range 50 {
		unread, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
		if err != nil || unread == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// alone implements others for a world of one rank.
type alone struct{}

func (alone) barrier() error       { return nil }
func (alone) leave() error         { return nil }
func (alone) abort(a wireup.Abort) { os.Exit(exitStatus(a.Code)) }
