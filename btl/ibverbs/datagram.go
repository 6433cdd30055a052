package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// This file implements the datagram queue pair, over which modules ask each other for connections.

const (
	// udSendDepth is how many datagrams can be in flight, udRecvDepth how many can arrive between
	// two polls. A message is lost if there is no room, which does no harm, because every message
	// is repeated.
	udSendDepth = 32
	udRecvDepth = 256
	// ownQKeyMask: a Q_Key with the highest bit is privileged.
	ownQKeyMask = 1<<31 - 1
)

// openUD makes the datagram queue pair and posts its receives.
func (h *hca) openUD(cfg *Config) (err error) {
	var random [4]byte
	if _, err := io.ReadFull(cfg.Random, random[:]); err != nil {
		return err
	}
	h.qkey = binary.LittleEndian.Uint32(random[:]) & ownQKeyMask
	if h.udCQ, err = h.dev.CreateCQ(h.udSendDepth+h.udRecvDepth, h.wakes); err != nil {
		return err
	}
	h.ud, err = h.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceUD, SendCQ: h.udCQ, RecvCQ: h.udCQ,
		Cap: verbs.QPCap{MaxSendWR: h.udSendDepth, MaxRecvWR: h.udRecvDepth, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	if h.udRecvs, err = newSlab(h.pd, h.udRecvDepth, verbs.GRHBytes+maxMessageBytes, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if h.udSends, err = newSlab(h.pd, h.udSendDepth, maxMessageBytes, verbs.AccessLocalWrite); err != nil {
		return err
	}
	return h.startUD(cfg)
}

// startUD takes the datagram queue pair from RESET to RTS, with all receives posted.
func (h *hca) startUD(cfg *Config) error {
	h.udStarts++
	h.free, h.udPosted = nil, 0
	for i := range int32(h.udSendDepth) {
		h.free = append(h.free, i)
	}
	attr := verbs.QPAttr{State: verbs.StateInit, Port: cfg.Port, QKey: h.qkey, PKeyIndex: h.pkeyIndex}
	if err := h.ud.Modify(&attr, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrQKey); err != nil {
		return err
	}
	for i := range h.udRecvDepth {
		if err := h.postUDRecv(i); err != nil {
			return err
		}
	}
	attr.State = verbs.StateRTR
	if err := h.ud.Modify(&attr, verbs.AttrState); err != nil {
		return err
	}
	attr.State = verbs.StateRTS
	return h.ud.Modify(&attr, verbs.AttrState|verbs.AttrSQPSN)
}

// postUDRecv posts a receive for a datagram.
func (h *hca) postUDRecv(i int) error {
	wr := [1]verbs.RecvWR{{ID: uint64(makeID(wrUDRecv, h.udStarts, 0, uint32(i))), NumSGE: 1}}
	wr[0].SGE[0] = h.udRecvs.sge(i, verbs.GRHBytes+maxMessageBytes)
	_, err := h.ud.PostRecv(wr[:])
	if err == nil {
		h.udPosted++
	}
	return err
}

// post sends a message by the peer's handle.
func (m *module) post(p *peer, msg *message) {
	h := m.h
	if h.lost || h.udRestart != nil || !m.portUp || len(h.free) == 0 || m.codec == nil {
		return
	}
	i := h.free[len(h.free)-1]
	buf := h.udSends.buffer(int(i))
	n := len(m.codec.append(buf[:0], msg))
	wr := [1]verbs.SendWR{{
		ID: uint64(makeID(wrUDSend, h.udStarts, 0, uint32(i))), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, NumSGE: 1,
		AH: p.ah.Handle(), RemoteQPN: p.ahTo.qpn, RemoteQKey: p.ahTo.qkey,
	}}
	wr[0].SGE[0] = h.udSends.sge(int(i), n)
	if _, err := h.ud.PostSend(wr[:]); err == nil {
		h.free = h.free[:len(h.free)-1]
	}
}

// endUD accounts for a completed request: it frees the buffer of a send, and counts a receive as no
// longer posted. It returns the kind of the request, or 0 if the queue pair has had no such request
// since it was last started.
func (h *hca) endUD(wc *verbs.WC) wrType {
	id := wrID(wc.ID)
	switch kind := id.kind(); {
	case id.made() != uint16(h.udStarts):
	case kind == wrUDSend && id.entry() < uint32(h.udSendDepth):
		h.free = append(h.free, int32(id.entry()))
		return kind
	case kind == wrUDRecv && id.entry() < uint32(h.udRecvDepth):
		h.udPosted--
		return kind
	}
	return 0
}

// pollDatagrams handles datagrams that have arrived, and returns the number of events.
func (m *module) pollDatagrams() int {
	h := m.h
	if h.lost || h.udRestart != nil {
		return 0
	}
	n, err := h.udCQ.Poll(m.udWCs[:])
	for i := range n {
		wc := &m.udWCs[i]
		switch kind := h.endUD(wc); {
		case h.udRestart != nil: // since a completion before this one
		case kind == wrUDSend:
			m.sentUD(wc)
		case kind == wrUDRecv && wc.Status == verbs.StatusSuccess:
			entry := int(wrID(wc.ID).entry())
			if n := int(wc.ByteLen); n >= verbs.GRHBytes && n <= verbs.GRHBytes+maxMessageBytes {
				if msg, ok := m.codec.parse(h.udRecvs.buffer(entry)[verbs.GRHBytes:n]); ok {
					m.cfg.Siblings.recipient(m, &msg).handle(&msg)
				}
			}
			if h.udRestart == nil && h.postUDRecv(entry) != nil {
				m.loseDevice(verbs.EventQPFatal.Native(), errors.New("datagram queue pair"))
				return n
			}
		case kind == wrUDRecv && wc.Status == verbs.StatusWRFlushErr:
			m.readEvents() // an event may be the cause
			m.lookAtPort()
			if !m.portUp {
				m.loseDevice(verbs.EventPortErr.Native(), fmt.Errorf("port %d of %s is down, and its datagram queue pair has failed", m.cfg.Port, m.cfg.Device))
			}
			m.loseDevice(wc.Status.Native(), errors.New("datagram queue pair"))
			return n
		}
	}
	if err != nil {
		m.readEvents() // an event may be the cause
		m.loseDevice(verbs.EventCQErr.Native(), err)
		return n + 1
	}
	if n > 0 || m.armUD() {
		m.Unsettled = true // there may be more
	}
	return n
}

// sentUD handles the completion of a datagram that was sent. A failed one moves the queue pair to
// SQE, or on some devices to Error, where all later ones fail too. If the queue pair cannot leave
// that state, it is started again.
func (m *module) sentUD(wc *verbs.WC) {
	if !failedSend(wc) {
		return
	}
	if err := m.h.leaveSQE(); err != nil {
		m.restartUD(wc.Status.Native(), fmt.Errorf("a datagram has failed (%s), and the queue pair cannot send again: %w", wc.Status.Info().Text, err))
	}
}

// failedSend reports whether the request of a completion has failed by itself.
func failedSend(wc *verbs.WC) bool {
	return wc.Status != verbs.StatusSuccess && wc.Status != verbs.StatusWRFlushErr
}

// leaveSQE moves the datagram queue pair from SQE back to RTS. If it is in RTS, this has no effect.
// Drivers that do not notice that the queue pair has left RTS need CUR_STATE. Not every device
// accepts it (queue pair states, 3).
func (h *hca) leaveSQE() error {
	attr := verbs.QPAttr{State: verbs.StateRTS, CurState: verbs.StateSQE}
	if h.attr.CurState && h.ud.Modify(&attr, verbs.AttrState|verbs.AttrCurState) == nil {
		return nil
	}
	return h.ud.Modify(&attr, verbs.AttrState)
}

// udRestart is a restart of the datagram queue pair: through Error, where its requests complete, to
// RESET and back into use. The queue pair keeps its address. Datagrams in flight are lost, which
// does no harm.
type udRestart struct {
	until  int64 // when to stop waiting for completions
	native string
	why    error
}

// restartUD moves the datagram queue pair to Error; drainUD does the rest. A queue pair enters
// RESET only from Error, because requests vanish in RESET, and some devices refuse RESET from any
// other state (queue pair states, 2.1 and 5.2).
func (m *module) restartUD(native string, why error) {
	h := m.h
	if h.lost || h.udRestart != nil {
		return
	}
	h.udRestart = &udRestart{m.cfg.Clock.Now() + drainNanos, native, why}
	m.Unsettled = true
	attr := verbs.QPAttr{State: verbs.StateErr}
	if err := h.ud.Modify(&attr, verbs.AttrState); err != nil {
		m.loseUD(err)
	}
}

// drainUD starts the datagram queue pair again once all its requests have completed, or after a
// deadline, because soft-RoCE may never complete receives.
func (m *module) drainUD() int {
	h := m.h
	if h == nil || h.lost || h.udRestart == nil {
		return 0
	}
	m.Unsettled = true
	n, err := m.pollOutUD()
	if err == nil && (len(h.free) < h.udSendDepth || h.udPosted > 0) && m.now < h.udRestart.until {
		return n
	}
	if err == nil {
		attr := verbs.QPAttr{State: verbs.StateReset}
		err = h.ud.Modify(&attr, verbs.AttrState)
	}
	if err == nil {
		_, err = m.pollOutUD() // some devices keep completions, which would take room in the queue
	}
	if err == nil {
		err = h.startUD(&m.cfg)
	}
	if err != nil {
		m.loseUD(err)
		return n + 1
	}
	h.udRestart = nil
	return n + 1
}

// pollOutUD takes all completions of the datagram queue pair while it is not in use.
func (m *module) pollOutUD() (taken int, err error) {
	for n := pollBatch; n == pollBatch; taken += n {
		if n, err = m.h.udCQ.Poll(m.udWCs[:]); err != nil {
			return taken, err
		}
		for i := range n {
			m.h.endUD(&m.udWCs[i])
		}
	}
	return taken, nil
}

// loseUD gives up a datagram queue pair that cannot be started again. It gives up the device too,
// because no connection can be made without datagrams.
func (m *module) loseUD(err error) {
	r := m.h.udRestart
	m.loseDevice(r.native, fmt.Errorf("%w; its datagram queue pair cannot be started again, so the device is opened again: %w", r.why, err))
}

// hasUDSends reports whether datagrams are in flight.
func (h *hca) hasUDSends() bool { return !h.lost && len(h.free) < h.udSendDepth }

// pollUDSends takes completions of sent datagrams while the module closes. If a datagram fails and
// the queue pair cannot send again, the peers miss the later ones.
func (h *hca) pollUDSends(wcs []verbs.WC) {
	if h.lost {
		return
	}
	n, err := h.udCQ.Poll(wcs)
	h.lost = err != nil
	for i := range n {
		if h.endUD(&wcs[i]) == wrUDSend && failedSend(&wcs[i]) {
			_ = h.leaveSQE()
		}
	}
}
