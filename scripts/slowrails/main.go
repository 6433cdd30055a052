// Command slowrails measures the cost of a slow rail for a job of two ranks. Rank 0 sends long
// messages to rank 1, and exchanges short ones with it. Meanwhile it runs a program, -fault, which
// changes the rails for each phase, with the phase's name:
//
//	both     both rails work
//	one      the first rail is down
//	both     both rails work again
//	slow     the first rail is slow
//	both     both rails work again
//
// It prints a row with the bandwidth and the latency of each phase. A wrong message is an error.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/mpigo/mpigo/comm"
)

const (
	longBytes = 1 << 20
	window    = 8 // long messages that are under way together
	shorts    = 50
)

var (
	program = flag.String("fault", "./fault", "`PROGRAM` that changes the rails")
	label   = flag.String("label", "", "first column of the row")
	length  = flag.Duration("phase", 4*time.Second, "length of a phase")
	settle  = flag.Duration("settle", time.Second, "time from the beginning of a phase that is not measured")
	regain  = flag.Duration("regain", 5*time.Second, "the same after the last phase began")
	marks   = flag.Bool("marks", false, "fail if a figure is beyond its limit")
	verbose = flag.Bool("v", false, "print the figures over time")
)

func main() {
	flag.Parse()
	comm.Run(func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return lead(world)
		}
		return follow(world)
	})
}

// figures are the results of one phase.
type figures struct {
	mbps    float64 // over the whole phase, so that a pause counts
	micros  float64 // median latency of a short message
	longest time.Duration
}

func lead(world *comm.Comm) error {
	long := make([]byte, window*longBytes)
	for i := range long {
		long[i] = byte(i * 7)
	}
	begin := time.Now()
	var all []figures
	for i, phase := range []string{"both", "one", "both", "slow", "both"} {
		if out, err := exec.Command(*program, phase).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", *program, phase, err, out)
		}
		wait := *settle
		if i == 4 {
			wait = *regain
		}
		if _, err := measure(world, long, begin, wait); err != nil {
			return fmt.Errorf("phase %s: %w", phase, err)
		}
		f, err := measure(world, long, begin, *length)
		if err != nil {
			return fmt.Errorf("phase %s: %w", phase, err)
		}
		all = append(all, f)
		if *verbose {
			for _, r := range world.Rails() {
				fmt.Fprintf(os.Stderr, "after phase %s: %+v\n", phase, r)
			}
		}
	}
	both, one, slow, after := all[0], all[1], all[3], all[4]
	both.mbps = max(both.mbps, all[2].mbps)
	fmt.Printf("| %s | %.0f | %.1f | %.0f | %.1f | %.0f | %.2f | %.1f | %.2f | %d | %.0f | %.2f |\n", *label,
		both.mbps, both.micros, one.mbps, one.micros, slow.mbps, slow.mbps/one.mbps, slow.micros, slow.micros/one.micros, slow.longest.Milliseconds(), after.mbps, after.mbps/both.mbps)
	if err := check(slow.mbps/one.mbps, slow.micros/one.micros, after.mbps/both.mbps); err != nil {
		return err
	}
	return comm.Send[byte](world, nil, 1, 0)
}

// check compares the figures with their limits. Without -marks the limits are so loose that other
// work on the machine does not fail the run: a job that waits for the slow rail has a hundredth of
// the bandwidth.
func check(bandwidth, latency, mended float64) error {
	least, most, leastMended := 0.1, 10.0, 0.02
	if *marks {
		least, most, leastMended = 0.95, 1.2, 0.9
	}
	switch {
	case bandwidth < least:
		return fmt.Errorf("with a slow rail, the bandwidth is %.2f of that of one rail, want %.2f", bandwidth, least)
	case latency > most:
		return fmt.Errorf("with a slow rail, the latency is %.2f of that of one rail, want %.2f", latency, most)
	case mended < leastMended:
		return fmt.Errorf("once the rail is mended, the bandwidth is %.2f of that of two rails, want %.2f", mended, leastMended)
	}
	return nil
}

// measure sends messages for a while.
func measure(world *comm.Comm, long []byte, begin time.Time, length time.Duration) (figures, error) {
	var f figures
	var latencies []float64
	var sending time.Duration
	messages := 0
	end := time.Now().Add(length)
	for time.Now().Before(end) {
		at := time.Now()
		took, err := sendLong(world, long)
		if err != nil {
			return f, err
		}
		sending += took
		messages += window
		for range shorts {
			took, err := exchange(world)
			if err != nil {
				return f, err
			}
			latencies = append(latencies, float64(took.Nanoseconds())/2000)
			f.longest = max(f.longest, took)
		}
		f.longest = max(f.longest, took)
		if *verbose {
			fmt.Fprintf(os.Stderr, "%7d ms: %6.0f MB/s, %8.1f µs, round %v\n", at.Sub(begin).Milliseconds(),
				float64(len(long))/took.Seconds()/1e6, latencies[len(latencies)-shorts/2], time.Since(at).Round(time.Millisecond))
		}
	}
	f.mbps = float64(messages*longBytes) / sending.Seconds() / 1e6
	slices.Sort(latencies)
	f.micros = latencies[len(latencies)/2]
	return f, nil
}

func sendLong(world *comm.Comm, long []byte) (time.Duration, error) {
	begin := time.Now()
	if err := comm.Send(world, []byte{1}, 1, 0); err != nil {
		return 0, err
	}
	var all []comm.Request
	for i := range window {
		r, err := comm.Isend(world, long[i*longBytes:(i+1)*longBytes], 1, 1)
		if err != nil {
			return 0, err
		}
		all = append(all, r)
	}
	if err := comm.WaitAll(all...); err != nil {
		return 0, err
	}
	_, err := comm.Recv(world, make([]byte, 1), 1, 2)
	return time.Since(begin), err
}

func exchange(world *comm.Comm) (time.Duration, error) {
	begin := time.Now()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(begin.UnixNano()))
	if err := comm.Send(world, b[:], 1, 0); err != nil {
		return 0, err
	}
	var back [8]byte
	if _, err := comm.Recv(world, back[:], 1, 3); err != nil {
		return 0, err
	}
	if back != b {
		return 0, errors.New("another message came back")
	}
	return time.Since(begin), nil
}

// follow handles the messages of rank 0: an empty one ends follow, one byte announces long
// messages, and eight bytes are sent back.
func follow(world *comm.Comm) error {
	long := make([]byte, window*longBytes)
	var word [8]byte
	for {
		status, err := comm.Recv(world, word[:], 0, 0)
		switch {
		case err != nil:
			return err
		case status.Bytes == 0:
			return nil
		case status.Bytes == 1:
			err = receiveLong(world, long)
		default:
			err = comm.Send(world, word[:], 0, 3)
		}
		if err != nil {
			return err
		}
	}
}

func receiveLong(world *comm.Comm, long []byte) error {
	clear(long)
	var all []comm.Request
	for i := range window {
		r, err := comm.Irecv(world, long[i*longBytes:(i+1)*longBytes], 0, 1)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	if err := comm.WaitAll(all...); err != nil {
		return err
	}
	if err := comm.Send(world, []byte{1}, 0, 2); err != nil {
		return err
	}
	for i, b := range long {
		if b != byte(i*7) {
			return fmt.Errorf("byte %d of %d is wrong", i, len(long))
		}
	}
	return nil
}
