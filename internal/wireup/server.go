package wireup

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// ServerConfig describes one job to NewServer.
type ServerConfig struct {
	Size         int    // ranks in the job
	JobID        string // its name: 1 to 128 letters, digits and -_.: bytes
	NodeOf       []int  // node of each rank, any numbers; nil: all on one node
	AppNum       []int  // program of each rank in a launch of several; nil: all 0
	UniverseSize int    // processes there would be room for; 0: Size

	// OnAbort is called when a rank asks for the end of the job, on the goroutine
	// that serves the rank and with no lock held. It has to see to it that all
	// processes end, that one too: Serve for it goes on until it has. If OnAbort
	// is nil, that rank's Serve returns at once.
	OnAbort func(rank, code int, message string)

	MaxKeys      int           // keys of the whole job; 0: 65536 + 256 a rank
	MaxBytes     int           // bytes of keys and values of the whole job; 0: 64 MiB + 1 MiB a rank
	WriteTimeout time.Duration // for a process that does not read its answers; 0: 30 s
}

// maxJobIDBytes leaves the larger part of a request's line to the value.
const maxJobIDBytes = 128

// Server is one job's key-value space and barrier. Goroutines may share it. It
// has no goroutine of its own: it works inside the calls of Serve.
type Server struct {
	cfg     ServerConfig
	mapping string // "" if it would be too long

	failed chan struct{} // closed by Fail, after failure is set

	mu      sync.Mutex
	failure error
	ranks   []rankState
	inside  int // ranks in StateInBarrier
	left    int // rank that was the first to leave, -1: none
	kvs     kvs
}

type rankState struct {
	state  State
	served bool       // Serve has been called for it
	out    chan error // buffered, one place: nil when its barrier completes, an error when it cannot
}

// State is how far a rank has come, seen from its server.
type State uint8

const (
	StateNeverInited State = iota // has not spoken PMI, so far
	StateInited                   // has joined
	StateInBarrier                // waits for the others
	StateFinalized                // has left in order
	StateAborted                  // has asked for the end of the job
	StateGone                     // had joined, and its connection ended without finalize
)

