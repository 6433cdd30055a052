package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/gate"
)

// Outcome is the result of a Probe.
type Outcome string

const (
	Connected   Outcome = "connected"   // and all bytes sent were acknowledged
	Refused     Outcome = "refused"     // the host, or a firewall, refuses the port
	Silent      Outcome = "silent"      // no answer
	Unreachable Outcome = "unreachable" // the network reports that there is no route
	Stalled     Outcome = "stalled"     // short packets arrive, long ones do not
	Foreign     Outcome = "foreign"     // another machine answers
	Failed      Outcome = "failed"      // something else: Detail
)

// Probe is an attempt to connect an address of a host with one of another host.
type Probe struct {
	From   int        `json:"from"` // rank of the doctor's job
	To     int        `json:"to"`
	Local  netip.Addr `json:"local"`
	Remote netip.Addr `json:"remote"`
	Port   uint16     `json:"port"`
	// Spare means that ranks use the pair only if it works, or after another pair has failed.
	Spare   bool    `json:"spare,omitempty"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"`
	// RoundTripNanos is the shortest round trip. OffsetNanos is the remote clock minus the local
	// clock, measured by that round trip. SegmentBytes is the size of TCP's segments.
	RoundTripNanos int64 `json:"round_trip_nanos,omitempty"`
	OffsetNanos    int64 `json:"offset_nanos,omitempty"`
	SegmentBytes   int   `json:"segment_bytes,omitempty"`
}

const (
	// probeTimeout bounds each step of a Probe: connecting, asking the time, the bulk. Linux sends
	// a lost SYN again after 1 s and 3 s.
	probeTimeout = 4 * time.Second
	// maxProbes bounds how many probes a rank has under way.
	maxProbes = 32
	// maxServed bounds how many connections a rank has open at a time.
	maxServed = 512
)

// listener answers questions on one address.
type listener struct {
	net.Listener
	rank   int
	secret []byte
	gate   *gate.Gate // of all listeners of the rank
}

// listen listens on an address and a port of the range, or on any port if first is 0.
func listen(addr netip.Addr, first, last uint16) (*net.TCPListener, error) {
	var err error
	for port := int(first); port <= int(last); port++ {
		var l *net.TCPListener
		if l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, uint16(port)))); err == nil {
			return l, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, err
}

// serve answers until the listener is closed.
func (l *listener) serve() {
	for {
		conn, err := l.gate.Accept(l.Listener)
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(4 * probeTimeout))
			l.answer(conn, func() { conn.Keep(true) })
		}()
	}
}

// answer answers the questions of a probe. Anything else ends the connection. It calls
// authenticated after the first question.
func (l *listener) answer(conn net.Conn, authenticated func()) {
	for i := range timeQuestions + 1 {
		question, err := readQuestion(conn, l.secret)
		if err != nil {
			return
		}
		if i == 0 {
			authenticated()
		}
		if _, err := conn.Write(encodeAnswer(l.secret, question, l.rank, time.Now().UnixNano())); err != nil {
			return
		}
	}
}

// run runs a probe, and sets its results.
func (p *Probe) run(secret []byte) {
	dialer := net.Dialer{Timeout: probeTimeout, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Local, 0))}
	conn, err := dialer.DialContext(context.Background(), "tcp", netip.AddrPortFrom(p.Remote, p.Port).String())
	if err != nil {
		if p.Outcome = dialOutcome(err); p.Outcome != Silent {
			p.Detail = rootCause(err)
		}
		return
	}
	p.SegmentBytes = segmentBytes(conn)
	p.converse(conn, secret)
}

// converse asks the other end, sets the results, and closes the connection.
func (p *Probe) converse(conn net.Conn, secret []byte) {
	defer conn.Close()
	for n := range timeQuestions + 1 {
		bulk := n == timeQuestions
		sent := time.Now()
		theirs, err := p.ask(conn, secret, bulk)
		trip := time.Since(sent)
		switch {
		case err == nil:
		case errors.Is(err, errNotOurs):
			p.Outcome = Foreign
			return
		case bulk && errors.Is(err, os.ErrDeadlineExceeded):
			p.Outcome, p.Detail = Stalled, fmt.Sprintf("%d bytes were not acknowledged within %v", bulkBytes, probeTimeout)
			return
		default:
			p.Outcome, p.Detail = Failed, fmt.Sprintf("after connecting: %s", rootCause(err))
			return
		}
		if !bulk && (p.RoundTripNanos == 0 || int64(trip) < p.RoundTripNanos) {
			p.RoundTripNanos = max(int64(trip), 1)
			p.OffsetNanos = theirs - sent.Add(trip/2).UnixNano()
		}
	}
	p.Outcome = Connected
}

// ask asks the time, with a bulk or without.
func (p *Probe) ask(conn net.Conn, secret []byte, bulk bool) (nanos int64, err error) {
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return 0, err
	}
	kind, more := kindTime, []byte(nil)
	if bulk {
		kind, more = kindBulk, make([]byte, bulkBytes)
	}
	var nonce [nonceBytes]byte
	_, _ = rand.Read(nonce[:]) // never fails
	question := encodeQuestion(secret, kind, nonce)
	if _, err := conn.Write(append(question, more...)); err != nil {
		return 0, err
	}
	return readAnswer(conn, secret, question[1+nonceBytes:questionBytes], p.To)
}

func dialOutcome(err error) Outcome {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return Unreachable
	case errors.As(err, &timeout) && timeout.Timeout():
		return Silent
	}
	return Failed
}

// rootCause returns the system's text of an error, without the addresses.
func rootCause(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// segmentBytes returns the size of the largest segment that the connection sends, or 0 if it is
// unknown.
func segmentBytes(conn net.Conn) (n int) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		n, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	})
	return n
}

// runProbes runs all probes, at most maxProbes at a time, and calls done after each, from several
// goroutines.
func runProbes(list []Probe, secret []byte, done func(*Probe)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, maxProbes)
	for i := range list {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			list[i].run(secret)
			done(&list[i])
		})
	}
	all.Wait()
}
