package btltest

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
)

// Dial makes a proxy for the module of [Serve] at the other end of conn: the B of a Pair whose
// Remote is set. Each call goes to the other process. Events that the module reports meanwhile come
// back with the answer, and reach ev before the call returns. The other module does nothing between
// calls, unless it has threads.
//
// Registered memory is copied to the other process. Writes by peers are visible here after the
// region's Fetch, and changes here are visible there after its Store.
//
// As with every module, only one goroutine at a time may use it. The caller closes conn.
func Dial(conn io.ReadWriter, ev btl.Events) (btl.Module, error) {
	p := &proxy{conn: conn, enc: gob.NewEncoder(conn), dec: gob.NewDecoder(conn), ev: ev, ops: map[uint64]*btl.Op{}}
	p.patience()
	if err := p.dec.Decode(&p.hello); err != nil {
		return nil, fmt.Errorf("no answer from the other process: %w", err)
	}
	if p.hello.Err != "" {
		return nil, fmt.Errorf("the other process has no module: %s", p.hello.Err)
	}
	return p, nil
}

// proxy stands for a module of another process.
type proxy struct {
	conn   io.ReadWriter
	enc    *gob.Encoder
	dec    *gob.Decoder
	ev     btl.Events
	hello  hello
	eps    []*proxyEndpoint
	states []btl.State // of eps, after the last call
	ops    map[uint64]*btl.Op
	lastID uint64
	err    error // of the connection; final
}

// Err is the error of the connection between the processes.
func (p *proxy) Err() error { return p.err }

func (p *proxy) patience() {
	if c, ok := p.conn.(interface{ SetDeadline(time.Time) error }); ok {
		// Without a deadline, a hang would last until the end of the test.
		_ = c.SetDeadline(time.Now().Add(defaultPatience))
	}
}

// call makes a call in the other process, and hands up the events that its module reports.
func (p *proxy) call(req *request) *response {
	res := &response{}
	if p.err != nil {
		return res
	}
	p.patience()
	if err := p.enc.Encode(req); err != nil {
		p.err = fmt.Errorf("ask the other process: %w", err)
		return res
	}
	if err := p.dec.Decode(res); err != nil {
		p.err = fmt.Errorf("no answer from the other process: %w", err)
		return &response{}
	}
	p.states = res.States
	for i := range res.Events {
		p.replay(&res.Events[i])
	}
	return res
}

func (p *proxy) replay(e *event) {
	switch e.Kind {
	case eventArrived:
		p.ev.Arrived(p, e.Peer, e.Tag, e.Data)
	case eventFailed:
		p.ev.Failed(p, e.Path, e.Err.btl())
	case eventDrained:
		p.ev.Drained(p, e.Path)
	case eventDone:
		op := p.ops[e.ID]
		if op == nil {
			p.err = errors.New("the other process called the Done of an operation twice, or of one that it had refused")
			return
		}
		delete(p.ops, e.ID)
		if len(e.Data) == len(op.Payload) {
			copy(op.Payload, e.Data)
		}
		op.Done(op, e.Err.error())
	}
}

// Attrs and Address implement btl.Module.
func (p *proxy) Attrs() *btl.Attrs { return &p.hello.Attrs }
func (p *proxy) Address() []byte   { return p.hello.Address }

// Connect implements btl.Module.
func (p *proxy) Connect(to btl.Path, address []byte) (btl.Endpoint, error) {
	res := p.call(&request{Call: callConnect, Path: to, Address: address})
	if res.Err != nil || p.err != nil {
		return nil, errors.Join(res.Err.error(), p.err)
	}
	for len(p.eps) <= res.Ep {
		p.eps = append(p.eps, &proxyEndpoint{p: p, number: len(p.eps), path: to, epoch: res.Epoch})
	}
	return p.eps[res.Ep], nil
}

// Progress, Fail and Close implement btl.Module.
func (p *proxy) Progress() int    { return p.call(&request{Call: callProgress}).N }
func (p *proxy) Fail(cause error) { p.call(&request{Call: callFailRail, Cause: toWire(cause)}) }
func (p *proxy) Close() error     { return p.call(&request{Call: callClose}).Err.error() }

