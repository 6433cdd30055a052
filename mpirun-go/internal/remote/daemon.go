package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// daemon runs on each host. It starts ranks there, and forwards frames to other hosts. One
// goroutine handles all frames from the launcher; it never waits for a stream.
type daemon struct {
	up     *link
	number uint16
	local  *procs.Local
	cache  cache

	ranks map[uint32]*localRank
	// Why the daemon starts no more ranks: a start failed, or the job was killed. Nil: it starts
	// ranks.
	startFailure *failure
	files        map[uint32]*inbox
	fetches      map[uint32]*outbox // records that are sent to the launcher, by number
	launcher     launcherMonitor
	branches     []*branch
	tasks        sync.WaitGroup // running branches, file transfers and work on files
	stop         chan struct{}  // closed when the daemon ends
}

// errBye means that the launcher has ended the daemon with kindBye.
var errBye = errors.New("bye")

// Daemon is the main function of a daemon process. Its standard input and output are the channel to
// the launcher. watchdogArgv is passed to procs.NewLocal. Daemon returns the exit status when all
// processes of the job on this host have ended.
func Daemon(watchdogArgv []string) int {
	// A write to a closed channel must return an error, and not kill the daemon.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// SIGTSTP is caught, because ranks would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTSTP)

	in, out, err := takeChannel()
	if err == nil {
		err = checkInput(in)
	}
	var own cache
	if err == nil {
		own, err = ownCache()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mpirun-go:", err)
		return 1
	}
	if _, err := fmt.Fprintf(out, "\n%s%d\n", daemonLine, version); err != nil {
		return 1
	}
	// Before this point a write may block and no process needs to be ended, so signals keep their
	// default action.
	ends := make(chan os.Signal, 4)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	d := &daemon{up: newLink(), cache: own, ranks: map[uint32]*localRank{}, files: map[uint32]*inbox{}, fetches: map[uint32]*outbox{}, stop: make(chan struct{})}
	frames, readErr := make(chan frame), error(nil)
	go func() {
		defer close(frames)
		reader := bufio.NewReaderSize(in, 64<<10)
		for {
			f, err := readFrame(reader)
			if err != nil {
				readErr = err
				return
			}
			select {
			case frames <- f:
			case <-d.stop:
				return
			}
		}
	}()
	d.up.start(out)
	pings := time.NewTicker(pingInterval)
	defer pings.Stop()
	for {
		select {
		case f, more := <-frames:
			if more {
				d.launcher.reset()
				err = d.handle(f, watchdogArgv)
			} else {
				err = readErr
			}
		case <-pings.C:
			if d.launcher.tick() {
				err = errors.New("the launcher does not answer")
			}
		case sig := <-ends:
			err = fmt.Errorf("got signal %v", sig)
		}
		if err != nil {
			return d.end(err)
		}
	}
}

// checkInput detects an agent that does not forward the standard input, such as kubectl exec
// without -i.
func checkInput(in *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(in.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) {
		return errors.New("standard input is /dev/null: the agent must forward it")
	}
	return nil
}