func (s State) String() string {
	names := [...]string{"never inited", "inited", "in barrier", "finalized", "aborted", "gone"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// NewServer checks cfg; the error Is ErrConfig.
func NewServer(cfg ServerConfig) (*Server, error) {
	bad := func(what string) (*Server, error) { return nil, fmt.Errorf("wireup: server: %s: %w", what, ErrConfig) }
	switch {
	case cfg.Size < 1 || cfg.Size > maxRanks:
		return bad("size")
	case cfg.JobID == "" || len(cfg.JobID) > maxJobIDBytes || !isWord(cfg.JobID, "-_.:"):
		return bad("job ID")
	case cfg.NodeOf != nil && len(cfg.NodeOf) != cfg.Size:
		return bad("nodes of ranks")
	case cfg.AppNum != nil && len(cfg.AppNum) != cfg.Size:
		return bad("programs of ranks")
	case cfg.UniverseSize < 0 || cfg.MaxKeys < 0 || cfg.MaxBytes < 0 || cfg.WriteTimeout < 0:
		return bad("negative number")
	}
	cfg.AppNum = slices.Clone(cfg.AppNum)
	if cfg.NodeOf == nil {
		cfg.NodeOf = make([]int, cfg.Size)
	}
	if cfg.UniverseSize == 0 {
		cfg.UniverseSize = cfg.Size
	}
	if cfg.MaxKeys == 0 {
		cfg.MaxKeys = 1<<16 + 256*cfg.Size
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 64<<20 + 1<<20*cfg.Size
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 30 * time.Second
	}
	s := &Server{
		cfg:     cfg,
		mapping: formatMapping(cfg.NodeOf),
		failed:  make(chan struct{}),
		ranks:   make([]rankState, cfg.Size),
		left:    -1,
		kvs:     newKVS(cfg.MaxKeys, cfg.MaxBytes),
	}
	s.cfg.NodeOf = nil
	for i := range s.ranks {
		s.ranks[i].out = make(chan error, 1)
	}
	return s, nil
}

// Fail ends the job's wire-up: every Serve, pending or to come, closes its
// connection and returns an error that wraps err, except for ranks that have
// finalized. Only the first call counts. err nil counts as ErrClosed.
func (s *Server) Fail(err error) {
	if err == nil {
		err = ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
		close(s.failed)
	}
}

// State says how far rank has come; StateNeverInited if there is no such rank.
func (s *Server) State(rank int) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank < 0 || rank >= len(s.ranks) {
		return StateNeverInited
	}
	return s.ranks[rank].state
}

// claim binds a connection to a rank, once in the job's life.
func (s *Server) claim(rank int) error {
	if err := checkRank(rank, s.cfg.Size); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ranks[rank].served {
		return fmt.Errorf("rank %d: %w", rank, ErrTaken)
	}
	s.ranks[rank].served = true
	return nil
}

// inited moves rank to StateInited.
func (s *Server) inited(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(rank, StateInited)
}

// enterBarrier counts rank in; the outcome comes on its out channel. The last
// one lets all go, and makes visible what was put.
func (s *Server) enterBarrier(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranks[rank].state = StateInBarrier
	s.inside++
	switch {
	case s.left >= 0:
		s.endBarrier(s.cannotComplete())
	case s.inside == len(s.ranks):
		s.kvs.commit()
		s.endBarrier(nil)
	}
}

// endBarrier lets everyone inside go. The caller holds mu.
func (s *Server) endBarrier(outcome error) {
	for i := range s.ranks {
		if r := &s.ranks[i]; r.state == StateInBarrier {
			r.state = StateInited
			r.out <- outcome // has room: emptied before its rank can enter again
		}
	}
	s.inside = 0
}

func (s *Server) cannotComplete() error {
	return &BarrierError{Rank: s.left, State: s.ranks[s.left].state}
}

// aborted takes rank out of a barrier that it may wait in. The others learn of it
// when it leaves, so that a launcher can kill them before they complain.
func (s *Server) aborted(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(rank, StateAborted)
}

// step moves rank to a state outside the barrier. The caller holds mu.
func (s *Server) step(rank int, state State) {
	if s.ranks[rank].state == StateInBarrier {
		s.inside--
	}
	s.ranks[rank].state = state
}

// leave records that rank will not come again, which no barrier survives.
func (s *Server) leave(rank int, state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(rank, state)
	if s.left < 0 {
		s.left = rank
	}
	if s.inside > 0 {
		s.endBarrier(s.cannotComplete())
	}
}

// AnyRank, given to Serve, means that the process itself says who it is (initack,
// as processes with PMI_PORT do). Nothing proves that it says the truth, so a
// listener for it must not be open to strangers.
const AnyRank = -1

// Serve answers the process of one rank on conn until it finalizes or the
// connection ends, and has closed conn when it returns. It returns nil after
// finalize, and for an ordinary program that never spoke PMI. Otherwise the
// error is one of
//
//   - ErrNotFinalized: the process joined, and its connection ended (it died, or exited early)
//   - ErrAborted: it asked for the end of the job, OnAbort was called, and its connection ended
//   - ErrBarrier, a *BarrierError: it waits in a barrier for a rank that has left
//   - ErrProtocol: it talks nonsense
//   - ErrTimeout: it does not read its answers
//   - ErrRank, ErrTaken: no such rank, or Serve has been called for it before
//   - ErrLost: with AnyRank, the connection ended before the process said who it is
//   - what Fail was given
//
// A process that waits in a barrier which cannot complete is told why, and its
// connection is closed: no rank hangs because another one died.
func (s *Server) Serve(rank int, conn net.Conn) error {
	p := &peer{s: s, conn: conn, rank: AnyRank}
	if rank != AnyRank {
		if err := s.claim(rank); err != nil {
			conn.Close()
			return p.wrap(err)
		}
		p.rank = rank
	}
	err := p.run()
	if p.rank == AnyRank {
		return p.wrap(err)
	}
	if p.finalized {
		return nil
	}
	state := StateGone
	switch {
	case p.aborted != nil:
		state, err = StateAborted, p.aborted
	case !p.joined:
		state = StateNeverInited
		if p.lost {
			err = nil
		}
	case p.lost:
		err = fmt.Errorf("%w: %w", ErrNotFinalized, err)
	}
	s.leave(p.rank, state)
	return p.wrap(err)
}
