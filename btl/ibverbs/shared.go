package ibverbs

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// With many peers, a receive queue for each queue pair would lock more memory than a rank may lock.
// Then all queue pairs of a module take their receives from one shared receive queue (SRQ), which
// has at most Config.SharedDepth receives, however many peers there are.
//
// Credits work as without an SRQ, so that a receive is always ready: each peer may send as many
// fragments as its part of the queue has receives (sharePlan.window), and receives are posted as
// peers connect. A peer that sends more than its credits takes the receives of others, so its
// connection fails at the first fragment without a credit.
//
// A part has at least minRecvDepth receives. With many peers, the parts together then exceed the
// queue, which may run empty. Nothing is lost then, because the peers'
// devices retry (rnrForever). Before the queue runs empty, the event SRQ_LIMIT_REACHED wakes the
// rank, even if its program computes, and the rank polls and posts receives again.
//
// A queue pair in Error leaves its receives in the queue, except one into which a message was
// arriving. Therefore no flushes show its end. The event LAST_WQE_REACHED does, or a deadline,
// because not every device raises the event. Receives whose completions never come are lost. Others
// replace them up to a limit (sharedReceives.leave), after which the queue counts as broken.
//
// If the queue breaks (SRQ_ERR), all its queue pairs are broken too, and the rail fails. The queue
// is destroyed after the last of its queue pairs. The next connection makes a new one.

// Shared is a rule for shared receive queues, a value of the tunable ibverbs.srq.
type Shared string

const (
	// SharedAuto uses an SRQ if the device has one and queues for all peers would have more
	// receives than it. With fewer peers, separate queues lock less memory, and no failure affects
	// more than one connection.
	SharedAuto Shared = "auto"
	SharedOn   Shared = "on"
	SharedOff  Shared = "off"
)

const (
	// leastShared is the minimum number of receives of an SRQ.
	leastShared = minRecvDepth + controlDepth
	// maxSharedDepth keeps the numbers of receives within the IDs of work requests.
	maxSharedDepth = 1 << 16
	// sharedChunk is the number of receives that are registered at a time.
	sharedChunk = 32
	// spareOfPeer is the number of receives that may be lost for each peer until the queue counts
	// as broken. When it breaks, each connection of the module costs the queue at its other end one
	// receive. A module has at most one rail to each of a peer's modules (bml's maxModules), so one
	// broken queue does not break its peers' queues.
	spareOfPeer = 8
	// rnrForever: if the peer's device has no receive, the sending device retries until there is
	// one.
	rnrForever = 7
)

// sharePlan says how a module shares receives. It is zero if each queue pair has its own.
type sharePlan struct {
	most     int // receives at a time
	capacity int // entries of the queue: more than most, because receives may be lost
	window   int // fragments that each peer may send
	// scarce: there are not enough receives for the windows of all peers.
	scarce bool
}

func (p *sharePlan) on() bool { return p.capacity > 0 }

// planShared decides whether the module shares receives. The error says why it cannot, although it
// must.
func (h *hca) planShared(cfg *Config) (sharePlan, error) {
	peers := max(cfg.Size-1, 1)
	if cfg.Shared == SharedOff || cfg.Shared == SharedAuto && (peers == 1 || peers*cfg.receives() <= cfg.SharedDepth) {
		return sharePlan{}, nil
	}
	a := &h.attr
	spare := min(max(cfg.SharedDepth/4, spareOfPeer*peers), cfg.SharedDepth)
	p := sharePlan{capacity: min(cfg.SharedDepth+spare, a.MaxSRQWR, a.MaxCQE*3/4)}
	p.most = min(cfg.SharedDepth, p.capacity-p.capacity/5)
	if a.MaxSRQ < 1 || p.most < leastShared {
		if cfg.Shared == SharedAuto {
			return sharePlan{}, nil
		}
		return sharePlan{}, tooLittle(fmt.Sprintf("max_srq is %d, max_cqe is %d, max_srq_wr", a.MaxSRQ, a.MaxCQE), a.MaxSRQWR,
			fmt.Sprintf("too little for %d shared receives, the minimum; set ibverbs.srq=off", leastShared))
	}
	p.window = min(max(p.most/peers-controlDepth, minRecvDepth), cfg.RecvDepth)
	p.scarce = peers*(p.window+controlDepth) > p.most
	return p, nil
}

