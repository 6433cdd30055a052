// Command strangers connects to the ports of a job that it is not part of, ten thousand times, and says what those say who do not know the job's secret:
// nothing, noise, too little, too much, and what it has heard a rank say. With -record it listens on the network for that, which needs root, and ends
// when it has heard a greeting.
package main

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

var (
	record  = flag.String("record", "", "write what the first rank says that connects to another one into this file")
	device  = flag.String("on", "lo", "the network device to listen on")
	replay  = flag.String("recorded", "", "the file with what was recorded")
	targets = flag.String("to", "", "addresses and ports of ranks, separated by commas")
	total   = flag.Int("n", 10000, "how many connections")
	pids    = flag.String("watch", "", "process ids of ranks whose memory and descriptors are told, separated by commas")
)

const (
	challengeBytes = 32 // what a rank says to somebody whom it does not know
	greetingBytes  = 117
	greetingBegins = 1 // a frame of as many bytes begins with its length
	atOnce         = 500
	patience       = 10 * time.Second
)

func main() {
	flag.Parse()
	var err error
	if *record != "" {
		err = listen(*record)
	} else {
		err = crowd()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "strangers:", err)
		os.Exit(1)
	}
}

// listen waits for a greeting, and keeps it.
func listen(file string) error {
	i, err := net.InterfaceByName(*device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("listen to the network: %w", err)
	}
	const all = unix.ETH_P_ALL&0xff<<8 | unix.ETH_P_ALL>>8 // in the network's order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}); err != nil {
		return fmt.Errorf("listen to %s: %w", *device, err)
	}
	for b := make([]byte, 1<<16); ; {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return fmt.Errorf("listen to the network: %w", err)
		}
		if said := payload(b[:n]); len(said) == greetingBytes && said[0] == greetingBegins {
			return os.WriteFile(file, said, 0o600)
		}
	}
}

// payload is what a packet of TCP over IPv4 carries.
func payload(b []byte) []byte {
	if len(b) < 40 || b[0]>>4 != 4 || b[9] != unix.IPPROTO_TCP {
		return nil
	}
	ip, end := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if end > len(b) || ip+20 > end {
		return nil
	}
	if data := ip + int(b[ip+12]>>4)*4; data <= end {
		return b[data:end]
	}
	return nil
}

// stranger is a kind of them.
type stranger struct {
	name string
	says func(challenge []byte) []byte
}

func strangers(recorded []byte) []stranger {
	noise := func(n int) []byte {
		b := make([]byte, n)
		_, _ = rand.Read(b) // it never fails
		return b
	}
	return []stranger{
		{"wrong secret", func([]byte) []byte { return append(append([]byte(nil), recorded[:greetingBytes-32]...), noise(32)...) }},
		{"replayed", func([]byte) []byte { return recorded }},
		{"cut short", func([]byte) []byte { return recorded[:50] }},
		{"too long", func([]byte) []byte { return append(append([]byte(nil), recorded...), recorded...) }},
		{"noise", func([]byte) []byte { return noise(1 << 16) }},
		{"given back", func(challenge []byte) []byte { return challenge }},
		{"silent", func([]byte) []byte { return nil }},
	}
}

func crowd() error {
	recorded, err := os.ReadFile(*replay)
	if err != nil {
		return err
	}
	if len(recorded) != greetingBytes {
		return fmt.Errorf("a greeting of %d bytes, not %d", len(recorded), greetingBytes)
	}
	kinds, ports := strangers(recorded), strings.Split(*targets, ",")
	before := watch()
	most := before
	begin := time.Now()
	var next, asked, refused atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	var wrong []error
	for range atOnce {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= *total {
					return
				}
				answered, err := kinds[i%len(kinds)].visit(ports[i/len(kinds)%len(ports)])
				if answered {
					asked.Add(1)
				} else {
					refused.Add(1)
				}
				mu.Lock()
				if err != nil {
					wrong = append(wrong, err)
				}
				if i%100 == 0 {
					most = most.max(watch())
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	after := watch()
	fmt.Printf("%d strangers in %.1f s, %d were asked, %d hung up on at once; descriptors of the watched ranks before, at most and after: %v, %v, %v; resident MB: %v, %v, %v\n",
		*total, time.Since(begin).Seconds(), asked.Load(), refused.Load(), before.files, most.files, after.files, before.megabytes, most.megabytes, after.megabytes)
	return errors.Join(wrong...)
}

// visit is one stranger's visit. It is an error if a rank says more than it has to ask of everybody.
func (s stranger) visit(to string) (asked bool, err error) {
	c, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return false, nil // it lets nobody in now
	}
	conn := c.(*net.TCPConn)
	defer conn.Close()
	_ = conn.SetLinger(0) // so that ports do not run out
	_ = conn.SetDeadline(time.Now().Add(patience))
	var challenge [challengeBytes]byte
	if _, err := io.ReadFull(conn, challenge[:]); err != nil {
		return false, timeout(s.name, err)
	}
	_, _ = conn.Write(s.says(challenge[:])) // it may have been hung up on already
	more, err := io.ReadAll(conn)
	if len(more) > 0 {
		return true, fmt.Errorf("%s: a rank has answered %d bytes", s.name, len(more))
	}
	return true, timeout(s.name, err)
}

// timeout is an error if a rank has not hung up in time; how it does so is its own business.
func timeout(who string, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s: not hung up on in %v", who, patience)
	}
	return nil
}

// usage of each watched process.
type usage struct{ files, megabytes []int }

func watch() (u usage) {
	for _, pid := range strings.Split(*pids, ",") {
		files, _ := os.ReadDir("/proc/" + pid + "/fd")
		u.files = append(u.files, len(files))
		status, _ := os.ReadFile("/proc/" + pid + "/statm")
		pages := 0
		if words := strings.Fields(string(status)); len(words) > 1 {
			pages, _ = strconv.Atoi(words[1])
		}
		u.megabytes = append(u.megabytes, pages*os.Getpagesize()>>20)
	}
	return u
}

func (u usage) max(v usage) usage {
	var w usage
	for i := range u.files {
		w.files = append(w.files, max(u.files[i], v.files[i]))
		w.megabytes = append(w.megabytes, max(u.megabytes[i], v.megabytes[i]))
	}
	return w
}
