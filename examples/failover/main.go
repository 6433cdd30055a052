// Failover streams messages from one rank to another while the rails between them fail and come
// back, and prints the bandwidth over time.
//
//	go run ./examples/failover
//
// Without a launcher the program makes two ranks itself, as goroutines, and joins them by three
// rails in memory. It cuts and mends these rails during the traffic. As a job of two ranks it cuts
// nothing: it shows the traffic over the existing rails while you pull cables or set interfaces
// down.
//
//	mpirun-go -n 2 --btl self,ibverbs ./examples/failover -time 20s
//
// Failover needs no code in a program: send and receive know nothing of rails.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mpigo/mpigo/comm"
)

// config holds the flags' values.
type config struct {
	time  time.Duration // least time for which messages are sent
	every time.Duration // between two lines of output
	rate  float64       // limit of the sender in bytes per second
}

const (
	rails   = 3 // that join the program's own two ranks
	longest = 1 << 20

	tagData = 1
	tagEnd  = 2 // the sender's counters, after the last message
)

// railsToCut lists the rails that are cut together. With no rail left, messages wait for one, up to
// the time of the setting pml.grace, which is 10 s by default.
var railsToCut = [][]int{{1}, {0}, {1, 2}, {0, 1, 2}} // never written

func main() {
	var cfg config
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	flags.DurationVar(&cfg.time, "time", 8*time.Second, "how long messages are sent, at least")
	flags.DurationVar(&cfg.every, "every", 200*time.Millisecond, "time between two lines of output")
	rate := flags.Float64("rate", 200, "limit of the sender in `MB/s`")
	check := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case cfg.time <= 0:
			return fmt.Errorf("-time is %v: it must be positive", cfg.time)
		case cfg.every < 10*time.Millisecond:
			return fmt.Errorf("-every is %v: it must be at least 10ms", cfg.every)
		case !(*rate > 0):
			return fmt.Errorf("-rate is %v: it must be positive", *rate)
		}
		cfg.rate = *rate * 1e6
		return nil
	}
	comm.Run(func(world *comm.Comm) error {
		if err := comm.ParseFlags(world, flags, os.Args[1:], check); err != nil {
			return err
		}
		return run(world, cfg, os.Stdout)
	})
}

// run is the program of one rank. Only rank 1, or the only rank, writes to out.
func run(world *comm.Comm, cfg config, out io.Writer) error {
	switch world.Size() {
	case 1:
		return comm.RunLocal(2, func(world *comm.Comm) error {
			return stream(world, cfg, cut, out)
		}, comm.WithRails(rails))
	case 2:
		return stream(world, cfg, wait, out)
	}
	return fmt.Errorf("the program takes 2 ranks, or 1, which makes 2 itself; there are %d", world.Size())
}

// stream sends messages from rank 0 to rank 1 until meanwhile has returned at rank 0.
func stream(world *comm.Comm, cfg config, meanwhile func(context.Context, *comm.Comm, time.Duration) error, out io.Writer) error {
	if world.Rank() == 1 {
		return receive(world, cfg, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- meanwhile(ctx, world, cfg.time) }()
	if err := send(world, cfg, over); err != nil {
		cancel()
		return err
	}
	cancel()
	return comm.SendValue(world, world.Stats(), 1, tagEnd)
}

// send sends messages of 1 byte to 1 MiB until over has a value. Send returns no error of a rail:
// it waits while no rail is up, and continues when one is back.
func send(world *comm.Comm, cfg config, over <-chan error) error {
	due, buf := time.Now(), make([]byte, longest)
	for number := 0; ; number++ {
		select {
		case err := <-over:
			return err
		default:
		}
		message := buf[:length(number)]
		for i := range message {
			message[i] = value(number, i)
		}
		if err := comm.Send(world, message, 1, tagData); err != nil {
			return err
		}
		due = due.Add(time.Duration(float64(len(message)) / cfg.rate * 1e9))
		if late := time.Now().Add(-10 * time.Millisecond); due.Before(late) {
			due = late // does not send faster after a delay by a failure
		}
		time.Sleep(time.Until(due))
	}
}

// length and value define the length of a message and its bytes. The bytes differ from message to
// message, so the receiver detects bytes that are lost, duplicated or in a wrong place.
func length(number int) int { return longest >> (number % 21) }
func value(number, i int) byte {
	return byte((uint64(number)<<32 + uint64(i)) * 0x9e3779b97f4a7c15 >> 56)
}

// receive checks every byte of the messages, and prints the bandwidth meanwhile.
func receive(world *comm.Comm, cfg config, out io.Writer) error {
	var bytes atomic.Int64
	stop := make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() { chart(world, cfg, &bytes, stop, out) })
	numbers, err := receiveAll(world, &bytes)
	close(stop)
	printing.Wait()
	if err != nil {
		return err
	}
	sender, _, err := comm.RecvValue[comm.Stats](world, 0, tagEnd)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nmessages   %d, %.1f MB, every byte checked\n"+
		"rails      failed %d times, came back %d times; %.1f kB were sent again\n",
		numbers, float64(bytes.Load())/1e6, sender.RailsFailed, sender.RailsReturned, float64(sender.ResentBytes)/1e3)
	return err
}

