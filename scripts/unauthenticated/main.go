// Command unauthenticated connects ten thousand times to the ports of a job whose secret it does
// not know. It sends different data: nothing, noise, too little, too much, and a greeting recorded
// from a rank. With -record it only captures a greeting from the network, which needs root.
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The sizes of btl/tcp's handshake.
const (
	challengeBytes = 32  // a rank's first message to every peer
	greetingBytes  = 117 // the answer of an authentic peer
	macBytes       = 32  // at the end of a greeting
	greetingFirst  = 1   // first byte of a greeting; a frame of that length begins with its length

	connectionsAtOnce = 500
	patience          = 10 * time.Second // more than a rank's own deadline of 2 s
)

func main() {
	record := flag.String("record", "", "write the first greeting between two ranks into this `FILE`")
	device := flag.String("on", "lo", "network `DEVICE` to capture from, with -record")
	recorded := flag.String("recorded", "", "`FILE` with a recorded greeting")
	to := flag.String("to", "", "`ADDRESSES` with ports of ranks, separated by commas")
	total := flag.Int("n", 10000, "number of connections")
	watch := flag.String("watch", "", "`PIDS` of ranks whose memory and descriptors are printed, separated by commas")
	flag.Parse()
	var err error
	if *record != "" {
		err = recordGreeting(*record, *device)
	} else {
		err = connectAll(*recorded, strings.Split(*to, ","), *total, strings.Split(*watch, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "unauthenticated:", err)
		os.Exit(1)
	}
}

// recordGreeting waits for a greeting on a network device and writes it to a file.
func recordGreeting(file, device string) error {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("capture from %s: %w", device, err)
	}
	const all = unix.ETH_P_ALL&0xff<<8 | unix.ETH_P_ALL>>8 // in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}); err != nil {
		return fmt.Errorf("capture from %s: %w", device, err)
	}
	for b := make([]byte, 1<<16); ; {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return fmt.Errorf("capture from %s: %w", device, err)
		}
		if data := payload(b[:n]); len(data) == greetingBytes && data[0] == greetingFirst {
			return os.WriteFile(file, data, 0o600)
		}
	}
}

// payload returns the payload of a TCP packet over IPv4, or nil for any other packet.
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

// peer is a kind of unauthenticated peer.
type peer struct {
	name   string
	answer func(challenge []byte) []byte
}

func peers(recorded []byte) []peer {
	noise := func(n int) []byte {
		b := make([]byte, n)
		_, _ = rand.Read(b) // never fails
		return b
	}
	constant := func(b []byte) func([]byte) []byte { return func([]byte) []byte { return b } }
	return []peer{
		{"wrong MAC", func([]byte) []byte {
			return slices.Concat(recorded[:greetingBytes-macBytes], noise(macBytes))
		}},
		{"replayed", constant(recorded)},
		{"cut short", constant(recorded[:50])},
		{"too long", constant(slices.Concat(recorded, recorded))},
		{"noise", func([]byte) []byte { return noise(1 << 16) }},
		{"echoed challenge", func(challenge []byte) []byte { return challenge }},
		{"silent", constant(nil)},
	}
}

// connectAll makes all connections, and prints their results and the resources that the ranks used.
func connectAll(recordedFile string, ports []string, total int, pids []string) error {
	recorded, err := os.ReadFile(recordedFile)
	if err != nil {
		return err
	}
	if len(recorded) != greetingBytes {
		return fmt.Errorf("the recorded greeting has %d bytes, not %d", len(recorded), greetingBytes)
	}
	kinds := peers(recorded)
	before := usageOf(pids)
	most := before
	begin := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	var wrong []error
	challenged := 0
	for range connectionsAtOnce {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= total {
					return
				}
				got, err := kinds[i%len(kinds)].connect(ports[i/len(kinds)%len(ports)])
				mu.Lock()
				if got {
					challenged++
				}
				if err != nil {
					wrong = append(wrong, err)
				}
				if i%100 == 0 {
					most = most.max(usageOf(pids))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	after := usageOf(pids)
	fmt.Printf("%d unauthenticated connections in %.1f s: %d were challenged, %d closed at once; "+
		"descriptors of the watched ranks before, at most and after: %v, %v, %v; resident MB: %v, %v, %v\n",
		total, time.Since(begin).Seconds(), challenged, total-challenged,
		before.files, most.files, after.files, before.megabytes, most.megabytes, after.megabytes)
	return errors.Join(wrong...)
}

// connect makes one connection. If a rank sends more than its challenge, that is an error.
func (p peer) connect(to string) (challenged bool, err error) {
	c, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return false, nil // the rank accepts no more connections at the moment
	}
	conn := c.(*net.TCPConn)
	defer conn.Close()
	_ = conn.SetLinger(0) // otherwise this machine runs out of ports
	_ = conn.SetDeadline(time.Now().Add(patience))
	var challenge [challengeBytes]byte
	if _, err := io.ReadFull(conn, challenge[:]); err != nil {
		return false, p.notClosed(err)
	}
	_, _ = conn.Write(p.answer(challenge[:])) // fails if the rank has closed the connection already
	more, err := io.ReadAll(conn)
	if len(more) > 0 {
		return true, fmt.Errorf("%s: a rank has answered %d bytes", p.name, len(more))
	}
	return true, p.notClosed(err)
}

// notClosed returns an error if the rank has not closed the connection in time. A reset is fine
// too.
func (p peer) notClosed(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s: a rank has not closed the connection in %v", p.name, patience)
	}
	return nil
}

// usage holds a figure for each watched process.
type usage struct{ files, megabytes []int }

func usageOf(pids []string) (u usage) {
	for _, pid := range pids {
		files, _ := os.ReadDir("/proc/" + pid + "/fd")
		u.files = append(u.files, len(files))
		statm, _ := os.ReadFile("/proc/" + pid + "/statm")
		residentPages := 0
		if fields := strings.Fields(string(statm)); len(fields) > 1 {
			residentPages, _ = strconv.Atoi(fields[1])
		}
		u.megabytes = append(u.megabytes, residentPages*os.Getpagesize()>>20)
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
