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

// Name is the host's, as the user calls it.
func (h *Host) Name() string { return h.name }

func (h *Host) post(k kind, s stream, rank uint32, payload []byte) {
	h.link.post(frame{kind: k, stream: s, host: h.number, rank: rank, payload: payload})
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
