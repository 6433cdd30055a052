package remote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"go.uber.org/atomic"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// Host is another machine as a place where ranks run. Goroutines may share it.
type Host struct {
	Cores [][]int // as slots.Machine has them

	cluster         *Cluster
	number          uint16
	name            string
	link            *link
	descendants     []int // hosts that are reached through it
	hello           hello
	awaitingWelcome atomic.Bool  // its first answer has not come, and is waited for
	welcomeTimer    silenceTimer // for that
	missedPings     atomic.Int32 // pulses since it was heard of

	mu       sync.Mutex // guards all below
	ranks    map[uint32]*remoteRank
	files    map[uint32]*fileTransfer
	watch    func(error)
	lost     error
	lostChan chan struct{} // closed when lost is set
}

func newHost(c *Cluster, number uint16, name string) *Host {
	return &Host{
		cluster: c, number: number, name: name, lostChan: make(chan struct{}),
		ranks: map[uint32]*remoteRank{}, files: map[uint32]*fileTransfer{},
	}
}

// far is a rank of another machine.
type remoteRank struct {
	host    *Host
	rank    uint32
	pmi     pmiConn
	stdin   *outbox // nil unless it is a pipe
	outputs [2]outputPipe
	started chan startResult // buffered, one place
	exited  chan struct{}
	report  exitReport // written before ended is closed
}

type startResult struct {
	pid int
	err error
}

// sending is a file on its way.
type fileTransfer struct {
	out      *outbox
	answers  chan answer // buffered, two places: as many as there are
	answered int
}

// Name is the host's, as the user calls it.
func (h *Host) Name() string { return h.name }

func (h *Host) post(k kind, s stream, rank uint32, payload []byte) {
	h.link.post(frame{kind: k, stream: s, host: h.number, rank: rank, payload: payload})
}

func (h *Host) inbox(s stream, rank uint32) *inbox {
	return newInbox(s.windowBytes(), func(n int) { h.post(kindCredit, s, rank, appendNumber(nil, n)) })
}

func (h *Host) outbox(s stream, rank uint32) *outbox {
	return newOutbox(s.windowBytes(),
		func(p []byte) { h.post(kindData, s, rank, append([]byte(nil), p...)) },
		func() { h.post(kindEnd, s, rank, nil) })
}

func newRemoteRank(h *Host, rank uint32, stdin bool) *remoteRank {
	cut := sync.OnceFunc(func() { h.post(kindCutOutput, 0, rank, nil) })
	k := &remoteRank{
		host: h, rank: rank,
		pmi:     pmiConn{h.inbox(streamPMI, rank), h.outbox(streamPMI, rank)},
		outputs: [2]outputPipe{{h.inbox(streamStdout, rank), cut}, {h.inbox(streamStderr, rank), cut}},
		started: make(chan startResult, 1), exited: make(chan struct{}),
	}
	if stdin {
		k.stdin = h.outbox(streamStdin, rank)
	}
	return k
}

// startsAhead is how many ranks are asked for before it is known what has come of the first of them. Those are started whatever
// happens meanwhile, and a daemon that starts thousands hears of nothing else.
const maxStartsAhead = 64

// StartAll asks for ranks, many ahead, and calls started for each that was asked for, in order, when it is known what has come of it. It asks for no more
// when started says so. The daemon starts one after another, until one cannot be started. An error is a *procs.StartError, Is procs.ErrLost, or says what
// else is in the way.
func (h *Host) StartAll(specs []procs.Spec, started func(procs.Spec, *procs.Proc, error) (goOn bool)) {
	var asked []*remoteRank
	for i, goOn := 0, true; i < len(specs) && (goOn || i < len(asked)); i++ {
		for goOn && len(asked) < min(i+maxStartsAhead, len(specs)) {
			asked = append(asked, h.requestStart(specs[len(asked)]))
		}
		proc, err := asked[i].awaitStart()
		goOn = started(specs[i], proc, err) && goOn
	}
}

// ask asks for a rank. It returns nil if the host is lost.
func (h *Host) requestStart(spec procs.Spec) *remoteRank {
	rank := uint32(spec.Rank)
	k := newRemoteRank(h, rank, spec.Stdin != procs.StdinNull)
	if k.stdin != nil {
		spec.Stdin = procs.StdinPipe // the launcher's own is not there
	}
	h.mu.Lock()
	if h.lost != nil {
		h.mu.Unlock()
		return nil
	}
	h.ranks[rank] = k
	h.mu.Unlock()
	h.post(kindStart, 0, rank, encodeSpec(spec))
	return k
}

