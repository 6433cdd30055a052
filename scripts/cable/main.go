// Command cable joins two network namespaces by a cable that can be made slow: cable DEVICE NS NS
// makes a TUN device of that name in both, and forwards packets between them. It reads one command
// from each line of its input, which replaces the previous one:
//
//	delay DURATION    packets arrive so much later, in either direction
//
// It needs root. Use it on kernels without netem.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: cable DEVICE NAMESPACE NAMESPACE"))
	}
	var delay atomic.Int64
	var ends [2]*os.File
	for i := range ends {
		f, err := open(os.Args[1], os.Args[2+i])
		if err != nil {
			fail(fmt.Errorf("device %s in namespace %s: %w", os.Args[1], os.Args[2+i], err))
		}
		ends[i] = f
	}
	go forward(ends[0], ends[1], &delay)
	go forward(ends[1], ends[0], &delay)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		word, value, _ := strings.Cut(in.Text(), " ")
		d, err := time.ParseDuration(value)
		if word != "delay" || err != nil || d < 0 {
			fail(fmt.Errorf("%q is no command", in.Text()))
		}
		delay.Store(int64(d))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "cable:", err)
	os.Exit(1)
}

// open makes a TUN device in a network namespace. The device disappears when the program ends.
func open(device, namespace string) (*os.File, error) {
	runtime.LockOSThread() // never unlocked: the thread stays in the namespace
	ns, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("setns: %w", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(device)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, fmt.Errorf("TUNSETIFF: %w", err)
	}
	return os.NewFile(uintptr(fd), device), nil
}

// packet is a packet under way.
type packet struct {
	due  time.Time
	data []byte
}

// forward forwards packets from one device to another, in order.
func forward(from, to *os.File, delay *atomic.Int64) {
	line := make(chan packet, 1<<16)
	go func() {
		for p := range line {
			if left := time.Until(p.due); left > 0 {
				time.Sleep(left)
			}
			_, _ = to.Write(p.data) // a device that is down drops packets
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			time.Sleep(time.Millisecond) // the device is down
			continue
		}
		d := time.Duration(delay.Load())
		if d == 0 && len(line) == 0 {
			_, _ = to.Write(buffer[:n])
			continue
		}
		line <- packet{time.Now().Add(d), append([]byte(nil), buffer[:n]...)}
	}
}