// Register implements btl.Registrar.
func (p *proxy) Register(mem []byte, access btl.Access) (btl.Region, error) {
	res := p.call(&request{Call: callRegister, Data: mem, Access: access})
	if res.Err != nil || p.err != nil {
		return nil, errors.Join(res.Err.error(), p.err)
	}
	return &proxyRegion{p: p, number: res.Region, key: res.Key, mem: mem}, nil
}

// proxyEndpoint stands for an endpoint. Its capabilities are in the Caps.
type proxyEndpoint struct {
	p      *proxy
	number int
	path   btl.Path
	epoch  uint32
}

// Path and Epoch implement btl.Endpoint.
func (e *proxyEndpoint) Path() btl.Path { return e.path }
func (e *proxyEndpoint) Epoch() uint32  { return e.epoch }

// State implements btl.Endpoint. It changes only inside calls of the module.
func (e *proxyEndpoint) State() btl.State {
	if e.number >= len(e.p.states) {
		return btl.Up // it was made inside the current call
	}
	return e.p.states[e.number]
}

// Fail implements btl.Endpoint.
func (e *proxyEndpoint) Fail(cause error) {
	e.p.call(&request{Call: callFail, Ep: e.number, Cause: toWire(cause)})
}

// Send implements btl.Endpoint.
func (e *proxyEndpoint) Send(op *btl.Op) error { return e.post(callSend, op) }

// Put implements btl.Putter.
func (e *proxyEndpoint) Put(op *btl.Op) error { return e.post(callPut, op) }

// Get implements btl.Getter.
func (e *proxyEndpoint) Get(op *btl.Op) error { return e.post(callGet, op) }

// SendInline implements btl.Inliner.
func (e *proxyEndpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	return e.p.call(&request{Call: callInline, Ep: e.number, Tag: tag, Hdr: hdr, Data: payload}).OK
}

// Rebind implements btl.Endpoint. The other process overwrites its copy of the old memory.
func (e *proxyEndpoint) Rebind(op *btl.Op, payload []byte) bool {
	for id, posted := range e.p.ops {
		if posted == op && e.p.call(&request{Call: callRebind, Ep: e.number, ID: id, Data: payload}).OK {
			op.Payload = payload
			return true
		}
	}
	return false
}

// SendStale implements btl.StaleSender.
func (e *proxyEndpoint) SendStale(epoch uint32, tag btl.Tag, frag []byte) bool {
	return e.p.call(&request{Call: callStale, Ep: e.number, Epoch: epoch, Tag: tag, Data: frag}).OK
}

func (e *proxyEndpoint) post(c call, op *btl.Op) error {
	p := e.p
	p.lastID++
	req := &request{
		Call: c, Ep: e.number, ID: p.lastID, Tag: op.Tag, Hdr: op.Header(), Data: op.Payload,
		Remote: op.Remote, RemOff: op.RemoteOffset,
	}
	if r, ok := op.Local.(*proxyRegion); ok {
		req.Local = r.number
		req.Offset = r.offset(op.Payload)
	}
	p.ops[req.ID] = op
	res := p.call(req)
	if res.Err != nil {
		delete(p.ops, req.ID)
		return res.Err.error()
	}
	return nil
}

// proxyRegion stands for registered memory; mem is the copy in this process.
type proxyRegion struct {
	p      *proxy
	number int
	key    btl.Key
	mem    []byte
}

// offset returns the offset of b in the region, or -1.
func (r *proxyRegion) offset(b []byte) int {
	if len(b) == 0 || len(r.mem) == 0 {
		return 0
	}
	at := int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&r.mem[0])))
	if at < 0 || at+len(b) > len(r.mem) {
		return -1
	}
	return at
}

// Key implements btl.Region.
func (r *proxyRegion) Key() btl.Key { return r.key }

// Release implements btl.Region.
func (r *proxyRegion) Release() error {
	return r.p.call(&request{Call: callRelease, Local: r.number}).Err.error()
}

// Fetch updates the copy in this process.
func (r *proxyRegion) Fetch() error {
	copy(r.mem, r.p.call(&request{Call: callFetch, Local: r.number}).Data)
	return r.p.err
}

// Store updates the memory in the other process.
func (r *proxyRegion) Store() error {
	r.p.call(&request{Call: callStore, Local: r.number, Data: r.mem})
	return r.p.err
}
