package btltest

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// The two ends of a remote module exchange gob messages: a hello, then requests and their
// responses, one at a time.

type hello struct {
	Attrs   btl.Attrs
	Address []byte
	Err     string // why there is no module
}

type call uint8

const (
	callConnect call = iota
	callProgress
	callFailRail
	callClose
	callSend
	callInline
	callPut
	callGet
	callFail
	callRegister
	callFetch
	callStore
	callRelease
	callStale
	callRebind
)

type request struct {
	Call    call
	Path    btl.Path
	Address []byte
	Ep      int // of the endpoint
	ID      uint64
	Epoch   uint32
	Tag     btl.Tag
	Hdr     []byte
	Data    []byte // payload, or memory
	Local   int    // of the region, 0 for none
	Offset  int    // of the payload in the region
	Remote  btl.Key
	RemOff  uint64
	Access  btl.Access
	Cause   *wireError
}

type response struct {
	Events []event
	Err    *wireError
	N      int
	OK     bool
	Ep     int
	Epoch  uint32
	States []btl.State // of all endpoints, after the call
	Region int
	Key    btl.Key
	Data   []byte
}

type eventKind uint8

const (
	eventArrived eventKind = iota
	eventFailed
	eventDrained
	eventDone
)

type event struct {
	Kind eventKind
	Peer int      // eventArrived
	Path btl.Path // eventFailed, eventDrained
	Tag  btl.Tag
	Data []byte // fragment, or the bytes that a Get has read
	ID   uint64
	Err  *wireError
}

// sentinels are sent by their index; their order is part of the protocol.
func sentinels() []error {
	return []error{btl.ErrResource, btl.ErrFailed, btl.ErrTooLong, btl.ErrMemory, btl.ErrUnreachable, btl.ErrClosed, btl.ErrInjected, errTest}
}

// wireError carries an error: its text and its identity.
type wireError struct {
	Text  string
	Exact int        // one more than the index of the sentinel that it equals, or 0
	Is    []int      // indices of the sentinels that it wraps
	Btl   *btl.Error // without Err; nil if the error is not a *btl.Error itself
	Cause *wireError // Err of Btl
}

func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Text: err.Error()}
	for i, s := range sentinels() {
		if err == s {
			w.Exact = i + 1
		}
		if errors.Is(err, s) {
			w.Is = append(w.Is, i)
		}
	}
	if be, ok := err.(*btl.Error); ok {
		bare := *be
		bare.Err = nil
		w.Btl, w.Cause = &bare, toWire(be.Err)
	}
	return w
}

func (w *wireError) error() error {
	switch {
	case w == nil:
		return nil
	case w.Exact > 0 && w.Exact <= len(sentinels()):
		return sentinels()[w.Exact-1]
	case w.Btl != nil:
		return w.btl()
	}
	e := &remoteError{text: w.Text}
	for _, i := range w.Is {
		if i >= 0 && i < len(sentinels()) {
			e.is = append(e.is, sentinels()[i])
		}
	}
	return e
}

func (w *wireError) btl() *btl.Error {
	if w == nil {
		return nil
	}
	w.Btl.Err = w.Cause.error()
	return w.Btl
}

// remoteError is an error of the other process.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }
