package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The limits of the machine. No transport between two cores is faster than the transfer of one
// cache line between them, and no transport that copies is faster than memcpy.

// Names of the limits.
const (
	limitsName = "limits of the machine"
	lineName   = "a cache line to another core"
	lineEager  = "a cache line to another core, polled without a pause"
	copyName   = "memcpy 1 MiB"
	copyFar    = "memcpy 1 MiB that another core has written"
)

// limits measures the limits once.
func (m *measurement) limits() {
	cpus := allowedCPUs()
	if len(cpus) < 2 {
		if m.res.Rounds == 0 {
			m.problem("there is only one core: the limits between cores are left out")
		}
		return
	}
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		m.problem("limits: %v", err)
		return
	}
	defer unix.Munmap(mem)
	add := func(name, unit string, size int, value float64) {
		m.res.add(point{limitsName, 2, size, unit}, name, value)
	}
	add(lineName, "ns", 64, lineNanos(mem, cpus[0], cpus[1], pauseNops))
	add(lineEager, "ns", 64, lineNanos(mem, cpus[0], cpus[1], 0))
	near, far := copyRates(cpus[0], cpus[1])
	add(copyName, "MB/s", copyBytes, near)
	add(copyFar, "MB/s", copyBytes, far)
}

// allowedCPUs returns the processors on which this process may run.
func allowedCPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// onTwoCPUs runs a and b at the same time, each on a core of its own.
func onTwoCPUs(cpuA, cpuB int, a, b func()) {
	var both sync.WaitGroup
	for cpu, f := range map[int]func(){cpuA: a, cpuB: b} {
		both.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			var set unix.CPUSet
			set.Set(cpu)
			_ = unix.SchedSetaffinity(0, &set) // without permission the scheduler decides
			f()
		})
	}
	both.Wait()
}

const (
	lineBursts, lineRounds = 50, 2000
	pauseNops              = 4
)

// lineNanos sends a number back and forth between two cores, each way through a cache line of its
// own. It returns the time of one way in the best burst. A reader that pauses for a few nanoseconds
// between polls may get the line sooner.
func lineNanos(mem []byte, cpuA, cpuB, pause int) float64 {
	clear(mem)
	to := (*uint64)(unsafe.Pointer(&mem[0]))
	fro := (*uint64)(unsafe.Pointer(&mem[2048]))
	const all = lineBursts * lineRounds
	best := time.Duration(1 << 62)
	onTwoCPUs(cpuA, cpuB, func() {
		for i := uint64(1); i <= all; {
			began := time.Now()
			for range lineRounds {
				publish(to, i)
				await(fro, i, pause)
				i++
			}
			best = min(best, time.Since(began))
		}
	}, func() {
		for i := uint64(1); i <= all; i++ {
			await(to, i, pause)
			publish(fro, i)
		}
	})
	return float64(best.Nanoseconds()) / lineRounds / 2
}

// publish is a plain store. A store of package sync/atomic would wait until the other core has seen
// it.
//
//go:noinline
func publish(line *uint64, n uint64) { *line = n }

func await(line *uint64, n uint64, pause int) {
	for polls := 0; atomic.LoadUint64(line) != n; polls++ {
		for range pause {
			nop()
		}
		if polls&0xffff == 0xffff {
			runtime.Gosched() // the writer may need this processor
		}
	}
}

//go:noinline
func nop() {}

const (
	copyBytes = 1 << 20
	copies    = 200
)

// copyRates returns how fast memory is copied, in MB/s, as the best of several copies: of memory in
// this core's cache, if it fits, and of memory that the other core has just written.
func copyRates(cpuA, cpuB int) (near, far float64) {
	from, to := make([]byte, copyBytes), make([]byte, copyBytes)
	var turn atomic.Int64 // odd: the other core writes; even: this core copies
	bestNear, bestFar := time.Duration(1<<62), time.Duration(1<<62)
	onTwoCPUs(cpuA, cpuB, func() {
		for range copies {
			began := time.Now()
			copy(to, from)
			bestNear = min(bestNear, time.Since(began))
		}
		for i := range int64(copies) {
			turn.Store(2*i + 1)
			waitFor(&turn, 2*i+2)
			began := time.Now()
			copy(to, from)
			bestFar = min(bestFar, time.Since(began))
		}
	}, func() {
		for i := range int64(copies) {
			waitFor(&turn, 2*i+1)
			for k := 0; k < len(from); k += 64 {
				from[k]++
			}
			turn.Store(2*i + 2)
		}
	})
	return copyBytes / bestNear.Seconds() / 1e6, copyBytes / bestFar.Seconds() / 1e6
}

func waitFor(turn *atomic.Int64, n int64) {
	for turn.Load() != n {
		runtime.Gosched()
	}
}

const channelRounds = 20_000

// channel measures the same with Go channels: half of the time of eight bytes to another goroutine
// and back.
func (m *measurement) channel(e experiment) {
	to, fro := make(chan uint64), make(chan uint64)
	go func() {
		for x := range to {
			fro <- x + 1
		}
	}()
	round := func(n int) time.Duration {
		began := time.Now()
		for i := range n {
			to <- uint64(i)
			<-fro
		}
		return time.Since(began)
	}
	round(channelRounds / 10)
	took := round(channelRounds)
	close(to)
	m.res.add(point{e.name, e.ranks, 8, "us"}, channel, took.Seconds()*1e6/channelRounds/2)
}