// await waits until the rank has been started, or has not.
func (k *remoteRank) awaitStart() (*procs.Proc, error) {
	if k == nil {
		return nil, procs.ErrLost
	}
	var s startResult
	select {
	case s = <-k.started:
	case <-k.host.lostChan:
		s.err = procs.ErrLost
	}
	if s.err != nil {
		return nil, s.err
	}
	p := &procs.Proc{Rank: int(k.rank), PID: s.pid, PMI: k.pmi, Stdout: k.outputs[0], Stderr: k.outputs[1], Remote: k}
	if k.stdin != nil {
		p.Stdin = k.stdin
	}
	return p, nil
}

// Wait is procs.Proc's.
func (k *remoteRank) Wait() (procs.Exit, int, error) {
	select {
	case <-k.exited:
	case <-k.host.lostChan:
		select {
		case <-k.exited: // before
		default:
			return procs.Exit{}, 0, errors.Join(procs.ErrLost, k.host.lost)
		}
	}
	if k.report.problem != "" {
		return procs.Exit{}, 0, errors.New(printable([]byte(k.report.problem)))
	}
	return k.report.exit, k.report.order, nil
}

// Ending is procs.Proc's. What the process is about to do, nobody knows here.
func (k *remoteRank) Exiting() bool {
	select {
	case <-k.exited:
		return true
	default:
		return false
	}
}

// Signal is procs.Proc's.
func (k *remoteRank) Signal(sig syscall.Signal) {
	k.host.post(kindSignal, 0, k.rank, appendNumber(nil, int(sig)))
}

// SignalGroups sends sig to every rank of the host and what it has started, as far as that is in its
// process group.
func (h *Host) SignalGroups(sig syscall.Signal) {
	h.post(kindSignal, 0, allRanks, appendNumber(nil, int(sig)))
}

// KillGroups ends what is left of the ranks' process groups.
func (h *Host) KillGroups() { h.post(kindKill, 0, 0, nil) }

// Kill ends everything that belongs to the job there.
func (h *Host) Kill() { h.post(kindKill, 0, allRanks, nil) }