// sharedReceives is a shared receive queue with its buffers.
type sharedReceives struct {
	srq    verbs.SRQ
	number uint32 // among the device's queues; part of the IDs of work requests
	plan   sharePlan
	bytes  int      // of a buffer
	slabs  []*slab  // of sharedChunk buffers each
	slots  []uint16 // how often each receive was posted
	posted []bool   // whether the device has it
	free   []int32  // receives to post
	users  int      // queue pairs
	need   int      // receives that the peers of all connections may take
	lost   int      // upper bound of the receives that never complete
	broken bool
	// refillDue: the queue was almost empty.
	refillDue bool
}

// makeShared makes a shared queue without receives. It replaces a broken queue once no queue pair
// uses that any more.
func (h *hca) makeShared(cfg *Config) error {
	if s := h.shared; s != nil {
		if !s.broken {
			return nil
		}
		if err := s.close(); err != nil {
			return fmt.Errorf("broken shared receive queue: %w", err)
		}
		h.shared = nil
	}
	srq, err := h.pd.CreateSRQ(verbs.SRQInit{MaxWR: h.share.capacity, MaxSGE: 1})
	if err != nil {
		return fmt.Errorf("shared receive queue: %w", err)
	}
	h.sharedMade++
	h.shared = &sharedReceives{srq: srq, number: h.sharedMade, plan: h.share, bytes: headBytes + cfg.FragBytes}
	return nil
}

// join makes receives for another connection, up to the limit of the queue.
func (s *sharedReceives) join(m *module) error {
	s.users++
	s.need += s.plan.window + controlDepth
	err := s.grow(m)
	if err == nil || len(s.slots)-s.lost >= leastShared {
		// The connections share the receives that could be locked.
		err = s.arm()
	}
	if err != nil {
		s.users--
		s.need -= s.plan.window + controlDepth
	}
	return err
}

// grow makes the receives that the connections need, and posts them.
func (s *sharedReceives) grow(m *module) error {
	want := min(min(s.need, s.plan.most)+s.lost, s.plan.capacity)
	for len(s.slots) < want {
		slab, err := newSlab(m.h.pd, sharedChunk, s.bytes, verbs.AccessLocalWrite)
		if err != nil {
			return err
		}
		s.slabs = append(s.slabs, slab)
		for range min(sharedChunk, s.plan.capacity-len(s.slots)) {
			s.free = append(s.free, int32(len(s.slots)))
			s.slots, s.posted = append(s.slots, 0), append(s.posted, false)
		}
	}
	return s.post(m)
}

// scarce reports whether the peers may send more than there are receives.
func (s *sharedReceives) scarce() bool { return s.need > len(s.slots)-s.lost }

// arm asks for an event when three quarters of the receives are taken, if the peers may take the
// rest too.
func (s *sharedReceives) arm() error {
	if !s.scarce() {
		return nil
	}
	return s.srq.SetLimit(max(len(s.slots)/4, 1))
}

