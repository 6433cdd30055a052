package btltest

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Serve makes a module and serves it to [Dial] at the other end of conn, until Dial's end closes
// the connection. Call it in the child process of a test, with the function that makes the module
// there. It closes the module before it returns.
func Serve(conn io.ReadWriter, mk func(ev btl.Events) (btl.Module, error)) error {
	s := &server{enc: gob.NewEncoder(conn), ops: map[*btl.Op]*served{}, regions: map[int]*servedRegion{}}
	m, err := mk(s)
	if err != nil {
		return errors.Join(fmt.Errorf("make the module: %w", err), s.enc.Encode(hello{Err: err.Error()}))
	}
	s.m = m
	if err := s.enc.Encode(hello{Attrs: *m.Attrs(), Address: m.Address()}); err != nil {
		return errors.Join(err, m.Close())
	}
	dec := gob.NewDecoder(conn)
	for {
		var req request
		if err := dec.Decode(&req); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
				err = nil
			}
			return errors.Join(err, m.Close(), s.lent.giveBack())
		}
		s.res = response{}
		s.do(&req)
		for _, ep := range s.eps {
			s.res.States = append(s.res.States, ep.State())
		}
		if err := s.enc.Encode(&s.res); err != nil {
			return errors.Join(err, m.Close())
		}
	}
}

// server executes the calls of the other process, and collects the events that the module reports
// meanwhile.
type server struct {
	enc     *gob.Encoder
	m       btl.Module
	eps     []btl.Endpoint
	ops     map[*btl.Op]*served
	regions map[int]*servedRegion
	lastReg int
	lent    lent
	res     response
}

type served struct {
	id  uint64
	get bool
}

type servedRegion struct {
	btl.Region
	mem []byte
}

// Arrived implements btl.Events.
func (s *server) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	s.res.Events = append(s.res.Events, event{Kind: eventArrived, Peer: peer, Tag: tag, Data: bytes.Clone(frag)})
}

// Failed implements btl.Events.
func (s *server) Failed(_ btl.Module, to btl.Path, err *btl.Error) {
	e := event{Kind: eventFailed, Path: to}
	if err != nil {
		e.Err = toWire(err)
	}
	s.res.Events = append(s.res.Events, e)
}

// Drained implements btl.Events.
func (s *server) Drained(_ btl.Module, to btl.Path) {
	s.res.Events = append(s.res.Events, event{Kind: eventDrained, Path: to})
}

func (s *server) done(op *btl.Op, err error) {
	sv := s.ops[op]
	if sv == nil {
		// Done was called twice, or for an operation that was never accepted. The parent finds no
		// operation with number 0, and reports that.
		s.res.Events = append(s.res.Events, event{Kind: eventDone})
		return
	}
	e := event{Kind: eventDone, ID: sv.id, Err: toWire(err)}
	if sv.get && err == nil {
		e.Data = bytes.Clone(op.Payload)
	}
	delete(s.ops, op)
	s.res.Events = append(s.res.Events, e)
}

func (s *server) do(req *request) {
	r := &s.res
	switch req.Call {
	case callConnect:
		ep, err := s.m.Connect(req.Path, req.Address)
		r.Err = toWire(err)
		if ep != nil && err == nil {
			r.Ep, r.Epoch = s.endpoint(ep), ep.Epoch()
		}
	case callProgress:
		r.N = s.m.Progress()
	case callFailRail:
		s.m.Fail(req.Cause.error())
	case callClose:
		r.Err = toWire(s.m.Close())
	case callFail:
		s.eps[req.Ep].Fail(req.Cause.error())
	case callSend, callPut, callGet:
		s.post(req)
	case callInline:
		r.OK = s.eps[req.Ep].(btl.Inliner).SendInline(req.Tag, req.Hdr, req.Data)
	case callRegister:
		mem, err := s.lent.bytes(s.m, len(req.Data), req.Access)
		var reg btl.Region
		if err == nil {
			copy(mem, req.Data)
			reg, err = s.m.(btl.Registrar).Register(mem, req.Access)
		}
		r.Err = toWire(err)
		if err == nil {
			s.lastReg++
			s.regions[s.lastReg] = &servedRegion{reg, mem}
			r.Region, r.Key = s.lastReg, reg.Key()
		}
	case callFetch:
		r.Data = s.regions[req.Local].mem
	case callStore:
		copy(s.regions[req.Local].mem, req.Data)
	case callRelease:
		r.Err = toWire(s.regions[req.Local].Release())
	case callStale:
		r.OK = s.eps[req.Ep].(btl.StaleSender).SendStale(req.Epoch, req.Tag, req.Data)
	case callRebind:
		r.OK = s.rebind(req)
	}
}

// rebind takes the memory of an operation back and overwrites it.
func (s *server) rebind(req *request) bool {
	for op, sv := range s.ops {
		if sv.id != req.ID {
			continue
		}
		old := op.Payload
		if !s.eps[req.Ep].Rebind(op, req.Data) {
			return false
		}
		overwrite(old)
		return true
	}
	return false
}

// endpoint returns the number of an endpoint.
func (s *server) endpoint(ep btl.Endpoint) int {
	if i := slices.Index(s.eps, ep); i >= 0 {
		return i
	}
	s.eps = append(s.eps, ep)
	return len(s.eps) - 1
}

func (s *server) post(req *request) {
	op := &btl.Op{Done: s.done, Tag: req.Tag, Payload: req.Data, Remote: req.Remote, RemoteOffset: req.RemOff}
	op.HdrLen = uint8(copy(op.Hdr[:], req.Hdr))
	if reg := s.regions[req.Local]; reg != nil {
		op.Local = reg.Region
		if end := req.Offset + len(req.Data); req.Offset >= 0 && end <= len(reg.mem) {
			op.Payload = reg.mem[req.Offset:end:end]
			copy(op.Payload, req.Data)
		}
	}
	s.ops[op] = &served{id: req.ID, get: req.Call == callGet}
	var err error
	switch ep := s.eps[req.Ep]; req.Call {
	case callSend:
		err = ep.Send(op)
	case callPut:
		err = ep.(btl.Putter).Put(op)
	case callGet:
		err = ep.(btl.Getter).Get(op)
	}
	if err != nil {
		delete(s.ops, op)
		s.res.Err = toWire(err)
	}
}
