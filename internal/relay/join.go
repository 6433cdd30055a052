package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mpigo/mpigo/internal/introspect"
)

const (
	// dialTimeout is the time for one attempt to reach one address of the hub.
	dialTimeout = 3 * time.Second
	// firstPause is the time after an attempt to reach the hub, which doubles each time up to
	// maxPause. Many ranks connect at once.
	firstPause = 200 * time.Millisecond
	maxPause   = 30 * time.Second
	// goodbyeTimeout bounds the goodbye of a rank, which takes long only if the hub does not read.
	// It allows for a busy machine on which the rank does not run for a while: without a goodbye,
	// the hub considers the rank lost.
	goodbyeTimeout = 3 * time.Second
	// joinWait is how long Join waits for the connection.
	joinWait = 100 * time.Millisecond
)

// Joined is another rank's end.
type Joined struct {
	cancel context.CancelFunc

	mu   sync.Mutex
	conn net.Conn // nil: not connected
}

// Join connects a rank to the hub at one of the addresses (Hub.Addresses), and answers questions
// until Close. It waits for the connection only briefly. If the hub cannot be reached, the job runs
// all the same, and the hub reports that this rank does not answer. It keeps trying, and connects
// again when the connection is lost.
func Join(addresses, secret []byte, number, size int, rank introspect.Describer) (*Joined, error) {
	var list []string
	if err := json.Unmarshal(addresses, &list); err != nil {
		return nil, fmt.Errorf("relay: addresses of rank 0: %w", err)
	}
	if len(list) > maxAddresses {
		list = list[:maxAddresses]
	}
	host, _ := os.Hostname()
	me := hello{Rank: number, Size: size, PID: os.Getpid(), Host: host}
	ctx, cancel := context.WithCancel(context.Background())
	j, tried := &Joined{cancel: cancel}, make(chan struct{})
	go func() {
		conn := reachOnce(ctx, list, secret, me)
		close(tried)
		for pause := firstPause; ; pause = min(2*pause, maxPause) {
			if conn != nil {
				began := time.Now()
				j.serve(ctx, conn, rank)
				if time.Since(began) > maxPause {
					pause = firstPause
				}
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			conn = reachOnce(ctx, list, secret, me)
		}
	}()
	select {
	case <-tried:
	case <-time.After(joinWait):
	}
	return j, nil
}

// serve answers questions on a connection until it ends.
func (j *Joined) serve(ctx context.Context, conn net.Conn, rank introspect.Describer) {
	defer conn.Close()
	if introspect.Greet(conn) != nil {
		return
	}
	j.mu.Lock()
	if j.conn = conn; ctx.Err() != nil { // Close has not seen the connection
		j.conn = nil
		sayGoodbye(conn)
	}
	j.mu.Unlock()
	_ = introspect.Serve(conn, rank)
	j.mu.Lock()
	j.conn = nil
	j.mu.Unlock()
}

// Close says goodbye to the hub, and ends the connection.
func (j *Joined) Close() error {
	j.cancel()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.conn != nil {
		sayGoodbye(j.conn)
	}
	return nil
}

// sayGoodbye says goodbye and ends a connection, even if the hub does not read.
func sayGoodbye(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(goodbyeTimeout))
	_ = introspect.SayGoodbye(conn)
	_ = conn.Close()
}

// reachOnce connects to the first address at which the hub answers. It returns nil if there is
// none.
func reachOnce(ctx context.Context, addresses []string, secret []byte, me hello) net.Conn {
	for _, address := range addresses {
		if conn := dial(ctx, address, secret, me); conn != nil {
			return conn
		}
	}
	return nil
}

// dial makes one attempt. It returns nil if the hub does not answer at the address.
func dial(ctx context.Context, address string, secret []byte, me hello) net.Conn {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	if introduce(conn, secret, me) != nil {
		_ = conn.Close()
		return nil
	}
	_ = conn.SetDeadline(time.Time{})
	return conn
}