// post posts all receives that are free.
func (s *sharedReceives) post(m *module) error {
	for len(s.free) > 0 {
		wrs := m.recvWR[:min(len(s.free), repostBatch)]
		for k := range wrs {
			i := s.free[k]
			s.slots[i]++
			wrs[k].ID = uint64(makeID(wrSharedRecv, uint32(s.slots[i]), s.number, uint32(i)))
			wrs[k].NumSGE = 1
			wrs[k].SGE[0] = s.slabs[i/sharedChunk].sge(int(i%sharedChunk), s.bytes)
		}
		n, err := s.srq.PostRecv(wrs)
		for _, i := range s.free[:n] {
			s.posted[i] = true
		}
		s.free = s.free[:copy(s.free, s.free[n:])]
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sharedReceives) buffer(i uint32) []byte {
	return s.slabs[i/sharedChunk].buffer(int(i % sharedChunk))
}

// has reports whether the device has the receive that a completion names.
func (s *sharedReceives) has(id wrID) bool {
	i := id.entry()
	return s != nil && id.endpoint() == s.number&endpointMask && i < uint32(len(s.slots)) && s.posted[i] && s.slots[i] == id.made()
}

// leave removes a connection whose queue pair was destroyed. Up to lost receives of this queue pair
// never complete.
func (s *sharedReceives) leave(m *module, lost int) {
	s.users--
	s.need -= s.plan.window + controlDepth
	if s.broken {
		return
	}
	s.lost += min(lost, len(s.slots)-s.lost)
	err := s.grow(m) // if no memory can be locked, the queue is shorter from now on
	if errors.Is(err, verbs.ErrNoMemory) && s.lost <= s.plan.capacity-s.plan.most {
		err = s.arm()
	}
	if err == nil && s.lost > s.plan.capacity-s.plan.most {
		err = fmt.Errorf("%d receives of the shared queue are lost", s.lost)
	}
	if err != nil {
		m.loseShared(err)
	}
}

// close destroys the queue and releases its memory. No queue pair uses the queue any more.
func (s *sharedReceives) close() error {
	if s.srq != nil {
		if err := s.srq.Destroy(); err != nil {
			return err
		}
		s.srq = nil
	}
	for n := len(s.slabs); n > 0; n = len(s.slabs) {
		if err := s.slabs[n-1].close(); err != nil {
			return err
		}
		s.slabs = s.slabs[:n-1]
	}
	return nil
}

// closeAnyway does what close does, for a device that is about to be closed. It releases the memory
// even if the queue cannot be destroyed.
func (s *sharedReceives) closeAnyway() error {
	err := s.close()
	for _, slab := range s.slabs {
		err = errors.Join(err, slab.close())
	}
	s.slabs = nil
	return err
}

// loseShared fails the rail because its shared queue cannot be used any more.
func (m *module) loseShared(cause error) {
	m.readEvents() // an event may be the cause
	if m.h == nil || m.h.shared == nil || m.h.shared.broken || m.reopen {
		return
	}
	m.h.shared.broken = true
	m.FailModule(m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, verbs.EventSRQErr.Native(), cause))
}

// postShared posts the free receives of the shared queue.
func (m *module) postShared() {
	if s := m.h.shared; s != nil && len(s.free) > 0 && !s.broken && !m.reopen {
		if err := s.post(m); err != nil {
			m.loseShared(err)
		}
	}
}

// refill posts the receives of all messages that have arrived, after SRQ_LIMIT_REACHED. It sets the
// limit again before it polls for the last time. If messages took the whole queue before the limit
// was set, no message would raise the event any more.
func (m *module) refill() int {
	s := m.h.shared
	if s == nil || s.broken || !s.refillDue {
		return 0
	}
	s.refillDue = false
	for armed := false; ; armed = true {
		for _, g := range m.h.groups {
			m.pollOut(g)
		}
		if m.h == nil || m.h.shared != s || s.broken || m.reopen {
			return 1
		}
		m.postShared()
		if armed || s.broken {
			return 1
		}
		if err := s.arm(); err != nil {
			m.loseShared(err)
			return 1
		}
	}
}

// completeShared handles the completion of a receive of the shared queue. Any queue pair may have
// taken it.
func (m *module) completeShared(wc *verbs.WC, rest []verbs.WC) {
	s, id := m.h.shared, wrID(wc.ID)
	if !s.has(id) {
		m.Stale++
		return
	}
	i := id.entry()
	s.posted[i] = false
	e := m.byQPN[wc.QPNum]
	if e == nil {
		m.Stale++ // of a connection that is over
	} else {
		m.Unsettled = m.Unsettled || e.State() != btl.Up
		m.completeOf(e, wc, rest)
	}
	s.free = append(s.free, int32(i)) // the layer above has copied the message
	if len(s.free) >= repostBatch && e != nil {
		e.list()
	}
}
