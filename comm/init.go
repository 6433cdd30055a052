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
	badRails error // of WithRails
	onFabric func(*loop.Fabric)
	hook     observe.Hook
	log      *slog.Logger // nil: text on standard error
}

type setting struct{ key, value string }

// WithSetting sets a tunable, as the launcher's --set does. It has precedence over the environment.
// Init and RunLocal return an error for an unknown key or a bad value.
func WithSetting(key, value string) Option {
	return func(o *options) { o.settings = append(o.settings, setting{key, value}) }
}

// WithGrace is the tunable pml.grace: how long operations wait for a rail when none to the peer is
// up. 0: not at all.
func WithGrace(d time.Duration) Option { return WithSetting("pml.grace", d.String()) }

// WithTransports is the tunable btl: the transports that the job may use, the preferred one first;
// "self" reaches the rank itself. RunLocal ignores it.
func WithTransports(names ...string) Option {
	return WithSetting("btl", strings.Join(names, ","))
}

// WithLogger has the library tell what it notices by itself through h: rails that fail and return,
// warnings, and the error with which [Run] ends the job. Without it, and if h is nil, it prints
// lines on standard error. Records have the attribute rank.
//
// The handler of h must be quick, and must not call this package: the library may hold its lock.
// The table and the JSON of the setting stats are output, and stay on standard error.
func WithLogger(h *slog.Logger) Option {
	return func(o *options) { o.log = h }
}

// WithFabric configures the fabric that joins the ranks of RunLocal, for tests of the library
// itself: for all else there is [WithRails]. RunLocal sets Ranks; Virtual is ErrNotSupported. Init
// ignores the option.
func WithFabric(cfg loop.Config) Option {
	return func(o *options) { o.fabric = cfg }
}

// OnFabric has RunLocal call f with the fabric that joins its ranks, before their bodies run, for
// tests of the library itself: for all else there is [Comm.CutRail]. The methods of a fabric that
// make rails fail, and repair them, may be called from any goroutine while the bodies run. If the
// option is given several times, the last one counts; nil is none. Init ignores it.
func OnFabric(f func(*loop.Fabric)) Option {
	return func(o *options) { o.onFabric = f }
}

// applied are the options that opts give.
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
// returns, all ranks have called it. A process may call it once, even if it fails because of the
// launcher or a peer: later calls are ErrNotSupported.
func Init(opts ...Option) (*Comm, error) {
	world, err := initialize(opts)
	if err != nil {
		return nil, &Error{Op: calls.Init.String(), Comm: "world", Line: callerLine(), Peer: Undefined, Tag: Undefined, Err: err}
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

// claimProcess records that this process has called Init. It fails if the process had called it
// before: this program, or one that has executed it in its place.
func claimProcess() error {
	self := strconv.Itoa(os.Getpid())
	if os.Getenv(initVariable) == self {
		return fmt.Errorf("%w: Init was called before in this process (a program that it executes cannot join again: start it by mpirun-go)", ErrNotSupported)
	}
	return os.Setenv(initVariable, self)
}

// join makes the rank that this process is according to client, which is nil without a launcher.
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
	j.crowded = local > cores // of this machine; readCards makes it the same at all ranks
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

// readIdentity learns the end of the job's identity, after the barrier of Init.
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

// anyCrowded reports whether some rank's machine, this rank's included, is crowded: all ranks have
// to agree on that.
func anyCrowded(others []wireup.Card, own bool) bool {
	return own || slices.ContainsFunc(others, func(c wireup.Card) bool { return c.Oversubscribed })
}

// wakeup returns the function by which a rail asks for a progress call soon, though the rank may be
// busy elsewhere. Lock held.
func (j *job) wakeup() func() { return j.progressAsync().request }

// progressAsync is the rank's asynchronous progress, which it makes if there is none. Lock held.
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
	// If the manager cannot be told, it sees that this process ends without Finalize. If it was
	// told, it ends all processes. This one stays until then, so that the others do not fail first
	// because this one is gone, and are not blamed.
	if m.client.Abort(a) == nil {
		time.Sleep(abortGrace)
	}
	os.Exit(exitStatus(a.Code))
}

// awaitReader waits up to 50 ms until a pipe is read. A manager that is told to end the job may not
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
