package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mpigo/mpigo/internal/gate"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/internal/procstate"
)

const (
	// handshakeTimeout is the time that an unauthenticated connection has.
	handshakeTimeout = 2 * time.Second
	// maxUnauthenticated is the number of unauthenticated connections at a time. Each costs rank 0
	// a descriptor and a goroutine.
	maxUnauthenticated = 128
	// maxAddresses bounds the published addresses.
	maxAddresses = 16
)

// Hub is rank 0's end. It implements jobsocket.Job.
type Hub struct {
	size     int
	info     jobsocket.Info
	listener net.Listener
	secret   []byte
	socket   *jobsocket.Server
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	gate     *gate.Gate
	patience time.Duration // handshakeTimeout, except in tests

	mu    sync.Mutex
	ranks []*member // by rank; nil: not connected
}

// member is a rank that has connected.
type member struct {
	hello
	conn *introspect.Conn
}

// Listen opens a TCP port for the ranks of a job of the given size. If all of them are on this
// machine, it listens on loopback only.
func Listen(size int, isLocal bool) (*Hub, error) {
	address := ":0"
	if isLocal {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	unique := make([]byte, 8)
	_, _ = rand.Read(unique) // never fails
	host, _ := os.Hostname()
	h := &Hub{size: size, listener: l, ranks: make([]*member, size), gate: gate.New(maxUnauthenticated, nil), patience: handshakeTimeout, info: jobsocket.Info{
		Name: fmt.Sprintf("mpigo-%d-%s", os.Getpid(), hex.EncodeToString(unique)), PID: os.Getpid(), Host: host,
		Size: size, Command: strings.Join(os.Args, " "), Started: time.Now(),
	}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h, nil
}

// Addresses returns the addresses of the port, for Join.
func (h *Hub) Addresses() ([]byte, error) {
	at := h.listener.Addr().(*net.TCPAddr)
	list := []string{at.String()}
	if at.IP.IsUnspecified() {
		list = nil
		own, err := net.InterfaceAddrs()
		if err != nil {
			return nil, fmt.Errorf("relay: %w", err)
		}
		for _, a := range own {
			ip, ok := a.(*net.IPNet)
			if ok && ip.IP.IsGlobalUnicast() && len(list) < maxAddresses {
				list = append(list, net.JoinHostPort(ip.IP.String(), fmt.Sprint(at.Port)))
			}
		}
	}
	return json.Marshal(list)
}

// SetTraceDir sets, before Start, the directory of the ranks' traces, and the job's identity in
// these files.
func (h *Hub) SetTraceDir(dir, jobID string) {
	h.info.Traces, h.info.TraceDir, h.info.TraceJob = true, dir, jobID
}

// Start begins to serve: the ranks that connect with the secret, and the socket of the job. rank is
// rank 0 itself. If the socket cannot be made, Start returns an error and serves neither.
func (h *Hub) Start(secret []byte, rank introspect.Describer) error {
	h.secret = secret
	socket, err := jobsocket.Listen(h)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	h.socket = socket
	asker, own := net.Pipe()
	go func() {
		defer own.Close()
		_ = introspect.Greet(own)
		_ = introspect.Serve(own, rank)
	}()
	h.add(hello{Rank: 0, Size: h.size, PID: os.Getpid(), Host: h.info.Host}, asker)
	go h.accept()
	return nil
}

// Close ends all connections, and removes the socket.
func (h *Hub) Close() error {
	h.cancel()
	_ = h.listener.Close()
	h.mu.Lock()
	for _, m := range h.ranks {
		if m != nil {
			_ = m.conn.Close()
		}
	}
	h.mu.Unlock()
	if h.socket != nil {
		h.socket.Close()
	}
	return nil
}

func (h *Hub) accept() {
	for {
		conn, err := h.gate.Accept(h.listener)
		if err != nil {
			return // closed
		}
		go func() {
			_ = conn.SetDeadline(time.Now().Add(h.patience))
			from, err := admit(conn, h.secret, h.size)
			if err != nil {
				_ = conn.Close()
				return
			}
			conn.LetIn()
			_ = conn.SetDeadline(time.Time{})
			h.add(from, conn)
		}()
	}
}

// add adds the connection of a rank. The latest connection of a rank counts.
func (h *Hub) add(from hello, conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		_ = conn.Close()
		return
	}
	if old := h.ranks[from.Rank]; old != nil {
		_ = old.conn.Close()
	}
	h.ranks[from.Rank] = &member{from, introspect.NewConn(conn)}
}

// Info implements jobsocket.Job.
func (h *Hub) Info() jobsocket.Info { return h.info }

// Ask implements jobsocket.Job.
func (h *Hub) Ask(ctx context.Context, want introspect.Want) []introspect.Member {
	return introspect.AskAll(ctx, want, h.peers())
}

func (h *Hub) peers() []introspect.Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	peers := make([]introspect.Peer, h.size)
	for rank, m := range h.ranks {
		p := &peers[rank]
		p.Member = introspect.Member{Rank: rank, State: introspect.StateSilent}
		if m == nil {
			continue // it has not reached this rank
		}
		p.Member.PID, p.Member.Host = m.PID, m.Host
		switch {
		case m.conn.HasSaidGoodbye():
			p.Member.State = introspect.StateFinalized
			continue
		case !m.conn.IsGone():
			p.Conn = m.conn
		}
		if m.Host == h.info.Host {
			p.Process = func(context.Context) (string, bool) {
				s := procstate.Of(m.PID)
				return s.String(), s.IsStopped()
			}
		}
	}
	return peers
}
