package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/mpigo/mpigo/internal/introspect"
)

const (
	// dialTimeout is the time for one attempt to reach one address of the hub.
	dialTimeout = 3 * time.Second
	// attempts is how often a rank tries all addresses. Many ranks connect at once.
	attempts = 5
	// firstPause is the time after the first attempt, which doubles each time.
	firstPause = 200 * time.Millisecond
	// joinWait is how long Join waits for the connection.
	joinWait = 100 * time.Millisecond
)

// Joined is another rank's end.
type Joined struct{ cancel context.CancelFunc }

// Join connects a rank to the hub at one of the addresses (Hub.Addresses), and answers questions
// until Close. It waits for the connection for a moment only: if the hub cannot be reached, the job
// runs as well, and the hub says that this rank does not answer.
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
	tried := make(chan struct{})
	go func() {
		conn := reach(ctx, list, secret, me)
		close(tried)
		if conn == nil {
			return
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if introspect.Greet(conn) == nil {
			_ = introspect.Serve(conn, rank)
		}
	}()
	select {
	case <-tried:
	case <-time.After(joinWait):
	}
	return &Joined{cancel}, nil
}

// Close ends the connection.
func (j *Joined) Close() error {
	j.cancel()
	return nil
}

// reach connects to the first address that leads to the hub, nil if none does or ctx ends.
func reach(ctx context.Context, addresses []string, secret []byte, me hello) net.Conn {
	pause := firstPause
	for range attempts {
		for _, address := range addresses {
			if conn := dial(ctx, address, secret, me); conn != nil {
				return conn
			}
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// dial makes one attempt. It returns nil if the address does not lead to the hub.
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