// receiveAll receives messages until the sender's counters arrive, and returns the number of
// messages.
func receiveAll(world *comm.Comm, bytes *atomic.Int64) (numbers int, err error) {
	buf := make([]byte, longest)
	for ; ; numbers++ {
		next, err := world.Probe(0, comm.AnyTag)
		if err != nil || next.Tag == tagEnd {
			return numbers, err
		}
		got, err := comm.Recv(world, buf, 0, tagData)
		if err != nil {
			return numbers, err
		}
		message := buf[:got.Bytes]
		if len(message) != length(numbers) {
			return numbers, fmt.Errorf("message %d has %d bytes, not %d", numbers, len(message), length(numbers))
		}
		for i, b := range message {
			if b != value(numbers, i) {
				return numbers, fmt.Errorf("byte %d of message %d is wrong", i, numbers)
			}
		}
		bytes.Add(got.Bytes)
	}
}

// chart prints the bandwidth of each interval, and the rails that are down at that time.
func chart(world *comm.Comm, cfg config, bytes *atomic.Int64, stop <-chan struct{}, out io.Writer) {
	tick := time.NewTicker(cfg.every)
	defer tick.Stop()
	begin, sum := time.Now(), int64(0)
	last := begin
	fmt.Fprintf(out, "%8s %8s\n", "until s", "MB/s")
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now, before := time.Now(), sum
		sum = bytes.Load()
		rate := float64(sum-before) / now.Sub(last).Seconds()
		last = now
		bar := strings.Repeat("#", min(40, int(40*rate/cfg.rate)))
		line := fmt.Sprintf("%8.2f %8.1f |%-40s| %s", now.Sub(begin).Seconds(), rate/1e6, bar, down(world))
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}

// down names the rails to the sender that are not up.
func down(world *comm.Comm) string {
	var names []string
	for _, r := range world.Rails() {
		if r.Peer == 0 && r.State != "up" && !r.Alternate {
			names = append(names, r.Rail)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "without " + strings.Join(names, ", ")
}

// wait waits for a time.
func wait(ctx context.Context, _ *comm.Comm, total time.Duration) error {
	select {
	case <-time.After(total):
	case <-ctx.Done():
	}
	return nil
}

// cut cuts and mends rails, one after the other and several at once, in about the given time.
func cut(ctx context.Context, world *comm.Comm, total time.Duration) error {
	cuts := uint64(0)
	for _, rails := range railsToCut {
		_ = wait(ctx, world, total/10)
		for _, rail := range rails {
			if err := world.CutRail(rail); err != nil {
				return err
			}
			cuts++
		}
		_ = wait(ctx, world, total/16)
		await(ctx, func() bool { return world.Stats().RailsFailed >= cuts })
		for _, rail := range rails {
			if err := world.MendRail(rail); err != nil {
				return err
			}
		}
		await(ctx, func() bool { return world.Stats().RailsReturned >= cuts })
	}
	return wait(ctx, world, total/10)
}

// await waits until a condition holds.
func await(ctx context.Context, holds func() bool) {
	for ctx.Err() == nil && !holds() {
		time.Sleep(5 * time.Millisecond)
	}
}
