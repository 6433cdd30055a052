package wireup

import (
	"fmt"
	"net"
	"slices"
	"sync"
)

// ServerConfig describes one job to NewServer.
type ServerConfig struct {
	Size         int    // number of ranks
	JobID        string // name of the job: 1 to 128 letters, digits and the bytes -_.:
	NodeOf       []int  // node of each rank, any numbers; nil: all on one node
	AppNum       []int  // index of each rank's program; nil: all 0
	UniverseSize int    // PMI universe size; 0: Size

	// OnAbort is called when a rank aborts the job, on the goroutine of its Serve and with no lock
	// held. It must end all processes, including the one that aborted: its Serve goes on until that
	// process has ended. If OnAbort is nil, that Serve returns at once.
	OnAbort func(Abort)
}

// maxJobIDBytes leaves most of a request's line to the value.
const maxJobIDBytes = 128

// Server is the key-value space and the barrier of one job. Goroutines may share it. It has no
// goroutine of its own: it works inside the calls of Serve.
type Server struct {
	cfg     ServerConfig
	mapping string // value of PMI_process_mapping; "" if that would be too long

	failed chan struct{} // closed by Fail, after failure is set

	mu      sync.Mutex
	failure error
	ranks   []rankState
	inside  int // number of ranks in StateInBarrier
	left    int // the first rank that left, -1 if none has
	kvs     kvs
}

type rankState struct {
	state  State
	served bool       // Serve was called for the rank
	out    chan error // result of the rank's barrier; has room for one
}

// State of a rank, as its server sees it.
type State uint8

const (
	StateNeverInited State = iota // has not sent init
	StateInited                   // has joined
	StateInBarrier                // waits in a barrier
	StateFinalized                // has left by finalize
	StateAborted                  // has aborted the job
	StateGone                     // had joined, and its connection ended without finalize
)

func (s State) String() string {
	names := [...]string{"never inited", "inited", "in barrier", "finalized", "aborted", "gone"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// NewServer makes a server. If cfg is invalid, the error Is ErrConfig.
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
	case cfg.UniverseSize < 0:
		return bad("negative number of processes")
	}
	cfg.AppNum = slices.Clone(cfg.AppNum)
	if cfg.NodeOf == nil {
		cfg.NodeOf = make([]int, cfg.Size)
	}
	if cfg.UniverseSize == 0 {
		cfg.UniverseSize = cfg.Size
	}
	s := &Server{
		cfg:     cfg,
		mapping: formatMapping(cfg.NodeOf),
		failed:  make(chan struct{}),
		ranks:   make([]rankState, cfg.Size),
		left:    -1,
		kvs:     newKVS(1<<16+256*cfg.Size, 64<<20+1<<20*cfg.Size),
	}
	s.cfg.NodeOf = nil
	for i := range s.ranks {
		s.ranks[i].out = make(chan error, 1)
	}
	return s, nil
}

// Fail ends the job's wire-up: every Serve, pending or later, closes its connection and returns an
// error that wraps err, except for ranks that have finalized. Only the first call counts. A nil err
// means ErrClosed.
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

// State returns the state of rank; StateNeverInited if there is no such rank.
func (s *Server) State(rank int) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank < 0 || rank >= len(s.ranks) {
		return StateNeverInited
	}
	return s.ranks[rank].state
}

// claim binds a connection to a rank, which happens at most once.
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

// enterBarrier puts rank in the barrier, whose result comes on the rank's out channel. The last
// rank completes the barrier and makes the values visible that were put.
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

// endBarrier ends the barrier of all ranks that are in it. The caller holds mu.
func (s *Server) endBarrier(result error) {
	for i := range s.ranks {
		if r := &s.ranks[i]; r.state == StateInBarrier {
			r.state = StateInited
			r.out <- result // has room: the last result is read before the rank can enter again
		}
	}
	s.inside = 0
}

func (s *Server) cannotComplete() error {
	return &BarrierError{Rank: s.left, State: s.ranks[s.left].state}
}

// aborted removes rank from the barrier if it is in it. The barrier of the other ranks fails only
// when the rank leaves, so a launcher can kill them before they report errors.
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

// leave records that rank has left, which fails the current barrier and every later one.
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

// Serve answers the process of one rank on conn until the process finalizes or the connection ends.
// It closes conn before it returns. It returns nil after finalize, and for a program that never
// spoke PMI. Otherwise the error is one of
//
//   - ErrNotFinalized: the process joined, and its connection ended (it died, or exited early)
//   - ErrAborted: it aborted the job, OnAbort was called, and its connection ended
//   - ErrBarrier, a *BarrierError: it waits in a barrier for a rank that has left
//   - ErrProtocol: it broke the protocol
//   - ErrTimeout: it does not read its answers
//   - ErrRank, ErrTaken: no such rank, or Serve was called for it before
//   - the error of Fail
//
// If a process waits in a barrier that cannot complete, it gets the reason, and its connection is
// closed: no rank hangs because another one died.
func (s *Server) Serve(rank int, conn net.Conn) error {
	if err := s.claim(rank); err != nil {
		conn.Close()
		return fmt.Errorf("wireup: %w", err)
	}
	p := &peer{s: s, conn: conn, rank: rank}
	err := p.run()
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
	s.leave(rank, state)
	if err != nil {
		err = fmt.Errorf("wireup: rank %d: %w", rank, err)
	}
	return err
}