// takeChannel moves the channel from the standard input and output to new descriptors, so that
// neither a child process nor a stray print can write to the channel.
func takeChannel() (in, out *os.File, err error) {
	var fds [2]int
	for i := range fds {
		if fds[i], err = unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return nil, nil, os.NewSyscallError("fcntl", err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	if err := unix.Dup2(int(null.Fd()), 0); err != nil {
		return nil, nil, os.NewSyscallError("dup2", err)
	}
	if err := unix.Dup2(2, 1); err != nil {
		return nil, nil, os.NewSyscallError("dup2", err)
	}
	return os.NewFile(uintptr(fds[0]), "from the launcher"), os.NewFile(uintptr(fds[1]), "to the launcher"), nil
}

// ownCache returns the cache that this program was executed from; the script chose its directory.
// It removes a damaged copy of this program, so that the next start sends a new one.
func ownCache() (cache, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return cache{}, err
	}
	dir, want := filepath.Dir(filepath.Dir(exe)), filepath.Base(filepath.Dir(exe))
	if !isHash(want) {
		return cache{}, fmt.Errorf("%s is not in a cache", exe)
	}
	c, err := openCache(dir)
	if err != nil {
		return cache{}, err
	}
	hash, _, err := hashFile(exe)
	if err != nil || hash == want { // err: the file was removed meanwhile
		c.touch(want)
		return c, nil
	}
	_ = os.Remove(exe)
	return cache{}, fmt.Errorf("the copy of mpirun-go in %s was damaged and has been removed: try again", filepath.Dir(exe))
}

// end ends all processes of the job on this host.
func (d *daemon) end(why error) int {
	status := 0
	close(d.stop)
	if why != errBye {
		status = 1
		if d.local != nil {
			d.local.Kill()
		}
		for _, b := range d.branches {
			b.link.close()
		}
	}
	for _, b := range d.branches {
		b.link.finish() // the launcher has sent a kindBye to each host
	}
	for _, box := range d.files {
		box.finish(io.ErrUnexpectedEOF)
	}
	for _, box := range d.fetches {
		box.fail(syscall.EPIPE)
	}
	waitTimeout(&d.tasks, 2*agentExitGrace)
	if d.local != nil {
		d.local.Close()
	}
	d.up.finish()
	d.up.flush(agentExitGrace)
	return status
}

// post sends a frame about this host to the launcher.
func (d *daemon) post(k kind, s stream, rank uint32, payload []byte) {
	d.up.post(frame{kind: k, stream: s, host: d.number, rank: rank, payload: payload})
}

// handle handles one frame from the launcher. An error ends the daemon.
func (d *daemon) handle(f frame, watchdogArgv []string) error {
	if d.local == nil {
		if f.kind != kindHello {
			return fmt.Errorf("%w: no hello", ErrProtocol)
		}
		return d.onHello(f, watchdogArgv)
	}
	if f.host != d.number {
		for _, b := range d.branches {
			if b.contains(f.host) {
				b.link.post(f)
				return nil
			}
		}
		return fmt.Errorf("%w: unknown host %d", ErrProtocol, f.host)
	}
	switch f.kind {
	case kindConnect:
		return d.onConnect(f.payload)
	case kindOffer:
		return d.onOffer(f)
	case kindStart:
		return d.onStart(f)
	case kindAskState:
		if h := d.ranks[f.rank]; h != nil {
			d.post(kindState, 0, f.rank, appendNumber(nil, int(h.proc.State(context.Background()))))
		}
	case kindSignal:
		number, err := decodeNumber(f.payload, 127)
		if err != nil {
			return err
		}
		d.onSignal(f.rank, syscall.Signal(number))
	case kindKill:
		if f.rank == allRanks {
			if d.startFailure == nil {
				d.startFailure = &failure{text: "the job has ended"}
			}
			d.local.Kill()
		} else {
			d.local.KillGroups()
		}
	case kindRecordDirs:
		return d.onRecordDirs(f.payload)
	case kindFetch:
		return d.onFetch(f)
	case kindCutOutput:
		if h := d.ranks[f.rank]; h != nil {
			_ = h.proc.Stdout.SetReadDeadline(time.Unix(1, 0))
			_ = h.proc.Stderr.SetReadDeadline(time.Unix(1, 0))
		}
	case kindData, kindEnd, kindCredit:
		return d.onStream(f)
	case kindPing:
		d.post(kindPong, 0, 0, nil)
	case kindBye:
		return errBye
	default:
		return fmt.Errorf("%w: a frame of kind %d", ErrProtocol, f.kind)
	}
	return nil
}

func (d *daemon) onHello(f frame, watchdogArgv []string) error {
	h, err := decodeHello(f.payload)
	if err != nil {
		return err
	}
	d.number = f.host
	machine := slots.ThisMachine()
	if d.local, err = procs.NewLocal(h.name, h.job, watchdogArgv); err != nil {
		printError(err)
		return err
	}
	d.post(kindWelcome, 0, 0, welcome{proof: proofOf(h, f.host), cores: machine.Cores, quota: machine.Quota}.encode())
	return nil
}

// printError prints an error for the user, and waits for at most agentExitGrace for the agent to
// read it.
func printError(err error) {
	stderr := output.NewSink(os.Stderr)
	stderr.Line("mpirun-go: " + err.Error())
	select {
	case <-stderr.Written():
	case <-time.After(agentExitGrace):
	}
}

func (d *daemon) onSignal(rank uint32, sig syscall.Signal) {
	if rank == allRanks {
		d.launcher.onSignal(sig)
		d.local.SignalGroups(sig)
	} else if h := d.ranks[rank]; h != nil {
		h.proc.Signal(sig)
	}
}

// onConnect starts to connect to other hosts. Frames for them are queued until they are connected.
func (d *daemon) onConnect(payload []byte) error {
	a, err := decodeConnect(payload)
	if err != nil {
		return err
	}
	if len(a.agent.Words) == 0 && a.agent.Form != FormLocal || len(a.children) > fanOut || len(d.branches) > 0 {
		return fmt.Errorf("%w: not a part of a tree", ErrProtocol)
	}
	self, err := thisProgram()
	if err != nil {
		return err
	}
	for _, c := range a.children {
		b := newBranch(c)
		d.branches = append(d.branches, b)
		host := uint16(c.host)
		d.tasks.Go(func() {
			notice := func(line string) {
				d.up.post(frame{kind: kindNotice, host: host, payload: []byte(line)})
			}
			take := func(f frame) error {
				d.up.post(f)
				return nil
			}
			// Tell the launcher, which waits for the host's daemon, about the progress.
			progress := func() { d.up.post(frame{kind: kindPong, host: host}) }
			b.run(d.local.Name(), a.agent, self, time.Duration(a.timeout)*time.Millisecond, d.stop, progress, notice, take, func(err error) {
				why := err.Error()
				if failed := (*HostError)(nil); errors.As(err, &failed) {
					why = failed.Problem
				}
				d.up.post(frame{kind: kindLost, host: host, payload: []byte(why)})
			})
		})
	}
	return nil
}

// onOffer answers an offer of a file: with the file's path here, or with a request for the file and
// then its path.
func (d *daemon) onOffer(f frame) error {
	o, err := decodeOffer(f.payload)
	if err != nil {
		return err
	}
	number := f.rank
	if d.files[number] != nil {
		return fmt.Errorf("%w: file %d is offered twice", ErrProtocol, number)
	}
	box := openInbox(d.post, streamFile, number)
	d.files[number] = box
	d.tasks.Go(func() {
		answered := func(a answer) { d.post(kindAnswer, 0, number, a.encode()) }
		defer box.discard()
		if path := d.cache.find(o); path != "" {
			answered(answer{path: path})
			return
		}
		answered(answer{wanted: true})
		path, err := d.cache.receive(o, box)
		if err != nil {
			answered(answer{problem: strings.ReplaceAll(err.Error(), "\n", "; ")})
			return
		}
		answered(answer{path: path})
	})
	return nil
}

// onStream handles a frame of a stream.
func (d *daemon) onStream(f frame) error {
	var in *inbox
	var out *outbox
	switch f.stream {
	case streamFile:
		in = d.files[f.rank]
	case streamRecord:
		out = d.fetches[f.rank]
	default:
		if h := d.ranks[f.rank]; h != nil {
			in, out = h.in[f.stream], h.out[f.stream]
		}
	}
	_, err := deliver(in, out, f)
	return err // an undelivered frame belongs to a rank that did not start
}
