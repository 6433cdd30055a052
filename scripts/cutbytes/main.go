// Command cutbytes measures the cost of a rail that is cut during a long message. Rank 0 sends the
// message to rank 1. When a part of it has arrived, rank 1 lets a program, -fault, cut a rail: the
// program gets the name of the case, writes a line when it is ready, waits for a line, and writes
// another one when the rail is cut. Rank 1 prints a row with the bytes that the rails carried, by
// the counters of the library and of the network devices, and the longest time without arrivals. A
// wrong byte is an error.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/mpigo/mpigo/comm"
)

var (
	program  = flag.String("fault", "./fault", "`PROGRAM` that cuts a rail")
	name     = flag.String("case", "none", "`CASE` for the fault program")
	label    = flag.String("label", "", "first column of the row (default: the case)")
	fraction = flag.Float64("at", 0.5, "`PART` of the message that is there when the rail is cut")
	mib      = flag.Int("mib", 512, "length of the message in MiB")
	devices  = flag.String("netdevs", "r0,r1", "network devices of rank 0's rails")
	pause    = flag.Duration("pause", 5*time.Millisecond, "the longest that nothing may arrive")
	carried  = flag.Float64("carried", 1.05, "the most that the rails may carry, as a part of the message")
	onWire   = flag.Float64("wire", 1.05, "the same by the devices' counters; 0: no limit")
	silent   = flag.Bool("silent", false, "the message may be there before a rail fails")
	marks    = flag.Bool("marks", false, "fail if a figure is above its limit; without it the row names the figure")
)

const longTag, countTag = 1, 2

func main() {
	flag.Parse()
	if *label == "" {
		*label = *name
	}
	comm.Run(func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return send(world)
		}
		return receive(world)
	})
}

// counts are the counters of one rank since the message began.
type counts struct {
	Rails   int64 // bytes that the library knows to be delivered
	Twice   int64 // bytes
	Devices int64 // bytes that rank 0's devices have sent, with all headers
	Resent  int64 // bytes
	Failed  uint64
}

func count(world *comm.Comm) (c counts) {
	for _, r := range world.Rails() {
		c.Rails += r.Bytes
	}
	s := world.Stats()
	c.Twice, c.Resent, c.Failed = s.TwiceBytes, s.ResentBytes, s.RailsFailed
	for device := range strings.SplitSeq(*devices, ",") {
		text, err := os.ReadFile("/sys/class/net/" + device + "/statistics/tx_bytes")
		if err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			c.Devices += n
		}
	}
	return c
}

func (c counts) since(before counts) counts {
	return counts{c.Rails - before.Rails, c.Twice - before.Twice, c.Devices - before.Devices,
		c.Resent - before.Resent, c.Failed - before.Failed}
}

// value returns byte i of the message. No part of the message equals another one, so a displaced
// piece is detected. No byte is 0, because the watcher looks for bytes that are not 0.
func value(i int) byte { return byte(uint64(i)*0x9e3779b97f4a7c15>>56) | 1 }

// warmBytes go before the message, so that both rails are known when it begins.
func warmBytes() int { return min(32, *mib/4) << 20 }

func send(world *comm.Comm) error {
	buf := make([]byte, *mib<<20)
	for i := range buf {
		buf[i] = value(i)
	}
	if err := comm.Send(world, buf[:warmBytes()], 1, longTag); err != nil {
		return err
	}
	if err := world.Barrier(); err != nil {
		return err
	}
	before := count(world)
	if err := comm.Send(world, buf, 1, longTag); err != nil {
		return err
	}
	return comm.SendValue(world, count(world).since(before), 1, countTag)
}

func receive(world *comm.Comm) error {
	buf := make([]byte, *mib<<20)
	if _, err := comm.Recv(world, buf[:warmBytes()], 0, longTag); err != nil {
		return err
	}
	clear(buf)
	cut, err := prepare()
	if err != nil {
		return err
	}
	before := count(world)
	w := watch(buf, int(*fraction*float64(len(buf))), cut)
	if err := world.Barrier(); err != nil {
		return err
	}
	if _, err := comm.Recv(world, buf, 0, longTag); err != nil {
		return err
	}
	w.stop()
	mine := count(world).since(before)
	for i, b := range buf {
		if b != value(i) {
			return fmt.Errorf("byte %d of %d is wrong", i, len(buf))
		}
	}
	theirs, _, err := comm.RecvValue[counts](world, 0, countTag)
	if err != nil {
		return err
	}
	return report(w, mine, theirs)
}

// prepare starts the fault program. The returned function makes it cut the rail.
func prepare() (cut func() error, err error) {
	if *name == "none" {
		return func() error { return nil }, nil
	}
	c := exec.Command(*program, *name)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	if err := c.Start(); err != nil {
		return nil, err
	}
	if _, err := lines.ReadString('\n'); err != nil { // it is ready
		return nil, fmt.Errorf("%s %s: %w", *program, *name, err)
	}
	return func() error {
		if _, err := in.Write([]byte("\n")); err != nil {
			return fmt.Errorf("%s %s: %w", *program, *name, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			return fmt.Errorf("%s %s: %w", *program, *name, err)
		}
		return nil
	}, nil
}

func report(w *watcher, mine, theirs counts) error {
	size := float64(*mib << 20)
	again := mine.Resent + theirs.Resent
	rails := float64(mine.Rails+theirs.Rails+again+mine.Twice+theirs.Twice) / size
	wire := float64(theirs.Devices) / size
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	result := "ok"
	above := func(is bool, format string, args ...any) {
		if is {
			result += "; above the limit: " + fmt.Sprintf(format, args...)
		}
	}
	if w.err != nil {
		return w.err
	}
	after := w.after.longest - w.after.stalled
	above(rails > *carried, "%.3f of the message", rails)
	above(*onWire > 0 && wire > *onWire, "%.3f of the message by the devices", wire)
	above(after > *pause, "a pause of %.1f ms", ms(after))
	if failed := mine.Failed + theirs.Failed; *name != "none" && failed == 0 && !*silent {
		return errors.New("no rail has failed")
	}
	fmt.Printf("| %s | %.2f | %.3f | %.3f | %.2f | %.2f | %d | %.1f | %.1f | %.1f | %.1f | %.0f | %s |\n", *label, float64(w.cutBytes)/size, rails, wire,
		float64(again)/1e6, float64(mine.Twice+theirs.Twice)/1e6, mine.Failed+theirs.Failed,
		ms(w.before.longest), ms(w.after.longest), ms(w.after.stalled), ms(max(w.ended.Sub(w.last), 0)), ms(w.ended.Sub(w.began)), result)
	if *marks && result != "ok" {
		return fmt.Errorf("%s at %.1f: %s", *label, *fraction, result)
	}
	return nil
}