// Watch has lost called when the host is lost, once.
func (h *Host) Watch(lost func(error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch = lost; h.lost != nil {
		go lost(h.lost)
	}
}

// lose ends all that goes on with the host, the first time.
func (h *Host) setLost(err error) {
	h.mu.Lock()
	if h.lost != nil {
		h.mu.Unlock()
		return
	}
	h.lost = err
	watch := h.watch
	close(h.lostChan)
	for _, k := range h.ranks {
		k.pmi.finish(io.EOF)
		k.pmi.fail(syscall.EPIPE)
		for _, o := range k.outputs {
			o.finish(io.EOF)
		}
		if k.stdin != nil {
			k.stdin.fail(syscall.EPIPE)
		}
	}
	for _, s := range h.files {
		s.out.fail(syscall.EPIPE)
	}
	h.mu.Unlock()
	if watch != nil {
		watch(err)
	}
}

func (h *Host) isLost() bool {
	select {
	case <-h.lostChan:
		return true
	default:
		return false
	}
}

// Provide sees to it that the host has a program, and returns its path there. Number tells the job's programs apart.
func (h *Host) EnsureProgram(number int, program Program) (string, error) {
	file := uint32(number)
	s := &fileTransfer{out: h.outbox(streamFile, file), answers: make(chan answer, 2)}
	h.mu.Lock()
	if h.lost != nil {
		h.mu.Unlock()
		return "", &HostError{Host: h.name, Lost: h.lost}
	}
	h.files[file] = s
	h.mu.Unlock()
	h.post(kindOffer, 0, file, offer{path: program.Path, hash: program.hash, size: int(program.size)}.encode())
	a, err := h.awaitAnswer(s)
	if err == nil && a.wanted {
		if err := s.send(program); err != nil && !errors.Is(err, syscall.EPIPE) {
			return "", err
		}
		a, err = h.awaitAnswer(s)
	}
	switch {
	case err != nil:
		return "", err
	case a.problem != "":
		return "", &HostError{Host: h.name, Why: fmt.Sprintf("cannot have a copy of %s: %s", program.Path, printable([]byte(a.problem)))}
	case a.wanted || a.path == "":
		return "", &HostError{Host: h.name, Why: "wants a program twice"}
	}
	return a.path, nil
}

func (h *Host) awaitAnswer(s *fileTransfer) (answer, error) {
	select {
	case a := <-s.answers:
		return a, nil
	case <-h.lostChan:
		return answer{}, &HostError{Host: h.name, Lost: h.lost}
	}
}

func (s *fileTransfer) send(program Program) error {
	file, err := os.Open(program.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.CopyN(struct{ io.Writer }{s.out}, file, program.size); err != nil {
		return fmt.Errorf("%s: %w", program.Path, err)
	}
	return s.out.Close()
}

// Program is a file that ranks execute.
type Program struct {
	Path string
	hash string
	size int64
}

// NewProgram reads a program's file.
func NewProgram(path string) (Program, error) {
	hash, size, err := hashFile(path)
	if err != nil {
		return Program{}, err
	}
	return Program{Path: path, hash: hash, size: size}, nil
}

// take deals with a frame from the host. It does not wait. An error ends the channel.
func (h *Host) handle(f frame) error {
	h.missedPings.Store(0)
	switch f.kind {
	case kindWelcome:
		return h.cluster.onWelcome(h, f.payload)
	case kindNotice:
		h.cluster.cfg.Notify(h.name, printable(f.payload))
		return nil
	case kindLost:
		why := errors.New(printable(f.payload))
		if h.Cores == nil {
			why = &HostError{Host: h.name, Why: why.Error()}
		}
		h.cluster.onLost(h, why)
		return nil
	case kindPong:
		h.welcomeTimer.heard.Store(true)
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.kind == kindAnswer || f.stream == streamFile {
		return h.handleFile(f)
	}
	k := h.ranks[f.rank]
	if k == nil {
		return fmt.Errorf("%w: of rank %d, which is not there", ErrProtocol, f.rank)
	}
	return k.handle(f)
}

func (h *Host) handleFile(f frame) error {
	s := h.files[f.rank]
	switch {
	case s == nil:
		return fmt.Errorf("%w: of a file that was not offered", ErrProtocol)
	case f.kind == kindCredit:
		n, err := decodeNumber(f.payload, maxInt)
		if err != nil {
			return err
		}
		return s.out.addCredits(n)
	case f.kind != kindAnswer || s.answered == cap(s.answers):
		return fmt.Errorf("%w: not an answer", ErrProtocol)
	}
	a, err := decodeAnswer(f.payload)
	if err != nil {
		return err
	}
	s.answered++
	s.answers <- a
	return nil
}

// take deals with a frame about the rank. Its host's mu is held.
func (k *remoteRank) handle(f frame) error {
	switch f.kind {
	case kindStarted, kindFailed:
		var s startResult
		var err error
		if f.kind == kindStarted {
			s.pid, err = decodeNumber(f.payload, maxInt)
		} else {
			var e failure
			e, err = decodeFailure(f.payload)
			s.err = e.startError()
		}
		if err != nil {
			return err
		}
		select {
		case k.started <- s:
			return nil
		default:
			return fmt.Errorf("%w: rank %d was started twice", ErrProtocol, k.rank)
		}
	case kindExit:
		select {
		case <-k.exited:
			return fmt.Errorf("%w: rank %d ended twice", ErrProtocol, k.rank)
		default:
		}
		e, err := decodeExitReport(f.payload)
		if err != nil {
			return err
		}
		k.report = e
		close(k.exited)
		return nil
	case kindData, kindEnd, kindCredit:
		return k.onStream(f)
	}
	return fmt.Errorf("%w: a frame of kind %d", ErrProtocol, f.kind)
}

// flow deals with a frame of one of the rank's streams.
func (k *remoteRank) onStream(f frame) error {
	in := [streamsEnd]*inbox{streamPMI: k.pmi.inbox, streamStdout: k.outputs[0].inbox, streamStderr: k.outputs[1].inbox}[f.stream]
	out := [streamsEnd]*outbox{streamPMI: k.pmi.outbox, streamStdin: k.stdin}[f.stream]
	taken, err := deliver(in, out, f)
	switch {
	case taken || err != nil:
		return err
	case f.kind == kindEnd && out != nil:
		out.fail(syscall.EPIPE)
		return nil
	}
	return fmt.Errorf("%w: stream %d", ErrProtocol, f.stream)
}
