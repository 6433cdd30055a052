package remote

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"go.uber.org/atomic"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// Host is another machine on which ranks run. It is safe for concurrent use.
type Host struct {
	Cores [][]int // like slots.Machine.Cores
	Quota int     // like slots.Machine.Quota

	cluster         *Cluster
	number          uint16
	name            string
	link            *link
	descendants     []int // hosts that are reached through this one
	hello           hello
	awaitingWelcome atomic.Bool  // the hello has been sent, and the welcome has not arrived
	welcomeTimer    silenceTimer // limits the wait for the welcome
	missedPings     atomic.Int32 // pings since the last frame from the host

	mu       sync.Mutex // guards all below
	ranks    map[uint32]*remoteRank
	files    map[uint32]*fileTransfer
	ownDirs  chan ownDirs // has room for the one answer
	fetches  map[uint32]*fetch
	fetched  uint32 // number of the last fetch
	watch    func(error)
	lost     error
	lostChan chan struct{} // closed when lost is set
}

func newHost(c *Cluster, number uint16, name string) *Host {
	return &Host{
		cluster: c, number: number, name: name, lostChan: make(chan struct{}),
		ranks: map[uint32]*remoteRank{}, files: map[uint32]*fileTransfer{},
		fetches: map[uint32]*fetch{}, ownDirs: make(chan ownDirs, 1),
	}
}

// Name returns the host's name as the user wrote it.
func (h *Host) Name() string { return h.name }

func (h *Host) post(k kind, s stream, rank uint32, payload []byte) {
	h.link.post(frame{kind: k, stream: s, host: h.number, rank: rank, payload: payload})
}

// maxStartsAhead is the number of starts that the launcher requests before the first of them is
// answered. The daemon executes requested starts whatever happens meanwhile, and while it starts
// ranks it handles no other frame.
const maxStartsAhead = 64

// StartAll requests starts of ranks, up to maxStartsAhead in advance, and calls report with the
// result of each requested start, in order. When report returns false, StartAll requests no more.
// The daemon starts one rank after another, until a start fails. An error is of type
// *procs.StartError, is procs.ErrLost, or describes another obstacle.
func (h *Host) StartAll(specs []procs.Spec, report func(procs.Spec, *procs.Proc, error) (goOn bool)) {
	var requested []*remoteRank
	for i, goOn := 0, true; i < len(specs) && (goOn || i < len(requested)); i++ {
		for goOn && len(requested) < min(i+maxStartsAhead, len(specs)) {
			requested = append(requested, h.requestStart(specs[len(requested)]))
		}
		proc, err := requested[i].awaitStart()
		goOn = report(specs[i], proc, err) && goOn
	}
}

// requestStart requests the start of a rank. It returns nil if the host is lost.
func (h *Host) requestStart(spec procs.Spec) *remoteRank {
	rank := uint32(spec.Rank)
	k := newRemoteRank(h, rank, spec.Stdin != procs.StdinNull)
	if k.stdin != nil {
		spec.Stdin = procs.StdinPipe // the launcher's standard input is not on that host
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

// SignalGroups sends sig to the process groups of the host's ranks.
func (h *Host) SignalGroups(sig syscall.Signal) {
	h.post(kindSignal, 0, allRanks, appendNumber(nil, int(sig)))
}

// KillGroups kills the process groups of the host's ranks.
func (h *Host) KillGroups() { h.post(kindKill, 0, 0, nil) }

// Kill kills all processes of the job on the host.
func (h *Host) Kill() { h.post(kindKill, 0, allRanks, nil) }

// Watch makes the host call lost once when it is lost.
func (h *Host) Watch(lost func(error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch = lost; h.lost != nil {
		go lost(h.lost)
	}
}

// setLost marks the host as lost, and ends all streams and waits that concern it. Only the first
// call has an effect.
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
		for _, s := range connStreams {
			k.conns[s].finish(io.EOF)
			k.conns[s].fail(syscall.EPIPE)
		}
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
	for _, x := range h.fetches {
		x.in.finish(syscall.EPIPE)
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

// handle handles a frame from the host. It does not block. An error ends the channel.
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
			why = &HostError{Host: h.name, Problem: why.Error()}
		}
		h.cluster.onLost(h, why)
		return nil
	case kindPong:
		h.welcomeTimer.alive.Store(true)
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.kind == kindAnswer || f.stream == streamFile {
		return h.handleFile(f)
	}
	if f.kind == kindOwnDirs || f.kind == kindFetched || f.stream == streamRecord {
		return h.handleRecord(f)
	}
	k := h.ranks[f.rank]
	if k == nil {
		return fmt.Errorf("%w: a frame of unknown rank %d", ErrProtocol, f.rank)
	}
	return k.handle(f)
}
